"""Inserts that differ between SQLite and PostgreSQL: upserts, and the number of inserted rows."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_counted(connection: Connection, statement: Insert) -> int:
    done = connection.execute(statement, execution_options={"preserve_rowcount": True})
    if connection.dialect.name == "sqlite":
        # Python's driver doesn't count the rows of an INSERT that begins with WITH.
        return int(connection.exec_driver_sql("SELECT changes()").scalar_one())
    return done.rowcount


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
    new = _insert(connection, table)
    return new.on_conflict_do_update(index_elements=list(key), set_={name: new.excluded[name] for name in changed} | {**more})


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
