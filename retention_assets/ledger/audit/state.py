"""Rows that change too often for an act each (leases, paces, evaluations, violations): each holds its own seal.

Rows are counted per table, because no act says which there are. A row that was changed past the ledger keeps an impossible
seal, whoever writes it next.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from retention_assets.ledger.audit.rows import text_in
from retention_assets.ledger.schema import ROW_COUNTS, STATE
from retention_assets.sql.columns import InstantColumn
from retention_assets.sql.transactions import portions
from retention_assets.sql.upserts import insert_or_skip, insert_or_update

# NEW and CHANGED stand between a write and its seal in one transaction; STRANGE: the row did not match its seal before the
# write.
_NEW, _CHANGED, _STRANGE = "new", "changed", "strange"
_SQLITE = "retention_row_seal"


class RowSeal(FunctionElement[str]):
    """Seal of a row over its table and the name and value of each column that is not null."""

    type = Text()
    inherit_cache = True
    name = "row_seal"

    def __init__(self, table: Table) -> None:
        columns = [column for column in table.columns if column.name != "seal"]
        pairs: Iterable[tuple[Any, Any]] = ((literal_column(f"'{column.name}'"), column) for column in columns)
        super().__init__(literal_column(f"'{table.name}'"), *(value for pair in pairs for value in pair))


@compiles(RowSeal, "sqlite")
def _on_sqlite(element: RowSeal, compiler: Any, **options: Any) -> str:
    return f"{_SQLITE}({', '.join(compiler.process(value, **options) for value in element.clauses)})"


@compiles(RowSeal, "postgresql")
def _on_postgresql(element: RowSeal, compiler: Any, **options: Any) -> str:
    table, *pairs = element.clauses
    texts = [f"{compiler.process(table, **options)}::text"]
    for name, column in zip(pairs[::2], pairs[1::2], strict=True):
        value = compiler.process(column, **options)
        instant = f"to_char({value} AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')"
        value = instant if isinstance(column.type, InstantColumn) else f"{value}::text"
        texts.append(f"{compiler.process(name, **options)} || '=' || length({value}) || ':' || {value}")
    return f"left(encode(sha256(convert_to(concat_ws('|', {', '.join(texts)}), 'UTF8')), 'hex'), 32)"


def _seal(table: str, *pairs: Any) -> str:
    values = [(name, value) for name, value in zip(pairs[::2], pairs[1::2], strict=True) if value is not None]
    return hashlib.sha256(repr((table, values)).encode(errors="surrogatepass")).hexdigest()[:32]


def _teach(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        teach(connection.connection.driver_connection)


def teach(driver: Any) -> None:
    """Give a SQLite connection the function with which statements seal rows."""
    driver.create_function(_SQLITE, -1, _seal, deterministic=True)


def _touched(table: Table) -> ColumnElement[str]:
    return case((table.c.seal == RowSeal(table), _CHANGED), else_=_STRANGE)


def put_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changed: Collection[str] = ()) -> None:
    """Insert rows. An existing row gets the new values of the columns `changed`, or stays as it is."""
    _teach(connection)
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
    _teach(connection)
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
    _teach(connection)
    for table in STATE:
        row = {"name": table.name, "rows": _count(connection, table), "seal": _NEW}
        connection.execute(insert_or_update(connection, ROW_COUNTS, ["name"], ["rows"]).values(**row))
    for table in (*STATE, ROW_COUNTS):
        seal_rows(connection, table)


def seal_rows(connection: Connection, table: Table) -> None:
    _teach(connection)
    connection.execute(update(table).values(seal=RowSeal(table)))


def state_faults(connection: Connection) -> Iterator[str]:
    """Find rows that were changed, added or removed past the ledger."""
    _teach(connection)
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
