"""Lookups: the fingerprints under which references may name an object. A reference names a key in its realm, or in every realm
if it has none. In a source that names folders, a reference with a trailing slash names every key with that prefix, and a slash
alone every key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Ints
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, beginnings, folder_ends

EVERYTHING = "/"


@dataclass(frozen=True)
class NamedBy:
    """Ways in which references name objects: in a realm, in all realms, or as folders of some depths (0 is everything)."""

    in_realms: bool = False
    in_all: bool = False
    depths: frozenset[int] = frozenset()

    def __or__(self, other: "NamedBy") -> "NamedBy":
        return NamedBy(self.in_realms or other.in_realms, self.in_all or other.in_all, self.depths | other.depths)


@dataclass(frozen=True)
class Lookup:
    """Fingerprints under which rows may be named, and the names themselves."""

    hashes: Hashes
    # row of each fingerprint; None if they are all rows in order
    rows: Ints | None
    names: Callable[[], pa.Array]
    folders: bool = False


def lookups(
    fingerprints: Fingerprints, keys: pa.Array, realms: pa.Array | None, named_by: NamedBy, own: Hashes | None = None
) -> Iterator[Lookup]:
    """All lookups of some keys. `own` are their fingerprints in their realms, if known."""
    lonely = realms is None or realms.null_count == len(realms)
    spaces = [realms] if named_by.in_realms or lonely else []
    if named_by.in_all and not lonely:
        spaces.append(None)
    for number, space in enumerate(spaces):
        known = own if number == 0 and (space is not None or lonely) else None
        hashes = fingerprints.of(keys, space) if known is None else known
        yield Lookup(hashes, None, lambda: keys)
    for depth in sorted(named_by.depths):
        ends = folder_ends(keys, depth) if depth else np.ones(len(keys), dtype=np.int64)
        rows = np.flatnonzero(ends)
        if not len(rows):
            continue
        picked = pa.array(rows)
        some = keys.take(picked) if depth else pa.array([EVERYTHING], keys.type).take(pa.array(np.zeros_like(rows)))
        for space in spaces:
            inside = None if space is None else space.take(picked)
            yield Lookup(
                fingerprints.of(some, inside, ends[rows], np.ones(len(rows), dtype=bool)), rows,
                lambda some=some, ends=ends[rows]: beginnings(some, ends), True,  # type: ignore[misc]
            )  # fmt: skip
