"""Time of the next evaluation of a dataset: the first coming instant at which time alone could change a verdict.

A line of a policy lets a row go, or keeps it again; a hold or a tag ends; a branch or tag is over that a policy drops.
Limits count what these ways select. Nothing else depends on time.

It is a bound: never late, and early wherever a row that turns changes no verdict, which costs one evaluation that finds
nothing new. What is past never counts, so that after an evaluation at the bound the next one is later.

The bound that an age draws may go back: the month before March has no 30th, so from the 29th to the 31st of March a month
ago is the last of February, each day from its first hour on anew, and a line that has let something go in the evening of
the 29th keeps it again in the morning of the 30th.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Ints, as_micros, from_micros, join_chunks
from retention_assets.frames.log import INSTANT
from retention_assets.frames.verdicts.selectors import FOREVER, SelectorLine, cut_off
from retention_assets.frames.views.history import History
from retention_assets.policy.durations import Duration, micros
from retention_assets.policy.model import Hold

_DAY = 86_400_000_000
# The last instant that a timestamp can be.
_LAST = int(np.datetime64("9999-12-31T23:59:59.999999", "us").astype(np.int64))

# `next_look` is null where time changes nothing. `again`: what this evaluation marks counts towards limits no more, and
# one of them was reached, so that the same question has another answer once the marks are made.
NEXT_LOOKS = pa.schema([pa.field("dataset", pa.string()), pa.field("next_look", INSTANT), pa.field("again", pa.bool_())])


class NextTurns:
    """For each dataset of a history the first instant after `as_of` at which time could change a verdict."""

    def __init__(self, history: History, as_of: datetime) -> None:
        self.history, self.as_of = history, as_of
        self.least = np.full(len(history.starts), FOREVER)

    def add_line(self, line: SelectorLine) -> None:
        """The rows that a line of a policy keeps until they are old enough, and keeps again where its bound goes back."""
        if line.turn is None:
            return
        time, age, align = line.turn
        # The older of two rows is let go first.
        kept = np.minimum.reduceat(np.where(line.refused, time, FOREVER), self.history.starts)
        self._add(lets_go_at(kept, age, align, self.as_of))
        midnight = self.as_of.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        goes_back = (time < cut_off(self.as_of, age, align)) & (time >= cut_off(midnight, age, align))
        if goes_back.any():
            self._add(np.where(np.logical_or.reduceat(goes_back, self.history.starts), micros(midnight), FOREVER))

    def add_ends(self, holds: Sequence[Hold], held: Bools, ref_ends: Ints | None) -> None:
        """The ends of live holds (`held` is datasets x holds), of tags, and of refs that a policy drops then."""
        for number, hold in enumerate(holds):
            if hold.until is not None:
                self._add(np.where(held[:, number], micros(hold.until), FOREVER))
        ends = as_micros(pc.list_flatten(join_chunks(self.history.log["tag_expiries"])))
        live = ends[(ends == NEVER) | (ends > micros(self.as_of))]
        np.minimum.at(self.least, self.history.tags.dataset, np.where(live == NEVER, FOREVER, live))
        if ref_ends is not None:
            self._add(ref_ends)

    def table(self, again: Bools) -> pa.Table:
        """The next look at each dataset, in the order of the log."""
        least = np.where(self.least == FOREVER, NEVER, self.least)
        return pa.table([self.history.names, from_micros(least), again], schema=NEXT_LOOKS)

    def _add(self, instants: Ints) -> None:
        np.minimum(self.least, instants, out=self.least)


def lets_go_at(time: Ints, age: Duration, align: str | None, as_of: datetime) -> Ints:
    """For times that are not old enough yet: the first later instant at which they are; FOREVER if there is none."""
    time = np.minimum(time, _LAST)
    # What `as_of`, moved back by the months of the age, has to reach.
    needed = (time // _DAY + 1) * _DAY if align == "day" else time + 1
    needed += age.days * _DAY + age.seconds * 1_000_000
    found = needed
    if age.months:
        month = needed.astype("M8[us]").astype("M8[M]")
        begin, end = _first_of(month + age.months), _first_of(month + age.months + 1)
        # A month without that day is followed by one that is late enough altogether.
        found = np.minimum(begin + needed - _first_of(month), end)
        # It was old enough before and is not now: the bound has gone back this morning, and comes by again today.
        today = micros(as_of) // _DAY * _DAY
        found = np.where(found <= micros(as_of), today + needed % _DAY, found)
    return np.where(found > _LAST, FOREVER, found)


def _first_of(month: np.ndarray) -> Ints:
    first: Ints = month.astype("M8[us]").astype(np.int64)
    return first
