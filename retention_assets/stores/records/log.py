"""The log of a records store: rows of the root table as RECORD transactions, read page by page along the key.

Pages continue after the last key (OFFSET would read everything again). A unit of work is OPEN until it has closed; its type is
the attribute `type`. No query takes a lock or stays open longer than one page, so that the database need not keep old row
versions for a whole reading.

Writes during a reading may be in the log or not; rows are independent, so none of them is wrong.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, LargeBinary, Row, Select, Text, cast, func, literal, select

from retention_assets.exchange.attributes import attribute_map
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import INSTANT, LINES
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.stores.records.tables import ATTRIBUTE_COLUMNS, TIMES, RecordTables, attribute_text


@dataclass(frozen=True)
class KeyPaging:
    """Continuation after a key. Without a size everything is one page: numbers and texts as keys have no common order."""

    tables: RecordTables
    size: float
    as_number: bool

    def query(self, query: Select[Any], after: str | None) -> Select[Any]:
        if self.size != float("inf"):
            query = query.limit(int(self.size))
        return query if after is None else query.where(self.tables.root.key.beyond(after, self.as_number))


def paging_of(database: ForeignDatabase, tables: RecordTables, size: int) -> KeyPaging:
    """Choose the paging for the present keys: only SQLite can mix types in one column."""
    if tables.dialect != "sqlite":
        return KeyPaging(tables, size, as_number=False)
    key = tables.root.key.column
    with database.reading() as connection:
        ends = set(connection.execute(select(func.typeof(func.min(key)), func.typeof(func.max(key)))).one())
    return KeyPaging(tables, size if ends in ({"integer"}, {"text"}) else float("inf"), as_number=ends == {"integer"})


def read_pages(database: ForeignDatabase, tables: RecordTables, query: Select[Any], size: int) -> Iterator[Sequence[Row[Any]]]:
    """Yield rows in key order; the first column is the key as text."""
    paging, after = paging_of(database, tables, size), None
    while True:
        with database.reading() as connection:
            rows = connection.execute(paging.query(query, after)).all()
        if rows:
            yield rows
        if len(rows) < paging.size:
            return
        after = rows[-1][0]


# units of work read at once: in key order, and by name
PAGE, NAMED = 200_000, 5_000
# microseconds of the years that a datetime has; PostgreSQL's infinity and years BC are outside
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000
_HASH = "retention_crc32"


def lines_of(database: ForeignDatabase, tables: RecordTables, dataset: str, page: int = PAGE) -> pa.Table:
    """Return all units of work as lines, or one line with the fault."""
    return _lines_of_batches(_pages(database, tables, page), tables, dataset)


def lines_of_some(database: ForeignDatabase, tables: RecordTables, dataset: str, ids: Sequence[str]) -> pa.Table:
    return _lines_of_batches(_named(database, tables, ids), tables, dataset)


def _lines_of_batches(batches: Iterator[pa.RecordBatch], tables: RecordTables, dataset: str) -> pa.Table:
    try:
        rows = pa.Table.from_batches(batches, _schema_of(tables))
        for name in TIMES:
            if name in rows.column_names:
                _check_range(rows[name], name)
    except pa.ArrowException as fault:
        return _fault_line(dataset, f"a time of its root table is no instant: {str(fault).splitlines()[0]}")
    except _NoInstant as fault:
        return _fault_line(dataset, str(fault))
    return _lines_of_rows(rows, dataset)


def token_of(database: ForeignDatabase, tables: RecordTables) -> str:
    """Return a text that changes with any insert, deletion or change of what a log says. One scan of the root table."""
    texts = [tables.root.key.text, *tables.texts]
    with database.reading() as connection:
        rows, total = connection.execute(_checksum(connection, texts).select_from(tables.root.table)).one()
    return f"{rows}-{total or 0}"


class _NoInstant(Exception):
    """A time that no clock can show."""


def _schema_of(tables: RecordTables) -> pa.Schema:
    kinds = {"transaction": pa.string(), **dict.fromkeys(TIMES, INSTANT), **dict.fromkeys(ATTRIBUTE_COLUMNS, pa.string())}
    there = {"transaction", *tables.log_columns}
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items() if name in there])


def _select(tables: RecordTables) -> Select[Any]:
    """In key order."""
    schema, key = _schema_of(tables), tables.root.key
    columns = {"transaction": key.text, **{name: tables.time(name) for name in TIMES if name in schema.names}}
    for name in ATTRIBUTE_COLUMNS:
        if name in schema.names:
            columns[name] = attribute_text(tables.log_columns[name], tables.dialect)
    return select(*(columns[name].label(f"c{at}") for at, name in enumerate(schema.names))).order_by(key.column)


def _named(database: ForeignDatabase, tables: RecordTables, ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(ids), NAMED):
        query = _select(tables).where(tables.root.key.exactly(ids[first : first + NAMED]))
        yield from database.batches(query, _schema_of(tables), bytes_too=False)


def _pages(database: ForeignDatabase, tables: RecordTables, page: int) -> Iterator[pa.RecordBatch]:
    paging, schema, query = paging_of(database, tables, page), _schema_of(tables), _select(tables)
    after: str | None = None
    while True:
        rows = 0
        # on SQLite each of these columns is a text or null
        for batch in database.batches(paging.query(query, after), schema, bytes_too=False):
            rows, after = rows + len(batch), batch["transaction"][-1].as_py()
            yield batch
        if rows < paging.size or after is None:
            return


def _lines_of_rows(rows: pa.Table, dataset: str) -> pa.Table:
    """Each column is one array, so that it is not copied; missing values stay null."""
    size, given = len(rows), {name: join_chunks(rows[name]) for name in rows.column_names}
    del rows
    made = {
        "dataset": pa.repeat(dataset, size),
        "transaction": given["transaction"],
        "parent_given": pa.repeat(True, size),
        "type": pa.repeat("RECORD", size),
        "status": pc.if_else(pc.is_null(given["closed_at"]), "OPEN", "COMMITTED"),
        **{name: given[name] for name in TIMES if name in given},
    }
    if names := [name for name in ATTRIBUTE_COLUMNS if name in given]:
        made["attributes"] = attribute_map({name: given[name] for name in names})
    nothing = {field.type: pa.nulls(size, field.type) for field in LINES if field.name not in made}
    return pa.table([made.get(field.name, nothing.get(field.type)) for field in LINES], schema=LINES)


def _check_range(times: pa.ChunkedArray, name: str) -> None:
    ends = pc.min_max(times.cast(pa.int64()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is not None and (first < _FIRST or last >= _LAST):
        raise _NoInstant(f"{name} of one of its rows is infinite, or in no year from 1 to 9999")


def _fault_line(dataset: str, fault: str) -> pa.Table:
    return pa.Table.from_pylist([{"dataset": dataset, "fault": fault}], schema=LINES)


def _checksum(connection: Connection, texts: list[Any]) -> Select[Any]:
    """Row count and sum of a hash per row, so that values swapped between two rows are noticed."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        # a C function, so that no Python runs per row; it wants bytes
        driver.create_function(_HASH, 1, zlib.crc32, deterministic=True)
        hashed: ColumnElement[Any] = getattr(func, _HASH)(cast(func.json_array(*texts), LargeBinary))
        return select(*_sums_of(hashed))
    as_text = connection.dialect.name == "postgresql"
    there = [func.coalesce(cast(text, Text) if as_text else text, "\x1e") for text in texts]
    separated = func.concat(*[part for text in there for part in (text, literal("\x1f"))][:-1])
    hashed = func.hashtextextended(separated, 0) if as_text else func.crc32(separated)
    return select(*_sums_of(hashed))


def _sums_of(hashed: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    return [func.count(), func.sum(hashed)]
