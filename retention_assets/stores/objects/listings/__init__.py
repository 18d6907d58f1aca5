"""Listings: which objects there are, share by share, so that many tasks can list at once.

Belongs here: what every kind of listing answers, and opening one from its settings.
Does not belong here: any kind (its own module), and what a realm, a kind or a dataset is of a key (../naming.py).
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.settings.urls import has_scheme
from retention_assets.stores.objects.listing_settings import InventoryListing, PathListing, SqlListing, TableListing
from retention_assets.stores.objects.settings import ObjectsSettings

_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)


class ObjectListing(Protocol):
    """A listing. It travels to tasks as a value, and so do its shares; what it keeps open it opens where it is used."""

    def begin(self) -> datetime:
        """As of when what is listed from now on is known: the store's own clock, or when a finished listing was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """The listing in about so many parts that do not overlap and leave nothing out; small values."""

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """The objects of a share, as `tables.OBJECTS`. Realm and kind are filled where a column says them, and null elsewhere.

        Whatever keeps it from listing all of the share raises.
        """

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of some keys those that are there now, as `tables.OBJECTS`, asked of the place itself and not of a finished list."""

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """The names of the datasets, sorted, where they are told without listing everything; none where only that tells."""


def open_listing(settings: ObjectsSettings) -> ObjectListing:
    """The listing of a store. Opens no place yet; what each kind needs is imported when it is asked for."""
    listing, rate = settings.listing, settings.rates.scan
    if isinstance(listing, PathListing):
        return _open_place(listing.path, rate)
    if isinstance(listing, SqlListing):
        from retention_assets.stores.objects.listings.sql import DatabaseObjects

        return DatabaseObjects.of(listing.sql, settings)
    from retention_assets.stores.objects.listings.finished import FinishedListing

    place = None if listing.path is None else _open_place(listing.path, rate)
    if isinstance(listing, InventoryListing):
        from retention_assets.stores.objects.listings.inventory import InventoryObjects

        return FinishedListing("inventory", InventoryObjects(listing.inventory.manifest, listing.path, rate), place)
    from retention_assets.stores.objects.listings.columns import ColumnRoles

    whole_seconds = listing.path is not None and is_on_s3(listing.path)
    if isinstance(listing, TableListing):
        from retention_assets.stores.objects.listings.table import TableObjects

        roles = ColumnRoles.of(listing.table.columns, settings, whole_seconds)
        return FinishedListing("table", TableObjects(settings.name, listing.table, roles, rate), place, roles.derived)
    from retention_assets.stores.objects.listings.parquet import ParquetObjects

    roles = ColumnRoles.of(listing.parquet.columns, settings, whole_seconds)
    return FinishedListing("parquet", ParquetObjects(listing.parquet, roles, rate), place, roles.derived)


def _open_place(place: str, rate: int) -> ObjectListing:
    """The listing of a folder or of a prefix in an object store."""
    if is_on_s3(place):
        from retention_assets.stores.objects.listings.s3 import S3Objects

        return S3Objects(place, rate)
    if not has_scheme(place) or place.lower().startswith(("file:", "local:")):
        from retention_assets.stores.objects.listings.local import LocalObjects

        return LocalObjects(_LOCAL.sub("", place), rate)
    from retention_assets.stores.objects.listings.remote import RemoteObjects

    return RemoteObjects(place, rate)


def is_on_s3(place: str) -> bool:
    """Whether a place is in a bucket of S3, or of what speaks like it."""
    return place.lower().startswith(("s3:", "s3a:"))
