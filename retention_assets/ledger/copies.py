"""Copies: what a sweep of some datasets would find in a ledger, in another ledger, for a rehearsal.

Belongs here: copying open marks with their policies, plans and notes, and what people say (holds, realms).
Does not belong here: the audit. A copy has none of what is behind it and is no record of anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, insert, select, text, true, update

from retention_assets.ledger.database import Writing
from retention_assets.ledger.ledger import Ledger
from retention_assets.ledger.schema import CLOCK, HOLDS, MARKS, OPEN, PLANNED, PLANS, POLICY_VERSIONS, REALMS

_ROWS = 5_000


def copy_open(source: Ledger, target: Ledger, datasets: Iterable[str]) -> None:
    """Copy into an empty ledger what a sweep of these datasets asks for."""
    names = sorted(set(datasets))
    parts: dict[Table, list[Mapping[str, Any]]] = {}
    with source.database.reading() as connection:

        def take(table: Table, where: ColumnElement[bool]) -> Sequence[Mapping[str, Any]]:
            found = [dict(row) for row in connection.execute(select(table).where(where)).mappings()]
            parts.setdefault(table, []).extend(found)
            return found

        for table in (POLICY_VERSIONS, REALMS, HOLDS):
            take(table, true())
        for some in _some(names):
            marks = take(MARKS, and_(text(OPEN), MARKS.c.dataset.in_(some)))
            for few in _some([mark["id"] for mark in marks]):
                # Plans before what is planned: one refers to the other.
                planned = select(PLANNED.c.plan).where(PLANNED.c.mark.in_(few))
                known = {row["id"] for row in parts.get(PLANS, ())}
                wanted = set(connection.execute(planned.distinct()).scalars()) - known
                for plans in _some(sorted(wanted)):
                    take(PLANS, PLANS.c.id.in_(plans))
                take(PLANNED, PLANNED.c.mark.in_(few))
        clock = dict(connection.execute(select(CLOCK)).mappings().one())
    target.database.write(lambda doing: _fill(doing, parts, clock))


def _fill(doing: Writing, parts: Mapping[Table, Sequence[Mapping[str, Any]]], clock: Mapping[str, Any]) -> None:
    for table, rows in parts.items():
        for some in _some(rows):
            doing.connection.execute(insert(table), list(some))
    doing.connection.execute(update(CLOCK).values(clock))


def _some(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + _ROWS] for at in range(0, len(items), _ROWS)]
