"""Sweeps in the ledger: what is spared, what is planned, what is begun, and its outcome.

Belongs here: the writes of a sweep, each behind the fence of its lease, the plan and the beginning of a batch before the store
acts, the outcomes after it.
Does not belong here: deleting (stores), and deciding what is still justified (sweep).

In order: settle what is `left` by an earlier sweep, `spare` what is not justified any more, `plan` the rest; per batch `begin`,
let the store delete what was begun, `settle`; then `finish`. The note by which the store finds a transaction again is in the
plan before anything begins.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, ScalarSelect, case, exists, insert, select, update

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.seals import digest_of, planned_seal
from retention_assets.ledger.clock_guard import has_come
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.leases import Lease, fence
from retention_assets.ledger.marks.marking import Marks
from retention_assets.ledger.marks.steps import NO_ERROR, MarkStep, by_id, move_marks, record_steps
from retention_assets.ledger.reports import ReportCounts, count
from retention_assets.ledger.schema import MARKS, PLANNED, PLANS, PUBLISHED
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.staging import append_rows
from retention_assets.sql.streams import stream
from retention_assets.sql.sums import fit

# The marks of a plan that have not begun yet.
PLANNED_ROWS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("transaction", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("note", pa.string()),
    ]
)


@dataclass(frozen=True)
class Settlement:
    """The outcome for one mark, the bytes that became free or are only hidden, the error if it failed, how many files stay."""

    mark: int
    outcome: Outcome
    bytes: int = 0
    error: str | None = None
    bytes_hidden: int = 0
    left: int = 0


class Planned(NamedTuple):
    """What the store knows of a mark that is to be planned: the bytes that it will free, and its note."""

    bytes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Plan:
    """What a sweep is about to delete; nothing that is not in a plan can begin."""

    id: int
    dataset: str
    marks: int
    bytes: int


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a ledger. Every write needs the lease of the dataset and is refused without it."""

    database: LedgerDatabase

    def left(self, dataset: str) -> pa.Table:
        """What an earlier sweep began and did not settle, with the note and the place of its plan: its bytes may be gone."""
        left = Marks(self.database).table([dataset], ["SWEEPING"])
        ids = left["id"].to_pylist()
        notes, places = self.notes(ids), self._places(ids)
        left = left.append_column("note", pa.array([notes.get(mark) for mark in ids], pa.string()))
        return left.append_column("place", pa.array([places.get(mark) for mark in ids], pa.string()))

    def notes(self, marks: Iterable[int]) -> dict[int, str]:
        """The newest note of each mark in any plan: by what the store finds it again is never forgotten."""
        query = select(PLANNED.c.mark, PLANNED.c.note).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        query = query.where(PLANNED.c.note.is_not(None)).order_by(PLANS.c.planned_at)
        found: dict[int, str] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                found |= {row.mark: row.note for row in connection.execute(query.where(where))}
        return found

    def _places(self, marks: Sequence[int]) -> dict[int, str | None]:
        """The place in the newest plan that has a mark, which is the one by which it was begun."""
        query = select(PLANNED.c.mark, PLANS.c.place).join(PLANS, PLANS.c.id == PLANNED.c.plan)
        query = query.order_by(PLANS.c.planned_at)
        found: dict[int, str | None] = {}
        with self.database.reading() as connection:
            for where in by_id(connection, marks, column=PLANNED.c.mark):
                found |= {row.mark: row.place for row in connection.execute(query.where(where))}
        return found

    def spare(self, lease: Lease, reasons: Mapping[int, str], execution_date: date | None = None) -> list[int]:
        """Spare marks that are not justified any more, each for its reason, unless they were unmarked; which were spared."""
        return self.database.write(lambda tx: _spare(tx, lease, reasons, execution_date))

    def plan(
        self, lease: Lease, marks: Mapping[int, Planned] | Iterable[int], as_of: datetime, place: str | None = None
    ) -> Plan:
        """Write down what is about to be deleted, and where it is: of these marks those that are MARKED and due."""
        wanted = dict(marks) if isinstance(marks, Mapping) else dict.fromkeys(marks, Planned())
        return self.database.write(lambda tx: _plan(tx, lease, wanted, as_of, place))

    def planned(self, plan: Plan) -> pa.Table:
        """The marks of a plan that have not begun yet, in the order of their ids."""
        columns = (MARKS.c.id, MARKS.c.transaction, MARKS.c.reason, PLANNED.c.bytes, PLANNED.c.note)
        query = select(*columns).join(PLANNED, PLANNED.c.mark == MARKS.c.id)
        query = query.where(PLANNED.c.plan == plan.id, MARKS.c.status == "MARKED").order_by(MARKS.c.id)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, PLANNED_ROWS), PLANNED_ROWS)

    def begin(self, lease: Lease, plan: Plan, marks: Iterable[int]) -> list[int]:
        """Those of a batch that may now be deleted. What was unmarked meanwhile is not among them."""
        wanted = sorted(set(marks))
        return self.database.write(lambda tx: _begin(tx, lease, plan, wanted))

    def settle(self, lease: Lease, settlements: Sequence[Settlement], execution_date: date | None = None) -> Counter[Outcome]:
        """Write down the outcomes of a batch and, in the same transaction, count them in the report of a day, if one is named.

        What failed is MARKED again, with one attempt more. Settling again what is settled counts nothing twice.
        """
        by_mark = {one.mark: one for one in settlements}
        return self.database.write(lambda tx: _settle(tx, lease, by_mark, execution_date))

    def finish(self, lease: Lease, plan: Plan) -> None:
        """Finish a plan: every mark of it was begun, or is not to be."""
        self.database.write(lambda tx: _finish(tx, lease, plan))


def _detail(lease: Lease, plan: Plan | None = None) -> dict[str, int]:
    return {"lease": lease.token, **({"plan": plan.id} if plan else {})}


def _spare(tx: WriteTransaction, lease: Lease, reasons: Mapping[int, str], execution_date: date | None) -> list[int]:
    fence(tx, lease)
    act = Act(ActType.SPARE, lease.holder, dataset=lease.dataset, detail=_detail(lease))
    steps: list[MarkStep] = []
    counted: list[ReportCounts] = []
    # Few reasons occur, however many marks are spared.
    for reason in sorted(set(reasons.values())):
        for where in by_id(
            tx.connection, (mark for mark in reasons if reasons[mark] == reason), MARKS.c.dataset == lease.dataset
        ):
            spared = move_marks(tx, act, "MARKED", "SPARED", where, {"why": reason})
            steps += [MarkStep(row.id, "SPARED", why=reason) for row in spared]
            counted += [ReportCounts(row.id, row.due_at, "spared", row.bytes) for row in spared]
    if steps:
        request_evaluations(tx, [lease.dataset])
    if record_steps(tx, act, steps) and execution_date:
        count(tx, act, execution_date, lease.dataset, counted)
    return sorted(step.mark for step in steps)


def _plan(tx: WriteTransaction, lease: Lease, marks: Mapping[int, Planned], as_of: datetime, place: str | None) -> Plan:
    fence(tx, lease)
    act, plan = new_id(), new_id()
    row = {"id": plan, "dataset": lease.dataset, "token": lease.token, "as_of": as_of, "marks": 0, "bytes": 0, "act": act}
    tx.connection.execute(insert(PLANS).values(**row, place=place, planned_at=DatabaseTime()))
    due = (MARKS.c.dataset == lease.dataset) & (MARKS.c.status == "MARKED") & _is_due(tx, as_of)
    rows: list[tuple[int, int, int | None, str | None]] = []
    for where in by_id(tx.connection, marks, due):
        for mark, logged in tx.connection.execute(select(MARKS.c.id, MARKS.c.bytes).where(where).order_by(MARKS.c.id)):
            size, note = marks[mark]
            rows.append((plan, mark, logged if size is None else size, note))
    rows.sort(key=itemgetter(1))
    seals = [planned_seal(*row) for row in rows]
    columns = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")]
    append_rows(tx.connection, PLANNED, columns, [(*row, seal) for row, seal in zip(rows, seals, strict=True)])
    amount, size = len(rows), fit(sum(row[2] or 0 for row in rows))
    tx.connection.execute(update(PLANS).where(PLANS.c.id == plan).values(marks=amount, bytes=size))
    detail = {**_detail(lease), "plan": plan, "as_of": text_of(as_of), "marks": amount, "bytes": size, "place": place}
    planning = Act(
        ActType.PLAN, lease.holder, dataset=lease.dataset, detail=detail, members=amount, digest=digest_of(seals), id=act
    )
    tx.seal(planning, PLANS, PLANS.c.id == plan)
    tx.record(planning)
    return Plan(plan, lease.dataset, amount, size)


def _is_due(tx: WriteTransaction, as_of: datetime | ScalarSelect[datetime]) -> ColumnElement[bool]:
    """Whether the grace of marks is over, as of an instant and by the ledger's own clock: the caller's word is not enough."""
    return (MARKS.c.due_at <= as_of) & has_come(MARKS.c.due_at, tx.connection)


def _begin(tx: WriteTransaction, lease: Lease, plan: Plan, marks: Sequence[int]) -> list[int]:
    fence(tx, lease)
    act = Act(ActType.BEGIN, lease.holder, dataset=lease.dataset, detail=_detail(lease, plan))
    # Beforehand: as a condition of what moves the marks, a server may read all of the plan for each batch.
    planned: list[int] = []
    for where in by_id(tx.connection, marks, PLANNED.c.plan == plan.id, PLANNED.c.mark):
        planned += tx.connection.execute(select(PLANNED.c.mark).where(where)).scalars()
    begun: list[int] = []
    as_of = select(PLANS.c.as_of).where(PLANS.c.id == plan.id).scalar_subquery()
    for where in by_id(tx.connection, planned, (MARKS.c.dataset == lease.dataset) & _is_due(tx, as_of)):
        begun += [row.id for row in move_marks(tx, act, "MARKED", "SWEEPING", where)]
    record_steps(tx, act, (MarkStep(mark, "SWEEPING") for mark in begun))
    return sorted(begun)


def _settle(
    tx: WriteTransaction, lease: Lease, settlements: Mapping[int, Settlement], execution_date: date | None
) -> Counter[Outcome]:
    fence(tx, lease)
    act = Act(ActType.SETTLE, lease.holder, dataset=lease.dataset, detail=_detail(lease))
    here = MARKS.c.dataset == lease.dataset
    errors: dict[str, dict[int, str]] = {}
    for mark, one in settlements.items():
        errors.setdefault(_ENDS.get(one.outcome, "SWEPT"), {})[mark] = one.error or NO_ERROR
    steps: list[MarkStep] = []
    counted: list[ReportCounts] = []
    for after, mine in errors.items():
        for where in by_id(tx.connection, mine, here):
            for row in move_marks(tx, act, "SWEEPING", after, where, _CHANGES[after](mine)):
                one = settlements[row.id]
                steps.append(MarkStep(row.id, after, None if after == "SPARED" else one.outcome.value, one.bytes, one.error))
                freed = one.bytes if after == "SWEPT" else 0
                name, left = one.outcome.value.lower(), one.left if after == "SWEPT" else 0
                counted.append(ReportCounts(row.id, row.due_at, name, row.bytes, freed, one.bytes_hidden, left))
    if any(step.status == "SPARED" for step in steps):
        request_evaluations(tx, [lease.dataset])
    if record_steps(tx, act, steps) and execution_date:
        count(tx, act, execution_date, lease.dataset, counted)
    return Counter(settlements[step.mark].outcome for step in steps)


# The state that a mark goes to when it is settled, if not SWEPT, and what its row says besides.
_ENDS = {Outcome.FAILED: "MARKED", Outcome.SPARED: "SPARED"}
_CHANGES: Mapping[str, Callable[[Mapping[int, str]], Mapping[str, Any]]] = {
    "SWEPT": lambda _: {},
    "MARKED": lambda errors: {"attempts": MARKS.c.attempts + 1, "last_error": case(errors, value=MARKS.c.id)},
    "SPARED": lambda errors: {"why": case(errors, value=MARKS.c.id)},
}


def _finish(tx: WriteTransaction, lease: Lease, plan: Plan) -> None:
    fence(tx, lease)
    mine = (PLANS.c.id == plan.id) & (PLANS.c.dataset == lease.dataset) & PLANS.c.finished_at.is_(None)
    if tx.connection.execute(select(PLANS.c.id).where(mine).with_for_update()).one_or_none():
        act = Act(ActType.FINISH, lease.holder, dataset=lease.dataset, detail=_detail(lease, plan))
        tx.seal(act, PLANS, PLANS.c.id == plan.id)
        tx.connection.execute(update(PLANS).where(PLANS.c.id == plan.id).values(finished_at=DatabaseTime(), act=act.id))
        tx.record(act)
        since = select(PLANS.c.planned_at).where(PLANS.c.id == plan.id).scalar_subquery()
        evaluated = exists().where(PUBLISHED.c.dataset == lease.dataset, PUBLISHED.c.published_at >= since)
        if tx.connection.execute(select(evaluated)).scalar_one():
            request_evaluations(tx, [lease.dataset])
