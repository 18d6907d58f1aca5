"""Pending and past deletions, summed in the database: one statement per index, and no mark is read."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Subquery, func, select, text

from retention_assets.ledger.database import LedgerPart
from retention_assets.ledger.schema import MARKS, OPEN, OVER, PLANNED, PLANS, STEPS
from retention_assets.sql.sums import ByteSum
from retention_assets.sql.transactions import portions

_DAY = timedelta(days=1)


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
    # Kept by a hold, or likely to be spared (evaluation/fates.py).
    held: bool = False
    spared: bool = False

    @property
    def goes(self) -> bool:
        return not (self.held or self.spared)

    def is_due(self, as_of: datetime) -> bool:
        """They go and their grace is over. What a sweep has begun is due."""
        return self.goes and (self.sweeping or self.due_at <= as_of)


@dataclass(frozen=True)
class Waiting:
    """Sums of open marks: all, due, held, spared, and due next."""

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
    """Freed by the plans of one instant, for one policy."""

    as_of: datetime
    policy: str
    transactions: int
    bytes: int


class YoungDeletion(NamedTuple):
    """A deleted transaction, the bytes that it freed, and its age."""

    dataset: str
    bytes: int
    age_days: float


@dataclass(frozen=True)
class SparedGroup:
    """Marks spared for one reason, with one example."""

    dataset: str
    why: str
    marks: int
    transaction: str


class PendingMarks(LedgerPart):
    """The pending and past deletions of a ledger."""

    def waiting(self, datasets: Iterable[str] | None = None) -> list[PendingGroup]:
        """Open marks in groups, by due time. Marks made together stay together, so groups are few."""
        amounts = (func.count().label("marks"), ByteSum(MARKS.c.bytes).label("size"))
        alike = [MARKS.c[name] for name in ("due_at", "policy", "marked_at", "status", "dataset", "policy_version")]
        query = select(*alike, *amounts).where(text(OPEN)).group_by(*alike).order_by(*alike)
        rows = self.rows(query) if datasets is None else self.rows_among(query, MARKS.c.dataset, datasets)
        return [
            PendingGroup(
                policy=row.policy,
                marked_at=row.marked_at,
                due_at=row.due_at,
                sweeping=row.status == "SWEEPING",
                marks=row.marks,
                bytes=int(row.size),
                dataset=row.dataset,
                version=row.policy_version,
            )
            for row in rows
        ]

    def oldest(self, datasets: Sequence[str]) -> list[Mapping[str, Any]]:
        first = select(func.min(MARKS.c.id)).where(text(OPEN)).group_by(MARKS.c.dataset)
        queries = [select(MARKS).where(MARKS.c.id.in_(first.where(MARKS.c.dataset.in_(part)))) for part in portions(datasets)]
        with self.database.reading() as connection:
            return [dict(row) for query in queries for row in connection.execute(query).mappings()]

    def freed(self, since: datetime) -> list[FreedGroup]:
        gone = _deleted(since)
        amounts = (func.count().label("transactions"), ByteSum(gone.c.bytes).label("bytes"))
        query = select(gone.c.as_of, MARKS.c.policy, *amounts).join(MARKS, MARKS.c.id == gone.c.mark)
        query = query.group_by(gone.c.as_of, MARKS.c.policy).order_by(gone.c.as_of, MARKS.c.policy)
        return [FreedGroup(row.as_of, row.policy, row.transactions, int(row.bytes)) for row in self.rows(query)]

    def deleted_young(self, begin: datetime, end: datetime, days: int) -> list[YoungDeletion]:
        """Transactions that plans of an interval deleted at less than `days`. Without times a transaction counts as old."""
        gone, born = _deleted(begin), func.coalesce(MARKS.c.closed_at, MARKS.c.opened_at)
        query = select(MARKS.c.dataset, gone.c.bytes, gone.c.as_of, born.label("born")).join(MARKS, MARKS.c.id == gone.c.mark)
        rows = self.rows(query.where(gone.c.as_of < end, born > begin - days * _DAY).order_by(MARKS.c.id))
        ages = [YoungDeletion(row.dataset, row.bytes or 0, (row.as_of - row.born) / _DAY) for row in rows]
        return [one for one in ages if one.age_days < days]

    def spared(self, datasets: Sequence[str], by: str) -> list[SparedGroup]:
        alike = (MARKS.c.dataset, MARKS.c.why)
        query = select(*alike, func.count().label("marks"), func.min(MARKS.c.transaction).label("transaction"))
        query = query.where(text(OVER), MARKS.c.status == "SPARED", MARKS.c.changed_by == by).group_by(*alike).order_by(*alike)
        rows = self.rows_among(query, MARKS.c.dataset, datasets)
        return [SparedGroup(row.dataset, row.why or "", row.marks, row.transaction) for row in rows]


def _deleted(since: datetime) -> Subquery:
    """Deleted marks with their bytes. A mark that failed once is in two plans; the newest deleted it."""
    mine = select(STEPS.c.mark, func.max(PLANS.c.as_of).label("as_of"), func.max(STEPS.c.bytes).label("bytes"))
    mine = mine.select_from(PLANS).join(PLANNED, PLANNED.c.plan == PLANS.c.id).join(STEPS, STEPS.c.mark == PLANNED.c.mark)
    return mine.where(PLANS.c.as_of >= since, STEPS.c.outcome == "DELETED").group_by(STEPS.c.mark).subquery()
