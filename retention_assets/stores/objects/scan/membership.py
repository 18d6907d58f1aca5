"""Membership of fingerprints in a sorted array, for whole columns in memory."""

import numpy as np

from retention_assets.frames.arrays import Bools, Ints
from retention_assets.stores.objects.scan.fingerprints import Hashes

# values indexed at a time, to bound memory
_BLOCK = 1 << 16


def distinct(values: Hashes) -> Hashes:
    """Sort in place and return the distinct values, a prefix of the same array."""
    values.sort()
    end, last = 0, None
    for begin in range(0, len(values), _BLOCK):
        part = values[begin : begin + _BLOCK]
        first = np.empty(len(part), dtype=bool)
        first[0] = part[0] != last
        np.not_equal(part[1:], part[:-1], out=first[1:])
        last = part[-1]
        if begin == end and first.all():
            end += len(part)
            continue
        some = part[first]
        values[end : end + len(some)] = some
        end += len(some)
    return values[:end]


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
