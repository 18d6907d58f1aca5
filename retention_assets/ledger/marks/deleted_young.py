"""Transactions that plans deleted before a minimum age, which vendors bill all the same."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import MARKS, PLANNED, PLANS, STEPS

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class YoungDeletion:
    """A deleted transaction, the bytes that it freed, and its age."""

    dataset: str
    bytes: int
    age_days: float


def deleted_young(database: LedgerDatabase, begin: datetime, end: datetime, days: int) -> list[YoungDeletion]:
    """Transactions that plans of an interval deleted at less than `days`. Without times a transaction counts as old."""
    born = func.coalesce(MARKS.c.closed_at, MARKS.c.opened_at)
    # A mark that failed once is in two plans; the newest deleted it.
    newest = select(STEPS.c.mark, func.max(PLANS.c.as_of).label("as_of"), func.max(STEPS.c.bytes).label("bytes"))
    newest = newest.select_from(PLANS).join(PLANNED, PLANNED.c.plan == PLANS.c.id).join(STEPS, STEPS.c.mark == PLANNED.c.mark)
    gone = newest.where(PLANS.c.as_of >= begin, STEPS.c.outcome == "DELETED").group_by(STEPS.c.mark).subquery()
    query = select(MARKS.c.dataset, gone.c.bytes, gone.c.as_of, born.label("born")).join(MARKS, MARKS.c.id == gone.c.mark)
    query = query.where(gone.c.as_of < end, born > begin - days * _DAY).order_by(MARKS.c.id)
    with database.reading() as connection:
        found = connection.execute(query).all()
    ages = ((row.dataset, row.bytes or 0, (row.as_of - row.born) / _DAY) for row in found)
    return [YoungDeletion(*one) for one in ages if one[2] < days]
