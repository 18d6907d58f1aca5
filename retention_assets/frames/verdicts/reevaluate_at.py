"""When to evaluate a dataset again: the instant at which time alone changes a verdict, or which policy has the credit.

Belongs here: every way in which a verdict depends on time. A policy begins to select a transaction, or ceases to; a tag or a
hold that spares it ends, or a branch or tag is over that a policy drops; what a policy may take grows, and its limits count
that. Nothing else in a verdict knows the time.

Each way is an instant per row, asked only where `decide` says that it would change anything, and the least of them is the
answer. It is never late. It may be early, which costs one evaluation that finds nothing new, in three places: where what
begins at an instant passes a limit of its policy at the same instant, so that the one undoes the other; at ends of months,
where a transaction waits for several windows and one of them goes back, or a policy comes back below a limit; and where a
branch or tag is over that a policy drops, whatever it holds.

The inverse of the bound that an age draws is exact to the microsecond. A bound may go back: the month before March has no
30th, so from the 29th to the 31st of March a month ago is the last of February, each day from its first hour on anew, and a
line that has let something go in the evening of the 29th keeps it again in the morning of the 30th.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Counts, Ints, Small, as_micros, from_micros, join_chunks
from retention_assets.frames.log import INSTANT
from retention_assets.frames.verdicts.decisions import Decision, Facts, decide
from retention_assets.frames.verdicts.limits import limit_crossings
from retention_assets.frames.verdicts.selectors import FOREVER, SelectorLine, TimeBound
from retention_assets.frames.views.history import History
from retention_assets.policy.durations import LONGEST_YEARS, Duration, micros
from retention_assets.policy.globs import matching
from retention_assets.policy.model import Hold, Policy

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


# `next_look` is null where time changes nothing. `again`: what this evaluation marks counts towards limits no more, and
# one of them was reached, so that the same question has another answer once the marks are made.
NEXT_LOOKS = pa.schema([pa.field("dataset", pa.string()), pa.field("next_look", INSTANT), pa.field("again", pa.bool_())])

Note = Callable[[Ints, Ints], None]
T = TypeVar("T")

_SELECTED = 0
# Any line: which one keeps a row from being selected changes no verdict.
_UNMET = 1


@dataclass
class TimeWatch:
    """The lines of one policy, as far as they know the time."""

    # Refused at any time.
    fixed: Bools | None = None
    turning: list[SelectorLine] = field(default_factory=list)

    def __call__(self, line: SelectorLine) -> None:
        """Take a line in."""
        if line.turn is not None:
            self.turning.append(line)
        else:
            self.fixed = line.refused if self.fixed is None else self.fixed | line.refused

    def selected_at(self, rows: Ints, as_of: datetime) -> Ints:
        """For rows that only time keeps from being selected: when it may be over. All lines have to let go."""
        found = np.full(len(rows), int(NEVER))
        for line in self.turning:
            mine = line.refused[rows]
            assert line.turn is not None
            found[mine] = np.maximum(found[mine], begins_to_hold(line.turn, rows[mine], as_of))
        return found

    def left_at(self, rows: Ints, as_of: datetime) -> Ints:
        """For rows that are selected: when the first line keeps them again."""
        found = np.full(len(rows), FOREVER)
        for line in self.turning:
            assert line.turn is not None
            if line.turn.age.months:
                mine = np.ones(len(rows), dtype=bool) if line.asked is None else line.asked[rows]
                found[mine] = np.minimum(found[mine], ceases_to_hold(line.turn, rows[mine], as_of))
        return found


@dataclass(frozen=True)
class JudgedRows:
    """What was found of datasets that the same policies are about; columns are in chain order."""

    history: History
    as_of: datetime
    policies: Sequence[Policy]
    lines: Sequence[Small]
    watches: Sequence[TimeWatch]
    # Live holds, and which datasets each is about.
    holds: Sequence[Hold]
    held: Bools
    facts: Sequence[Facts]
    decisions: Sequence[Decision]
    combination: Counts
    # Datasets x policies: over its limits; and per limited policy the rows that can count towards them.
    over: Bools
    countable: Sequence[Bools | None]
    # As each policy sees them: rows that no tag and no hold spares; and rows that a tag pins.
    free: Sequence[Bools]
    pinned: Sequence[Bools]
    # For each dataset when the next of its refs is over, where a policy would drop it.
    ref_ends: Ints | None = None


def reevaluation_times(judged: JudgedRows) -> pa.Table:
    """The next look at each dataset, in the order of the log."""
    history = judged.history
    least = np.full(len(history.starts), FOREVER)

    def note(rows: Ints, instants: Ints) -> None:
        np.minimum.at(least, _datasets(history, rows), instants)

    ends = _tag_ends(history, micros(judged.as_of))
    for number, watch in enumerate(judged.watches):
        if watch.turning:
            _note_time_bounds(judged, number, watch, note)
        if judged.countable[number] is not None:
            _note_limits(judged, number, watch, ends, note)
    if ends is not None or any(hold.until for hold in judged.holds):
        _note_ends(judged, ends, note)
    if judged.ref_ends is not None:
        # All that the ref holds is judged anew then.
        least = np.minimum(least, judged.ref_ends)
    least[least == FOREVER] = NEVER
    return pa.table([history.names, from_micros(least), _over_limits_now(judged)], schema=NEXT_LOOKS)


def _over_limits_now(judged: JudgedRows) -> Bools:
    """Datasets over a limit that counts what is marked now."""
    again = np.zeros(len(judged.history.starts), dtype=bool)
    marks = np.array([decision.verdict == "mark" for decision in judged.decisions], dtype=bool)
    for number, countable in enumerate(judged.countable):
        if countable is not None and judged.over[:, number].any():
            mine = countable & judged.free[number] & (judged.lines[number] == _SELECTED) & marks[judged.combination]
            again |= np.logical_or.reduceat(mine, judged.history.starts) & judged.over[:, number]
    return again


def _note_time_bounds(judged: JudgedRows, number: int, watch: TimeWatch, note: Note) -> None:
    """When a policy begins to select a row, or ceases to, where the row's own verdict depends on it."""
    changes = _changes(judged, lambda facts: replace(facts, unmet=_with(facts.unmet, number, _other(facts.unmet[number]))))
    selected = judged.lines[number] == _SELECTED
    waiting = np.flatnonzero(changes & _only_for_time(judged, number, watch))
    note(waiting, watch.selected_at(waiting, judged.as_of))
    if any(line.turn and line.turn.age.months for line in watch.turning):
        going = np.flatnonzero(changes & selected)
        note(going, watch.left_at(going, judged.as_of))


def _note_limits(judged: JudgedRows, number: int, watch: TimeWatch, ends: Ints | None, note: Note) -> None:
    """When a policy passes one of its limits, or may come back below it: that changes verdicts of other rows."""
    history, countable, limits = judged.history, judged.countable[number], judged.policies[number].limits
    assert countable is not None
    assert limits is not None
    selected = judged.lines[number] == _SELECTED
    above = history.per_dataset(judged.over[:, number])
    now = countable & judged.free[number] & selected
    rows = np.flatnonzero(countable & ~above & ~now & (selected | _only_for_time(judged, number, watch)))
    instants = np.maximum(
        watch.selected_at(rows, judged.as_of), np.maximum(*_spared_until(judged, judged.pinned[number], ends, rows))
    )
    # What the policy has no credit for goes on as it is; and if it gets some before, that is a change by itself.
    loses = _changes(judged, lambda facts: replace(facts, over=_with(facts.over, number, True)))
    matters = np.logical_or.reduceat(loses, history.starts)[_datasets(history, rows)]
    there = matters & (instants != FOREVER)
    note(*limit_crossings(limits, history, now, rows[there], instants[there]))
    leaving = np.flatnonzero(now & above)
    note(leaving, watch.left_at(leaving, judged.as_of))


def _only_for_time(judged: JudgedRows, number: int, watch: TimeWatch) -> Bools:
    """Rows that only time keeps a policy from selecting."""
    waiting: Bools = judged.lines[number] != _SELECTED
    return waiting if watch.fixed is None else waiting & ~watch.fixed


def _note_ends(judged: JudgedRows, ends: Ints | None, note: Note) -> None:
    """When tags and holds cease to spare a row, where that matters."""
    untagged = _changes(judged, lambda facts: replace(facts, pinned=False, pinned_then=False))
    unheld = _changes(judged, lambda facts: replace(facts, held=False))
    free = _changes(judged, lambda facts: replace(facts, pinned=False, pinned_then=False, held=False))
    rows = np.flatnonzero(untagged | unheld | free)
    pinned = np.logical_or.reduce(judged.pinned) if judged.pinned else np.zeros(len(judged.history), dtype=bool)
    tagged, held = _spared_until(judged, pinned, ends, rows)
    for changes, instants in ((untagged, tagged), (unheld, held), (free, np.maximum(tagged, held))):
        mine = changes[rows] & (instants != NEVER)
        note(rows[mine], instants[mine])


def _spared_until(judged: JudgedRows, pinned: Bools, ends: Ints | None, rows: Ints) -> tuple[Ints, Ints]:
    """For some rows when the last tag and the last hold end that spare them; NEVER where there is none."""
    tagged = np.where(pinned[rows], FOREVER, NEVER) if ends is None else ends[rows]
    return tagged, _hold_ends(judged, rows)


def _datasets(history: History, rows: Ints) -> Ints:
    return np.searchsorted(history.starts, rows, side="right") - 1


def _changes(judged: JudgedRows, other: Callable[[Facts], Facts]) -> Bools:
    """Rows whose verdict or credit is another one with other facts."""
    found = [
        _outcome_of(decide(other(facts), judged.policies)) != _outcome_of(decision)
        for facts, decision in zip(judged.facts, judged.decisions, strict=True)
    ]
    changes: Bools = np.array(found, dtype=bool)[judged.combination]
    return changes


def _outcome_of(decision: Decision) -> tuple[str, int]:
    return decision.verdict, decision.policy


def _with(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    """The same, but for one policy."""
    return (*values[:number], value, *values[number + 1 :])


def _other(unmet: int) -> int:
    """Selects where it did not."""
    return _UNMET if unmet == _SELECTED else _SELECTED


def _tag_ends(history: History, as_of: int) -> Ints | None:
    """For each row when the last live tag that pins it ends, NEVER if none pins it; None where no live tag ever ends."""
    expires = as_micros(pc.list_flatten(join_chunks(history.log["tag_expiries"])))
    live = expires[(expires == NEVER) | (expires > as_of)]
    if not (live != NEVER).any():
        return None
    forest = history.chains
    at_end = np.full(len(forest.first), int(NEVER))
    np.maximum.at(at_end, forest.at(history.tags.position), np.where(live == NEVER, FOREVER, live))
    last = forest.fold(at_end, lambda at, value: np.where(history.snapshots_in_chain[at] == 0, value, NEVER), np.maximum)
    return np.where(history.committed & (history.snapshots_after == 0), forest.spread(last), NEVER)


def _hold_ends(judged: JudgedRows, rows: Ints) -> Ints:
    """For some rows when the last hold that keeps them ends, NEVER if none does."""
    history = judged.history
    found = np.full(len(rows), int(NEVER))
    of = _datasets(history, rows)
    for number, hold in enumerate(judged.holds):
        mine = judged.held[of, number]
        if hold.transactions is not None and mine.any():
            at = rows[mine] if history.order is None else history.order[rows[mine]]
            mine[mine] = matching(history.log["transaction"].take(pa.array(at)).to_pylist(), hold.transactions)
        found[mine] = np.maximum(found[mine], FOREVER if hold.until is None else micros(hold.until))
    return found
