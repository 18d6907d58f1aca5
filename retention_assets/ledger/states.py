"""The state of datasets for people, summed in the database: one statement per table or index, and no mark is read.

Pending and past deletions are groups of marks; evaluations, objections and the last sweep are by dataset.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Row, Subquery, and_, func, or_, select, text, union_all

from retention_assets.ledger.database import LedgerPart
from retention_assets.ledger.evaluations import Objections, VerdictCount, counts_of
from retention_assets.ledger.reports import SPARED
from retention_assets.ledger.schema import BATCHES, EVALUATIONS, MARKS, OPEN, OVER, PLANNED, PLANS, REPORTS
from retention_assets.ledger.steps import IS_BEGUN, SHOWN_MARKS, members_of
from retention_assets.outcomes import Order
from retention_assets.sql.columns import ByteSum
from retention_assets.sql.transactions import portions

_DAY = timedelta(days=1)
_SETTLED = ("deleted", "already_gone", "hidden", "set_aside", "failed", "bytes_freed", "bytes_set_aside")
_DONE = {**{name: REPORTS.c[name] for name in _SETTLED}, "spared": SPARED}
_DID_SOMETHING = or_(*(column > 0 for column in _DONE.values()))


@dataclass(frozen=True)
class PendingGroup:
    """Open marks of a dataset with the same mark time, policy version and due time."""

    policy: str
    marked_at: datetime
    due_at: datetime
    sweeping: bool
    marks: int
    bytes: int
    dataset: str = ""
    version: int = 1
    # Kept by a hold; likely to be spared (evaluation/fates.py).
    held: bool = False
    spared: bool = False

    @property
    def goes(self) -> bool:
        return not (self.held or self.spared)

    def is_due(self, as_of: datetime) -> bool:
        return self.goes and (self.sweeping or self.due_at <= as_of)


@dataclass(frozen=True)
class Waiting:
    marks: int = 0
    bytes: int = 0
    due: int = 0
    due_bytes: int = 0
    next_due: datetime | None = None
    next_marks: int = 0
    held: int = 0
    spared: int = 0

    @classmethod
    def of(cls, groups: Collection[PendingGroup], as_of: datetime) -> "Waiting":
        due = [group for group in groups if group.is_due(as_of)]
        later = [group for group in groups if group.goes and not group.is_due(as_of)]
        next_due = min((group.due_at for group in later), default=None)
        day = next_due and next_due.astimezone(UTC).date()
        return cls(
            marks=_marks(groups),
            bytes=sum(group.bytes for group in groups),
            due=_marks(due),
            due_bytes=sum(group.bytes for group in due),
            next_due=next_due,
            next_marks=_marks(group for group in later if group.due_at.astimezone(UTC).date() == day),
            held=_marks(group for group in groups if group.held),
            spared=_marks(group for group in groups if group.spared and not group.held),
        )


def _marks(groups: Iterable[PendingGroup]) -> int:
    return sum(group.marks for group in groups)


@dataclass(frozen=True)
class FreedGroup:
    """Transactions and bytes that plans of one instant deleted for one policy, on somebody's order."""

    as_of: datetime
    policy: str
    ordered_by: str
    transactions: int
    bytes: int


@dataclass(frozen=True)
class SparedGroup:
    dataset: str
    why: str
    marks: int
    transaction: str


class PendingMarks(LedgerPart):
    """The pending and past deletions of a ledger."""

    def waiting(self, datasets: Iterable[str] | None = None) -> list[PendingGroup]:
        """Open marks in groups, by due time. Marks made together stay together, so groups are few."""
        amounts = (func.count().label("marks"), ByteSum(MARKS.c.bytes).label("size"))
        begun = IS_BEGUN.label("sweeping")
        alike = [MARKS.c.due_at, MARKS.c.policy, MARKS.c.marked_at, begun, MARKS.c.dataset, MARKS.c.policy_version]
        query = select(*alike, *amounts).select_from(SHOWN_MARKS).where(text(OPEN)).group_by(*alike).order_by(*alike)
        rows = self.rows(query) if datasets is None else self.rows_among(query, MARKS.c.dataset, datasets)
        return [
            PendingGroup(policy, marked_at, due_at, bool(sweeping), amount, int(size), dataset, version)
            for due_at, policy, marked_at, sweeping, dataset, version, amount, size in rows
        ]

    def oldest(self, datasets: Iterable[str]) -> list[int]:
        """Id of the oldest open mark of each dataset."""
        first = select(func.min(MARKS.c.id)).where(text(OPEN)).group_by(MARKS.c.dataset)
        return [mark for (mark,) in self.rows_among(first, MARKS.c.dataset, datasets)]

    def freed(self, since: datetime) -> list[FreedGroup]:
        gone = _deleted(since)
        amounts = (func.count().label("transactions"), ByteSum(gone.c.bytes).label("bytes"))
        alike = (gone.c.as_of, MARKS.c.policy, MARKS.c.changed_by)
        query = select(*alike, *amounts).join(MARKS, MARKS.c.id == gone.c.mark).group_by(*alike).order_by(*alike)
        return [FreedGroup(as_of, policy, by, amount, int(size)) for as_of, policy, by, amount, size in self.rows(query)]

    def spared(self, datasets: Sequence[str], by: str) -> list[SparedGroup]:
        alike = (MARKS.c.dataset, MARKS.c.why)
        query = select(*alike, func.count().label("marks"), func.min(MARKS.c.transaction).label("transaction"))
        query = query.where(text(OVER), MARKS.c.status == "SPARED", MARKS.c.changed_by == by).group_by(*alike).order_by(*alike)
        rows = self.rows_among(query, MARKS.c.dataset, datasets)
        return [SparedGroup(row.dataset, row.why or "", row.marks, row.transaction) for row in rows]


def _deleted(since: datetime) -> Subquery:
    # a mark that failed once is in two plans; the newest deleted it. One that was set aside was deleted by a later batch.
    planned = select(MARKS.c.id.label("mark"), PLANS.c.as_of, MARKS.c.freed.label("bytes")).select_from(PLANS)
    planned = planned.join(PLANNED, PLANNED.c.plan == PLANS.c.id).join(MARKS, MARKS.c.id == PLANNED.c.mark)
    over = members_of(BATCHES.c.ids, BATCHES.c.order_given == Order.DELETE_ASIDE, BATCHES.c.begun_at >= since)
    emptied = select(MARKS.c.id, over.c.begun_at, MARKS.c.freed).join(over, over.c.mark == MARKS.c.id)
    is_deleted = MARKS.c.outcome == "DELETED"
    both = union_all(planned.where(PLANS.c.as_of >= since, is_deleted), emptied.where(is_deleted)).subquery()
    newest = (func.max(both.c[name]).label(name) for name in ("as_of", "bytes"))
    return select(both.c.mark, *newest).group_by(both.c.mark).subquery()


@dataclass(frozen=True)
class LastSweep:
    """Results of the last day on which a sweep had work."""

    day: date
    counters: Mapping[str, int]


@dataclass(frozen=True)
class DatasetState:
    dataset: str
    judged_at: datetime | None = None
    counts: Sequence[VerdictCount] = ()
    fault: str | None = None
    waiting: Waiting = field(default_factory=Waiting)
    objections: Sequence[str] = ()
    last_sweep: LastSweep | None = None

    def transactions(self, verdict: str | None = None) -> int:
        return sum(count.transactions for count in self.counts if verdict in (None, count.verdict))

    def bytes(self, verdict: str | None = None) -> int:
        return sum(count.bytes for count in self.counts if verdict in (None, count.verdict))


@dataclass(frozen=True)
class Totals:
    """Newest evaluations, summed by verdict and policy."""

    datasets: int
    judged_at: datetime | None
    counts: Sequence[VerdictCount]
    refused: Mapping[str, str]

    @property
    def transactions(self) -> int:
        return sum(count.transactions for count in self.counts)

    @property
    def bytes(self) -> int:
        return sum(count.bytes for count in self.counts)


class States(LedgerPart):
    def totals(self) -> Totals:
        transactions, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        refused, judged = dict[str, str](), list[datetime]()
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.looked_at, EVALUATIONS.c.counts, EVALUATIONS.c.fault)
        with self.database.reading() as connection:
            for row in connection.execute(query.order_by(EVALUATIONS.c.dataset)):
                judged.append(row.looked_at)
                if row.fault is not None:
                    refused[row.dataset] = row.fault
                for count in counts_of(row.counts):
                    transactions[count.verdict, count.policy] += count.transactions
                    size[count.verdict, count.policy] += count.bytes
        counts = [VerdictCount(*key, transactions[key], size[key]) for key in sorted(transactions)]
        return Totals(len(judged), max(judged, default=None), counts, refused)

    def faults(self, datasets: Collection[str]) -> dict[str, str]:
        query = select(EVALUATIONS.c.dataset, EVALUATIONS.c.fault).where(EVALUATIONS.c.fault.is_not(None))
        rows = self.rows(query.order_by(EVALUATIONS.c.dataset))
        return {row.dataset: row.fault for row in rows if row.dataset in datasets}

    def last_sweep(self) -> LastSweep | None:
        sums = [ByteSum(column).label(name) for name, column in _DONE.items()]
        query = select(REPORTS.c.execution_date, *sums).where(_DID_SOMETHING).group_by(REPORTS.c.execution_date)
        rows = self.rows(query.order_by(REPORTS.c.execution_date.desc()).limit(1))
        return _sweep_of(rows[0]) if rows else None

    def of(self, datasets: Iterable[str], as_of: datetime, pending: Iterable[PendingGroup]) -> dict[str, DatasetState]:
        names, states = sorted(set(datasets)), dict[str, DatasetState]()
        objections: dict[str, list[str]] = {}
        groups: dict[str, list[PendingGroup]] = {}
        for group in pending:
            groups.setdefault(group.dataset, []).append(group)
        for objection in Objections(self.database).standing(frozenset(names)):
            sentence = f"{objection.check} failed in {objection.raised_by}: {objection.sentence}"
            objections.setdefault(objection.dataset, []).append(sentence)
        query = select(*(EVALUATIONS.c[name] for name in ("dataset", "looked_at", "counts", "fault")))
        swept_on = select(REPORTS.c.dataset, func.max(REPORTS.c.execution_date).label("day")).where(_DID_SOMETHING)
        columns = [REPORTS.c.dataset, REPORTS.c.execution_date, *(column.label(name) for name, column in _DONE.items())]
        with self.database.reading() as connection:
            for part in portions(names):
                rows = connection.execute(query.where(EVALUATIONS.c.dataset.in_(part)))
                judged = {name: (looked_at, counts_of(counts), fault) for name, looked_at, counts, fault in rows}
                last = swept_on.where(REPORTS.c.dataset.in_(part)).group_by(REPORTS.c.dataset).subquery()
                is_last = and_(REPORTS.c.dataset == last.c.dataset, REPORTS.c.execution_date == last.c.day)
                sweeps = connection.execute(select(*columns).join(last, is_last))
                swept = {row.dataset: _sweep_of(row) for row in sweeps}
                for name in part:
                    looked_at, counts, fault = judged.get(name, (None, (), None))
                    waiting = Waiting.of(groups.get(name, ()), as_of)
                    said = objections.get(name, ())
                    states[name] = DatasetState(name, looked_at, counts, fault, waiting, said, swept.get(name))
        return states


def _sweep_of(row: Row[Any]) -> LastSweep:
    return LastSweep(row.execution_date, {name: int(getattr(row, name)) for name in _DONE})
