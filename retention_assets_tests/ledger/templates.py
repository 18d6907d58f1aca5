"""New ledgers of tests, without Alembic: what the migrations did to the first empty database of a kind is done again to the next.

Belongs here: recording that once per program and kind of database, and doing it again. Thousands of tests begin with an empty
ledger, and eleven migrations take twenty times as long as their statements do. Programs that a test starts migrate by
themselves, and so do the tests of opening (test_opening.py).
"""

import secrets
from pathlib import Path
from typing import Any

from psycopg import ClientCursor
from sqlalchemy import Connection, event, text

from retention_assets.ledger import migrations
from retention_assets.ledger.migrations import FOLDER, migrate

_TABLES = {
    "sqlite": "SELECT count(*) FROM sqlite_master",
    "postgresql": "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace",
}
_CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE")
_recorded: dict[str, list[str | tuple[str, Any]]] = {}


def migrate_again(connection: Connection, folder: Path = FOLDER) -> None:
    """What `migrate` does, by a record of it where the database is empty."""
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": migrations._LOCK})
    if folder != FOLDER or connection.exec_driver_sql(_TABLES[kind]).scalar_one():
        migrate(connection, folder)
    elif kind in _recorded:
        _repeat(connection, _recorded[kind])
    else:
        _recorded[kind] = _record(connection)


def _record(connection: Connection) -> list[str | tuple[str, Any]]:
    statements: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        if statement.lstrip().startswith(_CHANGES):
            statements.extend((statement, one) for one in (parameters if many else [parameters]))

    event.listen(connection, "before_cursor_execute", note)
    migrate(connection)
    event.remove(connection, "before_cursor_execute", note)
    if connection.dialect.name != "postgresql":
        return [*statements]
    # One round trip.
    cursor = ClientCursor(_driver(connection))
    return [";\n".join(cursor.mogrify(statement, parameters) for statement, parameters in statements)]


def _repeat(connection: Connection, recorded: list[str | tuple[str, Any]]) -> None:
    for statement in recorded:
        _driver(connection).execute(*([statement] if isinstance(statement, str) else statement))
    # Each ledger is another one.
    connection.execute(text("UPDATE audit_head SET ledger = :ledger"), {"ledger": secrets.token_hex(16)})


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
