"""Copies what a sweep of some datasets would read into another ledger, for a dry run. The audit is not copied."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, insert, or_, select, text, update

from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.ledger import Ledger
from retention_assets.ledger.schema import CLOCK, HOLDS, MARKS, OPEN, PLACES, PLANNED, PLANS, POLICY_VERSIONS, REALMS
from retention_assets.sql.transactions import PORTION, portions


def copy_due_marks(source: Ledger, target: Ledger, datasets: Iterable[str], due_by: datetime, simulated: bool) -> None:
    """Copy into an empty ledger what sweeps of these datasets read up to an instant; in a simulated copy, any day."""
    due = and_(text(OPEN), or_(MARKS.c.status == "SWEEPING", MARKS.c.due_at <= due_by))
    with source.database.reading() as connection:

        def copy(tx: WriteTransaction) -> None:
            for table in (POLICY_VERSIONS, REALMS, HOLDS, PLACES):
                _copy(connection, tx, table, select(table))
            for some in portions(sorted(set(datasets))):
                _copy_marks(connection, tx, and_(due, MARKS.c.dataset.in_(some)))
            clock = connection.execute(select(CLOCK)).mappings().one()
            tx.connection.execute(update(CLOCK).values({**clock, "simulated": simulated}))

        target.database.write(copy)


def _copy_marks(source: Connection, tx: WriteTransaction, where: ColumnElement[bool]) -> None:
    query, last = select(MARKS).where(where).order_by(MARKS.c.id).limit(PORTION), 0
    while marks := _copy(source, tx, MARKS, query.where(MARKS.c.id > last)):
        ids = [mark["id"] for mark in marks]
        last = ids[-1]
        plans = {mark["plan"] for mark in _copy(source, tx, PLANNED, select(PLANNED).where(PLANNED.c.mark.in_(ids)))}
        known = tx.connection.execute(select(PLANS.c.id)).scalars()
        for some in portions(sorted(plans - set(known))):
            _copy(source, tx, PLANS, select(PLANS).where(PLANS.c.id.in_(some)))


def _copy(source: Connection, tx: WriteTransaction, table: Table, query: Select[Any]) -> Sequence[Mapping[str, Any]]:
    rows = [dict(row) for row in source.execute(query).mappings()]
    for some in portions(rows):
        tx.connection.execute(insert(table), list(some))
    return rows
