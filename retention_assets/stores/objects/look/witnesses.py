"""Witnesses: of some objects who refers to each, by what a look has found.

Belongs here: in which realms a hit counts, and which of several hits is named. A reference without a realm names its key in
every realm, and a key without a realm is named by a reference of any realm.
Does not belong here: how hits are kept (hits.py).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import flags, join_chunks
from retention_assets.stores.objects.look.hits import Hits, first_of_each, text_of

# `from` is empty where the source does not say it.
WITNESSES = pa.schema(
    [
        pa.field("realm", pa.string()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("from", pa.string()),
    ]
)


def witnesses_among(hits: Hits, labels: tuple[str, ...], objects: pa.Table) -> tuple[pa.Array, pa.Table]:
    """Of some objects (realm, key) the places of those that are referred to, and of each the witness: rows of WITNESSES.

    That is the first source in order that names it. Only what no source names itself has one over edges.
    """
    found = hits.of(text_of(objects["key"]))
    realms = text_of(objects["realm"]).take(join_chunks(found["asked"]))
    lonely = flags(pc.is_null(realms))
    # Both null is not equal, and lonely.
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
    """Witnesses as people read them. Whoever calls himself by several lines is one witness all the same."""
    words = pc.replace_substring_regex(pc.fill_null(text_of(found["from"]), ""), r"\s+", " ")
    sources = text_of(found["source"])
    return pc.if_else(pc.equal(words, ""), sources, pc.binary_join_element_wise(sources, words, ": "))
