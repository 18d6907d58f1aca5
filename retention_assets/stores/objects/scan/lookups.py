"""Look-ups: as what an object may be named, and which of many references names it.

Belongs here: the rules. A reference names a key in its realm, or in every realm if it has none. One of a source that names
folders, and that ends with a slash, means every key that begins so; a slash alone means every key.
Does not belong here: how references are kept (membership.py, bloom.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, beginnings, folder_ends
from retention_assets.stores.objects.scan.folder import KEYS
from retention_assets.stores.objects.scan.membership import SortedFingerprints

# The reference that means every key.
EVERYTHING = "/"


@dataclass(frozen=True)
class NamedBy:
    """How references name objects: in realms, in all of them, as folders of some depths (0 is everything)."""

    in_realms: bool = False
    in_all: bool = False
    depths: frozenset[int] = frozenset()

    def __or__(self, other: "NamedBy") -> "NamedBy":
        return NamedBy(self.in_realms or other.in_realms, self.in_all or other.in_all, self.depths | other.depths)


@dataclass(frozen=True)
class Lookup:
    """Fingerprints under which some rows may be named; with them the texts that they are of, for who compares those."""

    hashes: Hashes
    # Which rows they are of; all of them where this is none.
    rows: Ints | None
    # Names, and realms unless they are of none.
    texts: Callable[[], tuple[pa.Array, pa.Array | None]]
    # Whether they are of folders.
    folders: bool = False

    def keys(self) -> pa.Table:
        """The texts, as references are kept."""
        names, realms = self.texts()
        size = len(names)
        realms = pa.nulls(size, pa.string()) if realms is None else realms.cast(pa.string())
        return pa.table([names.cast(pa.string()), realms, pa.repeat(self.folders, size)], schema=KEYS)


def lookups(
    fingerprints: Fingerprints, keys: pa.Array, realms: pa.Array | None, named_by: NamedBy, own: Hashes | None = None
) -> Iterator[Lookup]:
    """Everything that could name some keys. `own` are their fingerprints in their realms, if these are known."""
    lonely = realms is None or realms.null_count == len(realms)
    spaces = [realms] if named_by.in_realms or lonely else []
    if named_by.in_all and not lonely:
        spaces.append(None)
    for number, space in enumerate(spaces):
        known = own if number == 0 and (space is not None or lonely) else None
        hashes = fingerprints.of(keys, space) if known is None else known
        yield Lookup(hashes, None, lambda space=space: (keys, space))  # type: ignore[misc]
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
                lambda some=some, inside=inside, ends=ends[rows]: (beginnings(some, ends), inside), True,  # type: ignore[misc]
            )  # fmt: skip


class Retained:
    """References in memory, of one range of fingerprints."""

    def __init__(self, values: Hashes, keys: pa.Table | None = None) -> None:
        self.index = SortedFingerprints(values)
        self._keys = None if keys is None else join_chunks(keys["key"])
        self._realms = None if keys is None else join_chunks(keys["realm"])
        self._folders = None if keys is None else flags(keys["folder"])

    def find(self, hashes: Hashes, keys: pa.Table) -> Ints:
        """Where the references stand that name some fingerprints and, where keys are kept, those keys; -1 where none does."""
        at = self.index.find(hashes)
        if self._keys is None or self._realms is None or self._folders is None:
            return at
        names, realms, folders = join_chunks(keys["key"]), join_chunks(keys["realm"]), flags(keys["folder"])
        waiting = np.flatnonzero(at >= 0)
        values = self.index.values
        while len(waiting):
            there, mine = pa.array(at[waiting]), pa.array(waiting)
            same = flags(pc.equal(self._keys.take(there), names.take(mine)))
            same &= self._folders[at[waiting]] == folders[waiting]
            same &= _same_words(self._realms.take(there), realms.take(mine))
            # Another key may have the same fingerprint: it stands behind.
            waiting = waiting[~same]
            at[waiting] += 1
            more = at[waiting] < len(values)
            more[more] = values[at[waiting[more]]] == hashes[waiting[more]]
            at[waiting[~more]] = -1
            waiting = waiting[more]
        return at


def _same_words(noted: pa.Array, asked: pa.Array) -> Bools:
    return flags(pc.equal(noted, asked)) | (flags(pc.is_null(noted)) & flags(pc.is_null(asked)))
