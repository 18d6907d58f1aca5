"""The tables of a scan: what a listing finds, what references and edges say.

Belongs here: the schemas in which listings, sources of references and the classes of a scan hand rows to each other.
"""

import pyarrow as pa

from retention_assets.frames.log import INSTANT

# One row per stored object. `condition` is what must still hold of it when it is deleted (conditions.py).
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

# One row per reference. Without a realm it names that key in every realm; `from` says who refers to it.
REFERENCES = pa.schema(
    [
        pa.field("object", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("from", pa.string()),
    ]
)

# What retains `from` retains `to`. Without a realm it holds in every realm.
EDGES = pa.schema(
    [
        pa.field("from", pa.string(), nullable=False),
        pa.field("to", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
    ]
)
