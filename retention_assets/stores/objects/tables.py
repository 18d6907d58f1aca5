"""Schemas of the rows that listings, sources of references and edges hand on."""

import pyarrow as pa

from retention_assets.frames.log import INSTANT

# One row per stored object; for `condition` see conditions.py.
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
