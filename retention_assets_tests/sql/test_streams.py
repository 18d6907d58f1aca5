"""Streams: what a query finds comes in batches of the schema that was asked for, whatever the database keeps."""

import pyarrow as pa
import pytest
from sqlalchemy import select, text

from retention_assets.frames.log import INSTANT
from retention_assets.sql import streams
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.reflection import table_of

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
