"""Rows that change too often for an act each (leases, paces, evaluations, violations): each holds its own seal.

Rows are counted per table, because no act says which there are. A row that was changed past the ledger keeps an impossible
seal, whoever writes it next.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    Text,
    Update,
    and_,
    case,
    cast,
    func,
    select,
    tuple_,
    update,
)

from retention_assets.ledger.audit.rows import text_in
from retention_assets.ledger.audit.seals import RowSeal, teach_seals
from retention_assets.ledger.schema import ROW_COUNTS, STATE
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_skip, insert_or_update

# NEW and CHANGED stand between a write and its seal in one transaction; STRANGE: the row did not match its seal before the
# write.
_NEW, _CHANGED, _STRANGE = "new", "changed", "strange"


def _touched(table: Table) -> ColumnElement[str]:
    return case((table.c.seal == RowSeal(table), _CHANGED), else_=_STRANGE)


def put_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changed: Collection[str] = ()) -> None:
    """Insert rows. An existing row gets the new values of the columns `changed`, or stays as it is."""
    teach_seals(connection)
    keys = [column.name for column in table.primary_key]
    for part in portions(rows):
        statement = insert_or_skip(connection, table)
        if changed:
            statement = insert_or_update(connection, table, keys, changed, {"seal": _touched(table)})
        connection.execute(statement, [{**row, "seal": _NEW} for row in part])
        written = [tuple(row[key] for key in keys) for row in part]
        _seal_written(connection, table, tuple_(*table.primary_key).in_(written), with_new=True)


def change_rows(connection: Connection, statement: Update, where: ColumnElement[bool]) -> Sequence[Any]:
    """Execute an update, reseal the rows that `where` finds afterwards, and return what the update returns."""
    teach_seals(connection)
    table: Any = statement.table
    done = connection.execute(statement.values(seal=_touched(table)))
    rows = done.all() if done.returns_rows else ()
    _seal_written(connection, table, where, with_new=False)
    return rows


def _seal_written(connection: Connection, table: Table, where: ColumnElement[bool], with_new: bool) -> None:
    if with_new and (count := _count(connection, table, where, table.c.seal == _NEW)):
        mine = ROW_COUNTS.c.name == table.name
        change_rows(connection, update(ROW_COUNTS).where(mine).values(rows=ROW_COUNTS.c.rows + count), mine)
    written = and_(where, table.c.seal.in_([_NEW, _CHANGED]))
    connection.execute(update(table).where(written).values(seal=RowSeal(table)))


def seal_state(connection: Connection) -> None:
    teach_seals(connection)
    for table in STATE:
        row = {"name": table.name, "rows": _count(connection, table), "seal": _NEW}
        connection.execute(insert_or_update(connection, ROW_COUNTS, ["name"], ["rows"]).values(**row))
    for table in (*STATE, ROW_COUNTS):
        seal_rows(connection, table)


def seal_rows(connection: Connection, table: Table) -> None:
    teach_seals(connection)
    connection.execute(update(table).values(seal=RowSeal(table)))


def state_faults(connection: Connection) -> Iterator[str]:
    """Find rows that were changed, added or removed past the ledger."""
    teach_seals(connection)
    for table in (*STATE, ROW_COUNTS):
        texts = [text_in(connection, column).label(column.name) for column in table.columns]
        strange = table.c.seal.is_distinct_from(RowSeal(table))
        for row in connection.execute(select(*texts).where(strange).order_by(*table.primary_key)).mappings():
            key = ", ".join(str(row[column.name]) for column in table.primary_key)
            values = ", ".join(f"{name} {value}" for name, value in row.items() if name != "seal" and value is not None)
            yield f"Row {key} of {table.name} was changed or added past the ledger: its seal is not that of {values[:300]}."
    counts = select(ROW_COUNTS.c.name, cast(ROW_COUNTS.c.rows, Text))
    written = {name: rows for name, rows in connection.execute(counts)}  # noqa: C416 - the rows are no pairs to a type checker
    for table in STATE:
        count = str(_count(connection, table))
        if written.get(table.name) != count:
            yield (
                f"The table {table.name} has {count} rows, and the ledger wrote {written.get(table.name, 'an unknown number')}:"
                " at least one was added or removed past the ledger."
            )


def _count(connection: Connection, table: Table, *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())
