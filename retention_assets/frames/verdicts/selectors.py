"""Lines of a policy, each a small function from columns to a column, and the rule that joins them (design section 5).

A line answers for every row at once: True where it holds. `unmet` runs through the lines of one policy and says for each
row the first that does not hold, or 0 where the policy selects it. Protection, holds and limits stand above policies and
are not known here.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Ints, Small, flags, join_chunks
from retention_assets.frames.verdicts.ended_refs import remaining_scopes
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.table_windows import Windows, window_answer
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.frames.views.history import COMMITTED, DELETE, OPEN, RECORD, TYPES, History
from retention_assets.frames.views.line import OBJECT, Line
from retention_assets.frames.views.scope import ScopeColumns, ScopeTable
from retention_assets.frames.views.superseded import superseded
from retention_assets.policy.durations import Duration, micros
from retention_assets.policy.model import STATUSES, Beyond, KeepAll, OlderThan, Policy, Selection, Window

# The time of what no age ever gets past.
FOREVER = np.iinfo(np.int64).max


class TimeBound(NamedTuple):
    """Age of a line: it keeps a row as long as the row's time is not before the bound of that age."""

    time: Ints
    age: Duration
    align: str | None = None


class SelectorLine(NamedTuple):
    """One line of a policy: the key, where it keeps a row from being selected, and why.

    Under `branches.windows` a line is asked for one group of branches: `asked` is where, `branches` the glob of the window.
    A line with a `turn` refuses, where it is asked, exactly what its turn says; one without says the same at any time.
    """

    key: str
    reason: Reason
    refused: Bools
    asked: Bools | None = None
    branches: str | None = None
    turn: TimeBound | None = None


def cut_off(as_of: datetime, age: Duration, align: str | None = None) -> int:
    """The bound before which something is old enough, in microseconds."""
    bound = age.before(as_of)
    if align == "day":
        bound = bound.replace(hour=0, minute=0, second=0, microsecond=0)
    return micros(bound)


def unmet_lines(
    policy: Policy,
    scopes: ScopeTable,
    as_of: datetime,
    windows: Windows,
    seen: Callable[[SelectorLine], None] | None = None,
) -> Small:
    """For each row the number of the first reason for which the policy does not select it; 0 where it does.

    `seen` is shown each line on the way.
    """
    history = scopes.history
    first = np.zeros(len(history), dtype=np.int8)
    for line in lines(policy, scopes, as_of, windows):
        if seen is not None:
            seen(line)
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
        yield from _in_old_views(scope, select.in_views_older_than, as_of)
    if select.superseded:
        yield SelectorLine("select.superseded", Reason.NOT_SUPERSEDED, ~superseded(scope))
    if select.archived_before_purge:
        archived = history.time("archived_at") != NEVER
        yield SelectorLine(
            "select.archived_before_purge", Reason.NOT_ARCHIVED, _of_types(history, select.archived_before_purge) & ~archived
        )
    if select.unreferenced:
        yield SelectorLine("select.unreferenced", Reason.REFERENCED, ~_unreferenced(history))
    if select.where:
        yield SelectorLine("select.where", Reason.CONDITION, ~history.column(evaluate(select.where, history.log)))


def _place(policy: Policy, scopes: ScopeTable, scope: ScopeColumns) -> Iterator[SelectorLine]:
    """Where a transaction lies. Of what lies on no branch only `reach` is asked: every other line about branches refuses it."""
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
    """An unfinished record can only go by the time of its opening, so some line has to look at that."""
    line = select.older_than
    by_opening = line is not None and (
        line.of in ("opened", "closed_or_opened") or (line.of == "closed" and select.terminal_only is False)
    )
    if select.terminal_only or not by_opening:
        yield SelectorLine("select.terminal_only", Reason.UNFINISHED, history.independent & (history.status == OPEN))


def _windows(policy: Policy, scopes: ScopeTable, as_of: datetime) -> Iterator[SelectorLine]:
    """Each group of branches judges by its own window; a row goes only if every group that holds it agrees."""
    history = scopes.history
    nowhere = scopes.everywhere.branches == 0
    for window, scope in scopes.groups(policy.branches):
        judged = scope.branches > 0
        if window is None:
            judged |= nowhere
        for line in _lines(window or policy.select, policy.select, scope, scopes.line, history, as_of):
            yield line._replace(refused=line.refused & judged, asked=judged, branches=window.match if window else None)


def _from_table(windows: Windows, scope: ScopeColumns, line: Line, as_of: datetime) -> Iterator[SelectorLine]:
    """Both lines of the window that the dataset carries, on each branch by its own numbers, on a line by the dataset's."""
    history, answer = scope.history, window_answer(windows, scope, as_of)
    yield SelectorLine("select.from_table", Reason.NO_OWN_RETENTION, answer.silent)
    yield SelectorLine("select.from_table", Reason.NO_TIME, history.closed == NEVER)
    # Bounds of many ages, as times that one bound of no age at all is held against.
    turn = TimeBound(history.closed + (micros(as_of) - answer.bound), Duration())
    yield SelectorLine("select.from_table", Reason.TOO_YOUNG, history.closed >= answer.bound, turn=turn)
    yield SelectorLine("select.from_table", Reason.WITHIN_TRANSACTIONS, answer.within)
    if line.rows.any():
        yield from _along(line, line.committed, answer.count, history, "select.from_table")


def _lines(
    part: Selection | Window, select: Selection, scope: ScopeColumns, line: Line, history: History, as_of: datetime
) -> Iterator[SelectorLine]:
    """The lines that a window can replace: older_than, beyond, window."""
    at = "" if isinstance(part, Window) else "select."
    if part.older_than:
        age, align = part.older_than.age, part.older_than.align
        bound = cut_off(as_of, age, align)
        time = _time(part.older_than, select, scope, history)
        yield SelectorLine(f"{at}older_than", Reason.NO_TIME, time == NEVER)
        yield SelectorLine(f"{at}older_than", Reason.TOO_YOUNG, time >= bound, turn=TimeBound(time, age, align))
        if part.window == "complete":
            # Out of it strictly before the bound or at it: the one before the bound, a microsecond earlier.
            left = np.where(scope.superseded_at == NEVER, FOREVER, scope.superseded_at - 1)
            turn = TimeBound(np.where(scope.held, left, NEVER), age, align)
            yield SelectorLine(f"{at}window", Reason.CURRENT_AT_CUT_OFF, scope.held & (left >= bound), turn=turn)
    if part.beyond:
        yield from _beyond(part.beyond, scope, line, history, at)


def _time(line: OlderThan, select: Selection, scope: ScopeColumns, history: History) -> Ints:
    """The time of each row that an age is measured from; NEVER where it has none."""
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
    """Counts apply to what is in a view of a branch in scope, and to lines; everything else is beyond them."""
    if beyond.views is not None:
        yield SelectorLine(f"{at}beyond.views", Reason.WITHIN_VIEWS, scope.held & (scope.view < beyond.views))
    if beyond.transactions:
        counted = scope.held & (history.type != DELETE)
        yield SelectorLine(
            f"{at}beyond.transactions", Reason.WITHIN_TRANSACTIONS, counted & (scope.newer < beyond.transactions)
        )
    if beyond.transactions is not None and line.rows.any():
        yield from _along(line, line.data, beyond.transactions, history, f"{at}beyond.transactions")


def _along(line: Line, counted: Bools, newest: int | Ints, history: History, key: str) -> Iterator[SelectorLine]:
    """A count along lines. What is open, or of a class that is on no line, is never beyond it."""
    yield SelectorLine(key, Reason.UNFINISHED, history.independent & (history.status == OPEN))
    yield SelectorLine(key, Reason.REFERENCED, history.independent & (history.status == COMMITTED) & ~line.committed)
    if np.any(newest):
        yield SelectorLine(key, Reason.WITHIN_TRANSACTIONS, counted & (line.newer(counted) < newest))


def _in_old_views(scope: ScopeColumns, age: Duration, as_of: datetime) -> Iterator[SelectorLine]:
    closed = scope.view_closed_at
    yield SelectorLine("select.in_views_older_than", Reason.IN_NO_VIEW, ~scope.held)
    yield SelectorLine(
        "select.in_views_older_than", Reason.VIEW_TOO_YOUNG, closed >= cut_off(as_of, age), turn=TimeBound(closed, age)
    )
    yield SelectorLine("select.in_views_older_than", Reason.OPEN_AFTER, scope.open_after)


def _attribute(history: History, key: str) -> pa.Array:
    return join_chunks(pc.map_lookup(join_chunks(history.log["attributes"]), pa.scalar(key), "first"))


def _of_types(history: History, types: tuple[str, ...]) -> Bools:
    """RECORDs whose `type` attribute is one of those."""
    named = flags(pc.is_in(_attribute(history, "type"), pa.array(types, pa.string())))
    records: Bools = history.column(named) & (history.type == RECORD)
    return records


def _unreferenced(history: History) -> Bools:
    """OBJECTs that a scan found no reference to. A scan that did not say so counts as a reference."""
    said = flags(pc.equal(_attribute(history, "referenced"), "false"))
    objects: Bools = history.column(said) & (history.type == OBJECT)
    return objects
