"""Listings of all objects of a store, in shares that many tasks read at once: of a place (a folder of a disk, a prefix of a
bucket, or whatever else fsspec opens), or a finished list, with the place of its objects: only the place knows what exists
now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.objects.notes import ObjectCondition, stat_conditions, tagged_conditions
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import InventoryListing, PathListing, SqlListing, TableListing
from retention_assets.stores.objects.sources import Pace
from retention_assets.stores.objects.sources.finished import DERIVED, ColumnRoles, ParquetObjects, TableObjects
from retention_assets.stores.objects.sources.inventory import InventoryObjects
from retention_assets.stores.objects.sources.sql import DatabaseObjects
from retention_assets.stores.objects.tables import BATCH, OBJECTS, constant_dataset, first_level_datasets, objects_batch
from retention_assets.stores.places import Entry, is_on_s3, open_place


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


@dataclass(frozen=True)
class PathObjects:
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
                f"{shown} does not say when {quote(timeless, 200)} was written, and ages are not guessed. List it in another"
                " way: `parquet`, `table` or `sql`."
            )
        keys, sizes, times, versions, generations, etags, inodes, links = zip(*entries, strict=True)
        created = np.asarray(times, np.int64) // 1000
        size = pa.array(sizes, pa.int64())
        if inodes[0] is not None:
            # inode numbers may need all 64 bits
            condition = stat_conditions(
                pa.array(times, pa.int64()), size, pa.array(inodes, pa.uint64()), pa.array(links, pa.int64())
            )
        elif is_on_s3(self.location):
            condition = tagged_conditions(pa.array(versions, pa.string()), pa.array(etags, pa.string()))
        else:
            tags = zip(generations, etags, strict=True)
            conditions = (
                ObjectCondition(generation=generation, etag=None if generation else etag) for generation, etag in tags
            )
            condition = pa.array([None if tag == ObjectCondition() else tag.text for tag in conditions], pa.string())
        try:
            names = pa.array(keys, pa.string())
        except UnicodeEncodeError:
            bad = next(key for key in keys if key != key.encode(errors="ignore").decode())
            raise Refused(
                f"A name in {shown} is not UTF-8: {quote(bad, 200)}. References could not name it. Rename it, or keep it"
                " elsewhere."
            ) from None
        return objects_batch(names, {"size": size, "created_at": pa.array(created).cast(INSTANT), "condition": condition})


@dataclass(frozen=True)
class FinishedListing:
    """A finished list, and the place of its objects if the settings name it. `kind` is the list's name in the settings; with
    `derived`, only the list knows realms or kinds."""

    kind: str
    listed: InventoryObjects | TableObjects | ParquetObjects
    place: PathObjects | None
    derived: bool = False
    # objects of the list read per second; 0 is unlimited
    rate: float = 0

    def begin(self) -> datetime:
        return self.listed.begin()

    def shares(self, wanted: int) -> Sequence[Any]:
        return self.listed.shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        return self.listed.read(share)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Ask the place; with `derived`, read the list again for realms and kinds and drop what it does not name. Raises
        Refused if the settings name no place."""
        if self.place is None:
            raise Refused(
                f"Where the objects are that the listing of kind {self.kind} names is not known, so that none can be looked at"
                " or deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        batches = self.place.find(keys)
        return self._derive(batches) if self.derived else batches

    def _derive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A key that the list has in two realms gives two rows.
        objects = pa.Table.from_batches(batches, OBJECTS).combine_chunks()
        if not len(objects):
            return
        [keys] = objects["key"].chunks
        self.listed.begin()
        shares, pace = self.shares(1), Pace(self.rate)
        for share in shares:
            for batch in self.listed.read(share, DERIVED):
                pace.take(len(batch))
                at = pc.index_in(batch["key"], value_set=keys)
                if at.null_count == len(at):
                    continue
                listed = batch.filter(pc.is_valid(at))
                for present in objects.take(at.drop_null()).combine_chunks().to_batches():
                    columns = {name: listed[name] if name in DERIVED else present[name] for name in OBJECTS.names}
                    yield pa.record_batch(columns, schema=OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        constant = constant_dataset(settings)
        return None if constant is None else [constant]


def open_listing(settings: ObjectsSettings) -> ObjectListing:
    """Create the listing of a store. Opens no place yet."""
    listing, rate = settings.listing, settings.rates.scan
    if isinstance(listing, PathListing):
        return PathObjects(listing.path)
    if isinstance(listing, SqlListing):
        return DatabaseObjects.of(listing.sql, settings)
    place = None if listing.path is None else PathObjects(listing.path)
    if isinstance(listing, InventoryListing):
        return FinishedListing("inventory", InventoryObjects(listing.inventory.manifest, listing.path), place, rate=rate)
    columns = (listing.table if isinstance(listing, TableListing) else listing.parquet).columns
    roles = ColumnRoles.of(columns, settings, listing.path is not None and is_on_s3(listing.path))
    if isinstance(listing, TableListing):
        return FinishedListing("table", TableObjects(settings.name, listing.table, roles), place, roles.derived, rate)
    return FinishedListing("parquet", ParquetObjects(listing.parquet, roles), place, roles.derived, rate)
