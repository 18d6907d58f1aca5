"""A sweep's reads and writes in the ledger. Each write is fenced by the leases of its datasets and has one act for all of them.

In order: settle what is `left` by an earlier sweep, `spare` what is no longer justified, `plan` the rest; per batch `begin`,
let the store delete, `settle`; then `finish`. The note by which the store finds a transaction again is in the plan before
anything begins. Datasets whose lease is lost are left out and reported; the others go on.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import BigInteger, ColumnElement, Select, and_, bindparam, case, func, insert, literal, null, select, text

from retention_assets import clock
from retention_assets.ledger.audit.chain import Act, ActType, new_id, planned_seals
from retention_assets.ledger.clock_guard import has_come_by, present_by
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.leases import ALL_NAMES, Lease, NameRange, fence_all
from retention_assets.ledger.marking import MARK_ROWS, Marks
from retention_assets.ledger.reports import ReportCounts, count, only_one
from retention_assets.ledger.schema import MARKS, OPEN, PLANNED, PLANS, PUBLISHED, SWEPT, TIMES
from retention_assets.ledger.steps import (
    NO_ERROR,
    MarkStep,
    among,
    by_id,
    move_ids,
    record_steps,
    report_columns,
    same_steps,
    to_sweep_by,
)
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime, InstantColumn, fit
from retention_assets.sql.staging import append_rows
from retention_assets.sql.streams import numbers_of, stream
from retention_assets.sql.transactions import portions

_NAMES = pa.schema([MARK_ROWS.field("transaction")])
CONCERNED_ROWS = pa.schema([MARK_ROWS.field(name) for name in ("dataset", "transaction")])
# Columns that determine a transaction's class. Few datasets and states occur among many marks.
_WORD = pa.dictionary(pa.int32(), pa.string())
CLASSED_ROWS = pa.schema(
    [
        pa.field("dataset", _WORD),
        *(MARK_ROWS.field(name) for name in ("transaction", *TIMES)),
        pa.field("status", _WORD),
        # 1 or 0: returning an instant per mark takes twice the time.
        pa.field("is_due", pa.int8()),
    ]
)
# Built once: every batch uses it.
_HERE = MARKS.c.dataset.in_(bindparam("datasets", expanding=True))
# State after settling, if not SWEPT, and the columns that it sets.
_STATUS_AFTER = {Outcome.FAILED: "MARKED", Outcome.SPARED: "SPARED"}
# Outcome in a step, and its report counter; built once instead of per mark.
_OUTCOME_NAMES = {outcome: (str(outcome), str(outcome).lower()) for outcome in Outcome}


@dataclass(frozen=True)
class Settlement:
    """Outcome of a mark: bytes freed or hidden, the error of a failure, and the number of files that stay."""

    mark: int
    outcome: Outcome
    bytes: int = 0
    error: str | None = None
    bytes_hidden: int = 0
    left: int = 0


class Planned(NamedTuple):
    """The store's data for a planned mark: bytes that it will free, and its note."""

    bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Plan:
    """A plan of deletions; only planned marks can begin."""

    id: int
    dataset: str
    marks: int
    bytes: int


class Moved(NamedTuple):
    """Moved marks with their datasets, and why leases are lost, by dataset."""

    marks: Mapping[int, str]
    lost: Mapping[str, str]


class Plans(NamedTuple):
    """Plans by dataset, their marks, and why leases are lost, by dataset."""

    plans: Mapping[str, Plan]
    marks: frozenset[int]
    lost: Mapping[str, str]


@dataclass(frozen=True)
class _Share:
    """The leases that still hold in one transaction."""

    holder: str
    tokens: Mapping[str, int]
    lost: Mapping[str, str]
    parts: Mapping[str, Mapping[str, int]]

    @classmethod
    def fenced(cls, tx: WriteTransaction, leases: Collection[Lease]) -> Self:
        """Check and lock the leases: nobody takes them before the transaction ends."""
        lost = fence_all(tx, leases)
        tokens = {lease.dataset: lease.token for lease in leases if lease.dataset not in lost}
        parts = {lease.dataset: {"part": lease.part, "attempt": lease.attempt} for lease in leases if lease.part is not None}
        return cls(next((lease.holder for lease in leases), ""), tokens, lost, parts)

    def describe(self, act: Act, datasets: Collection[str], plans: Iterable[Plan] = ()) -> Act:
        names, ids = sorted(datasets), sorted(plan.id for plan in plans)
        act.dataset = only_one(names)
        if len(names) == 1:
            act.detail = {"lease": self.tokens[names[0]], **self.parts.get(names[0], {}), **({"plan": ids[0]} if ids else {})}
        else:
            act.detail = {"leases": {name: self.tokens[name] for name in names}, **({"plans": ids} if ids else {})}
        return act


class Sweeps(LedgerPart):
    """The sweeps of a ledger. Each write needs the leases of its datasets, and leaves out those whose lease is lost."""

    def left(self, datasets: Collection[str], names: NameRange = ALL_NAMES) -> pa.Table:
        """Marks that an earlier sweep began and did not settle, with note, place and bytes of their plan: they may be gone."""
        left = names.of(Marks(self.database).table(datasets, ["SWEEPING"]))
        ids = left["id"].to_pylist()
        plans = self._plans(ids)
        for at, (name, kind) in enumerate({"note": pa.string(), "place": pa.string(), "planned": pa.int64()}.items()):
            left = left.append_column(name, pa.array([plans[mark][at] if mark in plans else None for mark in ids], kind))
        return left

    def amounts(self, datasets: Collection[str], as_of: datetime) -> dict[str, int]:
        query = select(MARKS.c.dataset, func.count()).where(to_sweep_by(as_of)).group_by(MARKS.c.dataset)
        return dict(self.rows_among(query, MARKS.c.dataset, datasets))

    def due(self, datasets: Collection[str], as_of: datetime, names: NameRange = ALL_NAMES) -> npt.NDArray[np.int64]:
        query = select(MARKS.c.id).where(text(OPEN), MARKS.c.status == "MARKED", MARKS.c.due_at <= as_of, names.condition())
        ids = [np.empty(0, np.int64)]
        with self.database.reading() as connection:
            for part in portions(sorted(datasets)):
                part_query = query.where(MARKS.c.dataset.in_(part))
                # Sorting one dataset's ids here takes a tenth of the database's time.
                if len(part) == 1:
                    ids.append(np.sort(numbers_of(connection, part_query)))
                else:
                    ids.append(numbers_of(connection, part_query.order_by(MARKS.c.dataset, MARKS.c.id)))
        return np.concatenate(ids)

    def concerned(self, datasets: Collection[str], as_of: datetime, names: NameRange = ALL_NAMES) -> pa.Table:
        query = select(MARKS.c.dataset, MARKS.c.transaction).distinct().where(to_sweep_by(as_of), names.condition())
        rows = pa.Table.from_batches(self.streamed([query], MARKS.c.dataset, datasets, CONCERNED_ROWS), CONCERNED_ROWS)
        return rows.sort_by([("dataset", "ascending"), ("transaction", "ascending")])

    def concerned_names(self, datasets: Collection[str], as_of: datetime) -> Iterator[pa.RecordBatch]:
        """Names of due or begun marks, unsorted and possibly repeated."""
        query = select(MARKS.c.transaction).where(to_sweep_by(as_of))
        return self.streamed([query], MARKS.c.dataset, datasets, _NAMES)

    def due_rows(self, ids: Sequence[int]) -> pa.Table:
        columns = [MARKS.c[name] for name in MARK_ROWS.names]
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for where in by_id(connection, ids, MARKS.c.status == "MARKED"):
                parts += stream(connection, select(*columns).where(where), MARK_ROWS)
        return pa.Table.from_batches(parts, MARK_ROWS).sort_by([("dataset", "ascending"), ("id", "ascending")])

    def classed(self, datasets: Collection[str], as_of: datetime) -> pa.Table:
        """Open and swept marks with their class columns. Only swept marks have times: an open mark blocks its id."""
        columns = {**MARKS.c, "is_due": case((MARKS.c.due_at <= as_of, 1), else_=0).label("is_due")}
        no_times = {name: null().label(name) for name in TIMES}
        # One query per partial index, with the exact text of its condition.
        queries = [
            select(*((columns | times)[name] for name in CLASSED_ROWS.names)).where(text(condition))
            for condition, times in ((OPEN, no_times), (SWEPT, {}))
        ]
        batches = self.streamed(queries, MARKS.c.dataset, datasets, CLASSED_ROWS)
        return pa.Table.from_batches(batches, CLASSED_ROWS).unify_dictionaries()

    def notes(self, marks: Iterable[int]) -> dict[int, str]:
        # by its note the store finds a transaction again
        return {mark: note for mark, (note, *_) in self._plans(marks).items() if note is not None}

    def _plans(self, marks: Iterable[int]) -> dict[int, tuple[str | None, str | None, int | None]]:
        # the newest note of each mark, with place and bytes of its newest plan
        query = select(PLANNED.c.mark, PLANNED.c.note, PLANS.c.place, PLANNED.c.bytes).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        plans: dict[int, tuple[str | None, str | None, int | None]] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                for mark, note, place, size in connection.execute(query.where(where).order_by(PLANS.c.planned_at)):
                    plans[mark] = (plans[mark][0] if note is None and mark in plans else note, place, size)
        return plans

    @audited
    def postpone(
        self, tx: WriteTransaction, dataset: str, transactions: Sequence[str], within: datetime, until: datetime, actor: str
    ) -> None:
        """Record, before the store is told, that transactions expiring by `within` stay until `until`."""
        names = json.dumps(sorted(transactions), ensure_ascii=False).encode(errors="surrogatepass")
        detail = {
            "transactions": len(transactions),
            "digest": hashlib.sha256(names).hexdigest(),
            "within": text_of(within),
            "until": text_of(until),
        }
        act = Act(ActType.POSTPONE, actor, "They are unfinished, not archived, or held.", dataset, detail=detail)
        tx.record(act)

    @audited
    def spare(
        self, tx: WriteTransaction, leases: Collection[Lease], reasons: Mapping[int, str], execution_date: date | None = None
    ) -> Moved:
        """Spare unjustified marks unless they were unmarked."""
        share = _Share.fenced(tx, leases)
        act = Act(ActType.SPARE, share.holder)
        steps: list[MarkStep] = []
        # One statement per reason: few reasons occur.
        for reason in sorted(set(reasons.values())) if share.tokens else ():
            marks = [mark for mark in reasons if reasons[mark] == reason]
            moves = move_ids(tx, act, "MARKED", "SPARED", marks, _HERE, {"datasets": sorted(share.tokens)}, {"why": reason})
            steps += same_steps(moves, "SPARED", reason)
        moved = _datasets(tx, [step[0] for step in steps], share.tokens)
        if moved:
            request_evaluations(tx, set(moved.values()))
            share.describe(act, set(moved.values()))
        if record_steps(tx, act, steps) and execution_date:
            counted: dict[str, list[ReportCounts]] = {}
            for row in report_columns(tx, moved):
                counted.setdefault(row.dataset, []).append(ReportCounts(row.id, row.due_at, "spared", row.bytes))
            count(tx, act, execution_date, counted)
        return Moved(moved, share.lost)

    @audited
    def plan(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        marks: Mapping[int, Planned],
        as_of: datetime,
        places: Mapping[str, str | None],
    ) -> Plans:
        """Record what is about to be deleted, and its place by dataset: those of the marks that are MARKED and due."""
        share = _Share.fenced(tx, leases)
        names = sorted(share.tokens.keys() & places.keys())
        if not names:
            return Plans({}, frozenset(), share.lost)
        act, plans = new_id(), {name: new_id() for name in names}
        common = {"as_of": as_of, "planned_at": tx.present(), "act": act}
        # Marks and bytes are known before the plans are written: the planner holds the leases, so nobody else begins on them.
        # Due as of the caller's instant and by the ledger's own clock.
        is_due = (MARKS.c.due_at <= as_of) & has_come_by(MARKS.c.due_at, literal(present_by(tx.connection), InstantColumn()))
        due = MARKS.c.dataset.in_(names) & (MARKS.c.status == "MARKED") & is_due
        rows: list[tuple[int, int, int | None]] = []
        for where in by_id(tx.connection, marks, due):
            matched = tx.connection.execute(select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes).where(where)).all()
            for mark, dataset, logged in matched:
                size = marks[mark].bytes
                rows.append((plans[dataset], mark, logged if size is None else size))
        rows.sort()
        amounts, sizes = dict.fromkeys(plans.values(), 0), dict.fromkeys(plans.values(), 0)
        for plan, _, size in rows:
            amounts[plan] += 1
            sizes[plan] += size or 0
        recorded = {name: Plan(plan, name, amounts[plan], fit(sizes[plan])) for name, plan in plans.items()}
        written = [
            {**common, "id": plan.id, "dataset": name, "token": share.tokens[name], "marks": plan.marks, "bytes": plan.bytes}
            | {"place": places[name]}
            for name, plan in recorded.items()
        ]
        tx.connection.execute(insert(PLANS), written)
        columns, digest = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")], hashlib.sha256()
        # In batches: a plan may have millions of marks, and only a few numbers of each are kept.
        for part in portions(rows):
            sealed = planned_seals(noted := [(*row, marks[row[1]].note) for row in part])
            append_rows(tx.connection, PLANNED, columns, [(*row, seal) for row, seal in zip(noted, sealed, strict=True)])
            digest.update("".join(sealed).encode())
        planning = share.describe(Act(ActType.PLAN, share.holder, id=act), names, recorded.values())
        total = {"marks": len(rows), "bytes": fit(sum(sizes.values()))}
        place = {"place": places[names[0]]} if len(names) == 1 else {}
        planning.detail = {**planning.detail, "as_of": text_of(as_of), **total, **place}
        planning.members, planning.digest = len(rows), digest.hexdigest()
        for these in portions(sorted(plans.values())):
            tx.seal(PLANS, PLANS.c.id.in_(these), planning)
        tx.record(planning)
        return Plans(recorded, frozenset(row[1] for row in rows), share.lost)

    @audited
    def begin(self, tx: WriteTransaction, leases: Collection[Lease], plans: Collection[Plan], marks: Collection[int]) -> Moved:
        """Return the marks of a batch that may now be deleted; those unmarked meanwhile are left out."""
        share = _Share.fenced(tx, leases)
        own = {plan.dataset: plan for plan in plans if plan.dataset in share.tokens}
        if not own:
            return Moved({}, share.lost)
        act = Act(ActType.BEGIN, share.holder)
        ids = sorted(plan.id for plan in own.values())
        name = tx.connection.dialect.name
        parameters = {"datasets": sorted(own), "plans": ids, **({"present": clock.now()} if name == "sqlite" else {})}
        moved = move_ids(tx, act, "MARKED", "SWEEPING", _planned(tx, ids, sorted(set(marks))), _may_begin(name), parameters)
        begun = _datasets(tx, moved, own)
        if begun:
            datasets = set(begun.values())
            share.describe(act, datasets, (own[name] for name in datasets))
        record_steps(tx, act, same_steps(moved, "SWEEPING"))
        return Moved(begun, share.lost)

    @audited
    def settle(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        settled: Sequence[Settlement],
        execution_date: date | None = None,
    ) -> Moved:
        """Record outcomes and count them in a day's reports, in one transaction.

        A failed mark is MARKED again with one more attempt. Settling again what is settled counts nothing twice.
        """
        share = _Share.fenced(tx, leases)
        if not share.tokens:
            return Moved({}, share.lost)
        settlements = {settlement.mark: settlement for settlement in settled}
        act, here = Act(ActType.SETTLE, share.holder), {"datasets": sorted(share.tokens)}
        ends: dict[str, list[int]] = {}
        for mark, settlement in settlements.items():
            ends.setdefault(_STATUS_AFTER.get(settlement.outcome, "SWEPT"), []).append(mark)
        steps: list[MarkStep] = []
        for after, marks in ends.items():
            moved = move_ids(tx, act, "SWEEPING", after, marks, _HERE, here, _CHANGES[after](settlements, marks))
            for mark in moved:
                settlement = settlements[mark]
                outcome = None if after == "SPARED" else _OUTCOME_NAMES[settlement.outcome][0]
                steps.append((mark, after, outcome, settlement.bytes, settlement.error))
        moved = [step[0] for step in steps]
        datasets = _datasets(tx, moved, share.tokens)
        if spared := {datasets[step[0]] for step in steps if step[1] == "SPARED"}:
            request_evaluations(tx, spared)
        if steps:
            share.describe(act, set(datasets.values()))
        if record_steps(tx, act, steps) and execution_date:
            count(tx, act, execution_date, _counted(tx, steps, settlements))
        return Moved(datasets, share.lost)

    @audited
    def finish(self, tx: WriteTransaction, leases: Collection[Lease], plans: Collection[Plan]) -> Mapping[str, str]:
        """Finish plans: each of their marks was begun, or will not be. Returns why leases are lost, by dataset."""
        share = _Share.fenced(tx, leases)
        plans_by_id = {plan.id: plan for plan in plans if plan.dataset in share.tokens}
        is_mine = PLANS.c.id.in_(sorted(plans_by_id)) & PLANS.c.dataset.in_(sorted(share.tokens))
        query = select(PLANS.c.id).where(is_mine, PLANS.c.finished_at.is_(None)).order_by(PLANS.c.id)
        ids = tx.connection.execute(query.with_for_update()).scalars().all()
        if ids:
            over = [plans_by_id[plan] for plan in ids]
            act = share.describe(Act(ActType.FINISH, share.holder), {plan.dataset for plan in over}, over)
            these = PLANS.c.id.in_(ids)
            tx.change(act, PLANS, these, finished_at=DatabaseTime())
            evaluated = select(PLANS.c.dataset).join(PUBLISHED, PUBLISHED.c.dataset == PLANS.c.dataset)
            evaluated = evaluated.where(these, PUBLISHED.c.published_at >= PLANS.c.planned_at)
            request_evaluations(tx, tx.connection.execute(evaluated).scalars())
        return share.lost


@cache
def _may_begin(name: str) -> ColumnElement[bool]:
    # Due as of the plan and by the ledger's own clock. All plans of a share have one instant.
    as_of = select(func.min(PLANS.c.as_of)).where(PLANS.c.id.in_(bindparam("plans", expanding=True))).scalar_subquery()
    present = bindparam("present", type_=InstantColumn()) if name == "sqlite" else DatabaseTime()
    return and_(_HERE, MARKS.c.due_at <= as_of, has_come_by(MARKS.c.due_at, present))


@cache
def _of_plan(name: str) -> Select[int]:
    in_plan = PLANNED.c.plan == bindparam("plan", type_=BigInteger)
    return select(func.count()).where(in_plan, among(name, PLANNED.c.mark))


def _planned(tx: WriteTransaction, plans: Sequence[int], marks: Sequence[int]) -> Sequence[int]:
    # Queried first: as a condition of the update PostgreSQL may read the whole plan for each batch. Nearly always all are in
    # it, so one plan's marks are counted first.
    planned: list[int] = []
    for part in portions(marks):
        parameters = {"plan": plans[0], "ids": part}
        count_planned = _of_plan(tx.connection.dialect.name)
        if len(plans) == 1 and tx.connection.execute(count_planned, parameters).scalar_one() == len(part):
            planned += part
            continue
        for where in by_id(tx.connection, part, PLANNED.c.plan.in_(plans), PLANNED.c.mark):
            planned += tx.connection.execute(select(PLANNED.c.mark).where(where)).scalars()
    return planned


def _datasets(tx: WriteTransaction, marks: Sequence[int], among: Collection[str]) -> dict[int, str]:
    if len(among) == 1:
        return dict.fromkeys(marks, next(iter(among)))
    datasets: dict[int, str] = {}
    for where in by_id(tx.connection, marks):
        datasets |= {row[0]: row[1] for row in tx.connection.execute(select(MARKS.c.id, MARKS.c.dataset).where(where))}
    return datasets


def _counted(
    tx: WriteTransaction, steps: Sequence[MarkStep], settlements: Mapping[int, Settlement]
) -> Mapping[str, list[ReportCounts]]:
    swept = {step[0] for step in steps if step[1] == "SWEPT"}
    counted: dict[str, list[ReportCounts]] = {}
    for mark, dataset, logged, due_at in report_columns(tx, (step[0] for step in steps)):
        settlement = settlements[mark]
        freed, left = (settlement.bytes, settlement.left) if mark in swept else (0, 0)
        amount = ReportCounts(mark, due_at, _OUTCOME_NAMES[settlement.outcome][1], logged, freed, settlement.bytes_hidden, left)
        counted.setdefault(dataset, []).append(amount)
    return counted


_CHANGES: Mapping[str, Callable[[Mapping[int, Settlement], Sequence[int]], Mapping[str, Any]]] = {
    "SWEPT": lambda _, __: {},
    "MARKED": lambda settlements, marks: {"attempts": MARKS.c.attempts + 1, "last_error": _errors(settlements, marks)},
    "SPARED": lambda settlements, marks: {"why": _errors(settlements, marks)},
}


def _errors(settlements: Mapping[int, Settlement], marks: Sequence[int]) -> ColumnElement[str]:
    return case({mark: settlements[mark].error or NO_ERROR for mark in marks}, value=MARKS.c.id)
