"""Membership: which of many fingerprints are among those of the references.

Belongs here: looking up, in memory, at once for whole columns, and putting fingerprints in order for it.
Does not belong here: Bloom filters (bloom.py), and what a key is looked up as (lookups.py).
"""

import numpy as np

from retention_assets.frames.arrays import Bools, Ints
from retention_assets.stores.objects.scan.fingerprints import Hashes

# Of so many values at a time the places in the index are worked out.
_BLOCK = 1 << 16


def distinct(values: Hashes) -> Hashes:
    """Each of some fingerprints once, in order: the first of those that are given, which are sorted and moved in place."""
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
    """Fingerprints in order, of a range that they fill evenly, with an index by their leading bits.

    A look-up costs two reads and some more where neighbours share those bits, however many there are.
    """

    def __init__(self, values: Hashes) -> None:
        self._values = values
        self._low = values[0] if len(values) else np.uint64(0)
        span = int(values[-1]) - int(self._low) if len(values) else 0
        # About one value for each place of the index.
        self._shift = np.uint64(max(0, span.bit_length() - max(1, len(values).bit_length() - 1)))
        places = (span >> int(self._shift)) + 1
        # Where the values of each place begin: behind the last one of the place before.
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
        """All of them, in order; one may stand there more than once."""
        return self._values

    def find(self, wanted: Hashes) -> Ints:
        """Where each of some fingerprints stands first; -1 where it does not."""
        if not len(self._values):
            return np.full(len(wanted), -1, dtype=np.int64)
        # What is below or above all of them comes to the end of the index, where nothing is found.
        slot = ((wanted - self._low) >> self._shift).astype(np.int64)
        at = self._begins.take(slot, mode="clip").astype(np.int64)
        slot += 1
        end = self._begins.take(slot, mode="clip")
        value = self._values.take(at, mode="clip")
        # A place without values begins where the next one does, and is no place to find anything.
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
        """Whether each of some fingerprints is there."""
        there: Bools = self.find(wanted) >= 0
        return there
