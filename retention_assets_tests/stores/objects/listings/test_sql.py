"""Objects that are rows of a database, on every kind of database that stores are tested with."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    Uuid,
    create_engine,
    insert,
    make_url,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeEngine

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, settings_of
from retention_assets_tests.stores.records.environments import DRIVERS

AT = datetime(2026, 11, 20, 1, 2, 3, 456789, UTC)


class Objects:
    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self.url, self.dialect = url, parsed.get_backend_name()
        self.engine: Engine = create_engine(parsed.set(drivername=DRIVERS[self.dialect]), poolclass=NullPool)
        times: dict[str, TypeEngine[Any]] = {
            "postgresql": DateTime(timezone=True), "mysql": mysql.DATETIME(fsp=6), "sqlite": Text(),
        }  # fmt: skip
        self.time = times[self.dialect]

    def make(self, key: TypeEngine[Any], size: TypeEngine[Any] | None = None) -> Table:
        columns = [Column("id", key), Column("made", self.time), Column("bytes", size or Integer())]
        made = Table("objs", MetaData(), *columns, Column("tenant", String(20)), Column("type", String(20)))
        made.create(self.engine)
        return made

    def fill(self, table: Table, *rows: dict[str, Any]) -> None:
        given = {"made": self.at(AT), "bytes": 1, "tenant": None, "type": None}
        with self.engine.begin() as connection:
            connection.execute(insert(table), [{**given, **row} for row in rows])

    def at(self, instant: datetime) -> Any:
        if self.dialect == "sqlite":
            return instant.isoformat().replace("+00:00", "Z")
        return instant if self.dialect == "postgresql" else instant.replace(tzinfo=None)

    def listing(self, **more: Any) -> dict[str, Any]:
        return {"sql": {"url": self.url, "table": "objs", "key": "id", "created_at": "made", "size": "bytes", **more}}


@pytest.fixture
def objects(store_url: str) -> Iterator[Objects]:
    made = Objects(store_url)
    yield made
    made.engine.dispose()


def test_rows_are_objects(objects: Objects) -> None:
    table = objects.make(String(60))
    objects.fill(
        table, {"id": "r/é 1", "tenant": "acme", "type": "doc"}, {"id": "x", "bytes": None, "made": None}, {"id": None}
    )
    listing = listing_of(objects.listing(kind="type"), realm={"column": "tenant"})
    rows = listed(listing)
    assert rows == {
        "r/é 1": {"realm": "acme", "kind": "doc", "size": 1, "created_at": AT, "condition": None},
        "x": {"realm": None, "kind": None, "size": None, "created_at": None, "condition": None},
    }
    assert found(listing, ["r/é 1", "gone", "X", "x "]) == {"r/é 1": rows["r/é 1"]}


def test_a_size_need_not_be_known(objects: Objects) -> None:
    objects.fill(objects.make(String(60)), {"id": "x"})
    settings = objects.listing()
    del settings["sql"]["size"]
    assert listed(listing_of(settings))["x"]["size"] is None


@pytest.fixture
def sqlite(tmp_path: Path) -> Objects:
    return Objects(f"sqlite:///{tmp_path / 'own.db'}")


KEYS: dict[str, tuple[TypeEngine[Any], list[Any], list[str]]] = {
    "numbers": (Integer(), [1, 20, 3], ["1", "20", "3"]),
    "uuids": (Uuid(as_uuid=False), ["0f5b1f6e-9c5c-4b3e-8a57-7f4f4b1b2c3d"], ["0f5b1f6e-9c5c-4b3e-8a57-7f4f4b1b2c3d"]),
    "bytes": (LargeBinary(20), [b"\x00\xff"], ["00ff"]),
    "decimals": (Numeric(20, 2), ["1.50"], ["1.50"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type_are_found_by_their_texts(server: str, kind: str) -> None:
    objects = Objects(new_schema(server))
    column, values, texts = KEYS[kind]
    objects.fill(objects.make(column), *({"id": value} for value in values))
    listing = listing_of(objects.listing())
    assert listed(listing).keys() == set(texts)
    assert found(listing, [*texts, "none"]).keys() == set(texts)


def test_many_keys_are_asked_for_in_portions(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    from retention_assets.stores.objects.sources import sql

    monkeypatch.setattr(sql, "_PORTION", 3)
    objects.fill(objects.make(String(60)), *({"id": f"{number}"} for number in range(10)))
    assert len(found(listing_of(objects.listing()), [f"{number}" for number in range(5, 15)])) == 5


@pytest.mark.parametrize("key", [String(60), Integer()], ids=["text", "numbers"])
def test_shares_are_ranges_of_keys_that_leave_nothing_out(objects: Objects, key: TypeEngine[Any]) -> None:
    table = objects.make(key)
    values = [number if isinstance(key, Integer) else f"é/{number % 7}'{number}" for number in range(500)]
    objects.fill(table, *({"id": value} for value in values))
    if objects.dialect == "postgresql":
        with objects.engine.begin() as connection:
            connection.execute(text("CREATE INDEX ON objs (id)"))
            connection.execute(text("ANALYZE objs"))
    listing = listing_of(objects.listing())
    shares = listing.shares(4)
    # Others do not say cheaply where to split.
    assert len(shares) == (4 if objects.dialect == "postgresql" else 1)
    parts = [sum(len(batch) for batch in listing.read(share)) for share in shares]
    assert min(parts) > 0
    objects.fill(table, {"id": 10_000 if isinstance(key, Integer) else "zz"}, {"id": -5 if isinstance(key, Integer) else " "})
    keys = [one for share in shares for batch in listing.read(share) for one in batch["key"].to_pylist()]
    assert len(keys) == len(set(keys)) == 502


def test_the_clock_is_the_database_s(objects: Objects) -> None:
    objects.make(String(60))
    assert abs(listing_of(objects.listing()).begin() - now()) < timedelta(minutes=1)


def test_columns_tell_datasets(objects: Objects) -> None:
    table = objects.make(String(60))
    objects.fill(
        table, {"id": "1", "tenant": "a", "type": "x"}, {"id": "2", "tenant": "a", "type": "y"}, {"id": "3", "type": "y"}
    )
    settings = {"realm": {"column": "tenant"}, "dataset": "{realm}"}
    listing = listing_of(objects.listing(kind="type"), **settings)
    assert listing.distinct_names(settings_of(objects.listing(kind="type"), **settings)) == ["blobs/a", "blobs/blobs"]
    assert listing.distinct_names(settings_of(objects.listing(kind="type"), **{**settings, "dataset": "{realm}/{kind}"})) == [
        "blobs/a/x", "blobs/a/y", "blobs/blobs",
    ]  # fmt: skip
    assert listing.distinct_names(settings_of(objects.listing(), dataset="{0}")) is None
    assert listing.distinct_names(settings_of(objects.listing())) == ["blobs/blobs"]


@pytest.mark.parametrize(("name", "column"), [("key", "i"), ("created_at", "m"), ("size", "b"), ("realm", "r")])
def test_a_column_that_is_not_there_is_named(objects: Objects, name: str, column: str) -> None:
    objects.make(String(60))
    with pytest.raises(Refused, match=f"The table objs of the store blobs has no column {column}. It has id, made"):
        listed(listing_of(objects.listing(**{name: column})))


def test_a_table_that_is_not_there_is_named(objects: Objects) -> None:
    with pytest.raises(Refused, match="has no table objs"):
        listed(listing_of(objects.listing()))


@pytest.mark.parametrize("time", ["tomorrow", "17", "2026-11-20T25:00:00Z"])
def test_a_text_that_is_no_time_fails_the_listing(sqlite: Objects, time: str) -> None:
    sqlite.fill(sqlite.make(String(60)), {"id": "fine"}, {"id": "x", "made": time})
    with pytest.raises(Refused, match="The table objs of the store blobs can't be read as a list of objects"):
        listed(listing_of(sqlite.listing()))


def test_a_column_that_holds_no_times_is_named(server: str) -> None:
    objects = Objects(new_schema(server))
    objects.make(String(60))
    with pytest.raises(Refused, match=r"The column tenant of the table objs .* is of the type VARCHAR.*; expected a timestamp"):
        listed(listing_of(objects.listing(created_at="tenant")))


def test_a_time_without_end_fails_the_listing(server: str) -> None:
    objects = Objects(new_schema(server))
    objects.fill(objects.make(String(60)), {"id": "x"})
    with objects.engine.begin() as connection:
        connection.execute(text("UPDATE objs SET made = 'infinity'"))
    with pytest.raises(Refused, match="is infinite, or outside of the years"):
        listed(listing_of(objects.listing()))


def test_bytes_in_a_file_of_sqlite_are_no_key(sqlite: Objects) -> None:
    sqlite.make(String(60))
    with sqlite.engine.begin() as connection:
        connection.execute(text("INSERT INTO objs (id, made) VALUES (x'00ff', '2026-01-01T00:00:00Z')"))
    with pytest.raises(Refused, match="is bytes, which SQLite can't convert to text"):
        listed(listing_of(sqlite.listing()))
