"""Sweeps in the ledger: what is spared, what is planned, what is begun, and its outcome.

Belongs here: the writes of a sweep, each behind the fence of its lease, the plan and the beginning of a batch before the store
acts, the outcomes after it.
Does not belong here: deleting (stores), and deciding what is still justified (sweep).

In order: settle what is `left` by an earlier sweep, `spare` what is not justified any more, `plan` the rest; per batch `begin`,
let the store delete what was begun, `settle`; then `finish`. The note by which the store finds a transaction again is in the
plan before anything begins.

Each write is about a share: some datasets, each with its lease, in one transaction and with one act. A dataset whose lease is
lost is left out of it, and the answer says so; the others go on.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import ColumnElement, ScalarSelect, case, func, insert, or_, select, text, update

from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.seals import digest_of, planned_seal
from retention_assets.ledger.clock_guard import has_come
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.evaluations import request_evaluations
from retention_assets.ledger.marks.marking import MARK_ROWS, Marks
from retention_assets.ledger.marks.steps import NO_ERROR, MarkStep, by_id, move_marks, record_steps
from retention_assets.ledger.schema import MARKS, OPEN, PLANNED, PLANS, PUBLISHED, SWEPT
from retention_assets.ledger.sweeps.leases import Lease, LeaseLost, fence_all
from retention_assets.ledger.sweeps.reports import ReportCounts, count, only_one
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.staging import append_rows
from retention_assets.sql.streams import stream
from retention_assets.sql.sums import fit
from retention_assets.sql.transactions import portions

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

_IDS = pa.schema([PLANNED_ROWS.field("id")])
# What a sweep has to do with, by name.
CONCERNED_ROWS = pa.schema([MARK_ROWS.field(name) for name in ("dataset", "transaction")])
# What tells the class of a transaction.
CLASSED_ROWS = pa.schema(
    [MARK_ROWS.field(name) for name in ("dataset", "transaction", "opened_at", "closed_at", "due_at", "status")]
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


class Moved(NamedTuple):
    """The marks that a write has moved, each with its dataset; and of datasets whose lease is lost, why."""

    marks: Mapping[int, str]
    lost: Mapping[str, str]


class Plans(NamedTuple):
    """Plans by dataset, and the marks that are in them; and of datasets whose lease is lost, why."""

    plans: Mapping[str, Plan]
    marks: frozenset[int]
    lost: Mapping[str, str]


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a ledger. Every write needs the lease of the dataset and is refused without it."""

    database: LedgerDatabase

    def left(self, datasets: str | Collection[str]) -> pa.Table:
        """What an earlier sweep began and did not settle, with the note and the place of its plan: its bytes may be gone."""
        left = Marks(self.database).table([datasets] if isinstance(datasets, str) else datasets, ["SWEEPING"])
        ids = left["id"].to_pylist()
        notes, places = self.notes(ids), self._places(ids)
        left = left.append_column("note", pa.array([notes.get(mark) for mark in ids], pa.string()))
        return left.append_column("place", pa.array([places.get(mark) for mark in ids], pa.string()))

    def amounts(self, datasets: Collection[str], as_of: datetime) -> dict[str, int]:
        """How many marks of each dataset a sweep has to do with: those that are due, and those on which one has begun."""
        query = select(MARKS.c.dataset, func.count()).group_by(MARKS.c.dataset)
        query = query.where(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of))
        found: dict[str, int] = {}
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                found |= {row[0]: row[1] for row in connection.execute(query.where(MARKS.c.dataset.in_(some)))}
        return found

    def due(self, datasets: Collection[str], as_of: datetime) -> npt.NDArray[np.int64]:
        """The ids of the marks of some datasets whose grace is over, by dataset."""
        query = select(MARKS.c.id).where(text(OPEN), MARKS.c.status == "MARKED", MARKS.c.due_at <= as_of)
        query = query.order_by(MARKS.c.dataset, MARKS.c.id)
        found = [np.empty(0, np.int64)]
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                batches = stream(connection, query.where(MARKS.c.dataset.in_(some)), _IDS)
                found += [batch.column(0).to_numpy() for batch in batches]
        return np.concatenate(found)

    def concerned(self, datasets: Collection[str], as_of: datetime) -> pa.Table:
        """The transactions that a sweep has to do with: those that are due, and those on which one has begun."""
        query = select(MARKS.c.dataset, MARKS.c.transaction).distinct()
        query = query.where(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= as_of))
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                parts += stream(connection, query.where(MARKS.c.dataset.in_(some)), CONCERNED_ROWS)
        return pa.Table.from_batches(parts, CONCERNED_ROWS).sort_by([("dataset", "ascending"), ("transaction", "ascending")])

    def due_rows(self, ids: Sequence[int]) -> pa.Table:
        """Those of some marks that are still MARKED, by dataset."""
        columns = [MARKS.c[name] for name in MARK_ROWS.names]
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for where in by_id(connection, ids, MARKS.c.status == "MARKED"):
                parts += stream(connection, select(*columns).where(where), MARK_ROWS)
        return pa.Table.from_batches(parts, MARK_ROWS).sort_by([("dataset", "ascending"), ("id", "ascending")])

    def classed(self, datasets: Collection[str]) -> pa.Table:
        """The marks of some datasets that are open or swept, with what tells the class of a transaction."""
        parts: list[pa.RecordBatch] = []
        with self.database.reading() as connection:
            for some in portions(sorted(datasets)):
                # One after the other, each in the very words of its index.
                for condition in (OPEN, SWEPT):
                    query = select(*(MARKS.c[name] for name in CLASSED_ROWS.names))
                    parts += stream(connection, query.where(text(condition), MARKS.c.dataset.in_(some)), CLASSED_ROWS)
        return pa.Table.from_batches(parts, CLASSED_ROWS)

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
        return sorted(_held(lease, self.spare_all([lease], reasons, execution_date)).marks)

    def spare_all(self, leases: Collection[Lease], reasons: Mapping[int, str], execution_date: date | None = None) -> Moved:
        """The same for the marks of many datasets."""
        return self.database.write(lambda tx: _spare(tx, leases, reasons, execution_date))

    def plan(
        self, lease: Lease, marks: Mapping[int, Planned] | Iterable[int], as_of: datetime, place: str | None = None
    ) -> Plan:
        """Write down what is about to be deleted, and where it is: of these marks those that are MARKED and due."""
        wanted = dict(marks) if isinstance(marks, Mapping) else dict.fromkeys(marks, Planned())
        return _held(lease, self.plan_all([lease], wanted, as_of, {lease.dataset: place})).plans[lease.dataset]

    def plan_all(
        self, leases: Collection[Lease], marks: Mapping[int, Planned], as_of: datetime, places: Mapping[str, str | None]
    ) -> Plans:
        """The same for many datasets: a plan for each of `places`, with where its data is."""
        return self.database.write(lambda tx: _plan(tx, leases, marks, as_of, places))

    def planned(self, plan: Plan) -> pa.Table:
        """The marks of a plan that have not begun yet, in the order of their ids."""
        columns = (MARKS.c.id, MARKS.c.transaction, MARKS.c.reason, PLANNED.c.bytes, PLANNED.c.note)
        query = select(*columns).join(PLANNED, PLANNED.c.mark == MARKS.c.id)
        query = query.where(PLANNED.c.plan == plan.id, MARKS.c.status == "MARKED").order_by(MARKS.c.id)
        with self.database.reading() as connection:
            return pa.Table.from_batches(stream(connection, query, PLANNED_ROWS), PLANNED_ROWS)

    def begin(self, lease: Lease, plan: Plan, marks: Iterable[int]) -> list[int]:
        """Those of a batch that may now be deleted. What was unmarked meanwhile is not among them."""
        return sorted(_held(lease, self.begin_all([lease], [plan], marks)).marks)

    def begin_all(self, leases: Collection[Lease], plans: Collection[Plan], marks: Iterable[int]) -> Moved:
        """The same for a batch of many datasets."""
        wanted = sorted(set(marks))
        return self.database.write(lambda tx: _begin(tx, leases, plans, wanted))

    def settle(self, lease: Lease, settlements: Sequence[Settlement], execution_date: date | None = None) -> Counter[Outcome]:
        """Write down the outcomes of a batch and, in the same transaction, count them in the report of a day, if one is named.

        What failed is MARKED again, with one attempt more. Settling again what is settled counts nothing twice.
        """
        by_mark = {one.mark: one for one in settlements}
        moved = _held(lease, self.settle_all([lease], settlements, execution_date)).marks
        return Counter(by_mark[mark].outcome for mark in moved)

    def settle_all(
        self, leases: Collection[Lease], settlements: Sequence[Settlement], execution_date: date | None = None
    ) -> Moved:
        """The same for a batch of many datasets."""
        by_mark = {one.mark: one for one in settlements}
        return self.database.write(lambda tx: _settle(tx, leases, by_mark, execution_date))

    def finish(self, lease: Lease, plan: Plan) -> None:
        """Finish a plan: every mark of it was begun, or is not to be."""
        if lost := self.finish_all([lease], [plan]):
            raise LeaseLost(lost[lease.dataset])

    def finish_all(self, leases: Collection[Lease], plans: Collection[Plan]) -> Mapping[str, str]:
        """The same for many plans; of datasets whose lease is lost, why."""
        return self.database.write(lambda tx: _finish(tx, leases, plans))


Done = TypeVar("Done", Moved, Plans)


def _held(lease: Lease, done: Done) -> Done:
    if lease.dataset in done.lost:
        raise LeaseLost(done.lost[lease.dataset])
    return done


@dataclass(frozen=True)
class _Share:
    """What of some leases still holds, as one transaction finds it."""

    holder: str
    tokens: Mapping[str, int]
    lost: Mapping[str, str]

    @classmethod
    def fenced(cls, tx: WriteTransaction, leases: Collection[Lease]) -> Self:
        """Look, and lock: nobody takes any of them before the transaction ends."""
        lost = fence_all(tx, leases)
        mine = {one.dataset: one.token for one in leases if one.dataset not in lost}
        return cls(next((one.holder for one in leases), ""), mine, lost)

    def has(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a row is of a dataset whose lease holds."""
        return column.in_(sorted(self.tokens))

    def act(self, deed: ActType, datasets: Collection[str], plans: Iterable[Plan] = (), number: int | None = None) -> Act:
        """One act about some of the datasets. It names leases and plans by which whoever reads it finds the rest."""
        names, ids = sorted(datasets), sorted(plan.id for plan in plans)
        act = Act(deed, self.holder, dataset=only_one(names))
        if len(names) == 1:
            act.detail = {"lease": self.tokens[names[0]], **({"plan": ids[0]} if ids else {})}
        else:
            act.detail = {"leases": {name: self.tokens[name] for name in names}, **({"plans": ids} if ids else {})}
        if number is not None:
            act.id = number
        return act


def _spare(tx: WriteTransaction, leases: Collection[Lease], reasons: Mapping[int, str], execution_date: date | None) -> Moved:
    share = _Share.fenced(tx, leases)
    act = Act(ActType.SPARE, share.holder)
    steps: list[MarkStep] = []
    counted: dict[str, list[ReportCounts]] = {}
    moved: dict[int, str] = {}
    # Few reasons occur, however many marks are spared.
    for reason in sorted(set(reasons.values())) if share.tokens else ():
        for where in by_id(tx.connection, (mark for mark in reasons if reasons[mark] == reason), share.has(MARKS.c.dataset)):
            for row in move_marks(tx, act, "MARKED", "SPARED", where, {"why": reason}):
                steps.append(MarkStep(row.id, "SPARED", why=reason))
                counted.setdefault(row.dataset, []).append(ReportCounts(row.id, row.due_at, "spared", row.bytes))
                moved[row.id] = row.dataset
    if steps:
        request_evaluations(tx, counted)
        _say(act, share.act(ActType.SPARE, counted))
    if record_steps(tx, act, steps) and execution_date:
        count(tx, act, execution_date, counted)
    return Moved(moved, share.lost)


def _say(act: Act, words: Act) -> None:
    """Give an act the words that are known only once it is known what was moved."""
    act.dataset, act.detail = words.dataset, words.detail


def _plan(
    tx: WriteTransaction,
    leases: Collection[Lease],
    marks: Mapping[int, Planned],
    as_of: datetime,
    places: Mapping[str, str | None],
) -> Plans:
    share = _Share.fenced(tx, leases)
    names = sorted(share.tokens.keys() & places.keys())
    if not names:
        return Plans({}, frozenset(), share.lost)
    act, plans = new_id(), {name: new_id() for name in names}
    common = {"as_of": as_of, "planned_at": tx.present(), "act": act}
    # Marks and bytes are known before the plans are written: who plans holds the leases, so nobody else begins on them.
    due = MARKS.c.dataset.in_(names) & (MARKS.c.status == "MARKED") & _is_due(tx, as_of)
    rows: list[tuple[int, int, int | None, str | None]] = []
    for where in by_id(tx.connection, marks, due):
        for mark, dataset, logged in tx.connection.execute(select(MARKS.c.id, MARKS.c.dataset, MARKS.c.bytes).where(where)):
            size, note = marks[mark]
            rows.append((plans[dataset], mark, logged if size is None else size, note))
    rows.sort(key=itemgetter(0, 1))
    amounts, sizes = Counter(row[0] for row in rows), Counter[int]()
    for row in rows:
        sizes[row[0]] += row[2] or 0
    made = {name: Plan(plan, name, amounts[plan], fit(sizes[plan])) for name, plan in plans.items()}
    written = [
        {**common, "id": one.id, "dataset": name, "token": share.tokens[name], "marks": one.marks, "bytes": one.bytes}
        | {"place": places[name]}
        for name, one in made.items()
    ]
    tx.connection.execute(insert(PLANS), written)
    seals = [planned_seal(*row) for row in rows]
    columns = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")]
    append_rows(tx.connection, PLANNED, columns, [(*row, seal) for row, seal in zip(rows, seals, strict=True)])
    planning = share.act(ActType.PLAN, names, made.values(), act)
    total = {"marks": len(rows), "bytes": fit(sum(sizes.values()))}
    place = {"place": places[names[0]]} if len(names) == 1 else {}
    planning.detail = {**planning.detail, "as_of": text_of(as_of), **total, **place}
    planning.members, planning.digest = len(rows), digest_of(seals)
    for some in portions(sorted(plans.values())):
        tx.seal(planning, PLANS, PLANS.c.id.in_(some))
    tx.record(planning)
    return Plans(made, frozenset(row[1] for row in rows), share.lost)


def _is_due(tx: WriteTransaction, as_of: datetime | ScalarSelect[datetime]) -> ColumnElement[bool]:
    """Whether the grace of marks is over, as of an instant and by the ledger's own clock: the caller's word is not enough."""
    return (MARKS.c.due_at <= as_of) & has_come(MARKS.c.due_at, tx.connection)


def _begin(tx: WriteTransaction, leases: Collection[Lease], plans: Collection[Plan], marks: Sequence[int]) -> Moved:
    share = _Share.fenced(tx, leases)
    mine = {plan.dataset: plan for plan in plans if plan.dataset in share.tokens}
    if not mine:
        return Moved({}, share.lost)
    act = Act(ActType.BEGIN, share.holder)
    ids = sorted(plan.id for plan in mine.values())
    # Beforehand: as a condition of what moves the marks, a server may read all of the plan for each batch.
    planned: list[int] = []
    for where in by_id(tx.connection, marks, PLANNED.c.plan.in_(ids), PLANNED.c.mark):
        planned += tx.connection.execute(select(PLANNED.c.mark).where(where)).scalars().all()
    begun: dict[int, str] = {}
    # The plans of a share are of one instant.
    as_of = select(func.min(PLANS.c.as_of)).where(PLANS.c.id.in_(ids)).scalar_subquery()
    for where in by_id(tx.connection, planned, MARKS.c.dataset.in_(sorted(mine)) & _is_due(tx, as_of)):
        begun |= {mark: dataset for mark, dataset, *_ in move_marks(tx, act, "MARKED", "SWEEPING", where)}
    if begun:
        datasets = set(begun.values())
        _say(act, share.act(ActType.BEGIN, datasets, (mine[name] for name in datasets)))
    record_steps(tx, act, [MarkStep(mark, "SWEEPING") for mark in sorted(begun)])
    return Moved(begun, share.lost)


def _settle(
    tx: WriteTransaction, leases: Collection[Lease], settlements: Mapping[int, Settlement], execution_date: date | None
) -> Moved:
    share = _Share.fenced(tx, leases)
    if not share.tokens:
        return Moved({}, share.lost)
    act, here = Act(ActType.SETTLE, share.holder), share.has(MARKS.c.dataset)
    errors: dict[str, dict[int, str]] = {}
    for mark, one in settlements.items():
        errors.setdefault(_ENDS.get(one.outcome, "SWEPT"), {})[mark] = one.error or NO_ERROR
    steps: list[MarkStep] = []
    counted: dict[str, list[ReportCounts]] = {}
    moved: dict[int, str] = {}
    spared: set[str] = set()
    for after, mine in errors.items():
        for where in by_id(tx.connection, mine, here):
            for mark, dataset, logged, due_at in move_marks(tx, act, "SWEEPING", after, where, _CHANGES[after](mine)):
                one = settlements[mark]
                moved[mark] = dataset
                # An outcome is the text that it stands for; asked for its value it takes longer than the rest.
                steps.append(MarkStep(mark, after, None if after == "SPARED" else str(one.outcome), one.bytes, one.error))
                freed, left = (one.bytes, one.left) if after == "SWEPT" else (0, 0)
                amount = ReportCounts(mark, due_at, str(one.outcome).lower(), logged, freed, one.bytes_hidden, left)
                counted.setdefault(dataset, []).append(amount)
                if after == "SPARED":
                    spared.add(dataset)
    if spared:
        request_evaluations(tx, spared)
    if counted:
        _say(act, share.act(ActType.SETTLE, counted))
    if record_steps(tx, act, steps) and execution_date:
        count(tx, act, execution_date, counted)
    return Moved(moved, share.lost)


# The state that a mark goes to when it is settled, if not SWEPT, and what its row says besides.
_ENDS = {Outcome.FAILED: "MARKED", Outcome.SPARED: "SPARED"}
_CHANGES: Mapping[str, Callable[[Mapping[int, str]], Mapping[str, Any]]] = {
    "SWEPT": lambda _: {},
    "MARKED": lambda errors: {"attempts": MARKS.c.attempts + 1, "last_error": case(errors, value=MARKS.c.id)},
    "SPARED": lambda errors: {"why": case(errors, value=MARKS.c.id)},
}


def _finish(tx: WriteTransaction, leases: Collection[Lease], plans: Collection[Plan]) -> Mapping[str, str]:
    share = _Share.fenced(tx, leases)
    mine = {plan.id: plan for plan in plans if plan.dataset in share.tokens}
    here = PLANS.c.id.in_(sorted(mine)) & share.has(PLANS.c.dataset) & PLANS.c.finished_at.is_(None)
    found = tx.connection.execute(select(PLANS.c.id).where(here).order_by(PLANS.c.id).with_for_update()).scalars().all()
    if found:
        over = [mine[plan] for plan in found]
        act = share.act(ActType.FINISH, {plan.dataset for plan in over}, over)
        these = PLANS.c.id.in_(found)
        tx.seal(act, PLANS, these)
        tx.connection.execute(update(PLANS).where(these).values(finished_at=DatabaseTime(), act=act.id))
        tx.record(act)
        evaluated = select(PLANS.c.dataset).join(PUBLISHED, PUBLISHED.c.dataset == PLANS.c.dataset)
        evaluated = evaluated.where(these, PUBLISHED.c.published_at >= PLANS.c.planned_at)
        request_evaluations(tx, tx.connection.execute(evaluated).scalars())
    return share.lost
