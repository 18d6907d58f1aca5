"""Transactions that read or write, and inserts, alike on every kind of database."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

from retention_assets.sql.engines import BULK_CACHE, CACHE, READS

T = TypeVar("T")

# values per statement, well below every database's limit of parameters
PORTION = 10_000


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent state, read-only; locks no writer."""
    options: dict[str, Any] = {READS: True}
    if engine.dialect.name != "sqlite":
        # MySQL has the same name; its snapshot begins with the transaction.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect() as connection, connection.execution_options(**options).begin():
        yield connection


@contextmanager
def writing(engine: Engine, attach: Path | None = None) -> Iterator[Connection]:
    """One transaction: everything is written, or nothing after any error. `attach` is a SQLite file to read in it."""
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if attach:
            # Not possible within a transaction.
            driver.execute("ATTACH DATABASE ? AS staged", (str(attach),))
            driver.execute(f"PRAGMA cache_size = -{BULK_CACHE}")
        try:
            with connection.begin():
                yield connection
        finally:
            if attach:
                driver.execute("DETACH DATABASE staged")
                driver.execute(f"PRAGMA cache_size = -{CACHE}")


def portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), PORTION):
        yield values[at : at + PORTION]


def insert_counted(connection: Connection, statement: Insert) -> int:
    result = connection.execute(statement, execution_options={"preserve_rowcount": True})
    if connection.dialect.name == "sqlite":
        # Python's driver doesn't count the rows of an INSERT that begins with WITH.
        return int(connection.exec_driver_sql("SELECT changes()").scalar_one())
    return result.rowcount


def insert_or_skip(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return _insert(connection, table).on_conflict_do_nothing()


def insert_or_update(
    connection: Connection,
    table: Table,
    key: Sequence[str],
    changed: Collection[str],
    more: Mapping[str, ColumnElement[Any]] = MappingProxyType({}),
) -> postgresql.Insert | sqlite.Insert:
    """Insert, or give the existing row new values of `changed`, and of other columns by `more`."""
    insert = _insert(connection, table)
    values = {name: insert.excluded[name] for name in changed} | {**more}
    return insert.on_conflict_do_update(index_elements=list(key), set_=values)


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
