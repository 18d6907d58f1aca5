"""Bulk: Arrow tables into a database and out of it.

Belongs here: how a million rows reach a transaction as a staging table, how rows are appended, how a query streams as Arrow.
Does not belong here: what the rows are about.

On SQLite, ADBC writes the staging table into a file of its own, which the ledger's connection then attaches. It must never open
the ledger itself: its driver carries a second copy of SQLite, and two copies in one program void each other's file locks (on
closing a file, POSIX drops the locks of the whole program), which can corrupt the file.
On PostgreSQL, COPY over the ledger's connection fills a temporary table in the same transaction: a writer that is killed leaves
nothing behind.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import ClientCursor
from sqlalchemy import Column, Connection, Engine, Select, Table, insert

STAGED = "staged_rows"
BATCH = 50_000
_BLOCK = 8 * 2**20

_TYPES = {pa.int32(): "INTEGER", pa.int64(): "BIGINT"}

Load = Callable[[Connection], None]


@contextmanager
def stage(engine: Engine, table: pa.Table | None) -> Iterator[tuple[Path | None, Load]]:
    """The file that a transaction has to attach before it begins, if any, and what it has to call after it began."""
    if table is None:
        yield None, _loaded_already
    elif engine.dialect.name == "postgresql":
        yield None, lambda connection: _copy(connection, table)
    else:
        # It imports every library of tables that is installed, half a second of what definitions take to load.
        import adbc_driver_sqlite.dbapi as adbc_sqlite

        with tempfile.TemporaryDirectory(prefix="retention-") as folder:
            file = Path(folder) / "staged.db"
            with adbc_sqlite.connect(str(file)) as connection:
                with connection.cursor() as cursor:
                    cursor.adbc_ingest(STAGED, table, mode="create")
                connection.commit()
            yield file, _loaded_already


def _loaded_already(_: Connection) -> None:
    """There is no table to load, or it is in the file that was attached."""


def _copy(connection: Connection, table: pa.Table) -> None:
    columns = ", ".join(f'"{field.name}" {_TYPES.get(field.type, "TEXT")}' for field in table.schema)
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {STAGED} ({columns}) ON COMMIT DROP")
    with _driver(connection).cursor().copy(f"COPY {STAGED} FROM STDIN (FORMAT csv)") as copy:
        for batch in table.to_batches(BATCH):
            text = io.BytesIO()
            # Strings are quoted and null is nothing at all: as COPY reads them, an empty string and null stay apart.
            pa_csv.write_csv(batch, text, pa_csv.WriteOptions(include_header=False))
            copy.write(text.getvalue())


def append_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]) -> None:
    """Append rows of plain values (numbers and strings), one or a million."""
    if connection.dialect.name == "postgresql":
        names = ", ".join(f'"{column.name}"' for column in columns)
        with _driver(connection).cursor().copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    elif rows:
        statement = insert(table).values({column.name: None for column in columns}).compile(dialect=connection.dialect)
        connection.exec_driver_sql(str(statement), [tuple(row) for row in rows])


def stream(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a query finds, batch by batch, in the state that the connection's transaction sees."""
    return (_copied if connection.dialect.name == "postgresql" else _fetched)(connection, query, schema)


def _fetched(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with connection.execute(query) as found:
        # Past SQLAlchemy, which would make an instant of each number; Arrow makes them of a whole column.
        while rows := found.cursor.fetchmany(BATCH):
            values = zip(*rows, strict=True)
            yield pa.record_batch([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)


def _copied(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    driver = _driver(connection)
    # COPY takes no parameters, so psycopg quotes them into the text.
    text = ClientCursor(driver).mogrify(str(compiled), compiled.params)
    with driver.cursor().copy(f"COPY ({text}) TO STDOUT (FORMAT csv)") as copy:
        lines = bytearray()
        for line in copy:
            lines += line
            if len(lines) > _BLOCK:
                yield from _parsed(lines, schema)
                lines.clear()
        yield from _parsed(lines, schema)


def _parsed(lines: bytearray, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not lines:
        return
    # COPY writes null as nothing and an empty string as "".
    null = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    options = pa_csv.ConvertOptions(column_types={field.name: field.type for field in schema}, **null)
    read = pa_csv.ReadOptions(column_names=schema.names, block_size=2 * _BLOCK)
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    table = pa_csv.read_csv(io.BytesIO(bytes(lines)), read, parse, options)
    yield from table.cast(schema).to_batches()


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
