"""Lines of a policy, each a small function from columns to a column, and the rule that joins them (design section 5).

A line answers for every row at once. `unmet_lines` says for each row the first line of a policy that does not hold, or 0
where the policy selects it, and NextLooks when time alone could change that. Protection and limits are not known here.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import FOREVER, NEVER, Bools, Ints, Small, as_micros, flags, from_micros, join_chunks
from retention_assets.frames.log import INSTANT, attribute_of
from retention_assets.frames.verdicts.counts import DAY, Kept, period_start, rows_kept
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.table_windows import Windows, remaining_scopes, window_answer
from retention_assets.frames.verdicts.where_condition import evaluate, instants_with_zone
from retention_assets.frames.views.history import COMMITTED, OPEN, RECORD, TYPES, History
from retention_assets.frames.views.scope import OBJECT, Line, ScopeColumns, ScopeTable, superseded
from retention_assets.policy.durations import Duration, micros
from retention_assets.policy.model import Hold, KeepAll, Keeper, Policy
from retention_assets.policy.selection import STATUSES, AttributeTime, Beyond, OlderThan, Selection, Window


class TimeBound(NamedTuple):
    """Age of a line: it keeps a row as long as the row's time is not before the bound of that age."""

    time: Ints
    age: Duration
    align: str | None = None


class SelectorLine(NamedTuple):
    """One line of a policy: the key, where it keeps a row from being selected, and why.

    Under `branches.windows` a line judges one group of branches: `judged` are its rows, `branches` is the glob of the window.
    `bound` is that of a line whose answer changes with time.
    """

    key: str
    reason: Reason
    refused: Bools
    judged: Bools | None = None
    branches: str | None = None
    bound: TimeBound | None = None
    # of a line of counts
    kept: Kept | None = None


def cut_off(as_of: datetime, age: Duration, align: str | None = None) -> int:
    """The bound before which something is old enough, in microseconds."""
    bound = micros(age.before(as_of))
    return bound if align is None else int(period_start(np.array([bound]), align)[0])


def unmet_lines(
    policy: Policy,
    scopes: ScopeTable,
    as_of: datetime,
    windows: Windows,
    on_line: Callable[[SelectorLine], None] | None = None,
) -> Small:
    """For each row the number of the first reason for which the policy does not select it; 0 where it does."""
    history = scopes.history
    first = np.zeros(len(history), dtype=np.int8)
    for line in lines(policy, scopes, as_of, windows):
        if on_line is not None:
            on_line(line)
        np.copyto(first, np.int8(line.reason.number), where=line.refused & (first == 0))
    return first


def lines(policy: Policy, scopes: ScopeTable, as_of: datetime, windows: Windows) -> Iterator[SelectorLine]:
    """The lines of a policy that can keep something from being selected, one after the other.

    `windows` is what the datasets say about their own retention, for policies that take it from there. A policy that drops refs
    that are over looks at a history without them; what only they hold is still on a live branch until it does.
    """
    history, select = scopes.history, policy.select
    if isinstance(policy, KeepAll):
        yield SelectorLine("retention.indefinite", Reason.INDEFINITE, np.ones(len(history), dtype=bool))
        return
    yield SelectorLine("status", Reason.OPEN, (history.status == OPEN) & ~history.independent)
    scope, line = scopes.all_in(policy.branches), scopes.line
    yield from _place(policy, scopes, scope)
    if select.status:
        wanted = [STATUSES.index(status) for status in select.status]
        yield SelectorLine("select.status", Reason.STATUS, ~np.isin(history.status, wanted))
    if select.types:
        yield SelectorLine("select.types", Reason.TYPE, ~np.isin(history.type, [TYPES.index(type_) for type_ in select.types]))
    yield from _finished(select, history)
    if history.copied is not None:
        yield from (SelectorLine(key, Reason.TIMES_COPIED, history.copied) for key in policy.lines_about_times)
    if policy.drops_refs:
        scopes = remaining_scopes(history, windows, as_of)
        scope = scopes.all_in(policy.branches)
    if select.from_table:
        yield from _from_table(windows, scope, line, as_of)
    elif not policy.branches.windows:
        yield from _lines(select, select, scope, line, history, as_of)
    else:
        yield from _windows(policy, scopes, as_of)
    if select.in_views_older_than:
        age, closed = select.in_views_older_than, scope.view_closed_at
        is_young = closed >= cut_off(as_of, age)
        yield SelectorLine("select.in_views_older_than", Reason.IN_NO_VIEW, ~scope.held)
        yield SelectorLine("select.in_views_older_than", Reason.VIEW_TOO_YOUNG, is_young, bound=TimeBound(closed, age))
        yield SelectorLine("select.in_views_older_than", Reason.OPEN_AFTER, scope.open_after)
    if select.superseded:
        yield SelectorLine("select.superseded", Reason.NOT_SUPERSEDED, ~superseded(scope))
    if select.archived_before_purge:
        named = flags(pc.is_in(attribute_of(history.log, "type"), pa.array(select.archived_before_purge, pa.string())))
        waits = history.column(named) & (history.type == RECORD) & (history.time("archived_at") == NEVER)
        yield SelectorLine("select.archived_before_purge", Reason.NOT_ARCHIVED, waits)
    if select.unreferenced:
        # A scan that did not say so counts as a reference.
        is_unreferenced = history.column(flags(pc.equal(attribute_of(history.log, "referenced"), "false")))
        yield SelectorLine("select.unreferenced", Reason.REFERENCED, ~(is_unreferenced & (history.type == OBJECT)))
    if select.where:
        yield SelectorLine("select.where", Reason.CONDITION, ~history.column(evaluate(select.where, history.log)))


def _place(policy: Policy, scopes: ScopeTable, scope: ScopeColumns) -> Iterator[SelectorLine]:
    # Where a transaction lies. Of what lies on no branch only `reach` is asked: every other line about branches refuses it.
    history, branches = scopes.history, policy.branches
    live = scopes.everywhere.branches > 0
    if branches.reach == "live":
        yield SelectorLine("branches.reach", Reason.UNREACHABLE, ~live & ~history.independent)
    elif branches.reach == "unreachable":
        yield SelectorLine("branches.reach", Reason.REACHABLE, live)
    for key in policy.lines_about_branches:
        yield SelectorLine(key, Reason.NOT_APPLICABLE, scopes.line.rows)
    if scope is not scopes.everywhere:
        yield SelectorLine("branches.include", Reason.OUT_OF_SCOPE, live & (scope.branches == 0))
    if branches.only_in:
        alone = (scopes.named(branches.only_in).branches > 0) & (scopes.everywhere.branches == 1)
        yield SelectorLine("branches.only_in", Reason.OTHER_BRANCH, ~alone)
    if branches.not_in:
        yield SelectorLine("branches.not_in", Reason.OTHER_BRANCH, scopes.named(branches.not_in).branches > 0)


def _finished(select: Selection, history: History) -> Iterator[SelectorLine]:
    # An unfinished record can only go by the time of its opening, so some line has to look at that.
    line = select.older_than
    by_opening = line is not None and (
        line.of in ("opened", "closed_or_opened") or (line.of == "closed" and select.terminal_only is False)
    )
    if select.terminal_only or not by_opening:
        yield SelectorLine("select.terminal_only", Reason.UNFINISHED, history.independent & (history.status == OPEN))


def _windows(policy: Policy, scopes: ScopeTable, as_of: datetime) -> Iterator[SelectorLine]:
    # Each group of branches judges by its own window; a row goes only if every group that holds it agrees.
    history = scopes.history
    nowhere = scopes.everywhere.branches == 0
    for window, scope in scopes.groups(policy.branches):
        judged = scope.branches > 0
        if window is None:
            judged |= nowhere
        for line in _lines(window or policy.select, policy.select, scope, scopes.line, history, as_of):
            yield line._replace(refused=line.refused & judged, judged=judged, branches=window.match if window else None)


def _from_table(windows: Windows, scope: ScopeColumns, line: Line, as_of: datetime) -> Iterator[SelectorLine]:
    # Both lines of the window that the dataset carries, on each branch by its own numbers, on a line by the dataset's.
    history, answer = scope.history, window_answer(windows, scope, as_of)
    yield SelectorLine("select.from_table", Reason.NO_OWN_RETENTION, answer.silent)
    yield SelectorLine("select.from_table", Reason.NO_TIME, answer.time == NEVER)
    # Each row has a bound of its own: its time is shifted by that, and compared with one bound of no age.
    bound = TimeBound(answer.time + (micros(as_of) - answer.bound), Duration())
    yield SelectorLine("select.from_table", Reason.TOO_YOUNG, answer.time >= answer.bound, bound=bound)
    yield SelectorLine("select.from_table", Reason.WITHIN_TRANSACTIONS, answer.within)
    if line.rows.any():
        yield from _never_beyond(line, history, "select.from_table")
        within = line.committed & (line.newer(line.committed) < answer.count)
        yield SelectorLine("select.from_table", Reason.WITHIN_TRANSACTIONS, within)


def _lines(
    part: Selection | Window, select: Selection, scope: ScopeColumns, line: Line, history: History, as_of: datetime
) -> Iterator[SelectorLine]:
    at = "" if isinstance(part, Window) else "select."
    if part.older_than:
        age, align = part.older_than.age, part.older_than.align
        oldest = cut_off(as_of, age, align)
        time = _time(part.older_than, select, scope, history)
        missing = Reason.TIME_MISSING if isinstance(part.older_than.of, AttributeTime) else Reason.NO_TIME
        yield SelectorLine(f"{at}older_than", missing, time == NEVER)
        yield SelectorLine(f"{at}older_than", Reason.TOO_YOUNG, time >= oldest, bound=TimeBound(time, age, align))
        if part.window == "complete":
            # A view that was left exactly at the bound was not current there: hence a microsecond earlier.
            left = np.where(scope.superseded_at == NEVER, FOREVER, scope.superseded_at - 1)
            bound = TimeBound(np.where(scope.held, left, NEVER), age, align)
            yield SelectorLine(f"{at}window", Reason.CURRENT_AT_CUT_OFF, scope.held & (left >= oldest), bound=bound)
    if part.beyond:
        yield from _beyond(part.beyond, scope, line, history, at)


def _time(line: OlderThan, select: Selection, scope: ScopeColumns, history: History) -> Ints:
    if isinstance(line.of, AttributeTime):
        return history.column(as_micros(instants_with_zone(attribute_of(history.log, line.of.attribute))))
    if line.of == "opened":
        return history.time("opened_at")
    if line.of == "archived":
        return history.time("archived_at")
    if line.of == "superseded":
        return scope.superseded_at
    if line.of == "closed_or_opened":
        return np.where(history.closed == NEVER, history.time("opened_at"), history.closed)
    if select.terminal_only is False:
        return np.where(history.independent & (history.status == OPEN), history.time("opened_at"), history.closed)
    return history.closed


def _beyond(beyond: Beyond, scope: ScopeColumns, line: Line, history: History, at: str) -> Iterator[SelectorLine]:
    # Counts apply to what is in a view of a branch in scope, and to lines; everything else is beyond them.
    if beyond.views is not None:
        yield SelectorLine(f"{at}beyond.views", Reason.WITHIN_VIEWS, scope.held & (scope.view < beyond.views))
    if beyond.counts and line.rows.any():
        yield from _never_beyond(line, history, f"{at}beyond.{beyond.counts[0]}")
    for kept in rows_kept(beyond, scope, line, history):
        yield SelectorLine(f"{at}beyond.{kept.key}", kept.reason, kept.rows, kept=kept)


def _never_beyond(line: Line, history: History, key: str) -> Iterator[SelectorLine]:
    # Open records, and classes that are on no line, are in no count.
    yield SelectorLine(key, Reason.UNFINISHED, history.independent & (history.status == OPEN))
    yield SelectorLine(key, Reason.REFERENCED, history.independent & (history.status == COMMITTED) & ~line.committed)


# The last instant that a timestamp can be.
_LAST = int(np.datetime64("9999-12-31T23:59:59.999999", "us").astype(np.int64))

# `next_look` is null where time changes nothing. `again`: a limit was exceeded, and the marks of this evaluation no longer
# count towards it, so the next evaluation may mark more.
NEXT_LOOKS = pa.schema([pa.field("dataset", pa.string()), pa.field("next_look", INSTANT), pa.field("again", pa.bool_())])


class NextLooks:
    """First instant after `as_of`, for each dataset of a history, at which time alone could change a verdict.

    Never too late. Too early costs one evaluation that finds nothing new. The bound of an age may go back: a month before the
    29th, 30th and 31st of March is the last of February, so what was let go in the evening of the 29th is kept again in the
    morning of the 30th.
    """

    def __init__(self, history: History, as_of: datetime) -> None:
        self.history, self.as_of = history, as_of
        self.least = np.full(len(history.starts), FOREVER)

    def add_line(self, line: SelectorLine) -> None:
        """Add when a line lets its rows go, and when it keeps rows again because its bound goes back."""
        if line.bound is None:
            return
        time, age, align = line.bound
        # The older of two rows is let go first.
        kept = np.minimum.reduceat(np.where(line.refused, time, FOREVER), self.history.starts)
        self._add(old_enough_at(kept, age, align, self.as_of))
        midnight = self.as_of.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        goes_back = (time < cut_off(self.as_of, age, align)) & (time >= cut_off(midnight, age, align))
        if goes_back.any():
            self._add(np.where(np.logical_or.reduceat(goes_back, self.history.starts), micros(midnight), FOREVER))

    def add_ends(self, keepers: Sequence[Keeper], held: Bools, ref_ends: Ints | None) -> None:
        """Add the ends of live holds (`held` is datasets x holds), of tags, and of refs that a policy drops then."""
        for number, keeper in enumerate(keepers):
            if isinstance(keeper, Hold) and keeper.until is not None:
                self._add(np.where(held[:, number], micros(keeper.until), FOREVER))
        ends = as_micros(pc.list_flatten(join_chunks(self.history.log["tag_expiries"])))
        live = ends[(ends == NEVER) | (ends > micros(self.as_of))]
        np.minimum.at(self.least, self.history.tags.dataset, np.where(live == NEVER, FOREVER, live))
        if ref_ends is not None:
            self._add(ref_ends)

    def table(self, again: Bools) -> pa.Table:
        least = np.where(self.least == FOREVER, NEVER, self.least)
        return pa.table([self.history.names, from_micros(least), again], schema=NEXT_LOOKS)

    def _add(self, instants: Ints) -> None:
        np.minimum(self.least, instants, out=self.least)


def old_enough_at(time: Ints, age: Duration, align: str | None, as_of: datetime) -> Ints:
    """First later instant at which times that are too young are old enough; FOREVER if there is none."""
    time = np.minimum(time, _LAST)
    # instant that `as_of`, moved back by the months of the age, has to reach
    needed = time + 1 if align is None else period_start(time, align, 1)
    needed += age.days * DAY + age.seconds * 1_000_000
    reached = needed
    if age.months:
        month = needed.astype("M8[us]").astype("M8[M]")
        begin, end = _first_of(month + age.months), _first_of(month + age.months + 1)
        # A month without that day is followed by one that is late enough altogether.
        reached = np.minimum(begin + needed - _first_of(month), end)
        # It was old enough before and is not now: the bound has gone back this morning, and comes by again today.
        today = micros(as_of) // DAY * DAY
        reached = np.where(reached <= micros(as_of), today + needed % DAY, reached)
    return np.where(reached > _LAST, FOREVER, reached)


def _first_of(month: np.ndarray) -> Ints:
    first: Ints = month.astype("M8[us]").astype(np.int64)
    return first
