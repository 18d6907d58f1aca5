"""Fingerprints: a keyed hash for whole columns, by which no two names are alike; looking up among many, and Bloom filters."""

import math
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.stores.objects import fingerprints
from retention_assets.stores.objects.fingerprints import Fingerprints, ReferredNames, SortedFingerprints, distinct, lookups
from retention_assets.stores.objects.matching import Bloom, BloomSize

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


LAST = 2**64 - 1


@pytest.mark.parametrize(
    "values",
    [
        [], [0], [LAST], [0, LAST], [5, 6, 7, 8, 9], [2**63, 2**63, 2**63 + 1], list(range(0, 1000, 3)),
        sorted(random.Random(1).getrandbits(64) for _ in range(5_000)),
        sorted([*range(300), *(random.Random(2).getrandbits(64) for _ in range(300))]),
    ],
)  # fmt: skip
def test_a_look_up_answers_as_a_set_does(values: list[int]) -> None:
    index = SortedFingerprints(np.array(values, dtype=np.uint64))
    near = {one + step for one in values for step in (-1, 0, 1)} | {0, 1, LAST, 2**63, random.Random(3).getrandbits(64)}
    wanted = np.array(sorted(one for one in near if 0 <= one <= LAST), dtype=np.uint64)
    there = set(values)
    assert index.has(wanted).tolist() == [one in there for one in wanted.tolist()]
    assert index.find(wanted).tolist() == [values.index(one) if one in there else -1 for one in wanted.tolist()]


def test_distinct_fingerprints_stand_in_order() -> None:
    for values in ([3, 1, 3, 2, 1], [], [0], [LAST, 0, 0, 0], [5, 5, 5, 5], [4, 3, 2, 1, 0], [1, 1, 2, 3, 3, 3, 4, 4]):
        assert distinct(np.array(values, dtype=np.uint64)).tolist() == sorted(set(values))


@pytest.mark.parametrize(
    ("expected", "fpp", "bits", "hashes"),
    # -n ln p / (ln 2)^2, and the multiple of 64 at or above it.
    [(100_000, 1e-5, 2_396_288, 17), (1, 0.5, 64, 1), (1_000, 0.01, 9_600, 7)],
)
def test_a_filter_has_the_bits_that_are_asked_for(expected: int, fpp: float, bits: int, hashes: int) -> None:
    size = BloomSize.of(expected, fpp)
    assert (size.bits, size.hashes) == (bits, hashes)
    assert 0 <= size.bits + expected * math.log(fpp) / math.log(2) ** 2 < 64
    assert size.rate(expected) == pytest.approx(fpp, rel=0.05) or expected == 1
    assert size.rate(0) == 0


def test_a_filter_finds_all_that_is_in_it_and_errs_at_its_rate() -> None:
    chance = np.random.default_rng(1)
    inside, outside = (chance.integers(0, LAST, count, dtype=np.uint64) for count in (20_000, 200_000))
    bloom = Bloom(BloomSize.of(20_000, 0.01))
    bloom.add(inside)
    before = bloom.bits.copy()
    bloom.add(inside[:500])
    assert np.array_equal(before, bloom.bits)
    assert bloom.has(inside).all()
    assert 0.008 < bloom.has(outside).mean() < 0.012
