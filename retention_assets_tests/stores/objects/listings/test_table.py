"""A list of objects in a real Iceberg table."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from retention_assets.errors import Refused
from retention_assets.stores.objects.listings import open_listing
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, settings_of

AT = datetime(2026, 11, 20, 1, 2, 3, 456789, UTC)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("last_modified_date", pa.timestamp("us")),
        ("size", pa.int64()),
        ("e_tag", pa.string()),
        ("version_id", pa.string()),
        ("other", pa.int32()),
    ]
)


class Listings:
    """A catalog with a table as S3 Metadata has it."""

    def __init__(self, folder: Path) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
        self.catalog = SqlCatalog("blobs", **self.properties)
        self.catalog.create_namespace("aws")
        self.table = self.catalog.create_table("aws.inventory", SCHEMA)

    def append(self, *keys: str) -> None:
        rows = [
            {"key": key, "last_modified_date": AT.replace(tzinfo=None), "size": 1, "e_tag": "e", "version_id": "v"}
            for key in keys
        ]
        self.table.append(pa.Table.from_pylist(rows, SCHEMA))

    @property
    def listing(self) -> dict[str, Any]:
        columns = {"key": "key", "created_at": "last_modified_date", "size": "size", "etag": "e_tag", "version": "version_id"}
        return {"table": {"catalog": self.properties, "name": "aws.inventory", "columns": columns}}


@pytest.fixture
def listings(tmp_path: Path) -> Iterator[Listings]:
    made = Listings(tmp_path)
    yield made
    made.catalog.close()


def test_a_table_lists_objects_as_of_its_current_snapshot(listings: Listings) -> None:
    listings.append("a", "b/c")
    listing = listing_of(listings.listing)
    snapshot = listings.table.refresh().current_snapshot()
    assert snapshot is not None
    assert listing.begin() == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    row = {"realm": None, "kind": None, "size": 1, "created_at": AT, "condition": '{"version":"v"}'}
    assert listed(listing) == {"a": row, "b/c": row}


def test_what_is_written_later_is_not_listed_and_deleted_rows_are_not(listings: Listings) -> None:
    listings.append("a", "b", "c")
    listings.table.delete("key == 'b'")
    listing = open_listing(settings_of(listings.listing))
    listing.begin()
    listings.append("late")
    assert listed(listing, 3).keys() == {"a", "c"}
    listing.begin()
    assert listed(listing, 3).keys() == {"a", "c", "late"}


def test_columns_that_nobody_asks_for_are_not_read(listings: Listings) -> None:
    listings.append("a")
    listing: Any = listing_of(listings.listing)
    listing.begin()
    [share] = listing.shares(1)
    [row] = pa.Table.from_batches(listing.read(share, ("size",))).to_pylist()
    assert row == {"key": "a", "realm": None, "kind": None, "size": 1, "created_at": None, "condition": None}


def test_what_is_found_has_the_realm_that_the_table_says_by_now(listings: Listings, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "late").write_bytes(b"123")
    listings.append("a")
    listing = listing_of({**listings.listing, "path": str(tmp_path / "root")}, realm={"column": "e_tag"})
    listing.begin()
    listings.append("late")
    assert {key: (row["realm"], row["size"]) for key, row in found(listing, ["a", "late"]).items()} == {"late": ("e", 3)}


@pytest.mark.parametrize("wanted", [1, 2, 9])
def test_shares_are_data_files(listings: Listings, wanted: int) -> None:
    for number in range(3):
        listings.append(f"{number}-1", f"{number}-2")
    listing = listing_of(listings.listing)
    assert len(listing.shares(wanted)) == min(wanted, 3)
    assert len(listed(listing, wanted)) == 6


def test_what_can_not_be_read_is_named(listings: Listings) -> None:
    with pytest.raises(Refused, match=r"aws\.inventory has no snapshot"):
        listing_of(listings.listing).begin()
    listings.append("a")
    other = {"table": {**listings.listing["table"], "name": "aws.nothing"}}
    with pytest.raises(Refused, match=r"aws\.nothing that lists the objects of the store blobs can't be read: NoSuchTable"):
        listing_of(other).begin()
    columns = {"table": {**listings.listing["table"], "columns": {"created_at": "made"}}}
    with pytest.raises(Refused, match=r"The table aws\.inventory has no column made"):
        listed(listing_of(columns))
