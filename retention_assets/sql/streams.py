"""Queries as streams of Arrow record batches: as much memory for ten million rows as for one batch.

Belongs here: how each database is made to hand over rows as it finds them, and values that mean an instant.
Does not belong here: what is asked.

`stream` reads in the transaction of a connection, `copy_rows` as fast as PostgreSQL can, in one that is its own. The latter is
ADBC's, which must never open a SQLite file: its driver carries a second copy of SQLite, and two copies in one program void each
other's file locks (on closing a file, POSIX drops the locks of the whole program).
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from psycopg import ClientCursor
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, Connection, Engine, Select

from retention_assets.frames.log import INSTANT
from retention_assets.sql.columns import MicrosColumn

BATCH = 50_000
BYTES = 8 * 2**20
_ZONED = r"(Z|[+-]\d{2}(:?\d{2})?)$"


def stream(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a query finds, batch by batch, in the state that the connection's transaction sees."""
    return (_copied if connection.dialect.name == "postgresql" else _fetched)(connection, query, schema)


def _fetched(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _cursor(connection, query) as cursor:
        # Past SQLAlchemy, which would make a row of each row and a value of each value; Arrow makes columns of them all.
        while rows := cursor.fetchmany(BATCH):
            columns = [_array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
            yield pa.record_batch(columns, schema=schema)


@contextmanager
def _cursor(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    if connection.dialect.name == "sqlite":
        with connection.execute(query) as found:
            yield found.cursor
        return
    from pymysql.cursors import SSCursor

    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    driver: Any = connection.connection.driver_connection
    # One that stays on the server, or the driver would read everything at once.
    with closing(driver.cursor(SSCursor)) as cursor:
        # The driver takes parameters by name.
        cursor.execute(str(compiled), compiled.params)
        yield cursor


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if kind == INSTANT:
        first = next((one for one in values if one is not None), None)
        return instant_columns(pa.array(values, pa.string() if isinstance(first, str) else pa.timestamp("us")))
    return pa.array(values, kind)


def _copied(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    driver: Any = connection.connection.driver_connection
    # What is a number in the database is read as one.
    numbers = [pa.int64() if isinstance(one.type, MicrosColumn) else None for one in query.selected_columns]
    types = {field.name: number or field.type for field, number in zip(schema, numbers, strict=True)}
    with driver.cursor().copy(f"COPY ({_text(connection, query)}) TO STDOUT (FORMAT csv)") as copy:
        lines = bytearray()
        for line in copy:
            lines += line
            if len(lines) > BYTES:
                yield from _parsed(lines, schema, types)
                lines.clear()
        yield from _parsed(lines, schema, types)


def _parsed(lines: bytearray, schema: pa.Schema, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    if not lines:
        return
    # COPY writes null as nothing and an empty string as "".
    null = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    options = pa_csv.ConvertOptions(column_types=types, **null)
    read = pa_csv.ReadOptions(column_names=schema.names, block_size=2 * BYTES)
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    table = pa_csv.read_csv(io.BytesIO(bytes(lines)), read, parse, options)
    yield from table.cast(schema).to_batches()


def copy_rows(engine: Engine, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A query on PostgreSQL, in the one state that a statement sees: ADBC reads COPY's binary stream. Locks nobody."""
    # It imports every library of tables that is installed, half a second of what definitions take to load.
    import adbc_driver_postgresql.dbapi as adbc_postgresql

    with engine.connect() as asking:
        text = _text(asking, query)
    options = {"adbc.postgresql.batch_size_hint_bytes": str(BYTES)}
    with (
        adbc_postgresql.connect(_conninfo(engine.url), autocommit=True) as connection,
        connection.cursor(adbc_stmt_kwargs=options) as cursor,
    ):
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.execute(text)
        for batch in cursor.fetch_record_batch():
            yield _cast(batch, schema)


def _conninfo(url: URL) -> str:
    """A URL as libpq understands it: SQLAlchemy's own spelling of one is not the same in every character."""
    given = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in url.query.items()}
    named = url.translate_connect_args(username="user", database="dbname")
    return make_conninfo("", **{"application_name": "retention", **named, **given})


def _text(connection: Connection, query: Select[Any]) -> str:
    """The query with its values in it: COPY takes no parameters, so psycopg quotes them into the text."""
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    driver: Any = connection.connection.driver_connection
    return str(ClientCursor(driver).mogrify(str(compiled), compiled.params))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        instant_columns(column) if field.type == INSTANT else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def instant_columns(values: pa.Array) -> pa.Array:
    """Timestamps, or texts as ISO 8601 has them (SQLite knows no others), as instants. What names no zone is UTC."""
    if not pa.types.is_string(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(INSTANT)
    zoned = pc.match_substring_regex(values, _ZONED)
    # Arrow wants all of a column with a zone, or none of it.
    return pc.binary_join_element_wise(values, pc.if_else(zoned, "", "Z"), "").cast(INSTANT)
