"""Limits of a policy: find the datasets of which it could newly mark more than they allow."""

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


def _most(limits: Limits, history: History) -> Ints | None:
    """How many transactions of each dataset are within the limits."""
    most = None if limits.transactions is None else np.full(len(history.starts), limits.transactions, dtype=np.int64)
    if limits.fraction is not None:
        # Exact: 0.29 of 100 is 29, which no float product of the two is.
        share = Fraction(str(limits.fraction)).limit_denominator(10**9)
        part = share.numerator * history.sizes // share.denominator
        most = part if most is None else np.minimum(most, part)
    return most


def _halves(history: History, may: Bools) -> tuple[Ints, Ints]:
    """Bytes in two halves: a sum that overflows would pass for a small one."""
    size = np.where(may, history.column(integers(history.log["bytes"], 0)), 0)
    return size >> 32, size & _LOW


def _above(high: Ints, low: Ints, limit: int) -> Bools:
    high, low = high + (low >> 32), low & _LOW
    above: Bools = (high > limit >> 32) | ((high == limit >> 32) & (low > (limit & _LOW)))
    return above
