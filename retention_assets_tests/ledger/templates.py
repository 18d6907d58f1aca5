"""New ledgers of tests: what was done to create the tables of the first one of a kind of database is done again for the next.

Belongs here: recording that once per program and kind of database, and doing it again; on PostgreSQL also the tables of ledgers
that tests are done with. Thousands of tests begin with an empty ledger, and its statements take ten times as long as what is
done here. Programs that a test starts create their ledgers by themselves, and so do the tests of opening (test_opening.py).
"""

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor
from sqlalchemy import Connection, event, text

from retention_assets.ledger import ledger
from retention_assets.ledger.audit.chain import teach
from retention_assets.ledger.ledger import create_tables
from retention_assets.sql import engines

_TABLES = {
    "sqlite": "SELECT count(*) FROM sqlite_master",
    "postgresql": "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace",
}
_CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE")
# Whoever changes anything about a table writes a row of these anew; who grants something, one of the last.
_STRUCTURE = """
WITH tables AS (SELECT oid, relkind FROM pg_class WHERE relnamespace = {schema}::regnamespace)
SELECT array[
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_class WHERE relnamespace = {schema}::regnamespace),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_attribute WHERE attrelid IN (SELECT oid FROM tables)),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_constraint WHERE connamespace = {schema}::regnamespace),
    (SELECT (count(*), max(xmin::text::bigint))::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM tables)),
    (SELECT count(*)::text FROM pg_proc WHERE pronamespace = {schema}::regnamespace),
    (SELECT nspacl::text FROM pg_namespace WHERE oid = {schema}::regnamespace)
], (SELECT coalesce(sum(pg_relation_size(oid)), 0) FROM tables WHERE relkind = 'r')
"""
# What dead rows of earlier tests may take before new tables are cheaper.
_LARGE = 4 * 1024**2


@dataclass
class Recorded:
    """Statements that create a ledger in an empty database, and the rows that are there after it."""

    statements: list[tuple[str, Any]]
    # PostgreSQL: all of it in one round trip; and what brings tables back to it.
    script: str = ""
    emptied: str = ""
    # Schemas of each server that are free, and what was noted of those that were made here, by the number that no new name
    # changes.
    spare: dict[str, list[str]] = field(default_factory=dict)
    structures: dict[tuple[str, int], Any] = field(default_factory=dict)
    # SQLite: the file of a ledger with this name.
    file: bytes = b""
    name: str = ""


_recorded: dict[str, Recorded] = {}


def make_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "create_tables", create_again)
    make_private = engines.make_private

    def make_with_tables(file: Path) -> None:
        recorded = _recorded.get("sqlite")
        # Tests of opening create their ledgers by themselves.
        if recorded and ledger.create_tables is create_again and file.parent.is_dir() and not file.exists():
            _copy(recorded, file)
        make_private(file)

    patch.setattr(engines, "make_private", make_with_tables)


def _copy(recorded: Recorded, file: Path) -> None:
    name = secrets.token_hex(16)
    made = file.with_name(f"{file.name}-{name}")
    with open(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
        # Each ledger is another one.
        stream.write(recorded.file.replace(recorded.name.encode(), name.encode()))
    with suppress(FileExistsError):
        file.hardlink_to(made)
    made.unlink()


def create_again(connection: Connection) -> None:
    """Do what `create_tables` does, by a record of it where the database is empty."""
    kind = connection.dialect.name
    if connection.exec_driver_sql(_TABLES[kind]).scalar_one():
        create_tables(connection)
    elif kind not in _recorded:
        _recorded[kind] = _record(connection)
    elif kind == "sqlite":
        _repeat(_driver(connection), _recorded[kind], secrets.token_hex(16))
    else:
        _take(connection, _recorded[kind])


def _record(connection: Connection) -> Recorded:
    statements: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        if statement.lstrip().startswith(_CHANGES):
            statements.extend((statement, one) for one in (parameters if many else [parameters]))

    event.listen(connection, "before_cursor_execute", note)
    create_tables(connection)
    event.remove(connection, "before_cursor_execute", note)
    recorded = Recorded(statements)
    if connection.dialect.name == "postgresql":
        cursor = ClientCursor(_driver(connection))
        recorded.script = ";\n".join(cursor.mogrify(statement, parameters) for statement, parameters in statements)
        recorded.emptied = _emptying(connection, cursor)
        _note_structure(connection, recorded)
    else:
        recorded.name = secrets.token_hex(16)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
            _repeat(memory, recorded, recorded.name)
            made = memory.serialize()
        # Bytes 18 and 19 say that it is written by a write-ahead log, as all ledgers are.
        recorded.file = made[:18] + b"\2\2" + made[20:]
    return recorded


def _emptying(connection: Connection, cursor: "ClientCursor[Any]") -> str:
    """Statements after which the tables hold the rows that they hold now, whatever they will have held."""
    names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").scalars().all()
    assert not connection.exec_driver_sql("SELECT 1 FROM pg_sequences WHERE schemaname = current_schema()").all()
    # No key is checked, so that any order does.
    statements = ["SET LOCAL session_replication_role = replica", *(f'DELETE FROM "{name}"' for name in names)]
    for name in names:
        for row in connection.exec_driver_sql(f'SELECT * FROM "{name}"').all():
            statements.append(cursor.mogrify(f'INSERT INTO "{name}" VALUES ({", ".join(["%s"] * len(row))})', tuple(row)))
    return ";\n".join(statements)


def _repeat(driver: sqlite3.Connection, recorded: Recorded, name: str) -> None:
    teach(driver)
    for statement, parameters in recorded.statements:
        driver.execute(statement, parameters)
    driver.execute("UPDATE audit_head SET ledger = ?", (name,))


def _take(connection: Connection, recorded: Recorded) -> None:
    """Tables that another test is done with, under the name of this schema; new ones where there are none."""
    driver = _driver(connection)
    if spare := recorded.spare.get(driver.info.host):
        name = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        driver.execute(f'DROP SCHEMA "{name}"; ALTER SCHEMA "{spare.pop()}" RENAME TO "{name}"')
    else:
        driver.execute(recorded.script)
        _note_structure(connection, recorded)
    connection.execute(text("UPDATE audit_head SET ledger = :ledger"), {"ledger": secrets.token_hex(16)})


def _note_structure(connection: Connection, recorded: Recorded) -> None:
    driver = _driver(connection)
    (number,) = driver.execute("SELECT current_schema()::regnamespace::oid::bigint").fetchone()
    recorded.structures[driver.info.host, number] = driver.execute(_STRUCTURE.format(schema="current_schema()")).fetchone()[0]


def empty_again(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Make the tables of a ledger that a test is done with those of a new one, and keep them under another name for the next.

    Only those that were made here, and are what they were. Who still has them in his hands keeps them. Whether they are kept.
    """
    recorded = _recorded.get("postgresql")
    found = connection.execute("SELECT oid::bigint FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    if recorded is None or found is None or (here := (connection.info.host, found[0])) not in recorded.structures:
        return False
    structure, size = connection.execute(_STRUCTURE.format(schema=f"'{schema}'").encode()).fetchone() or (None, 0)
    if structure != recorded.structures[here] or size > _LARGE:
        return False
    spare = f"spare_{secrets.token_hex(6)}"
    with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
        connection.execute(f'SET LOCAL lock_timeout = 1000; SET LOCAL search_path = "{schema}"'.encode())
        connection.execute(recorded.emptied.encode())
        connection.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{spare}"'.encode())
        recorded.spare.setdefault(connection.info.host, []).append(spare)
        return True
    return False


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
