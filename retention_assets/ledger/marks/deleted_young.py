"""What was deleted before it had some age: the rows behind what vendors bill although it is gone.

Belongs here: that one question to the ledger, by the instants of plans. What is billed for it is the price table's (settings).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import MARKS, PLANNED, PLANS, STEPS

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class YoungDeletion:
    """A transaction that a sweep deleted, the bytes that became free, and how old it was."""

    dataset: str
    bytes: int
    age_days: float


def deleted_young(database: LedgerDatabase, begin: datetime, end: datetime, days: int) -> list[YoungDeletion]:
    """What plans of an interval deleted that was younger than so many days. What has no time is as old as can be."""
    born = func.coalesce(MARKS.c.closed_at, MARKS.c.opened_at)
    # A mark that failed once is in two plans; it was deleted by the newest.
    newest = select(STEPS.c.mark, func.max(PLANS.c.as_of).label("as_of"), func.max(STEPS.c.bytes).label("bytes"))
    newest = newest.select_from(PLANS).join(PLANNED, PLANNED.c.plan == PLANS.c.id).join(STEPS, STEPS.c.mark == PLANNED.c.mark)
    gone = newest.where(PLANS.c.as_of >= begin, STEPS.c.outcome == "DELETED").group_by(STEPS.c.mark).subquery()
    query = select(MARKS.c.dataset, gone.c.bytes, gone.c.as_of, born.label("born")).join(MARKS, MARKS.c.id == gone.c.mark)
    query = query.where(gone.c.as_of < end, born > begin - days * _DAY).order_by(MARKS.c.id)
    with database.reading() as connection:
        found = connection.execute(query).all()
    ages = ((row.dataset, row.bytes or 0, (row.as_of - row.born) / _DAY) for row in found)
    return [YoungDeletion(*one) for one in ages if one[2] < days]
