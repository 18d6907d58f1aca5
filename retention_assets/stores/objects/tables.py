"""Schemas of the rows that listings, sources of references and edges hand on, and batches of objects."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT

# One row per stored object; for `condition` see notes.py.
OBJECTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("created_at", INSTANT),
        pa.field("condition", pa.string()),
    ]
)

# One row per reference; without a realm, it names the key in every realm. `from` is who refers to it.
REFERENCES = pa.schema(
    [
        pa.field("object", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("from", pa.string()),
    ]
)

# What retains `from` retains `to`; without a realm, in every realm.
EDGES = pa.schema(
    [
        pa.field("from", pa.string(), nullable=False),
        pa.field("to", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
    ]
)


# rows: some tens of pages of an object store, which makes the cost of columns negligible
BATCH = 50_000


def objects_batch(keys: Sequence[str], where: str, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Build a batch; missing columns are null. Raises Refused for a key that is not UTF-8."""
    try:
        made = pa.array(keys, pa.string())
    except UnicodeEncodeError:
        bad = next(key for key in keys if not _is_text(key))
        raise Refused(
            f"A name in {where} is not UTF-8: {quote(bad, 200)}. References could not name it. Rename it, or keep it elsewhere."
        ) from None
    return whole_batch(made, columns)


def whole_batch(keys: pa.Array, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Build a batch of `tables.OBJECTS`; missing columns are null."""
    found: dict[str, Any] = {"key": keys, **columns}
    size = len(keys)
    return pa.record_batch([found.get(field.name, pa.nulls(size, field.type)) for field in OBJECTS], schema=OBJECTS)


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
