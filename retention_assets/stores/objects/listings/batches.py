"""Batches of objects that are found one by one."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from retention_assets.errors import Refused, quote
from retention_assets.stores.objects.tables import OBJECTS

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
