"""Adds the counter of replayed transactions to reports."""

from sqlalchemy import Connection, text

BEFORE, REVISION = "0025", "0026"


def upgrade(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE reports ADD COLUMN replayed BIGINT"))
