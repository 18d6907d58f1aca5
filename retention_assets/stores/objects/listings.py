"""Opens the listing of a store, and lists a place: a folder of a disk, a prefix of a bucket, or whatever else fsspec opens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.objects.notes import fact_conditions, stat_conditions, tagged_conditions
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import InventoryListing, PathListing, SqlListing, TableListing
from retention_assets.stores.objects.sources import ObjectListing
from retention_assets.stores.objects.sources.finished import ColumnRoles, ParquetObjects, TableObjects
from retention_assets.stores.objects.sources.inventory import InventoryObjects
from retention_assets.stores.objects.sources.sql import DatabaseObjects
from retention_assets.stores.objects.tables import BATCH, first_level_datasets, objects_batch
from retention_assets.stores.places import Entry, is_on_s3, open_place


@dataclass(frozen=True)
class PathObjects:
    """The listing of a place by itself: each file or object below it."""

    location: str

    def begin(self) -> datetime:
        return open_place(self.location).clock()

    def shares(self, wanted: int) -> Sequence[Any]:
        return open_place(self.location).shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        return self._batches(open_place(self.location).entries(share))

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._batches(open_place(self.location).find(keys))

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        return first_level_datasets(settings, open_place(self.location).names_in)

    def _batches(self, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
        while batch := list(islice(entries, BATCH)):
            yield self._batch(batch)

    def _batch(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        shown = mask_secrets(self.location)
        if (timeless := next((entry.key for entry in entries if entry.time is None), None)) is not None:
            raise Refused(
                f"{shown} gives no time for {quote(timeless, 200)}, and ages are never guessed. List it in another way: "
                "`parquet`, `table` or `sql`."
            )
        keys, sizes, times, versions, generations, etags, inodes, links = zip(*entries, strict=True)
        created = np.asarray(times, np.int64) // 1000
        size = pa.array(sizes, pa.int64())
        if inodes[0] is not None:
            # inode numbers may need all 64 bits
            condition = stat_conditions(
                pa.array(times, pa.int64()), size, pa.array(inodes, pa.uint64()), pa.array(links, pa.int64())
            )
        else:
            generation, version, etag = (pa.array(tags, pa.string()) for tags in (generations, versions, etags))
            condition = pc.coalesce(fact_conditions("generation", generation), tagged_conditions(version, etag))
        try:
            names = pa.array(keys, pa.string())
        except UnicodeEncodeError:
            bad = next(key for key in keys if key != key.encode(errors="ignore").decode())
            raise Refused(
                f"A name in {shown} is not UTF-8: {quote(bad, 200)}. References could not name it. Rename or move it."
            ) from None
        return objects_batch(names, {"size": size, "created_at": pa.array(created).cast(INSTANT), "condition": condition})


def open_listing(settings: ObjectsSettings) -> ObjectListing:
    """Create the listing of a store. Opens no place yet."""
    listing, rate = settings.listing, settings.rates.scan
    if isinstance(listing, PathListing):
        return PathObjects(listing.path)
    if isinstance(listing, SqlListing):
        return DatabaseObjects.of(listing.sql, settings)
    place = None if listing.path is None else PathObjects(listing.path)
    if isinstance(listing, InventoryListing):
        return InventoryObjects("inventory", place, rate, False, listing.inventory.manifest, listing.path)
    columns = (listing.table if isinstance(listing, TableListing) else listing.parquet).columns
    roles = ColumnRoles.of(columns, settings, listing.path is not None and is_on_s3(listing.path))
    if isinstance(listing, TableListing):
        return TableObjects("table", place, rate, roles.derived, settings.name, listing.table, roles)
    return ParquetObjects("parquet", place, rate, roles.derived, listing.parquet, roles)
