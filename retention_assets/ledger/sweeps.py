"""Sweeps as the ledger sees them: what is spared, what is planned, what is begun and what became of it.

Belongs here: the writes of a sweep, each behind the fence of its lease, and each before (the plan, the beginning of a batch) or
after (the outcomes) what the store does.
Does not belong here: deleting, and deciding what is still justified.

In order: `left` by an earlier sweep, `spare` what is not justified any more, `plan` the rest; per batch `begin`, let the store
delete what was begun, `settle`; then `finish`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

import pyarrow as pa
from sqlalchemy import case, exists, func, insert, literal, select, update

from retention_assets.ledger.audit import Act, Deed, new_id
from retention_assets.ledger.columns import Present
from retention_assets.ledger.database import Database, Writing
from retention_assets.ledger.leases import Lease, fence
from retention_assets.ledger.marks import Marks
from retention_assets.ledger.reports import count
from retention_assets.ledger.schema import MARKS, PLANNED, PLANS
from retention_assets.ledger.steps import Step, by_id, moved, record
from retention_assets.policy.instants import text_of


class Outcome(StrEnum):
    """What became of a transaction that the store was told to delete."""

    DELETED = "DELETED"
    ALREADY_GONE = "ALREADY_GONE"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Settlement:
    """The outcome for one mark, the bytes that became free, and the error if it failed."""

    mark: int
    outcome: Outcome
    bytes: int = 0
    error: str | None = None


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

    database: Database

    def left(self, dataset: str) -> pa.Table:
        """What an earlier sweep began and did not settle: its bytes may be gone, so it is to be deleted again and settled."""
        return Marks(self.database).table([dataset], ["SWEEPING"])

    def spare(self, lease: Lease, reasons: Mapping[int, str], execution_date: date | None = None) -> list[int]:
        """Marks that are not justified any more, each with its reason. Those that were unmarked meanwhile are left alone."""
        return self.database.write(lambda doing: _spare(doing, lease, reasons, execution_date))

    def plan(self, lease: Lease, marks: Iterable[int], as_of: datetime) -> Plan:
        """Write down what is about to be deleted: of these marks those that are MARKED and due."""
        wanted = sorted(set(marks))
        return self.database.write(lambda doing: _plan(doing, lease, wanted, as_of))

    def planned(self, plan: Plan) -> pa.Table:
        """The marks of a plan that have not begun yet, in the order of their ids."""
        query = select(MARKS.c.id, MARKS.c.transaction, PLANNED.c.bytes).join(PLANNED, PLANNED.c.mark == MARKS.c.id)
        query = query.where(PLANNED.c.plan == plan.id, MARKS.c.status == "MARKED").order_by(MARKS.c.id)
        with self.database.reading() as connection:
            columns = list(zip(*connection.execute(query), strict=True)) or [(), (), ()]
        types = (pa.int64(), pa.string(), pa.int64())
        return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], ["id", "transaction", "bytes"])

    def begin(self, lease: Lease, plan: Plan, marks: Iterable[int]) -> list[int]:
        """Those of a batch that may now be deleted. What was unmarked meanwhile is not among them."""
        wanted = sorted(set(marks))
        return self.database.write(lambda doing: _begin(doing, lease, plan, wanted))

    def settle(self, lease: Lease, settlements: Sequence[Settlement], execution_date: date | None = None) -> Counter[Outcome]:
        """Write down what became of a batch, and count it in the report of a day, if one is named, at once.

        What failed is MARKED again, with one attempt more. Settling again what is settled counts nothing twice.
        """
        by_mark = {one.mark: one for one in settlements}
        return self.database.write(lambda doing: _settle(doing, lease, by_mark, execution_date))

    def finish(self, lease: Lease, plan: Plan) -> None:
        """Every mark of the plan was begun or is not to be."""
        self.database.write(lambda doing: _finish(doing, lease, plan))


def _detail(lease: Lease, plan: Plan | None = None) -> dict[str, int]:
    return {"lease": lease.token, **({"plan": plan.id} if plan else {})}


def _spare(doing: Writing, lease: Lease, reasons: Mapping[int, str], execution_date: date | None) -> list[int]:
    fence(doing, lease)
    act = Act(Deed.SPARE, lease.holder, dataset=lease.dataset, detail=_detail(lease))
    steps = []
    # Few reasons occur, however many marks are spared.
    for reason in sorted(set(reasons.values())):
        for where in by_id((mark for mark in reasons if reasons[mark] == reason), MARKS.c.dataset == lease.dataset):
            spared = moved(doing, act, "MARKED", "SPARED", where, {"why": reason})
            steps += [Step(row.id, "SPARED", why=reason) for row in spared]
    if record(doing, act, steps) and execution_date:
        count(doing, execution_date, lease.dataset, spared=len(steps))
    return sorted(step.mark for step in steps)


def _plan(doing: Writing, lease: Lease, marks: Sequence[int], as_of: datetime) -> Plan:
    fence(doing, lease)
    act, plan = new_id(), new_id()
    row = {"id": plan, "dataset": lease.dataset, "token": lease.token, "as_of": as_of, "marks": 0, "bytes": 0, "act": act}
    doing.connection.execute(insert(PLANS).values(**row, planned_at=Present()))
    due = (MARKS.c.dataset == lease.dataset) & (MARKS.c.status == "MARKED") & (MARKS.c.due_at <= as_of)
    for where in by_id(marks, due):
        chosen = select(literal(plan), MARKS.c.id, MARKS.c.bytes).where(where)
        doing.connection.execute(insert(PLANNED).from_select(["plan", "mark", "bytes"], chosen))
    totals = select(func.count(), func.coalesce(func.sum(PLANNED.c.bytes), 0)).where(PLANNED.c.plan == plan)
    amount, size = (int(value) for value in doing.connection.execute(totals).one())
    doing.connection.execute(update(PLANS).where(PLANS.c.id == plan).values(marks=amount, bytes=size))
    detail = {**_detail(lease), "plan": plan, "as_of": text_of(as_of), "marks": amount, "bytes": size}
    doing.record(Act(Deed.PLAN, lease.holder, dataset=lease.dataset, detail=detail, id=act))
    return Plan(plan, lease.dataset, amount, size)


def _begin(doing: Writing, lease: Lease, plan: Plan, marks: Sequence[int]) -> list[int]:
    fence(doing, lease)
    act = Act(Deed.BEGIN, lease.holder, dataset=lease.dataset, detail=_detail(lease, plan))
    of_plan = exists().where(PLANNED.c.plan == plan.id, PLANNED.c.mark == MARKS.c.id)
    begun: list[int] = []
    for where in by_id(marks, of_plan & (MARKS.c.dataset == lease.dataset)):
        begun += [row.id for row in moved(doing, act, "MARKED", "SWEEPING", where)]
    record(doing, act, (Step(mark, "SWEEPING") for mark in begun))
    return sorted(begun)


def _settle(
    doing: Writing, lease: Lease, settlements: Mapping[int, Settlement], execution_date: date | None
) -> Counter[Outcome]:
    fence(doing, lease)
    act = Act(Deed.SETTLE, lease.holder, dataset=lease.dataset, detail=_detail(lease))
    failed = {mark: one.error or "no error was given" for mark, one in settlements.items() if one.outcome is Outcome.FAILED}
    here = MARKS.c.dataset == lease.dataset
    settled: list[int] = []
    for where in by_id(settlements.keys() - failed.keys(), here):
        settled += [row.id for row in moved(doing, act, "SWEEPING", "SWEPT", where)]
    for where in by_id(failed, here):
        again = {"attempts": MARKS.c.attempts + 1, "last_error": case(failed, value=MARKS.c.id)}
        settled += [row.id for row in moved(doing, act, "SWEEPING", "MARKED", where, again)]
    record(doing, act, (_step(settlements[mark]) for mark in settled))
    counts = Counter(settlements[mark].outcome for mark in settled)
    if settled and execution_date:
        freed = sum(settlements[mark].bytes for mark in settled if mark not in failed)
        columns = {outcome.value.lower(): amount for outcome, amount in counts.items()}
        count(doing, execution_date, lease.dataset, bytes_freed=freed, **columns)
    return counts


def _step(one: Settlement) -> Step:
    after = "MARKED" if one.outcome is Outcome.FAILED else "SWEPT"
    return Step(one.mark, after, one.outcome.value, one.bytes, one.error)


def _finish(doing: Writing, lease: Lease, plan: Plan) -> None:
    fence(doing, lease)
    mine = (PLANS.c.id == plan.id) & (PLANS.c.dataset == lease.dataset) & PLANS.c.finished_at.is_(None)
    if doing.connection.execute(update(PLANS).where(mine).values(finished_at=Present())).rowcount:
        doing.record(Act(Deed.FINISH, lease.holder, dataset=lease.dataset, detail=_detail(lease, plan)))
