"""Staging: loads many rows into a ledger transaction, to be compared with what is there before they are inserted.

Rows of this program go with their transaction: on SQLite a file in a temporary folder, on PostgreSQL a temporary table dropped
on commit. Rows of many programs share an unlogged PostgreSQL table, which its creator drops, or the next creator a day later.

On SQLite, ADBC writes a separate file, which the ledger's connection attaches. ADBC must never open the ledger: its driver has
a second copy of SQLite, and two copies in one program void each other's file locks (on closing a file, POSIX drops the locks of
the whole program), which can corrupt the file.
"""

import io
import json
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from sqlalchemy import Column, Connection, Dialect, Engine, Table, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from retention_assets.settings.places import Url
from retention_assets.sql.columns import DatabaseTime, array_text
from retention_assets.sql.engines import ledger_engine

STAGED = "staged_rows"
_BATCH = 50_000
# rows per statement; a sweep's batch fits one, well below SQLite's limit of parameters
_TOGETHER = (500, 20, 1)
_TYPES = {pa.int32(): "INTEGER", pa.int64(): "BIGINT"}
# A shared table older than this belongs to no running program.
_LEFT = timedelta(days=1)
_SHARED = re.compile(r"staged_[a-z]+_(\d+)_[0-9a-f]{16}")

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
_SPECIAL = re.compile(r"[\\\n\r\t]")

# To name types.
_POSTGRESQL: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

Load = Callable[[Connection], None]


@contextmanager
def stage(engine: Engine, parts: Iterable[pa.Table] | None) -> Iterator[tuple[Path | None, Load]]:
    """Yield the file to attach before a transaction begins, if any, and the loader to call after.

    `parts` may be iterated more than once; without rows there is no table.
    """
    if parts is None:
        yield None, _loaded_already
    elif engine.dialect.name == "postgresql":
        yield None, lambda connection: _copy_all(connection, parts)
    else:
        with tempfile.TemporaryDirectory(prefix="retention-") as folder:
            file = Path(folder) / "staged.db"
            yield (file if _write_file(file, parts) else None), _loaded_already


def _loaded_already(_: Connection) -> None:
    """Nothing to load, or already in the attached file."""


def _write_file(file: Path, parts: Iterable[pa.Table]) -> bool:
    tables = (part for part in parts if len(part))
    if (first := next(tables, None)) is None:
        return False
    # Slow import: it loads every installed table library, half a second.
    import adbc_driver_sqlite.dbapi as adbc_sqlite

    with adbc_sqlite.connect(str(file), autocommit=True) as connection, connection.cursor() as cursor:
        # Nobody reads this file after a crash.
        for pragma in ("journal_mode = OFF", "synchronous = OFF"):
            cursor.execute(f"PRAGMA {pragma}")
            cursor.fetchall()
        cursor.adbc_ingest(STAGED, first, mode="create")
        for table in tables:
            cursor.adbc_ingest(STAGED, table, mode="append")
    return True


def _copy_all(connection: Connection, parts: Iterable[pa.Table]) -> None:
    tables = (part for part in parts if len(part))
    if (first := next(tables, None)) is None:
        return
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {STAGED} ({_columns(first.schema)}) ON COMMIT DROP")
    for table in chain([first], tables):
        _copy(connection, STAGED, table)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f'"{field.name}" {_TYPES.get(field.type, "TEXT")}' for field in schema)


def _copy(connection: Connection, name: str, table: pa.Table) -> None:
    with _driver(connection).cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
        for batch in table.to_batches(_BATCH):
            text = io.BytesIO()
            # Strings are quoted and null is nothing, so COPY tells an empty string from null.
            pa_csv.write_csv(batch, text, pa_csv.WriteOptions(include_header=False))
            copy.write(text.getvalue())


@dataclass(frozen=True)
class SharedTable:
    """A PostgreSQL table that any program with this value can fill."""

    url: Url
    name: str

    def append(self, table: pa.Table) -> None:
        engine = ledger_engine(self.url)
        try:
            with engine.begin() as connection:
                _copy(connection, self.name, table)
        finally:
            engine.dispose()


@contextmanager
def shared_table(engine: Engine, kind: str, schema: pa.Schema) -> Iterator[SharedTable]:
    """Create a shared table and drop it in the end; drop leftovers of the same kind first."""
    with engine.begin() as connection:
        present: datetime = connection.execute(select(DatabaseTime())).scalar_one()
        name = f"staged_{kind}_{int(present.timestamp())}_{secrets.token_hex(8)}"
        connection.exec_driver_sql(f"CREATE UNLOGGED TABLE {name} ({_columns(schema)})")
        prefix = name[: len(f"staged_{kind}_")]
        tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        names = connection.exec_driver_sql(f"{tables} AND starts_with(relname, '{prefix}')").scalars().all()
    for leftover in names:
        if (match := _SHARED.fullmatch(leftover)) and int(match[1]) < (present - _LEFT).timestamp():
            _drop(engine, leftover)
    try:
        yield SharedTable(Url(engine.url.render_as_string(hide_password=False)), name)
    finally:
        _drop(engine, name)


def _drop(engine: Engine, name: str) -> None:
    # Leave it to a later run if it can't be dropped now.
    with suppress(DBAPIError), engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")


def append_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]) -> None:
    if connection.dialect.name == "postgresql":
        names = ", ".join(f'"{column.name}"' for column in columns)
        with _driver(connection).cursor().copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
            copy.write(_lines_of(rows))
    else:
        # A statement costs as much as several rows, and a large one is parsed once.
        at = 0
        for together in _TOGETHER:
            while len(rows) - at >= together:
                statement, values = _insert_of(table, tuple(columns), rows[at : at + together])
                connection.exec_driver_sql(statement, values)
                at += together


def update_rows(
    connection: Connection,
    table: Table,
    ids: Sequence[int],
    own: Mapping[str, Sequence[Any]],
    common: Mapping[str, Any],
    also: str,
    where: str,
) -> int:
    """Give the rows with these ids, where they match, values of their own and common ones; return how many matched."""
    common = {**common, **{name: values[0] for name, values in own.items() if values.count(values[0]) == len(ids)}}
    own = {name: values for name, values in own.items() if name not in common}
    if connection.dialect.name == "postgresql":
        values: Any = (*common.values(), *map(_array_of, (ids, *own.values())))
    else:
        values = (*common.values(), json.dumps([*zip(ids, *own.values(), strict=True)]))
    statement = _update(table, connection.dialect.name, (*common,), (*own,), also, where)
    return connection.exec_driver_sql(statement, values).rowcount


@cache
def _update(table: Table, name: str, common: tuple[str, ...], own: tuple[str, ...], also: str, where: str) -> str:
    place, names = ("%s", ("id", *own)) if name == "postgresql" else ("?", ("id", *own))
    if name == "postgresql":
        arrays = ", ".join(f"%s::{table.c[column].type.compile(_POSTGRESQL)}[]" for column in names)
        given = f"unnest({arrays}) AS given({', '.join(names)})"
        values = {column: f"given.{column}" for column in names}
    else:
        # A list in a list: half the time of a statement per row.
        given = "json_each(?) AS given"
        values = {column: f"json_extract(given.value, '$[{at}]')" for at, column in enumerate(names)}
    changes = [*(f"{column} = {place}" for column in common), *(f"{column} = {values[column]}" for column in own), also]
    return (
        f"UPDATE {table.name} SET {', '.join(filter(None, changes))} FROM {given}"
        f" WHERE {table.name}.{where} AND {table.name}.id = {values['id']}"
    )


def _array_of(values: Sequence[Any]) -> Any:
    return array_text(values) if set(map(type, values)) == {int} else list(values)


def _lines_of(rows: Sequence[Sequence[Any]]) -> str:
    # as COPY reads them; the driver would write them one by one, several times slower
    columns = map(_texts_of, zip(*rows, strict=True))
    return "".join(f"{line}\n" for line in map("\t".join, zip(*columns, strict=True)))


def _texts_of(values: Sequence[Any]) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds == {int}:
        return [*map(str, values)]
    if kinds == {str} and not _SPECIAL.search("".join(values)):
        return values
    return [r"\N" if value is None else str(value).translate(_ESCAPES) for value in values]


def _insert_of(table: Table, columns: tuple[Column[Any], ...], rows: Sequence[Sequence[Any]]) -> tuple[str, tuple[Any, ...]]:
    by_column = [*zip(*rows, strict=True)]
    alike = tuple(values.count(values[0]) == len(rows) for values in by_column)
    common = (values[0] for values, is_alike in zip(by_column, alike, strict=True) if is_alike)
    varying = (values for values, is_alike in zip(by_column, alike, strict=True) if not is_alike)
    return _insert(table, columns, alike, len(rows)), (*common, *chain.from_iterable(zip(*varying, strict=True)))


@cache
def _insert(table: Table, columns: tuple[Column[Any], ...], alike: tuple[bool, ...], rows: int) -> str:
    number = count(1)
    common = [f"?{next(number)}" if is_alike else "" for is_alike in alike]
    values = ("(" + ", ".join(place or f"?{next(number)}" for place in common) + ")" for _ in range(rows))
    names = ", ".join(f'"{column.name}"' for column in columns)
    return f"INSERT INTO {table.name} ({names}) VALUES {', '.join(values)}"


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
