"""What tests of listings share: settings from a mapping, a listing read whole, and the law that shares keep."""

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.sources import ObjectListing
from retention_assets.stores.objects.tables import OBJECTS

Rows = dict[str, dict[str, Any]]
NAME = "blobs"


def settings_of(listing: dict[str, Any], **more: Any) -> ObjectsSettings:
    return ObjectsSettings.model_validate({"name": NAME, "listing": listing, "references": [{"lines": "/refs.jsonl"}], **more})


def listing_of(listing: dict[str, Any], **more: Any) -> ObjectListing:
    found: ObjectListing = pickle.loads(pickle.dumps(open_listing(settings_of(listing, **more))))
    return found


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    """Objects by their keys. No key is there twice, and every batch has the columns of objects."""
    found: Rows = {}
    for batch in batches:
        assert batch.schema.equals(OBJECTS)
        batch.validate(full=True)
        for row in batch.to_pylist():
            key = row.pop("key")
            assert key not in found, f"{key} is in two shares"
            found[key] = row
    return found


def listed(listing: ObjectListing, wanted: int = 1) -> Rows:
    shares: Sequence[Any] = pickle.loads(pickle.dumps(listing.shares(wanted)))
    return rows_of(batch for share in shares for batch in listing.read(share))


def found(listing: ObjectListing, keys: Sequence[str]) -> Rows:
    return rows_of(listing.find(keys))
