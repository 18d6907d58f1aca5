"""Pending and past deletions: what is to be deleted and when, and what was, added up by the databases.

Belongs here: sums over marks: open ones by when they fall due and since when they are marked, what sweeps of some days freed,
and why marks were spared. Each is one statement per index; no mark is read one by one.
Does not belong here: marks themselves (marking.py), the report of a day (reports.py), and anything that writes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, text

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import MARKS, OPEN, OVER, PLANNED, PLANS, STEPS
from retention_assets.sql.sums import ByteSum
from retention_assets.sql.transactions import portions


@dataclass(frozen=True)
class PendingGroup:
    """Open marks of a dataset that were made at one time, by one version of a policy, and fall due at one time."""

    policy: str
    marked_at: datetime
    due_at: datetime
    sweeping: bool
    marks: int
    bytes: int
    dataset: str = ""
    version: int = 1
    # A hold keeps them, or the sweep will spare them, as far as anybody has asked (evaluation/fates.py).
    held: bool = False
    spared: bool = False

    @property
    def goes(self) -> bool:
        """Nothing is known that keeps them."""
        return not (self.held or self.spared)

    def is_due(self, as_of: datetime) -> bool:
        """Tell that they go and their grace is over. What a sweep has begun on is due, whatever its day was."""
        return self.goes and (self.sweeping or self.due_at <= as_of)


@dataclass(frozen=True)
class Waiting:
    """Sums of open marks: all, those that are due, those that a hold keeps or the sweep will spare, and what is due next."""

    marks: int = 0
    bytes: int = 0
    due: int = 0
    due_bytes: int = 0
    next_due: datetime | None = None
    # On the UTC day of the next one.
    next_marks: int = 0
    held: int = 0
    spared: int = 0

    @classmethod
    def of(cls, groups: Collection[PendingGroup], as_of: datetime) -> "Waiting":
        """Add up groups."""
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
    """What the plans of one instant freed of the marks of one policy."""

    as_of: datetime
    policy: str
    transactions: int
    bytes: int


@dataclass(frozen=True)
class SparedGroup:
    """Marks that were spared for one reason, and one of them."""

    dataset: str
    why: str
    marks: int
    transaction: str


@dataclass(frozen=True)
class PendingMarks:
    """The pending and past deletions of a ledger."""

    database: LedgerDatabase

    def waiting(self, datasets: Iterable[str] | None = None) -> list[PendingGroup]:
        """List open marks in groups, by when their own grace ends. Marks made together stay together, so there are few."""
        amounts = (func.count().label("marks"), ByteSum(MARKS.c.bytes).label("size"))
        alike = [MARKS.c[name] for name in ("due_at", "policy", "marked_at", "status", "dataset", "policy_version")]
        query = select(*alike, *amounts).where(text(OPEN)).group_by(*alike).order_by(*alike)
        names = None if datasets is None else sorted(set(datasets))
        queries = [query] if names is None else [query.where(MARKS.c.dataset.in_(part)) for part in portions(names)]
        with self.database.reading() as connection:
            rows = [row for part in queries for row in connection.execute(part)]
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
        """Give one open mark of each dataset that has any: the one that was made first."""
        first = select(func.min(MARKS.c.id)).where(text(OPEN)).group_by(MARKS.c.dataset)
        queries = [select(MARKS).where(MARKS.c.id.in_(first.where(MARKS.c.dataset.in_(part)))) for part in portions(datasets)]
        with self.database.reading() as connection:
            return [dict(row) for query in queries for row in connection.execute(query).mappings()]

    def freed(self, since: datetime) -> list[FreedGroup]:
        """What was deleted by plans from some instant on, by the instant of the plan that did it and by policy."""
        # A mark that failed once is in two plans; it was deleted by the newest.
        mine = select(STEPS.c.mark, func.max(PLANS.c.as_of).label("as_of"), func.max(STEPS.c.bytes).label("bytes"))
        mine = mine.select_from(PLANS).join(PLANNED, PLANNED.c.plan == PLANS.c.id).join(STEPS, STEPS.c.mark == PLANNED.c.mark)
        gone = mine.where(PLANS.c.as_of >= since, STEPS.c.outcome == "DELETED").group_by(STEPS.c.mark).subquery()
        amounts = (func.count().label("transactions"), ByteSum(gone.c.bytes).label("bytes"))
        query = select(gone.c.as_of, MARKS.c.policy, *amounts).join(MARKS, MARKS.c.id == gone.c.mark)
        query = query.group_by(gone.c.as_of, MARKS.c.policy).order_by(gone.c.as_of, MARKS.c.policy)
        with self.database.reading() as connection:
            return [FreedGroup(row.as_of, row.policy, row.transactions, int(row.bytes)) for row in connection.execute(query)]

    def spared(self, datasets: Sequence[str], by: str) -> list[SparedGroup]:
        """The marks of some datasets that somebody's sweep spared, by reason."""
        alike = (MARKS.c.dataset, MARKS.c.why)
        query = select(*alike, func.count().label("marks"), func.min(MARKS.c.transaction).label("transaction"))
        query = query.where(text(OVER), MARKS.c.status == "SPARED", MARKS.c.changed_by == by).group_by(*alike)
        found: list[SparedGroup] = []
        with self.database.reading() as connection:
            for names in portions(sorted(set(datasets))):
                rows = connection.execute(query.where(MARKS.c.dataset.in_(names)).order_by(*alike))
                found += [SparedGroup(row.dataset, row.why or "", row.marks, row.transaction) for row in rows]
        return found
