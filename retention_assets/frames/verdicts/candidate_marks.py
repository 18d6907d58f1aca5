"""Verdicts: for every transaction mark, spare, keep or open, with the policy that has the credit and every reason.

Selections, protection, holds and limits join into a verdict (design section 5). Datasets that the same policies are about
are judged together. Rows are numbered by their combination of facts, of which few occur; each combination is decided once,
in plain Python that reads like the rules, and the decision is spread.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Counts, Ints, Small, flags, integers, keys_of, sums_in_halves
from retention_assets.frames.log import (
    COMMITS,
    EMPTY_VERSIONS,
    LOG,
    OWN_CLASSES,
    TIMES,
    WINDOW_SPARES,
    attribute_of,
    bounds_of,
    copied_datasets,
    datasets_chosen_by,
    datasets_with,
    in_one_piece,
    is_in_log,
    realms_of,
)
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS, Facts, VerdictTable, decide
from retention_assets.frames.verdicts.kept_rows import Ranks, _with_bases, first_hold_of, first_rule_of
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.selectors import NEXT_LOOKS, NextLooks, SelectorLine, TimeBound, unmet_lines
from retention_assets.frames.verdicts.shared_data import SharedData, datasets_sharing
from retention_assets.frames.verdicts.table_windows import Windows, next_ref_ends, remaining_scopes, window_ends, windows_of
from retention_assets.frames.views.branch_views import Protection, protection, references
from retention_assets.frames.views.history import DELETE, OPEN, History
from retention_assets.frames.views.scope import FAR, ScopeTable
from retention_assets.policy.durations import Duration, micros
from retention_assets.policy.model import Keeper, Limits, Policy, RetainRule
from retention_assets.policy.realms import RESERVED_HOLD, is_reserved
from retention_assets.policy.selection import AttributeTime, Newest
from retention_assets.policy.where.tree import columns_of

# rows per step: as many as a cache holds, however long a dataset is
_ROWS_AT_ONCE = 1 << 18
_ALWAYS = {
    *("dataset", "transaction", "ordinal", "parent_ordinal", "type", "status", "closed_at", "heads", "tags", "tag_expiries")
}


def columns_for(policies: Sequence[Policy], datasets: pa.Table | None = None, keepers: Sequence[Keeper] = ()) -> list[str]:
    """Columns of a log that the verdicts depend on; `attributes` also where a scan classified transactions."""
    wanted = set(_ALWAYS)
    rules = [keeper for keeper in keepers if isinstance(keeper, RetainRule)]
    counts: list[Newest] = [rule.newest for rule in rules if rule.newest]
    conditions = [rule.where for rule in rules]
    if datasets is not None and attribute_of(datasets, OWN_CLASSES).null_count < len(datasets):
        wanted.add("attributes")
    if datasets is not None and datasets_sharing(datasets):
        wanted |= {"attributes", *TIMES}
    for policy in policies:
        select = policy.select
        lines = [select.older_than, *(window.older_than for window in policy.branches.windows)]
        clocks = {line.of for line in lines if line}
        wanted |= {"attributes"} if any(isinstance(clock, AttributeTime) for clock in clocks) else set()
        counts += [beyond for beyond in (select.beyond, *(window.beyond for window in policy.branches.windows)) if beyond]
        wanted |= {"opened_at"} if select.terminal_only is False or clocks & {"opened", "closed_or_opened"} else set()
        wanted |= {"archived_at"} if "archived" in clocks else set()
        wanted |= {"file_names"} if select.superseded else set()
        wanted |= {"archived_at", "attributes"} if select.archived_before_purge else set()
        wanted |= {"attributes"} if select.unreferenced else set()
        wanted |= {"bytes"} if policy.limits and policy.limits.bytes else set()
        # by these, limits tell a swept transaction from one that reuses its id
        wanted |= set(TIMES) if policy.limits else set()
        conditions.append(select.where)
    wanted |= {"attributes"} if any(count.per for count in counts) else set()
    wanted |= {"bytes"} if any("bytes" in count.counts for count in counts) else set()
    for condition in (*conditions, *(count.where for count in counts)):
        wanted |= columns_of(condition) if condition else set()
    return [name for name in LOG.names if name in wanted]


def candidate_marks(
    log: pa.Table,
    datasets: pa.Table,
    policies: Sequence[Policy],
    holds: Sequence[Keeper],
    as_of: datetime,
    known: pa.Table | None = None,
) -> pa.Table:
    """Judge every transaction of a sound log, in the order of the log.

    `known` (dataset, transaction) are marked or swept already, and don't count towards limits. If they have times (opened_at,
    closed_at), only rows with the same times are meant. If it says which are `swept`, data that transactions share is judged.
    """
    return verdicts_and_reevaluation(log, datasets, policies, holds, as_of, known, watch=False)[0]


@dataclass(frozen=True)
class _Evaluation:
    """Facts that all datasets of one evaluation share."""

    as_of: datetime
    # holds that have not ended, and retain rules
    keepers: Sequence[Keeper]
    windows: Windows
    # datasets that forbid deleting their files, and those to whose tables the store can't commit
    forbidding: frozenset[str]
    uncommittable: frozenset[str]
    # datasets that spare what is inside of their windows, whose times are copied, and that keep versions without files
    sparing: frozenset[str]
    copied: frozenset[str]
    keeping_empty: frozenset[str]
    # also find out when time alone could change a verdict
    watch: bool


def verdicts_and_reevaluation(
    log: pa.Table,
    datasets: pa.Table,
    policies: Sequence[Policy],
    holds: Sequence[Keeper],
    as_of: datetime,
    known: pa.Table | None = None,
    *,
    watch: bool = True,
) -> tuple[pa.Table, pa.Table]:
    """`candidate_marks`, and with `watch` for each dataset with a transaction when to evaluate it again (`NEXT_LOOKS`)."""
    if not len(log):
        return CANDIDATE_MARKS.empty_table(), NEXT_LOOKS.empty_table()
    log = in_one_piece(log)
    bounds = bounds_of(log)
    chosen = datasets_chosen_by(log, bounds, datasets, [policy.datasets for policy in policies])
    groups, member = np.unique(chosen, axis=0, return_inverse=True)
    fresh = _fresh(log, known) if known is not None and any(policy.limits for policy in policies) else None
    known = known if known is not None and "swept" in known.column_names and datasets_sharing(datasets) else None
    sparing = _datasets_denying(datasets, WINDOW_SPARES, "false")
    uses_windows = sparing or any(policy.select.from_table or policy.drops_refs for policy in policies)
    windows = windows_of(datasets) if uses_windows else {}
    live = [keeper for keeper in holds if keeper.is_live(as_of)]
    live += [RESERVED_HOLD] if any(map(is_reserved, pc.unique(realms_of(datasets).drop_null()).to_pylist())) else []
    held = datasets_chosen_by(log, bounds, datasets, [keeper.datasets for keeper in live], are_holds=True)
    forbidding, uncommittable = _datasets_denying(datasets, "gc.enabled"), _datasets_denying(datasets, COMMITS)
    copied, keeping_empty = copied_datasets(datasets), datasets_with(datasets, EMPTY_VERSIONS, "kept")
    evaluation = _Evaluation(as_of, live, windows, forbidding, uncommittable, sparing, copied, keeping_empty, watch)
    parts: list[pa.Table] = []
    times = [NEXT_LOOKS.empty_table()]
    for number, group in enumerate(groups):
        members = np.flatnonzero(member.reshape(-1) == number)
        part = log if len(groups) == 1 else _slices(log, bounds, members)
        applying = [policy for policy, is_about in zip(policies, group, strict=True) if is_about]
        fresh_rows = None if fresh is None else fresh[np.repeat(member.reshape(-1) == number, np.diff(bounds))]
        shared = None if known is None else SharedData.of(part, datasets, known)
        rows, next_looks = _judge(part, applying, held[members], fresh_rows, evaluation, shared)
        parts.append(rows)
        times.append(next_looks)
    when = pa.concat_tables(times)
    if len(parts) == 1:
        return parts[0], when
    together = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    sizes, order = np.diff(bounds), np.argsort(member.reshape(-1), kind="stable")
    begins = np.empty(len(sizes), dtype=np.int64)
    begins[order] = np.cumsum(sizes[order]) - sizes[order]
    return together.take(pa.array(np.repeat(begins - bounds[:-1], sizes) + np.arange(bounds[-1]))), when


def _slices(log: pa.Table, bounds: Ints, datasets: Ints) -> pa.Table:
    # Neighbouring datasets are sliced together.
    breaks = np.flatnonzero(np.diff(datasets) != 1) + 1
    runs = np.split(datasets, breaks)
    return pa.concat_tables([log.slice(bounds[run[0]], bounds[run[-1] + 1] - bounds[run[0]]) for run in runs]).combine_chunks()


def _fresh(log: pa.Table, known: pa.Table) -> Bools:
    if set(TIMES) <= set(known.column_names):
        known = known.filter(pa.array(is_in_log(known, log)))
    return ~flags(pc.is_in(keys_of(log), value_set=keys_of(known)))


def _judge(
    log: pa.Table,
    policies: Sequence[Policy],
    held: Bools,
    fresh: Bools | None,
    evaluation: _Evaluation,
    shared: SharedData | None,
) -> tuple[pa.Table, pa.Table]:
    # Whole datasets that the same policies are about. `held` is datasets x holds; `fresh` are rows not yet marked or swept, if
    # there are limits.
    keepers, history = evaluation.keepers, History(log, micros(evaluation.as_of), evaluation.copied)
    scopes = ScopeTable(history)
    looks = NextLooks(history, evaluation.as_of) if evaluation.watch else None
    on_line = looks.add_line if looks else None
    lines = [unmet_lines(policy, scopes, evaluation.as_of, evaluation.windows, on_line) for policy in policies]
    protected = protection(scopes)
    drops = any(policy.drops_refs for policy in policies)
    remaining = protection(remaining_scopes(history, evaluation.windows, evaluation.as_of)) if drops else protected
    forbidden, uncommittable, empty = map(
        history.rows_of, (evaluation.forbidding, evaluation.uncommittable, evaluation.keeping_empty)
    )
    empty = None if empty is None else empty & (history.type == DELETE)
    hold = first_hold_of(history, keepers, held, empty)
    rule = _with_bases(first_rule_of(scopes, keepers, held, evaluation.as_of, on_line), history, empty)
    in_window = _in_windows(scopes, evaluation, on_line)
    closed = np.zeros(len(history), dtype=bool)
    for rows in (forbidden, uncommittable, in_window, empty):
        closed |= False if rows is None else rows
    pinned = [(remaining if policy.drops_refs else protected).tag < FAR for policy in policies]
    referenced = references(history)
    free = [~pins & (hold < 0) & (rule < 0) & ~closed & ~referenced.is_referenced for pins in pinned]

    def over_limits(needed: Bools) -> Bools:
        over = np.zeros((len(history.starts), len(policies)), dtype=bool)
        for number, (policy, line) in enumerate(zip(policies, lines, strict=True)):
            if policy.limits:
                latest = (remaining if policy.drops_refs else protected).branch
                may = ~closed if policy.latest_view else ~closed & (latest == FAR)
                may = may if fresh is None else may & history.column(fresh)
                over[:, number] = _over_limit(policy.limits, history, may & ~needed & free[number] & (line == 0))
        return over

    facts_of_rows = (
        protected.branch < FAR, protected.tag < FAR, hold >= 0, (history.status == OPEN) & ~history.independent,
        remaining.branch < FAR, remaining.tag < FAR, forbidden, referenced.is_referenced, uncommittable, rule >= 0,
        in_window, empty,
    )  # fmt: skip
    flags = np.zeros(len(history), dtype=np.uint16)
    for bit, fact in enumerate(facts_of_rows):
        if fact is not None:
            flags |= fact.astype(np.uint16) << np.uint16(bit)
    needed = np.zeros(len(history), dtype=bool)
    over = over_limits(needed) if shared is None else np.zeros((len(history.starts), len(policies)), dtype=bool)
    while True:
        facts, combination = combinations(history, lines, over, flags | (needed.astype(np.uint16) << np.uint16(_NEEDED)))
        decisions = [decide(fact, policies) for fact in facts]
        marks = np.array([decision.verdict == "mark" for decision in decisions], dtype=bool)[combination]
        if shared is None:
            break
        # what limits spare is retained, and needs its data
        guarded = history.in_log_order((hold >= 0) | (rule >= 0) | (protected.branch < FAR) | (protected.tag < FAR))
        kept = shared.retained(history.in_log_order(marks | needed), guarded)
        more = needed | (marks & history.column(~kept & ~shared.frees(kept)))
        now_over = over | over_limits(more)
        if np.array_equal(more, needed) and np.array_equal(now_over, over):
            break
        needed, over = more, now_over
    needers: Sequence[str] = ()
    needer = np.zeros(len(history), dtype=np.int32)
    if shared is not None and needed.any():
        needers, needer = _needers(shared, history, needed, kept)
    table = VerdictTable(decisions, policies, keepers, history, referenced.names, needers)
    next_looks = NEXT_LOOKS.empty_table()
    if looks:
        looks.add_ends(keepers, held, next_ref_ends(history, evaluation.windows, evaluation.as_of) if drops else None)
        new = marks if fresh is None else marks & history.column(fresh)
        # New marks no longer count towards the limits that were exceeded.
        next_looks = looks.table(over.any(axis=1) & np.logical_or.reduceat(new, history.starts))
    combination = history.in_log_order(combination)
    branch, tag, ref = _witnesses(history, protected, remaining)
    nobody = np.zeros(len(history), dtype=np.int32)
    referrer = nobody if referenced.witness is None else referenced.witness
    by_row = (branch, tag, hold, rule, ref, nobody, nobody, nobody, referrer, needer)
    witnesses = [history.in_log_order(rank) for rank in by_row]
    parts = []
    for begin in range(0, len(history), _ROWS_AT_ONCE):
        here = slice(begin, begin + _ROWS_AT_ONCE)
        parts.append(table.rows(log.slice(begin, _ROWS_AT_ONCE), combination[here], *(rank[here] for rank in witnesses)))
    return pa.concat_tables(parts), next_looks


def _witnesses(history: History, protected: Protection, remaining: Protection) -> tuple[Ranks, Ranks, Ranks]:
    # The branch and the tag that protect each row, preferably ones that stay; and the ended ref where nothing else does.
    branch = np.where(remaining.branch < FAR, remaining.branch, protected.branch)
    tag = np.where(remaining.tag < FAR, remaining.tag, protected.tag)
    over = np.where(
        (protected.branch < FAR) & (remaining.branch == FAR), protected.branch, tag + np.int32(len(history.branches.names))
    )
    return branch, tag, over.astype(np.int32)


def _needers(shared: SharedData, history: History, needed: Bools, kept: Bools) -> tuple[Sequence[str], Ranks]:
    # Who needs all data of each of these rows, as sentences and, for each row, the place of its own.
    at = np.flatnonzero(history.in_log_order(needed))
    sentences = pa.array(shared.needers(kept, at), pa.string()).dictionary_encode()
    place = np.zeros(len(history), dtype=np.int32)
    place[at] = sentences.indices.to_numpy()
    return sentences.dictionary.to_pylist(), history.column(place)


def _datasets_denying(datasets: pa.Table, key: str, but: str = "true") -> frozenset[str]:
    # Datasets that have the attribute with any other value: a typo must not delete.
    value = pc.utf8_lower(pc.utf8_trim_whitespace(attribute_of(datasets, key)))
    denies = pc.fill_null(pc.not_equal(value, but), False)
    return frozenset(datasets["dataset"].filter(denies).to_pylist())


def _in_windows(scopes: ScopeTable, evaluation: _Evaluation, on_line: Callable[[SelectorLine], None] | None) -> Bools | None:
    # Rows inside of a window that spares. A latest view, and whatever was never superseded, is inside.
    if (rows := scopes.history.rows_of(evaluation.sparing)) is None:
        return None
    ends = window_ends(evaluation.windows, scopes.everywhere)
    inside: Bools = rows & (ends >= micros(evaluation.as_of))
    if on_line:
        on_line(SelectorLine(WINDOW_SPARES, Reason.TABLE_WINDOW, inside, bound=TimeBound(ends, Duration())))
    return inside


# size of a table with a place for each possible combination; beyond it only those that occur get a place
_MOST_KEYS = 1 << 20
# boolean facts of a row, in the order of `Facts`
_FLAGS = 13
# place of the last of them, which follows from a first decision
_NEEDED = 12


def combinations(
    history: History, lines: Sequence[Small], over: Bools, flags: npt.NDArray[np.uint16]
) -> tuple[list[Facts], Counts]:
    kinds_over, over_of = np.unique(over, axis=0, return_inverse=True)
    columns: list[npt.NDArray[np.integer]] = [flags, *lines]
    if len(kinds_over) > 1:
        columns.append(history.per_dataset(over_of.reshape(-1)))
    combination = np.zeros(len(history), dtype=np.int32)
    members: list[tuple[int, ...]] = [()]
    waiting: list[int] = []
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if waiting and len(members) * math.prod(waiting) * width > _MOST_KEYS:
            members, combination = _renumbered(members, waiting, combination)
            waiting = []
        combination = combination * np.int32(width) + column
        waiting.append(width)
    members, combination = _renumbered(members, waiting, combination)
    facts = []
    for flag, *rest in members:
        over_here = kinds_over[rest[len(lines)] if len(kinds_over) > 1 else 0].tolist()
        flags_here = (bool(flag >> bit & 1) for bit in range(_FLAGS))
        facts.append(Facts(tuple(rest[: len(lines)]), tuple(over_here), *flags_here))
    return facts, combination


def _renumbered(members: list[tuple[int, ...]], widths: list[int], key: Counts) -> tuple[list[tuple[int, ...]], Counts]:
    # The combinations that occur, decoded into their values, and the index of each row's among them.
    there = np.zeros(len(members) * math.prod(widths), dtype=bool)
    there[key] = True
    present = np.flatnonzero(there)
    place = np.zeros(len(there), dtype=np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    occurring = []
    for at in present.tolist():
        values: list[int] = []
        for width in reversed(widths):
            at, value = divmod(at, width)
            values.append(value)
        occurring.append((*members[at], *reversed(values)))
    return occurring, place[key]


def _over_limit(limits: Limits, history: History, may: Bools) -> Bools:
    # Datasets that exceed the limits; `may` are the rows that count.
    over = np.zeros(len(history.starts), dtype=bool)
    if (most := _most(limits, history)) is not None:
        over |= np.add.reduceat(may.astype(np.int64), history.starts) > most
    if limits.bytes is not None:
        size = np.where(may, history.column(integers(history.log["bytes"], 0)), 0)
        (high, low), (most_high, most_low) = sums_in_halves(size, history.starts), divmod(limits.bytes, 1 << 32)
        over |= (high > most_high) | ((high == most_high) & (low > most_low))
    return over


def _most(limits: Limits, history: History) -> Ints | None:
    most = None if limits.transactions is None else np.full(len(history.starts), limits.transactions, dtype=np.int64)
    if limits.fraction is not None:
        # Exact: 0.29 of 100 is 29, which no float product of the two is.
        share = Fraction(str(limits.fraction)).limit_denominator(10**9)
        part = share.numerator * history.sizes // share.denominator
        most = part if most is None else np.minimum(most, part)
    return most
