"""Rows of a history that holds and retain rules keep."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import NEVER, Bools
from retention_assets.frames.log import (
    EMPTY_VERSIONS,
    Log,
    bounds_of,
    copied_datasets,
    datasets_chosen_by,
    datasets_with,
    in_one_piece,
)
from retention_assets.frames.verdicts.counts import rows_kept
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.selectors import SelectorLine, TimeBound, cut_off
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.frames.views.history import DELETE, History
from retention_assets.frames.views.scope import ScopeTable
from retention_assets.policy.durations import micros
from retention_assets.policy.globs import protecting
from retention_assets.policy.model import Keeper, RetainRule
from retention_assets.policy.selection import names_times

Ranks = npt.NDArray[np.int32]


def first_hold_of(history: History, keepers: Sequence[Keeper], held: Bools, empty: Bools | None) -> Ranks:
    first = np.full(len(history), -1, dtype=np.int32)
    for number, hold in enumerate(keepers):
        if isinstance(hold, RetainRule):
            continue
        rows = history.per_dataset(held[:, number]) & (first < 0)
        if hold.transactions is not None and rows.any():
            at = np.flatnonzero(rows)
            ids = history.log["transaction"].take(pa.array(history.rows[at])).to_pylist()
            rows[at] = protecting(ids, hold.transactions)
        first[rows] = number
    return _with_bases(first, history, empty)


def _with_bases(first: Ranks, history: History, empty: Bools | None) -> Ranks:
    # A version without files of its own has those of the one before it: what keeps it keeps that one.
    if empty is None:
        return first
    at = np.flatnonzero(empty)
    base = history.nearest_above(at)
    at, base = at[(base >= 0) & (first[at] >= 0)], base[(base >= 0) & (first[at] >= 0)]
    # the first keeper of any of them
    last = np.iinfo(np.int32).max
    first = np.where(first < 0, last, first)
    np.minimum.at(first, base, first[at])
    return np.where(first < last, first, -1).astype(np.int32)


def kept_among(log: Log, transactions: Collection[str], keepers: Sequence[Keeper], as_of: datetime) -> list[str]:
    """Return those of some transactions, all of the one dataset of a sound log, that a hold or a retain rule keeps."""
    rows = in_one_piece(log.transactions)
    if not len(rows) or not transactions:
        return []
    history, live = History(rows, micros(as_of), copied_datasets(log.datasets)), [one for one in keepers if one.is_live(as_of)]
    held = datasets_chosen_by(rows, bounds_of(rows), log.datasets, [keeper.datasets for keeper in live], are_holds=True)
    empty = history.rows_of(datasets_with(log.datasets, EMPTY_VERSIONS, "kept"))
    empty = None if empty is None else empty & (history.type == DELETE)
    rule = _with_bases(first_rule_of(ScopeTable(history), live, held, as_of, None), history, empty)
    is_kept = history.in_log_order((first_hold_of(history, live, held, empty) >= 0) | (rule >= 0))
    names: list[str] = rows["transaction"].filter(pa.array(is_kept)).to_pylist()
    return sorted({*names}.intersection(transactions))


def retained_by(rules: Sequence[RetainRule], log: Log, as_of: datetime) -> Bools:
    """Tell for each transaction of a sound log if a retain rule keeps it."""
    rows = in_one_piece(log.transactions)
    if not len(rows):
        return np.zeros(0, dtype=bool)
    history = History(rows, micros(as_of), copied_datasets(log.datasets))
    held = datasets_chosen_by(rows, bounds_of(rows), log.datasets, [rule.datasets for rule in rules], are_holds=True)
    return history.in_log_order(first_rule_of(ScopeTable(history), rules, held, as_of, None)) >= 0


def first_rule_of(
    scopes: ScopeTable,
    keepers: Sequence[Keeper],
    held: Bools,
    as_of: datetime,
    on_line: Callable[[SelectorLine], None] | None,
) -> Ranks:
    history = scopes.history
    # where times are copied, a line that compares them keeps everything
    copied = np.False_ if history.copied is None else history.copied
    first = np.full(len(history), -1, dtype=np.int32)
    for number, rule in enumerate(keepers):
        if not (isinstance(rule, RetainRule) and held[:, number].any()):
            continue
        rows = history.per_dataset(held[:, number])
        if rule.younger_than:
            young = rows & (history.closed >= cut_off(as_of, rule.younger_than))
            if on_line:
                bound = TimeBound(history.closed, rule.younger_than)
                on_line(SelectorLine("younger_than", Reason.RETAIN_RULE, young, bound=bound))
            rows = young | (rows & ((history.closed == NEVER) | copied))
        if rule.where:
            rows &= history.column(evaluate(rule.where, history.log)) | (copied & names_times(rule.where))
        if rule.newest:
            kept = [kept.rows for kept in rows_kept(rule.newest, scopes.everywhere, scopes.line, history)]
            rows &= np.logical_or.reduce(kept) | (copied & rule.newest.compares_times)
        first[rows & (first < 0)] = number
    return first
