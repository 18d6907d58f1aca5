"""Fingerprints: a keyed hash for whole columns, by which no two names are alike."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.stores.objects import fingerprints
from retention_assets.stores.objects.fingerprints import Fingerprints, ReferredNames, lookups

SALT = bytes(range(240, 256))


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
    assert own.of(column).tolist() == [own.of(pa.array([key])).item() for key in keys]
    assert own.of(column.cast(pa.large_string())).tolist() == own.of(column).tolist()
    assert own.of(column, names.dictionary_encode()).tolist() == own.of(column, names).tolist()
    each = [
        own.of(pa.array([key]), pa.array([realm], pa.string()), np.array([folder])).item()
        for key, realm, folder in zip(keys, realms, folders, strict=True)
    ]
    assert own.of(column, names, folders).tolist() == each
    assert len(set(each)) == len(set(zip(keys, realms, folders.tolist(), strict=True)))


def test_fingerprints_fill_their_range_evenly() -> None:
    values = Fingerprints(SALT).of(pa.array([f"warehouse/sales/part-{number:06d}.parquet" for number in range(50_000)]))
    shares = np.bincount((values >> np.uint64(56)).astype(int), minlength=256)
    assert len(set(values.tolist())) == 50_000
    assert 120 < shares.min() <= shares.max() < 280


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
    [
        (0, ["/", "/", "/", "/", "/", "/"]),
        (1, ["a/", None, "a/", None, "/", "\n/"]),
        (2, ["a/b/", None, None, None, None, None]),
        (3, [None] * 6),
    ],
)
def test_a_key_is_looked_up_by_its_folders(depth: int, answer: list[str | None]) -> None:
    keys, own = pa.array(["-", "a/b/c", "ab", "a/", "", "/x", "\n/b"]).slice(1), Fingerprints(SALT)
    ways = list(lookups(own, keys, None, ReferredNames({None}, {depth})))[1:]
    wanted = pa.array(answer)
    names = wanted.drop_null().to_pylist()
    assert [way.names.to_pylist() for way in ways] == ([names] if names else [])
    for way in ways:
        assert way.rows is not None
        assert way.rows.tolist() == pc.indices_nonzero(pc.is_valid(wanted)).to_pylist()
        assert way.hashes.tolist() == own.of(way.names, None, np.ones(len(way.names), dtype=bool)).tolist()
