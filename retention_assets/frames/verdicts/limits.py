"""Limits of a policy: whether a dataset is over them, and when it would be.

Belongs here: counting what a policy alone could newly mark of each dataset, now and as time adds to it.
Does not belong here: which transactions those are (candidate_marks.py, reevaluate_at.py), and what follows (decisions.py).
"""

from fractions import Fraction

import numpy as np

from retention_assets.frames.arrays import Bools, Ints, integers
from retention_assets.frames.views.history import History
from retention_assets.policy.model import Limits

_LOW = 0xFFFFFFFF


def over_limit(limits: Limits, history: History, may: Bools) -> Bools:
    """Datasets in which more may be taken than the limits let; `may` are the rows that count."""
    found = np.zeros(len(history.starts), dtype=bool)
    if (most := _most(limits, history)) is not None:
        found |= np.add.reduceat(may.astype(np.int64), history.starts) > most
    if limits.bytes is not None:
        high, low = (np.add.reduceat(part, history.starts) for part in _halves(history, may))
        found |= _above(high, low, limits.bytes)
    return found


def limit_crossings(limits: Limits, history: History, may: Bools, rows: Ints, instants: Ints) -> tuple[Ints, Ints]:
    """Of rows that come to count at some instants: those with which, or after which, a limit is passed, and when."""
    of = np.searchsorted(history.starts, rows, side="right") - 1
    order = np.lexsort((instants, of))
    rows, instants, of = rows[order], instants[order], of[order]
    begins = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else of
    sizes = np.diff(np.append(begins, len(of)))
    passed = np.zeros(len(rows), dtype=bool)
    if (most := _most(limits, history)) is not None:
        counted = np.add.reduceat(may.astype(np.int64), history.starts)
        rank = np.arange(1, len(rows) + 1) - np.repeat(begins, sizes)
        passed |= counted[of] + rank > most[of]
    if limits.bytes is not None:
        own = np.zeros(len(history), dtype=bool)
        own[rows] = True
        sums = []
        for now, part in zip(_halves(history, may), _halves(history, own), strict=True):
            so_far = np.cumsum(part[rows])
            before = np.repeat(so_far[begins] - part[rows][begins], sizes)
            sums.append(np.add.reduceat(now, history.starts)[of] + so_far - before)
        high, low = sums
        passed |= _above(high, low, limits.bytes)
    return rows[passed], instants[passed]


def _most(limits: Limits, history: History) -> Ints | None:
    """How many transactions of each dataset are within the limits."""
    most = None if limits.transactions is None else np.full(len(history.starts), limits.transactions, dtype=np.int64)
    if limits.fraction is not None:
        # As it was written: 0.29 of 100 is 29, which no float product of the two is.
        share = Fraction(str(limits.fraction)).limit_denominator(10**9)
        part = share.numerator * history.sizes // share.denominator
        most = part if most is None else np.minimum(most, part)
    return most


def _halves(history: History, may: Bools) -> tuple[Ints, Ints]:
    """Bytes in two halves: a sum that wrapped around would pass for a small one."""
    size = np.where(may, history.column(integers(history.log["bytes"], 0)), 0)
    return size >> 32, size & _LOW


def _above(high: Ints, low: Ints, limit: int) -> Bools:
    high, low = high + (low >> 32), low & _LOW
    above: Bools = (high > limit >> 32) | ((high == limit >> 32) & (low > (limit & _LOW)))
    return above
