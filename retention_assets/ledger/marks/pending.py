"""Pending and past deletions: what is to be deleted and when, and what was, added up by the databases.

Belongs here: sums over marks: open ones by when they fall due and since when they are marked, what sweeps of some days freed,
and why marks were spared. Each is one statement per index; no mark is read one by one.
Does not belong here: marks themselves (marking.py), the report of a day (reports.py), and anything that writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import MARKS, OPEN, OVER, PLANNED, PLANS, STEPS
from retention_assets.sql.sums import ByteSum
from retention_assets.sql.transactions import portions


@dataclass(frozen=True)
class PendingGroup:
    """Open marks that were made at one time, by one policy, and fall due at one time."""

    policy: str
    marked_at: datetime
    due_at: datetime
    sweeping: bool
    marks: int
    bytes: int

    def is_due(self, as_of: datetime) -> bool:
        """Whether their grace is over. What a sweep has begun on is due, whatever its day was."""
        return self.sweeping or self.due_at <= as_of


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

    def waiting(self) -> list[PendingGroup]:
        """The open marks, by when they fall due. Marks made together stay together, so there are few rows."""
        amounts = (func.count().label("marks"), ByteSum(MARKS.c.bytes).label("bytes"))
        alike = (MARKS.c.policy, MARKS.c.marked_at, MARKS.c.due_at, MARKS.c.status)
        query = select(*alike, *amounts).where(text(OPEN)).group_by(*alike)
        with self.database.reading() as connection:
            found = connection.execute(query.order_by(MARKS.c.due_at, MARKS.c.policy, MARKS.c.marked_at, MARKS.c.status)).all()
        return [
            PendingGroup(
                policy=row.policy,
                marked_at=row.marked_at,
                due_at=row.due_at,
                sweeping=row.status == "SWEEPING",
                marks=row.marks,
                bytes=int(row.bytes),
            )
            for row in found
        ]

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
