"""Queries as streams of Arrow record batches: as much memory for ten million rows as for one batch.

Belongs here: how each database is made to hand over rows as it finds them, and values that mean an instant.
Does not belong here: what is asked.

On PostgreSQL, ADBC reads COPY's binary stream straight into columns. Everywhere else a cursor that stays on the server is asked
for rows by the thousand. ADBC must never open a SQLite file: its driver carries a second copy of SQLite, and two copies in one
program void each other's file locks (on closing a file, POSIX drops the locks of the whole program).
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import adbc_driver_postgresql.dbapi as adbc_postgresql
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import ClientCursor
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, Connection, Engine, Select

from retention_assets.frames.log import INSTANT

BATCH = 50_000
BYTES = 8 * 2**20
_ZONED = r"(Z|[+-]\d{2}(:?\d{2})?)$"


def copy_rows(engine: Engine, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A query on PostgreSQL, in the one state that a statement sees. Locks nobody."""
    text = _text(engine, query)
    options = {"adbc.postgresql.batch_size_hint_bytes": str(BYTES)}
    with (
        adbc_postgresql.connect(_conninfo(engine.url), autocommit=True) as connection,
        connection.cursor(adbc_stmt_kwargs=options) as cursor,
    ):
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.execute(text)
        for batch in cursor.fetch_record_batch():
            yield cast_batch(batch, schema)


def _conninfo(url: URL) -> str:
    """A URL as libpq understands it: SQLAlchemy's own spelling of one is not the same in every character."""
    given = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in url.query.items()}
    named = url.translate_connect_args(username="user", database="dbname")
    return make_conninfo("", **{"application_name": "retention", **named, **given})


def _text(engine: Engine, query: Select[Any]) -> str:
    """The query with its values in it: COPY takes no parameters, so psycopg quotes them into the text."""
    compiled = query.compile(dialect=engine.dialect, compile_kwargs={"render_postcompile": True})
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        return str(ClientCursor(driver).mogrify(str(compiled), compiled.params))


def fetch_rows(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A query on anything else, in the state that the connection's transaction sees."""
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    places = compiled.positiontup
    values = compiled.params if places is None else [compiled.params[name] for name in places]
    driver: Any = connection.connection.driver_connection
    # Past SQLAlchemy, which would make a row of each row; Arrow makes columns of them all.
    with closing(driver.cursor() if connection.dialect.name == "sqlite" else _unbuffered(driver)) as cursor:
        cursor.execute(str(compiled), values)
        while rows := cursor.fetchmany(BATCH):
            columns = [_array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
            yield pa.record_batch(columns, schema=schema)


def _unbuffered(driver: Any) -> Any:
    from pymysql.cursors import SSCursor

    return driver.cursor(SSCursor)


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if kind == INSTANT:
        first = next((one for one in values if one is not None), None)
        return instant_columns(pa.array(values, pa.string() if isinstance(first, str) else pa.timestamp("us")))
    return pa.array(values, kind)


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the types that were asked for; instants without a zone are UTC."""
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
