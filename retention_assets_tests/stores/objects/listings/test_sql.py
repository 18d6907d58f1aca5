"""Objects that are rows of a database, on every kind of database that stores are tested with."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Integer, LargeBinary, Numeric, String, Uuid, text
from sqlalchemy.types import TypeEngine

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.objects.environments import OLD, SqlObjects
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, settings_of


def listing_in(objects: SqlObjects, **more: Any) -> dict[str, Any]:
    return {"sql": {**objects.listing["sql"], **more}}


@pytest.fixture
def objects(tmp_path: Path, store_url: str) -> Iterator[SqlObjects]:
    made = SqlObjects(tmp_path, store_url, key=String(60))
    yield made
    made.engine.dispose()


def test_rows_are_objects(objects: SqlObjects) -> None:
    at = OLD + timedelta(microseconds=456789)
    objects.fill(
        {"id": "r/é 1", "tenant": "acme", "type": "doc"}, {"id": "x", "weight": None, "made": None}, {"id": None}, made=at
    )
    listing = listing_of(listing_in(objects, kind="type"), realm={"column": "tenant"})
    rows = listed(listing)
    assert rows == {
        "r/é 1": {"realm": "acme", "kind": "doc", "size": 1, "created_at": at, "condition": None},
        "x": {"realm": None, "kind": None, "size": None, "created_at": None, "condition": None},
    }
    assert found(listing, ["r/é 1", "gone", "X", "x "]) == {"r/é 1": rows["r/é 1"]}


def test_a_size_need_not_be_known(objects: SqlObjects) -> None:
    objects.fill({"id": "x"})
    settings = listing_in(objects)
    del settings["sql"]["size"]
    assert listed(listing_of(settings))["x"]["size"] is None


@pytest.fixture
def sqlite(tmp_path: Path) -> SqlObjects:
    return SqlObjects(tmp_path, f"sqlite:///{tmp_path / 'own.db'}")


KEYS: dict[str, tuple[TypeEngine[Any], list[Any], list[str]]] = {
    "numbers": (Integer(), [1, 20, 3], ["1", "20", "3"]),
    "uuids": (Uuid(as_uuid=False), ["0f5b1f6e-9c5c-4b3e-8a57-7f4f4b1b2c3d"], ["0f5b1f6e-9c5c-4b3e-8a57-7f4f4b1b2c3d"]),
    "bytes": (LargeBinary(20), [b"\x00\xff"], ["00ff"]),
    "decimals": (Numeric(20, 2), ["1.50"], ["1.50"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type_are_found_by_their_texts(server: str, tmp_path: Path, kind: str) -> None:
    column, values, texts = KEYS[kind]
    objects = SqlObjects(tmp_path, new_schema(server), key=column)
    objects.fill(*({"id": value} for value in values))
    listing = listing_of(listing_in(objects))
    assert listed(listing).keys() == set(texts)
    assert found(listing, [*texts, "none"]).keys() == set(texts)


def test_many_keys_are_asked_for_in_portions(objects: SqlObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    from retention_assets.stores.objects.sources import sql

    monkeypatch.setattr(sql, "_PORTION", 3)
    objects.fill(*({"id": f"{number}"} for number in range(10)))
    assert len(found(listing_of(listing_in(objects)), [f"{number}" for number in range(5, 15)])) == 5


@pytest.mark.parametrize("key", [String(60), Integer()], ids=["text", "numbers"])
def test_shares_are_ranges_of_keys_that_leave_nothing_out(store_url: str, tmp_path: Path, key: TypeEngine[Any]) -> None:
    objects = SqlObjects(tmp_path, store_url, key=key)
    values = [number if isinstance(key, Integer) else f"é/{number % 7}'{number}" for number in range(500)]
    objects.fill(*({"id": value} for value in values))
    if objects.dialect == "postgresql":
        with objects.engine.begin() as connection:
            connection.execute(text("CREATE INDEX ON objs (id)"))
            connection.execute(text("ANALYZE objs"))
    listing = listing_of(listing_in(objects))
    shares = listing.shares(4)
    # Others do not say cheaply where to split.
    assert len(shares) == (4 if objects.dialect == "postgresql" else 1)
    parts = [sum(len(batch) for batch in listing.read(share)) for share in shares]
    assert min(parts) > 0
    objects.fill({"id": 10_000 if isinstance(key, Integer) else "zz"}, {"id": -5 if isinstance(key, Integer) else " "})
    keys = [one for share in shares for batch in listing.read(share) for one in batch["key"].to_pylist()]
    assert len(keys) == len(set(keys)) == 502


def test_the_clock_is_the_database_s(objects: SqlObjects) -> None:
    assert abs(listing_of(listing_in(objects)).begin() - now()) < timedelta(minutes=1)


def test_columns_tell_datasets(objects: SqlObjects) -> None:
    objects.fill({"id": "1", "tenant": "a", "type": "x"}, {"id": "2", "tenant": "a", "type": "y"}, {"id": "3", "type": "y"})
    settings = {"realm": {"column": "tenant"}, "dataset": "{realm}"}
    listing = listing_of(listing_in(objects, kind="type"), **settings)
    assert listing.distinct_names(settings_of(listing_in(objects, kind="type"), **settings)) == ["blobs/a", "blobs/blobs"]
    assert listing.distinct_names(settings_of(listing_in(objects, kind="type"), **{**settings, "dataset": "{realm}/{kind}"})) == [
        "blobs/a/x", "blobs/a/y", "blobs/blobs",
    ]  # fmt: skip
    assert listing.distinct_names(settings_of(listing_in(objects), dataset="{0}")) is None
    assert listing.distinct_names(settings_of(listing_in(objects))) == ["blobs/blobs"]


@pytest.mark.parametrize(("name", "column"), [("key", "i"), ("created_at", "m"), ("size", "b"), ("realm", "r")])
def test_a_column_that_is_not_there_is_named(objects: SqlObjects, name: str, column: str) -> None:
    with pytest.raises(Refused, match=f"The table objs of the store blobs has no column {column}. It has id, made"):
        listed(listing_of(listing_in(objects, **{name: column})))


def test_a_table_that_is_not_there_is_named(objects: SqlObjects) -> None:
    objects.table.drop(objects.engine)
    with pytest.raises(Refused, match="has no table objs"):
        listed(listing_of(listing_in(objects)))


@pytest.mark.parametrize("time", ["tomorrow", "17", "2026-11-20T25:00:00Z"])
def test_a_text_that_is_no_time_fails_the_listing(sqlite: SqlObjects, time: str) -> None:
    sqlite.fill({"id": "fine"}, {"id": "x", "made": time})
    with pytest.raises(Refused, match="The table objs of the store blobs can't be read as a list of objects"):
        listed(listing_of(listing_in(sqlite)))


def test_a_column_that_holds_no_times_is_named(server: str, tmp_path: Path) -> None:
    objects = SqlObjects(tmp_path, new_schema(server))
    with pytest.raises(Refused, match=r"The column tenant of the table objs .* is of the type VARCHAR.*; expected a timestamp"):
        listed(listing_of(listing_in(objects, created_at="tenant")))


def test_a_time_without_end_fails_the_listing(server: str, tmp_path: Path) -> None:
    objects = SqlObjects(tmp_path, new_schema(server))
    objects.fill({"id": "x"})
    with objects.engine.begin() as connection:
        connection.execute(text("UPDATE objs SET made = 'infinity'"))
    with pytest.raises(Refused, match="is infinite, or outside of the years"):
        listed(listing_of(listing_in(objects)))


def test_bytes_in_a_file_of_sqlite_are_no_key(sqlite: SqlObjects) -> None:
    with sqlite.engine.begin() as connection:
        connection.execute(text("INSERT INTO objs (id, made) VALUES (x'00ff', '2026-01-01T00:00:00Z')"))
    with pytest.raises(Refused, match="is bytes, which SQLite can't convert to text"):
        listed(listing_of(listing_in(sqlite)))
