"""Rows that are appended: what a text holds stays what it was, in whatever form a database takes it."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, MetaData, Table, Text, select

from retention_assets.sql.engines import ledger_engine
from retention_assets.sql.staging import append_rows
from retention_assets_tests.sql.conftest import TEXTS

NOTES = Table("notes", MetaData(), Column("id", BigInteger), Column("note", Text), Column("bytes", BigInteger))


def test_rows_are_appended_as_they_are(url: str) -> None:
    engine = ledger_engine(url)
    parts: list[Sequence[tuple[int, str | None, int | None]]] = [
        [(number, f"note {number}", 2**62 + number) for number in range(600)],
        [(number, None if number % 2 else "x", None if number % 3 else number) for number in range(600, 620)],
        [(number, text, 7) for number, text in enumerate(TEXTS, 1000)],
        [],
        *([(number, text, None)] for number, text in enumerate(TEXTS, 2000)),
    ]
    with engine.execution_options(ledger_writes=True).begin() as connection:
        NOTES.create(connection)
        for part in parts:
            append_rows(connection, NOTES, [*NOTES.c], part)
        found = connection.execute(select(NOTES).order_by(NOTES.c.id)).all()
    assert [tuple(row) for row in found] == [row for part in parts for row in part]
    engine.dispose()
