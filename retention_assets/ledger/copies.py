"""Copies what a sweep of some datasets would read into another ledger, for a dry run. The audit is not copied."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, insert, or_, select, text, true, update

from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.ledger import Ledger
from retention_assets.ledger.schema import CLOCK, HOLDS, MARKS, OPEN, PLACES, PLANNED, PLANS, POLICY_VERSIONS, REALMS
from retention_assets.sql.transactions import PORTION, portions


def copy_due_marks(source: Ledger, target: Ledger, datasets: Iterable[str], due_by: datetime, simulated: bool) -> None:
    """Copy into an empty ledger what sweeps of these datasets read up to an instant; in a simulated copy, any day."""
    names = sorted(set(datasets))
    with source.database.reading() as connection:
        target.database.write(lambda tx: _Copy(connection, tx).copy(names, due_by, simulated))


class _Copy:
    """Copies rows in batches."""

    def __init__(self, source: Connection, tx: WriteTransaction) -> None:
        self.source, self.tx = source, tx
        self.plans: set[int] = set()

    def copy(self, datasets: Sequence[str], due_by: datetime, simulated: bool) -> None:
        due = or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= due_by)
        for table in (POLICY_VERSIONS, REALMS, HOLDS, PLACES):
            self._rows(table, true())
        for some in portions(datasets):
            self._open_marks(and_(text(OPEN), MARKS.c.dataset.in_(some), due))
        clock = self.source.execute(select(CLOCK)).mappings().one()
        self.tx.connection.execute(update(CLOCK).values({**clock, "simulated": simulated}))

    def _open_marks(self, where: ColumnElement[bool]) -> None:
        last = 0
        while marks := self._rows(MARKS, and_(where, MARKS.c.id > last), MARKS.c.id):
            ids = [mark["id"] for mark in marks]
            last = ids[-1]
            planned = select(PLANNED.c.plan).where(PLANNED.c.mark.in_(ids)).distinct()
            new = set(self.source.execute(planned).scalars()) - self.plans
            # Plans first: planned marks refer to them.
            for some in portions(sorted(new)):
                self._rows(PLANS, PLANS.c.id.in_(some))
            self.plans |= new
            self._rows(PLANNED, PLANNED.c.mark.in_(ids))

    def _rows(
        self, table: Table, where: ColumnElement[bool], first: ColumnElement[int] | None = None
    ) -> Sequence[Mapping[str, Any]]:
        query = select(table).where(where)
        if first is not None:
            query = query.order_by(first).limit(PORTION)
        rows = [dict(row) for row in self.source.execute(query).mappings()]
        for some in portions(rows):
            self.tx.connection.execute(insert(table), list(some))
        return rows
