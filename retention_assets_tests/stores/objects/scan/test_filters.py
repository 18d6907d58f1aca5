"""Looking up among many fingerprints, and Bloom filters.

Belongs here: answers that equal those of a set, and the sizes and rates of filters.
"""

import math
import random

import numpy as np
import pytest

from retention_assets.stores.objects.fingerprints import SortedFingerprints, distinct
from retention_assets.stores.objects.judge import Bloom, BloomSize

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
