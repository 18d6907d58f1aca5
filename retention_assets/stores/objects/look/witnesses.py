"""Witnesses: who refers to an object, and in which realms a hit counts. A reference without a realm names its key in every
realm; an object without a realm is named by references of any realm."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import flags, join_chunks
from retention_assets.stores.objects.look.hits import Hits, first_of_each, text_of

# `from` is null if the source does not provide it
WITNESSES = pa.schema(
    [
        pa.field("realm", pa.string()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("from", pa.string()),
    ]
)


def witnesses_among(hits: Hits, labels: tuple[str, ...], objects: pa.Table) -> tuple[pa.Array, pa.Table]:
    """Indexes of the objects (realm, key) that are referred to, and a witness for each: rows of WITNESSES. The witness is the
    first source in order that names the object; edges count only if no source does."""
    found = hits.of(text_of(objects["key"]))
    realms = text_of(objects["realm"]).take(join_chunks(found["asked"]))
    lonely = flags(pc.is_null(realms))
    # Two nulls do not compare equal, so null realms are handled apart.
    counts = lonely | flags(pc.equal(join_chunks(found["realm"]), realms))
    counts |= flags(pc.is_null(found["realm"])) & ~flags(found["across"])
    found = found.filter(pa.array(counts))
    first = first_of_each(found, np.asarray(found["asked"], dtype=np.int64))
    places = join_chunks(first["asked"])
    mine = objects.take(places)
    sources = pa.array(labels, pa.string()).take(join_chunks(first["source"]))
    return places, pa.table(
        [text_of(mine["realm"]), text_of(mine["key"]), sources, join_chunks(first["from"])], schema=WITNESSES
    )


def witness_words(found: pa.Table) -> pa.Array:
    """Witnesses for people, with white space collapsed to single spaces."""
    words = pc.replace_substring_regex(pc.fill_null(text_of(found["from"]), ""), r"\s+", " ")
    sources = text_of(found["source"])
    return pc.if_else(pc.equal(words, ""), sources, pc.binary_join_element_wise(sources, words, ": "))
