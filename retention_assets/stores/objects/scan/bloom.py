"""A Bloom filter of fingerprints. Bits depend on the scan's salt, so no object is kept by a false positive in every scan."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from retention_assets.frames.arrays import Bools
from retention_assets.stores.objects.scan.fingerprints import Hashes
from retention_assets.stores.objects.scan.folder import ScanFolder

_FILE = "retained/bloom"
_WORD = 64
_BLOCK = 1 << 18


@dataclass(frozen=True)
class BloomSize:
    bits: int
    hashes: int

    @classmethod
    def of(cls, expected: int, fpp: float) -> "BloomSize":
        """Smallest size for this many elements at a rate of false positives, in words of 64 bits."""
        exact = -expected * math.log(fpp) / math.log(2) ** 2
        return cls(-(-math.ceil(exact) // _WORD) * _WORD, max(1, round(exact / expected * math.log(2))))

    def rate(self, elements: int) -> float:
        """Rate of false positives with this many distinct elements."""
        return float(-math.expm1(-self.hashes * elements / self.bits)) ** self.hashes


class Bloom:
    def __init__(self, size: BloomSize, bits: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None) -> None:
        self.size = size
        self.bits = np.zeros(size.bits // 8, dtype=np.uint8) if bits is None else bits

    def add(self, values: Hashes) -> None:
        for places in self._places(values):
            inside = places & np.uint64(7)
            at = (places >> np.uint64(3)).astype(np.int64)
            for bit in range(8):
                # Duplicate places within a byte are safe, as all set the same bit.
                mine = at[inside == bit]
                self.bits[mine] |= np.uint8(1 << bit)

    def has(self, values: Hashes) -> Bools:
        """Mask of values that may be elements. There are no false negatives."""
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
        step = values ^ (values >> np.uint64(30))
        step = step * np.uint64(0xBF58476D1CE4E5B9)
        step ^= step >> np.uint64(27)
        step *= np.uint64(0x94D049BB133111EB)
        step ^= step >> np.uint64(31)
        return values, step | np.uint64(1)

    def _place(self, first: Hashes, step: Hashes, number: int) -> Hashes:
        place: Hashes = (first + step * np.uint64(number)) % np.uint64(self.size.bits)
        return place


@dataclass(frozen=True)
class FillBloom:
    """Single task that writes a filter of all fingerprints in some files."""

    size: BloomSize
    names: Sequence[str]
    folder: ScanFolder

    def __call__(self, _: int) -> None:
        bloom = Bloom(self.size)
        for name in self.names:
            bloom.add(self.folder.read_values(name).values)
        self.folder.write_bytes(_FILE, bloom.bits)


def read_bloom(folder: ScanFolder, size: BloomSize) -> Bloom:
    return Bloom(size, np.frombuffer(folder.read_bytes(_FILE), dtype=np.uint8))
