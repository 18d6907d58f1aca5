"""Listings: all objects of a store, in shares that many tasks read at once."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import InventoryListing, PathListing, SqlListing, TableListing
from retention_assets.stores.places import is_on_s3


class ObjectListing(Protocol):
    """A listing. It and its shares are sent to tasks by value, so connections are opened where they are used."""

    def begin(self) -> datetime:
        """Instant from which the listing is valid: the store's own clock, or the time at which a finished listing was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split the listing into about this many small, disjoint parts that leave nothing out."""

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """Objects of a share, as `tables.OBJECTS`. Realm and kind are null unless a column provides them. Raises if the share
        cannot be listed completely."""

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Objects present now under the given keys, as `tables.OBJECTS`, from the place itself and not from a finished list."""

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """Sorted names of the datasets; None if only a complete listing can tell."""


def open_listing(settings: ObjectsSettings) -> ObjectListing:
    """Create the listing of a store. Opens no place yet; each kind's dependencies are imported on demand."""
    from retention_assets.stores.objects.listings.path import PathObjects

    listing = settings.listing
    if isinstance(listing, PathListing):
        return PathObjects(listing.path)
    if isinstance(listing, SqlListing):
        from retention_assets.stores.objects.listings.sql import DatabaseObjects

        return DatabaseObjects.of(listing.sql, settings)
    from retention_assets.stores.objects.listings.finished import FinishedListing

    place = None if listing.path is None else PathObjects(listing.path)
    if isinstance(listing, InventoryListing):
        from retention_assets.stores.objects.listings.inventory import InventoryObjects

        return FinishedListing(
            "inventory", InventoryObjects(listing.inventory.manifest, listing.path), place, rate=settings.rates.scan
        )
    from retention_assets.stores.objects.listings.columns import ColumnRoles

    whole_seconds = listing.path is not None and is_on_s3(listing.path)
    if isinstance(listing, TableListing):
        from retention_assets.stores.objects.listings.table import TableObjects

        roles = ColumnRoles.of(listing.table.columns, settings, whole_seconds)
        return FinishedListing(
            "table", TableObjects(settings.name, listing.table, roles), place, roles.derived, settings.rates.scan
        )
    from retention_assets.stores.objects.listings.parquet import ParquetObjects

    roles = ColumnRoles.of(listing.parquet.columns, settings, whole_seconds)
    return FinishedListing("parquet", ParquetObjects(listing.parquet, roles), place, roles.derived, settings.rates.scan)
