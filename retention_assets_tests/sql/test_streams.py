"""Streams: what a query finds comes in batches of the schema that was asked for, whatever the database keeps."""

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import BigInteger, Connection, column, func, select, text

from retention_assets.frames import INSTANT
from retention_assets.settings.places import Url
from retention_assets.sql import streams
from retention_assets.sql.engines import ledger_engine
from retention_assets.sql.foreign import ForeignDatabase, table_of
from retention_assets_tests.sql.conftest import TEXTS

pytestmark = pytest.mark.dialect

ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def test_a_stream_comes_in_batches_of_the_schema(database: ForeignDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BATCH", 1000)
    monkeypatch.setattr(streams, "BYTES", 20_000)
    table = table_of(database, "t")
    rows = [{"k": key, "v": f"value {key}"} for key in range(4, 3011)]
    database.write(lambda connection: connection.execute(table.insert(), rows))
    found = list(database.batches(select(table.c.k, table.c.v).where(table.c.v != "it's 100% \\ ü"), ROWS))
    assert all(batch.schema == ROWS for batch in found)
    assert len(found) > 2
    assert sorted(pa.Table.from_batches(found)["k"].to_pylist()) == list(range(1, 3011))


def test_instants_are_made_of_what_each_database_keeps(database: ForeignDatabase) -> None:
    kind = {"sqlite": "text", "postgresql": "timestamp(6)"}.get(database.dialect, "datetime(6)")
    at = "2026-01-02 03:04:05.123456"
    database.write(lambda connection: connection.execute(text(f"CREATE TABLE times (a {kind}, b {kind})")))
    database.write(lambda connection: connection.execute(text("INSERT INTO times VALUES (:at, NULL)"), {"at": at}))
    times = table_of(database, "times")
    [batch] = database.batches(select(times.c.a, times.c.b), pa.schema([("a", INSTANT), ("b", INSTANT)]))
    assert [str(value) for value in batch["a"].cast(pa.string())] == [f"{at}Z"]
    assert batch["b"].null_count == 1


@pytest.mark.parametrize("bytes_too", [True, False])
@pytest.mark.parametrize("together", [1, 50])
def test_a_text_comes_as_it_is_and_nothing_is_no_text(
    database: ForeignDatabase, bytes_too: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PostgreSQL has no zeros in texts.
    texts = TEXTS if database.dialect == "postgresql" else (*TEXTS, "\x00")
    rows: list[dict[str, object]] = [{"k": 2**63 - 1 - number, "v": text} for number, text in enumerate(texts)]
    rows += [{"k": -(2**63), "v": None}]
    monkeypatch.setattr(streams, "BATCH", together)
    table = table_of(database, "t")
    database.write(lambda connection: connection.execute(table.insert(), rows))
    query = select(table.c.k, table.c.v).where(table.c.k.not_in([1, 2, 3])).order_by(table.c.k.desc())
    assert pa.Table.from_batches(database.batches(query, ROWS, bytes_too), ROWS).to_pylist() == rows


@pytest.mark.parametrize("bytes_too", [True, False])
def test_a_text_where_a_number_is_expected_is_said_to_be_none(database: ForeignDatabase, bytes_too: bool) -> None:
    table = table_of(database, "t")
    query = select(table.c.v, table.c.v.label("w"))
    with pytest.raises(pa.ArrowInvalid):
        list(database.batches(query, pa.schema([("v", pa.string()), ("w", pa.int64())]), bytes_too))


@pytest.mark.parametrize("rows", [1, 5_000])
def test_a_copy_comes_whole_and_one_that_breaks_in_the_middle_is_no_copy(server: str, rows: int) -> None:
    """Rows that have come by then must not pass for all of them."""
    series = func.generate_series(1, rows).table_valued(column("number", BigInteger)).render_derived()
    engine = ledger_engine(Url(server))
    try:
        with engine.connect() as connection:
            assert streams.numbers_of(connection, select(series.c.number)).tolist() == [*range(1, rows + 1)]
            with pytest.raises(psycopg.errors.DivisionByZero):
                list(streams.stream(connection, select(100 // (rows - series.c.number)), pa.schema([("n", pa.int64())])))
            connection.connection.rollback()
            assert connection.execute(select(1)).scalar_one() == 1
    finally:
        engine.dispose()


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_type_that_came_after_the_first_rows_were_read_is_known(database: ForeignDatabase) -> None:
    def read(kind: pa.DataType) -> list[object]:
        table, schema = table_of(database, "t"), pa.schema([("v", kind)])
        batches = database.batches(select(table.c.v).order_by(table.c.k), schema)
        return [value for batch in batches for value in batch["v"].to_pylist()]

    def change(connection: Connection) -> None:
        connection.execute(text("CREATE TYPE letter AS ENUM ('a', 'b', 'c')"))
        connection.execute(text("ALTER TABLE t ALTER v TYPE letter[] USING ARRAY[v]\\:\\:letter[]"))

    assert read(pa.string()) == ["a", "b", "c"]
    database.write(change)
    assert read(pa.list_(pa.string())) == [["a"], ["b"], ["c"]]
