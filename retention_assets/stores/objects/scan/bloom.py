"""A Bloom filter of fingerprints, sized as it is asked for.

Belongs here: its size, its bits and the rate at which it errs. Which bits a fingerprint has follows from the fingerprint, and
so from the salt of the scan: no object is kept by mistake in every scan.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from retention_assets.frames.arrays import Bools
from retention_assets.stores.objects.scan.fingerprints import Hashes

_WORD = 64
_BLOCK = 1 << 18


@dataclass(frozen=True)
class BloomSize:
    """How many bits a filter has, and how many of them each element sets."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, expected: int, fpp: float) -> "BloomSize":
        """The smallest for so many elements at that rate of errors, in whole words of 64 bits."""
        exact = -expected * math.log(fpp) / math.log(2) ** 2
        return cls(-(-math.ceil(exact) // _WORD) * _WORD, max(1, round(exact / expected * math.log(2))))

    def rate(self, elements: int) -> float:
        """The rate of errors with so many distinct elements: what is added twice changes nothing."""
        return float(-math.expm1(-self.hashes * elements / self.bits)) ** self.hashes


class Bloom:
    """The bits."""

    def __init__(self, size: BloomSize, bits: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None) -> None:
        self.size = size
        self.bits = np.zeros(size.bits // 8, dtype=np.uint8) if bits is None else bits

    def add(self, values: Hashes) -> None:
        """Add elements."""
        for places in self._places(values):
            inside = places & np.uint64(7)
            at = (places >> np.uint64(3)).astype(np.int64)
            for bit in range(8):
                # Several that set the same bit of a byte agree about the byte.
                mine = at[inside == bit]
                self.bits[mine] |= np.uint8(1 << bit)

    def has(self, values: Hashes) -> Bools:
        """Whether each may be among the elements. One that is there is always found."""
        found = np.ones(len(values), dtype=bool)
        for begin in range(0, len(values), _BLOCK):
            left = np.arange(begin, min(begin + _BLOCK, len(values)))
            first, step = self._seeds(values[left])
            for number in range(self.size.hashes):
                places = self._place(first, step, number)
                held = self.bits.take((places >> np.uint64(3)).astype(np.int64))
                keep = (held >> (places & np.uint64(7)).astype(np.uint8)) & 1 == 1
                found[left[~keep]] = False
                left, first, step = left[keep], first[keep], step[keep]
        return found

    def _places(self, values: Hashes) -> Iterator[Hashes]:
        for begin in range(0, len(values), _BLOCK):
            first, step = self._seeds(values[begin : begin + _BLOCK])
            for number in range(self.size.hashes):
                yield self._place(first, step, number)

    def _seeds(self, values: Hashes) -> tuple[Hashes, Hashes]:
        """Two numbers of each element, from which all of its bits follow."""
        step = values ^ (values >> np.uint64(30))
        step = step * np.uint64(0xBF58476D1CE4E5B9)
        step ^= step >> np.uint64(27)
        step *= np.uint64(0x94D049BB133111EB)
        step ^= step >> np.uint64(31)
        return values, step | np.uint64(1)

    def _place(self, first: Hashes, step: Hashes, number: int) -> Hashes:
        place: Hashes = (first + step * np.uint64(number)) % np.uint64(self.size.bits)
        return place
