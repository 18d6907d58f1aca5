"""Filters of fingerprints: sorted ones, which are exact, and Bloom filters. The bits of a Bloom filter depend on the salt of
the scan, so no object is kept by a false positive in every scan."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from retention_assets.frames.arrays import Bools, Ints
from retention_assets.stores.objects.scan.fingerprints import Hashes
from retention_assets.stores.objects.scan.folder import ScanFolder

# values indexed at a time, and looked up in a Bloom filter at a time, to bound memory
_BLOCK, _PART = 1 << 16, 1 << 18
_FILE = "retained/bloom"
_WORD = 64


Number = TypeVar("Number", np.int64, np.uint64)


class Filter(Protocol):
    def has(self, wanted: Hashes) -> Bools:
        """Mask of the fingerprints that are, or may be, in the filter. No element is missed."""


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Sort in place and return the distinct values. np.unique() hashes them first, which takes several times as long."""
    values.sort()
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values if first.all() else values[first]


class SortedFingerprints:
    """Sorted, evenly distributed fingerprints with an index by their leading bits. A lookup costs about two reads, whatever
    their number."""

    def __init__(self, values: Hashes) -> None:
        self._values = values
        self._low = values[0] if len(values) else np.uint64(0)
        span = int(values[-1]) - int(self._low) if len(values) else 0
        # about one value per slot
        self._shift = np.uint64(max(0, span.bit_length() - max(1, len(values).bit_length() - 1)))
        places = (span >> int(self._shift)) + 1
        # A slot begins after the last value of the slot before.
        ends = np.zeros(places + 1, dtype=np.int32)
        for begin in range(0, len(values), _BLOCK):
            part = values[begin : begin + _BLOCK]
            ends[((part - self._low) >> self._shift).astype(np.int64) + 1] = np.arange(
                begin + 1, begin + len(part) + 1, dtype=np.int32
            )
        self._begins = np.maximum.accumulate(ends, out=ends)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> Hashes:
        """Sorted values, possibly repeated."""
        return self._values

    def find(self, wanted: Hashes) -> Ints:
        """Index of the first occurrence of each fingerprint; -1 if absent."""
        if not len(self._values):
            return np.full(len(wanted), -1, dtype=np.int64)
        # Values out of range clip to the end of the index, where nothing is found.
        slot = ((wanted - self._low) >> self._shift).astype(np.int64)
        at = self._begins.take(slot, mode="clip").astype(np.int64)
        slot += 1
        end = self._begins.take(slot, mode="clip")
        value = self._values.take(at, mode="clip")
        # An empty slot begins where the next one does, so it contains nothing.
        found = np.where((value == wanted) & (at < end), at, -1)
        waiting = np.flatnonzero((value < wanted) & (at + 1 < end))
        at, end, wanted = at[waiting], end[waiting], wanted[waiting]
        while len(waiting):
            at += 1
            value = self._values.take(at)
            same = value == wanted
            found[waiting[same]] = at[same]
            more = (value < wanted) & (at + 1 < end)
            waiting, at, end, wanted = waiting[more], at[more], end[more], wanted[more]
        return found

    def has(self, wanted: Hashes) -> Bools:
        there: Bools = self.find(wanted) >= 0
        return there


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

    def has(self, wanted: Hashes) -> Bools:
        """Mask of wanted that may be elements. There are no false negatives."""
        found = np.ones(len(wanted), dtype=bool)
        for begin in range(0, len(wanted), _PART):
            left = np.arange(begin, min(begin + _PART, len(wanted)))
            first, step = self._seeds(wanted[left])
            for number in range(self.size.hashes):
                places = self._place(first, step, number)
                held = self.bits.take((places >> np.uint64(3)).astype(np.int64))
                keep = (held >> (places & np.uint64(7)).astype(np.uint8)) & 1 == 1
                found[left[~keep]] = False
                left, first, step = left[keep], first[keep], step[keep]
        return found

    def _places(self, values: Hashes) -> Iterator[Hashes]:
        for begin in range(0, len(values), _PART):
            first, step = self._seeds(values[begin : begin + _PART])
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
