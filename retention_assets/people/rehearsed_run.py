"""Rehearses a run: an evaluation that marks in the copy, and a sweep of what is due there, with what both did."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import keys_of
from retention_assets.frames.log import INSTANT, faults_of
from retention_assets.ledger.marking import CANDIDATES, PendingSweep
from retention_assets.people.rehearsal import NOTHING, Amount, Rehearsal, amount_of
from retention_assets.policy.durations import parse_duration
from retention_assets.stores.logs import read_chosen
from retention_assets.sweep.admission import Admission, Question
from retention_assets.sweep.dataset_sweep import SweepResult, refused_results

# Transaction of a plan. Times identify it; `due_at` is when the grace of its mark is over.
PLAN_ROWS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("dataset", "transaction", "policy", "reason")),
        pa.field("policy_version", pa.int32()),
        pa.field("bytes", pa.int64()),
        *(pa.field(name, INSTANT) for name in ("opened_at", "closed_at", "due_at")),
    ]
)
_KEYS = pa.schema([PLAN_ROWS.field(name) for name in ("dataset", "transaction")])
_FLAGS = [(name, pa.bool_()) for name in ("expires", "in_latest_view", "aside")]
# `bytes` will be free; `size` is that of the log
TAKEN = pa.schema([*PLAN_ROWS, ("size", pa.int64()), *_FLAGS, ("refs", pa.list_(pa.string()))])
SPARED = pa.schema([*PLAN_ROWS, ("why", pa.string())])


@dataclass(frozen=True, kw_only=True)
class RehearsedRun:
    """Effects of a run at an instant. Tables have the columns of `PLAN_ROWS`, and some of their own."""

    as_of: datetime
    newly_marked: pa.Table = field(default_factory=PLAN_ROWS.empty_table)
    # deleted or set aside
    taken: pa.Table = field(default_factory=TAKEN.empty_table)
    spared: pa.Table = field(default_factory=SPARED.empty_table)
    # set aside before, and deleted for good
    emptied: pa.Table = field(default_factory=PLAN_ROWS.empty_table)
    results: tuple[SweepResult, ...] = ()
    # by dataset why its log is refused
    unsound: Mapping[str, str] = field(default_factory=dict)
    admission: Admission = field(default_factory=Admission)
    # work of the sweep when it began, and what the logs had
    due: Sequence[PendingSweep] = ()
    stored: Amount = NOTHING

    @property
    def deleted(self) -> pa.Table:
        return self.taken.filter(pc.invert(self.taken["aside"]))

    @property
    def set_aside(self) -> pa.Table:
        return self.taken.filter(self.taken["aside"])

    @property
    def withheld(self) -> str | None:
        """Reason why nothing at all would be swept."""
        return f"Nothing would be swept. {self.admission.withheld}" if self.admission.withheld else None

    @property
    def left(self) -> Amount:
        """Amount of the logs without what was taken."""
        taken = amount_of(self.taken.select(["size"]).rename_columns(["bytes"]))
        return Amount(self.stored.transactions - taken.transactions, self.stored.bytes - taken.bytes)

    @property
    def to_do(self) -> bool:
        return any(map(len, (self.newly_marked, self.taken, self.spared, self.emptied)))


def rehearse_run(
    rehearsed: Rehearsal,
    environment: Environment,
    rules: RulesInForce,
    at: datetime,
    accept_large: bool,
    *,
    marks_all: bool = False,
) -> RehearsedRun:
    """Live through a run. The copy gets all new marks, or only those that the run sweeps itself."""
    begin = rehearsed.marking_time()
    candidates, newly_marked, unsound, stored = _judge(rehearsed, rules, begin, at)
    if not marks_all:
        candidates = candidates.filter(pc.less_equal(newly_marked["due_at"], pa.scalar(begin, INSTANT)))
    rehearsed.mark(candidates)
    due = rehearsed.due()
    datasets = [row.dataset for row in due]
    # a run judges anew before it sweeps, and its own checks decide
    admission = rehearsed.admit(environment, due, {Question.OBJECTION, *([Question.BRAKE] if accept_large else ())})
    refused = admission.refused
    aside = {(mark.dataset, mark.transaction): mark for mark in rehearsed.copy.trash.marks(datasets)}
    results = [] if admission.withheld else refused_results(refused)
    results += [] if admission.withheld else rehearsed.sweep_copy([name for name in datasets if name not in refused])
    recorded = [deletion for store in rehearsed.stores.values() for deletion in store.recorded]
    marks = rehearsed.copy.marks.table(datasets)
    # few of them, as the marks of all days before are there, too
    keys = pa.Table.from_pylist([vars(each) for each in recorded], _KEYS)
    own = marks.filter(pc.is_in(keys_of(marks), value_set=keys_of(keys))).to_pylist()
    by_key = {(row["dataset"], row["transaction"]): row for row in own}
    taken = [{**(row := by_key[each.dataset, each.transaction]), "size": row["bytes"], **vars(each)} for each in recorded]
    emptied = [{**row, "bytes": aside[row["dataset"], row["transaction"]].bytes or 0} for row in taken if row["from_trash"]]
    return RehearsedRun(
        as_of=at,
        newly_marked=newly_marked,
        taken=_in_order((row for row in taken if row["status"] != "SPARED" and not row["from_trash"]), TAKEN),
        spared=_in_order(rehearsed.newly_spared(marks), SPARED),
        emptied=_in_order(emptied, PLAN_ROWS),
        results=tuple(results),
        unsound=unsound,
        admission=admission,
        due=due,
        stored=stored,
    )


def _judge(
    rehearsed: Rehearsal, rules: RulesInForce, begin: datetime, at: datetime
) -> tuple[pa.Table, pa.Table, dict[str, str], Amount]:
    # share by share: only the planned part of what was read stays in memory
    parts, unsound, stored = [CANDIDATES.empty_table()], dict[str, str](), NOTHING
    for log in read_chosen(rehearsed.chosen):
        known = rehearsed.known(log)
        parts.append(rehearsed.candidates(log, known, rules, at))
        unsound |= faults_of(log.datasets)
        stored += rehearsed.stored(log, known)
    # Stable: within a dataset they stay in the order of its log.
    candidates = pa.concat_tables(parts).sort_by("dataset").combine_chunks()
    graces = candidates["grace"].unique().to_pylist()
    dues = pa.array([parse_duration(grace).after(begin) for grace in graces], INSTANT)
    due = dues.take(pc.index_in(candidates["grace"], value_set=pa.array(graces, pa.string())))
    newly_marked = candidates.append_column("due_at", due).select(PLAN_ROWS.names).cast(PLAN_ROWS)
    return candidates, newly_marked, dict(sorted(unsound.items())), stored


def _in_order(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    # by dataset, and there in the order in which they were marked, which is that of the log
    ordered: Sequence[Any] = sorted(rows, key=lambda row: (row["dataset"], row["id"]))
    return pa.Table.from_pylist(ordered, schema)
