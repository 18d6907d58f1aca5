"""Queries as streams of Arrow record batches, in constant memory.

`stream` reads in a connection's transaction; `copy_rows` uses a transaction of its own and PostgreSQL's fastest way, through
ADBC. ADBC must never open a SQLite file: its second copy of SQLite would void this program's file locks (see staging.py).
"""

import io
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from psycopg import ClientCursor
from psycopg.abc import Buffer
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many
from psycopg.pq import ExecStatus
from sqlalchemy import URL, ColumnElement, Connection, DateTime, Engine, Select, event, func

from retention_assets.frames.log import INSTANT
from retention_assets.silence import ForeignThread
from retention_assets.sql.columns import InstantColumn, MicrosColumn

BATCH = 50_000
BYTES = 8 * 2**20
# Row security hides rows unless it is told to raise.
ALL_ROWS = "SET LOCAL row_security = off"
_DAY = len("2026-01-01")
# microseconds of the years that a datetime has; PostgreSQL's infinity and years BC are outside
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000
_ZONED = r"(Z|[+-]\d{2}(:?\d{2})?)$"


def stream(connection: Connection, query: Select[Any], schema: pa.Schema, bytes_too: bool = False) -> Iterator[pa.RecordBatch]:
    """Stream a query in the connection's transaction. `bytes_too`: a column may hold bytes, as in a foreign SQLite file."""
    if connection.dialect.name == "postgresql":
        return _copied(connection, query, schema)
    if connection.dialect.name == "sqlite" and not bytes_too:
        return _fetched_as_texts(connection, query, schema)
    return _fetched(connection, query, schema)


def numbers_of(connection: Connection, query: Select[Any]) -> npt.NDArray[np.int64]:
    if connection.dialect.name == "postgresql":
        text = bytearray()
        # Joining all at once makes each row an object of fifty times its size.
        for row in _rows_of_copy(connection, f"COPY ({_text(connection, query)}) TO STDOUT"):
            text += row
        return np.fromstring(text.decode(), np.int64, sep="\n")
    (column,) = query.selected_columns
    numbers = connection.execute(query.with_only_columns(func.group_concat(column), maintain_column_froms=True)).scalar_one()
    return np.fromstring(numbers or "", np.int64, sep=",")


def _fetched(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _cursor(connection, query) as cursor:
        # Without SQLAlchemy, which builds an object per row and value.
        while rows := cursor.fetchmany(BATCH):
            yield batch_of(rows, schema)


def _fetched_as_texts(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # SQLite's JSON text, which Arrow parses in a third of the time
    types = _types_of(query, schema, (InstantColumn, MicrosColumn))
    types |= {name: pa.string() for name, kind in types.items() if kind == INSTANT}
    # Between two numbers, so that the brackets are in columns that nobody reads.
    lines = query.with_only_columns(func.json_array(0, *query.selected_columns, 0), maintain_column_froms=True)
    with _cursor(connection, lines) as cursor:
        while rows := cursor.fetchmany(BATCH):
            batch = _parsed_lines("\n".join(chain.from_iterable(rows)), schema, types)
            yield batch_of([json.loads(line)[1:-1] for (line,) in rows], schema) if batch is None else batch


def _parsed_lines(text: str, schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.RecordBatch | None:
    # JSON arrays, one per line: without a backslash they are CSV except for the brackets
    if "\\" in text:
        return None
    null = {"null_values": ["null"], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    options = pa_csv.ConvertOptions(column_types=types, include_columns=schema.names, **null)
    data = text.encode()
    read = pa_csv.ReadOptions(column_names=["[", *schema.names, "]"], block_size=len(data) + 1)
    try:
        table = pa_csv.read_csv(io.BytesIO(data), read, convert_options=options)
        [batch] = table.to_batches()
        return _cast(batch, schema)
    except pa.ArrowInvalid:
        # A value of the wrong type: reading row by row finds and names it.
        return None


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [_array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.record_batch(columns, schema=schema)


@contextmanager
def _cursor(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    if connection.dialect.name == "sqlite":
        with connection.execute(query) as result:
            yield result.cursor
        return
    from pymysql.cursors import SSCursor

    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    driver: Any = connection.connection.driver_connection
    # A server-side cursor: otherwise the driver would read everything at once.
    with closing(driver.cursor(SSCursor)) as cursor:
        cursor.execute(str(compiled), compiled.params)
        yield cursor


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if kind == INSTANT:
        first = next((value for value in values if value is not None), None)
        return instant_columns(pa.array(values, pa.string() if isinstance(first, str) else pa.timestamp("us")))
    return pa.array(values, kind)


def _copied(connection: Connection, query: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    types = _types_of(query, schema, (MicrosColumn,))
    lines = bytearray()
    for line in _rows_of_copy(connection, f"COPY ({_text(connection, query)}) TO STDOUT (FORMAT csv)"):
        lines += line
        if len(lines) > BYTES:
            yield from _parsed(lines, schema, types)
            lines.clear()
    yield from _parsed(lines, schema, types)


def _rows_of_copy(connection: Connection, statement: str) -> Iterator[Buffer]:
    # psycopg polls for each row, which costs more than the row: take those that arrived, and poll only if there is none
    driver: Any = connection.connection.driver_connection
    with driver.cursor().copy(statement) as copy:
        while True:
            size, row = driver.pgconn.get_copy_data(1)
            if size < 0:
                break
            if not size and not (row := copy.read()):
                return
            yield row
        (result,) = driver.wait(fetch_many(driver.pgconn))
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result)


def _types_of(query: Select[Any], schema: pa.Schema, numbers: tuple[type[Any], ...]) -> dict[str, pa.DataType]:
    def type_of(field: pa.Field, column: ColumnElement[Any]) -> pa.DataType:
        if isinstance(column.type, numbers):
            return pa.int64()
        # for a local time Arrow would require a zone
        is_local = isinstance(column.type, DateTime) and not column.type.timezone
        return pa.timestamp("us") if field.type == INSTANT and is_local else field.type

    return {field.name: type_of(field, column) for field, column in zip(schema, query.selected_columns, strict=True)}


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


def copy_rows(engine: Engine, query: Select[Any], schema: pa.Schema, sees_all: bool = True) -> Iterator[pa.RecordBatch]:
    """Stream a PostgreSQL query in one statement's state through ADBC, locking nobody. `sees_all`: raise if rows are hidden."""
    # In a thread: ADBC waits as long as the server wants.
    yield from ForeignThread().rows(f"the server {engine.url.host}", _copied_rows(engine, query, schema, sees_all))


def _copied_rows(
    engine: Engine, query: Select[Any], schema: pa.Schema, sees_all: bool
) -> Generator[pa.RecordBatch, None, None]:
    with engine.connect() as connection:
        text = _text(connection, query)
    with _copying(engine, text, sees_all) as reader:
        if not any(_is_unknown(field.type) for field in reader.schema):
            yield from (_cast(batch, schema) for batch in reader)
            return
    with _copying(engine, text, sees_all, anew=True) as reader:
        yield from (_cast(batch, schema) for batch in reader)


@contextmanager
def _copying(engine: Engine, text: str, sees_all: bool, anew: bool = False) -> Iterator[pa.RecordBatchReader]:
    options = {"adbc.postgresql.batch_size_hint_bytes": str(BYTES)}
    with adbc_connection(engine, anew) as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
        # One transaction: a pooler may switch sessions afterwards. Closing undoes it.
        for statement in ("BEGIN READ ONLY", "SET LOCAL TIME ZONE 'UTC'", *([ALL_ROWS] if sees_all else [])):
            cursor.execute(statement)
        cursor.execute(text)
        yield cursor.fetch_record_batch()


def _is_unknown(kind: pa.DataType) -> bool:
    # created after the driver read the types: it has no name, and its values are bytes
    return isinstance(kind, pa.OpaqueType) and kind.type_name.startswith("unnamed")


def adbc_connection(engine: Engine, anew: bool = False) -> Any:
    """An ADBC connection beside those of an engine. `anew`: new types exist that the driver does not know."""
    first = _firsts.setdefault(engine, _FirstConnection(_conninfo(engine.url)))
    if not event.contains(engine, "engine_disposed", first.close):
        event.listen(engine, "engine_disposed", first.close)
    if anew:
        first.close()
    return first.another()


class _FirstConnection:
    """ADBC connections to one database. Opening the first reads all types and columns (0.1 s); its clones know them."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo, self._lock = conninfo, Lock()
        self._first: Any = None

    def another(self) -> Any:
        # Slow import: it loads every installed table library, half a second.
        import adbc_driver_postgresql.dbapi as adbc_postgresql

        with self._lock:
            if self._first is None:
                self._first = adbc_postgresql.connect(self._conninfo, autocommit=True)
            return self._first.adbc_clone()

    def close(self, *_: object) -> None:
        with self._lock:
            first, self._first = self._first, None
        if first is not None:
            first.close()


_firsts: "WeakKeyDictionary[Engine, _FirstConnection]" = WeakKeyDictionary()


def _conninfo(url: URL) -> str:
    options = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in url.query.items()}
    server = url.translate_connect_args(username="user", database="dbname")
    return make_conninfo("", **{"application_name": "retention", **server, **options})


def _text(connection: Connection, query: Select[Any]) -> str:
    # COPY takes no parameters, so psycopg quotes them
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    driver: Any = connection.connection.driver_connection
    return str(ClientCursor(driver).mogrify(str(compiled), compiled.params))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        instant_columns(column) if field.type == INSTANT and column.type != pa.int64() else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def instant_columns(values: pa.Array) -> pa.Array:
    """Timestamps or ISO 8601 texts (SQLite's only form) as instants. Without a zone they are UTC."""
    if not pa.types.is_string(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(INSTANT)
    # Most columns name no zone, and Arrow refuses values that do. A day alone is no instant.
    if (pc.min(pc.binary_length(values)).as_py() or 0) > _DAY:
        with suppress(pa.ArrowInvalid):
            return values.cast(pa.timestamp("us")).cast(INSTANT)
    zoned = pc.match_substring_regex(values, _ZONED)
    # Arrow wants a zone in all values of a column or in none.
    return pc.binary_join_element_wise(values, pc.if_else(zoned, "", "Z"), "").cast(INSTANT)


def are_datetimes(times: pa.Array | pa.ChunkedArray) -> bool:
    ends = pc.min_max(times.cast(pa.int64()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    return first is None or (first >= _FIRST and last < _LAST)
