"""Sums of bytes, exact or the largest number that a column holds, and rows that are appended as they are, on both databases."""

from collections.abc import Sequence

import pytest
from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text, insert, select, update

from retention_assets.sql.columns import MOST_BYTES, ByteSum, fit, plus
from retention_assets.sql.engines import ledger_engine
from retention_assets.sql.staging import append_rows
from retention_assets_tests.sql.conftest import TEXTS

pytestmark = pytest.mark.dialect

SIZES = Table("sizes", MetaData(), Column("id", Integer, primary_key=True), Column("bytes", BigInteger))
HALF = 2**62
SUMS = [
    [],
    [None],
    [0, None, 7],
    [2**32 - 1] * 3,
    [2**31, 2**31, 2**32 - 1, 1],
    [HALF, HALF - 1],
    [HALF, HALF],
    [HALF, HALF - 2**32, 2**32 - 1],
    [HALF, HALF - 2**32, 2**32 - 1, 1],
    [MOST_BYTES],
    [MOST_BYTES, 1],
    [MOST_BYTES] * 5,
]


@pytest.mark.parametrize("sizes", SUMS, ids=str)
def test_a_sum_is_exact_or_the_largest_number_there_is(url: str, sizes: Sequence[int | None]) -> None:
    engine = ledger_engine(url)
    with engine.execution_options(ledger_writes=True).begin() as connection:
        SIZES.create(connection)
        if sizes:
            connection.execute(insert(SIZES), [{"bytes": size} for size in sizes])
        wanted = min(sum(size or 0 for size in sizes), MOST_BYTES)
        assert connection.execute(select(ByteSum(SIZES.c.bytes))).scalar_one() == wanted
        assert fit(sum(size or 0 for size in sizes)) == wanted
    engine.dispose()


@pytest.mark.parametrize("more", [0, 1, HALF - 1, HALF, MOST_BYTES, MOST_BYTES + 1])
def test_what_is_added_to_a_column_stays_in_it(url: str, more: int) -> None:
    engine = ledger_engine(url)
    with engine.execution_options(ledger_writes=True).begin() as connection:
        SIZES.create(connection)
        connection.execute(insert(SIZES).values(bytes=HALF))
        connection.execute(update(SIZES).values(bytes=plus(SIZES.c.bytes, more)))
        assert connection.execute(select(SIZES.c.bytes)).scalar_one() == min(HALF + more, MOST_BYTES)
    engine.dispose()


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
