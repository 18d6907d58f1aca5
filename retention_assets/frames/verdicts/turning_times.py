"""When time alone turns the answer of a line: the inverse of the bound that an age draws.

Belongs here: from times of transactions to the next instant at which a line begins, or ceases, to let each of them go. Exact to
the microsecond. A bound may also go back: the month before March has no 30th, so from the 29th to the 31st of March a month ago
is the last of February, each day from its first hour on anew, and a line that has let something go in the evening of the 29th
keeps it again in the morning of the 30th.
Does not belong here: what a line is (selectors.py), and what its turning comes to (reevaluate_at.py).
"""

from datetime import datetime
from functools import lru_cache

import numpy as np

from retention_assets.frames.arrays import Ints
from retention_assets.frames.verdicts.selectors import FOREVER, TimeBound
from retention_assets.policy.durations import LONGEST_YEARS, Duration, micros

_DAY = 86_400_000_000
_FIRST_YEAR, _LAST_YEAR = 1, 9999


def begins_to_hold(turn: TimeBound, rows: Ints, as_of: datetime) -> Ints:
    """For rows that the line keeps now: the first later instant at which it does not; FOREVER if there is none."""
    needed = _needed(turn, rows)
    found = needed
    if turn.age.months:
        starts = _months()
        month, into = _split(needed)
        there = month + turn.age.months
        # A month without that day is followed by one that is late enough altogether.
        found = np.minimum(starts[there] + into, starts[there + 1])
        today = _today(as_of)
        # It was open before and is not now: the bound has gone back this morning, and comes by again today.
        found = np.where(found <= micros(as_of), today + into % _DAY, found)
    return np.where(found > _LAST, FOREVER, found)


def ceases_to_hold(turn: TimeBound, rows: Ints, as_of: datetime) -> Ints:
    """For rows that the line lets go now: the first later instant at which it keeps them again; FOREVER if there is none."""
    if not turn.age.months:
        return np.full(len(rows), FOREVER)
    starts = _months()
    month, into = _split(_needed(turn, rows))
    there = month + turn.age.months
    length = starts[month + 1] - starts[month]
    # Only the last day of a month stands for several days of a longer one, and at midnight it does not go back on any of them.
    again = np.maximum(starts[there] + length, _today(as_of) + _DAY)
    several = (into >= length - _DAY) & (into % _DAY > 0) & (again < starts[there + 1])
    return np.where(several & (again <= _LAST), again, FOREVER)


def _needed(turn: TimeBound, rows: Ints) -> Ints:
    """What `as_of`, moved back by the months of the age, has to reach for the line to let go."""
    time = np.clip(turn.time[rows], _FIRST, _LAST + 1)
    begin = (time // _DAY + 1) * _DAY if turn.align == "day" else time + 1
    needed: Ints = begin + _exact(turn.age)
    return np.where(time > _LAST, _LAST + 1, np.minimum(needed, _LAST + 1))


def _exact(age: Duration) -> int:
    return age.days * _DAY + age.seconds * 1_000_000


def _split(instants: Ints) -> tuple[Ints, Ints]:
    """The place of each instant's month among the months, and how far into it the instant is."""
    starts = _months()
    low, high = np.searchsorted(starts, [instants.min(initial=_LAST), instants.max(initial=_FIRST)], side="right")
    first = max(int(low) - 1, 0)
    month = first + np.searchsorted(starts[first : int(high) + 1], instants, side="right") - 1
    return month, instants - starts[month]


@lru_cache(maxsize=1)
def _months() -> Ints:
    """The first instant of every month that a bound or its inverse can fall into."""
    begin, end = f"{_FIRST_YEAR:04d}-01", f"{_LAST_YEAR + LONGEST_YEARS + 2}-01"
    months = np.arange(np.datetime64(begin, "M"), np.datetime64(end, "M"))
    return months.astype("datetime64[us]").astype(np.int64)


def _today(as_of: datetime) -> int:
    return micros(as_of) // _DAY * _DAY


_FIRST = int(np.datetime64(f"{_FIRST_YEAR:04d}-01-01", "us").astype(np.int64))
_LAST = int(np.datetime64(f"{_LAST_YEAR}-12-31T23:59:59.999999", "us").astype(np.int64))
