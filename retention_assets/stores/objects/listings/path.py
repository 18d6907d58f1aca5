"""Lists the objects of a place: a folder of a disk, a prefix of a bucket, or whatever else fsspec opens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.objects.naming import first_level_datasets
from retention_assets.stores.objects.notes import ObjectCondition, stat_conditions, tagged_conditions
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import BATCH, objects_batch
from retention_assets.stores.places import Entry, is_on_s3, open_place


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
        return objects_batch(keys, shown, {"size": size, "created_at": pa.array(created).cast(INSTANT), "condition": condition})
