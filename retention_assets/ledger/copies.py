"""Copies: what a sweep of some datasets would find in a ledger, in another ledger, for a rehearsal.

Belongs here: copying open marks with their policies, plans and notes, and what people say (holds, realms).
Does not belong here: the audit. A copy has none of what is behind it and is no record of anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, insert, select, text, true, update

from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.ledger import Ledger
from retention_assets.ledger.schema import CLOCK, HOLDS, MARKS, OPEN, PLANNED, PLANS, POLICY_VERSIONS, REALMS

# As many as are in memory at a time, and fewer than either database takes as parameters of one statement.
_ROWS = 5_000


def copy_open_marks(source: Ledger, target: Ledger, datasets: Iterable[str]) -> None:
    """Copy into an empty ledger what a sweep of these datasets asks for."""
    names = sorted(set(datasets))
    with source.database.reading() as connection:
        target.database.write(lambda doing: _Copy(connection, doing).of(names))


class _Copy:
    """Rows on their way from one database to the other, some at a time."""

    def __init__(self, source: Connection, doing: WriteTransaction) -> None:
        self.source, self.doing = source, doing
        self.plans: set[int] = set()

    def of(self, datasets: Sequence[str]) -> None:
        """Everything that a sweep of some datasets reads."""
        for table in (POLICY_VERSIONS, REALMS, HOLDS):
            self._take(table, true())
        for some in _some(datasets):
            self._marks(and_(text(OPEN), MARKS.c.dataset.in_(some)))
        clock = self.source.execute(select(CLOCK)).mappings().one()
        self.doing.connection.execute(update(CLOCK).values(dict(clock)))

    def _marks(self, where: ColumnElement[bool]) -> None:
        last = 0
        while marks := self._take(MARKS, and_(where, MARKS.c.id > last), MARKS.c.id):
            ids = [mark["id"] for mark in marks]
            last = ids[-1]
            planned = select(PLANNED.c.plan).where(PLANNED.c.mark.in_(ids)).distinct()
            new = set(self.source.execute(planned).scalars()) - self.plans
            # Plans before what is planned: one refers to the other.
            for some in _some(sorted(new)):
                self._take(PLANS, PLANS.c.id.in_(some))
            self.plans |= new
            self._take(PLANNED, PLANNED.c.mark.in_(ids))

    def _take(
        self, table: Table, where: ColumnElement[bool], first: ColumnElement[int] | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Copy the rows that meet a condition, or the first of them in some order."""
        query = select(table).where(where)
        rows = [
            dict(row) for row in self.source.execute(query if first is None else query.order_by(first).limit(_ROWS)).mappings()
        ]
        for some in _some(rows):
            self.doing.connection.execute(insert(table), list(some))
        return rows


def _some(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + _ROWS] for at in range(0, len(items), _ROWS)]
