"""Fingerprints: SipHash-1-3 for whole columns equals SipHash written down plainly, and no two names have one text.

Belongs here: the hash, and what tells realms, folders and keys apart.
"""

import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.stores.objects.scan import fingerprints
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, beginnings, folder_ends

SALT = bytes(range(16))
# As published with SipHash-2-4: the key is 00 to 0f, the texts are nothing, 00, 00 01, …
PUBLISHED = {0: 0x726FDB47DD0E0E31, 1: 0x74F839C593DC67FD, 7: 0xAB0200F58B01D137, 8: 0x93F5F5799A932462, 15: 0xA129CA6149BE45E5}
_MASK = (1 << 64) - 1


def siphash(salt: bytes, text: bytes, rounds: int = 1, last: int = 3) -> int:
    """The algorithm, as its authors describe it."""
    first, second = int.from_bytes(salt[:8], "little"), int.from_bytes(salt[8:], "little")
    v = [first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D, first ^ 0x6C7967656E657261, second ^ 0x7465646279746573]
    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _rounds(v, rounds)
        v[0] ^= word
    v[2] ^= 255
    _rounds(v, last)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        for a, b, turn, half in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            v[a] = (v[a] + v[b]) & _MASK
            v[b] = ((v[b] << turn) | (v[b] >> (64 - turn))) & _MASK
            v[b] ^= v[a]
            if half:
                v[a] = ((v[a] << 32) | (v[a] >> 32)) & _MASK


def text_of(realm: str | None, key: str, folder: bool = False) -> bytes:
    """What is hashed of a name."""
    said = b"" if realm is None else realm.encode()
    length = (0 if realm is None else len(said) + 1) | (folder << 63)
    return length.to_bytes(8, "little") + said + bytes(-len(said) % 8) + key.encode()


@pytest.mark.parametrize(("length", "answer"), PUBLISHED.items())
def test_the_plain_siphash_is_the_published_one(length: int, answer: int) -> None:
    assert siphash(SALT, bytes(range(length)), 2, 4) == answer


def test_the_plain_siphash_is_that_of_python() -> None:
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip("this Python hashes otherwise")
    words = ["a", "ab", "warehouse/sales/part-000017.parquet", "x" * 300]
    code = f"print([hash(word.encode()) & {_MASK} for word in {words!r}])"
    said = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "0"}, capture_output=True, check=True, text=True)
    assert said.stdout.strip() == str([siphash(bytes(16), word.encode()) for word in words])


@pytest.mark.parametrize("count", [0, 1, 7, 3_000])
@pytest.mark.parametrize("beginning", ["", "warehouse/sales/2026/"])
def test_a_column_is_hashed_as_each_of_its_keys(count: int, beginning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_BLOCK", 512)
    chance = random.Random(count)
    keys = [beginning + "".join(chance.choice("abcä/") for _ in range(chance.randrange(70))) for _ in range(count)]
    realms = [chance.choice((None, "", "a", "acme/eu", "x" * 9)) for _ in range(count)]
    folders = np.array([chance.random() < 0.5 for _ in range(count)], dtype=bool)
    column = pa.array(["before", *keys, "behind"]).slice(1, count)
    own = Fingerprints(SALT)
    names = pa.array(realms, pa.string())
    assert own.of(column).tolist() == [siphash(SALT, text_of(None, key)) for key in keys]
    assert own.of(column.cast(pa.large_string())).tolist() == own.of(column).tolist()
    pairs = list(zip(realms, keys, folders.tolist(), strict=True))
    assert own.of(column, names).tolist() == [siphash(SALT, text_of(realm, key)) for realm, key, _ in pairs]
    assert own.of(column, names.dictionary_encode()).tolist() == own.of(column, names).tolist()
    assert own.of(column, names, folders=folders).tolist() == [siphash(SALT, text_of(*one)) for one in pairs]


def test_no_two_names_have_one_text() -> None:
    names = [(None, "abc"), ("", "abc"), ("a", "bc"), ("ab", "c"), ("abc", ""), (None, "\0abc"), ("a\0", "bc"), ("abc", "\0")]
    keys, realms = pa.array([key for _, key in names]), pa.array([realm for realm, _ in names], pa.string())
    found = [
        *Fingerprints(SALT).of(keys, realms),
        *Fingerprints(SALT).of(keys, realms, folders=np.ones(len(names), dtype=bool)),
    ]
    assert len(set(found)) == 2 * len(names)


def test_another_salt_gives_other_fingerprints() -> None:
    keys = pa.array(["a", "b"])
    assert not set(Fingerprints(SALT).of(keys)) & set(Fingerprints(SALT[::-1]).of(keys))


def test_a_key_that_is_missing_has_none() -> None:
    with pytest.raises(ValueError, match="a key is missing"):
        Fingerprints(SALT).of(pa.array(["a", None]))


@pytest.mark.parametrize(
    ("depth", "answer"),
    [(1, ["a/", "", "a/", "", "/", "ä/"]), (2, ["a/b/", "", "", "", "", ""]), (3, ["", "", "", "", "", ""])],
)
def test_the_folders_of_a_key(depth: int, answer: list[str]) -> None:
    keys = pa.array(["-", "a/b/c", "ab", "a/", "", "/x", "ä/b"]).slice(1)
    ends = folder_ends(keys, depth)
    assert beginnings(keys, ends).to_pylist() == answer
    own = Fingerprints(SALT)
    assert own.of(keys, None, ends).tolist() == own.of(pa.array(answer)).tolist()
