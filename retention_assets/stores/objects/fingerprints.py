"""Fingerprints: 64-bit keyed hashes of realm and key, which make references eight bytes each and collisions uncraftable. The
hash is the SipHash of pandas, keyed by the salt of a scan, over an unambiguous text: the key alone, or behind a byte that no
UTF-8 begins with, the length of the realm plus one (0 if it has none; highest bit set for a folder), and the realm."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array  # type: ignore[import-untyped]  # it has no types

from retention_assets.frames.arrays import Bools, Ints, changes, flags, integers, join_chunks

Hashes = npt.NDArray[np.uint64]

SALT_BYTES = 16
_BLOCK = 1 << 16  # rows hashed together: each is a Python object meanwhile
_INDEXED = 1 << 16  # values indexed at a time, to bound memory
_FOLDER = 1 << 63
_NOTHING = pa.scalar(b"", pa.large_binary())


def words_of(column: pa.Array | pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Distinct texts of a column, and the index of each row's text; null is the index after the last."""
    array = join_chunks(column)
    if array.null_count == len(array):
        return [], np.zeros(len(array), dtype=np.int64)
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    names = coded.dictionary.to_pylist()
    return names, integers(coded.indices, len(names)).astype(np.int64)


class Fingerprints:
    def __init__(self, salt: bytes) -> None:
        self._salt = salt.decode("latin-1")

    def of(self, keys: pa.Array, realms: pa.Array | None = None, folders: Bools | None = None) -> Hashes:
        """Fingerprint of each key in its realm, or in none. `folders` marks rows that are folders of that name instead of
        keys."""
        if keys.null_count:
            raise ValueError("a key is missing")
        words, codes = words_of(pa.nulls(len(keys), pa.string()) if realms is None else realms)
        names = [*words, None]
        prefixes = [_prefix(name, 0) for name in names]
        if folders is not None:
            prefixes += [_prefix(name, _FOLDER) for name in names]
            codes = codes + folders * len(names)
        prefix_texts = pa.array(prefixes, pa.large_binary())
        hashes = np.empty(len(keys), dtype=np.uint64)
        for start in range(0, len(keys), _BLOCK):
            texts = keys.slice(start, _BLOCK).cast(pa.large_binary())
            if len(prefixes) > 1:
                prefix = prefix_texts.take(pa.array(codes[start : start + _BLOCK]))
                texts = pc.binary_join_element_wise(prefix, texts, _NOTHING)
            # Bytes are hashed as they are, so the encoding is the salt's.
            hashes[start : start + _BLOCK] = hash_array(
                texts.to_numpy(zero_copy_only=False), "latin-1", self._salt, categorize=False
            )
        return hashes


def _prefix(realm: str | None, mark: int) -> bytes:
    if realm is None and not mark:
        return b""
    text = b"" if realm is None else realm.encode()
    return b"\xff" + ((0 if realm is None else len(text) + 1) | mark).to_bytes(8, "little") + text


EVERYTHING = "/"


@dataclass(frozen=True)
class ReferredNames:
    """Realms and folder depths in the names that references use. The realm None means every realm, the depth 0 is
    everything."""

    realms: set[str | None] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)

    @classmethod
    def all_of(cls, every: Iterable["ReferredNames"]) -> "ReferredNames":
        parts = list(every)
        return cls({realm for names in parts for realm in names.realms}, {depth for names in parts for depth in names.depths})

    def note(self, references: pa.RecordBatch, names_folders: bool) -> Bools | None:
        """Add realms and depths of references; return a mask of those that name folders, None if there are none."""
        keys = references["object"]
        self.realms.update(pc.unique(references["realm"]).to_pylist())
        folders = flags(pc.ends_with(keys, "/")) if names_folders else np.zeros(0, dtype=bool)
        if not folders.any():
            return None
        names = keys.filter(pa.array(folders))
        depths = pc.if_else(pc.equal(names, EVERYTHING), 0, pc.count_substring(names, "/"))
        self.depths.update(pc.unique(depths).to_pylist())
        return folders


@dataclass(frozen=True)
class Lookup:
    """Fingerprints under which rows may be named, and the names themselves."""

    hashes: Hashes
    # row of each fingerprint; None if they are all rows in order
    rows: Ints | None
    names: pa.Array
    folders: bool = False


def lookups(
    fingerprints: Fingerprints, keys: pa.Array, realms: pa.Array | None, referred: ReferredNames, own: Hashes | None = None
) -> Iterator[Lookup]:
    """Yield the lookups of some keys by names that references use. `own` are their fingerprints in their realms, if known."""
    without_realms = realms is None or realms.null_count == len(realms)
    spaces = [realms] if referred.realms - {None} or without_realms else []
    if None in referred.realms and not without_realms:
        spaces.append(None)
    for space in spaces:
        yield Lookup(own if own is not None and space is realms else fingerprints.of(keys, space), None, keys)
    for depth in sorted(referred.depths):
        # beginning of each key up to and including its `depth`-th slash; null if it has fewer
        pattern = f"^(?P<folder>(?:[^/]*/){{{depth}}})"
        names = pc.struct_field(pc.extract_regex(keys, pattern), [0]) if depth else pa.repeat(EVERYTHING, len(keys))
        rows = np.flatnonzero(flags(pc.is_valid(names)))
        if not len(rows):
            continue
        names, places = names.take(pa.array(rows)), np.ones(len(rows), dtype=bool)
        for space in spaces:
            realms_of_rows = None if space is None else space.take(pa.array(rows))
            yield Lookup(fingerprints.of(names, realms_of_rows, places), rows, names, True)


Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Sort in place and return the distinct values. np.unique() hashes them first, which takes several times as long."""
    values.sort()
    first = changes(values.view(np.int64))
    return values if first.all() else values[first]


class SortedFingerprints:
    """Sorted, evenly distributed fingerprints with an index by their leading bits. A lookup costs about two reads, whatever
    their number."""

    def __init__(self, values: Hashes) -> None:
        self._values = values
        self._low = values[0] if len(values) else np.uint64(0)
        span = int(values[-1]) - int(self._low) if len(values) else 0
        # about one value per slot
        self._shift = np.uint64(max(0, span.bit_length() - max(1, len(values).bit_length() - 1)))
        places = (span >> int(self._shift)) + 1
        # A slot begins after the last value of the slot before.
        ends = np.zeros(places + 1, dtype=np.int32)
        for begin in range(0, len(values), _INDEXED):
            part = values[begin : begin + _INDEXED]
            ends[((part - self._low) >> self._shift).astype(np.int64) + 1] = np.arange(
                begin + 1, begin + len(part) + 1, dtype=np.int32
            )
        self._begins = np.maximum.accumulate(ends, out=ends)

    def __len__(self) -> int:
        return len(self._values)

    def find(self, wanted: Hashes) -> Ints:
        """Index of the first occurrence of each fingerprint; -1 if absent."""
        if not len(self._values):
            return np.full(len(wanted), -1, dtype=np.int64)
        # Values out of range clip to the end of the index, where nothing is found.
        slot = ((wanted - self._low) >> self._shift).astype(np.int64)
        place = self._begins.take(slot, mode="clip").astype(np.int64)
        slot += 1
        end = self._begins.take(slot, mode="clip")
        value = self._values.take(place, mode="clip")
        # An empty slot begins where the next one does, so it contains nothing.
        indexes = np.where((value == wanted) & (place < end), place, -1)
        waiting = np.flatnonzero((value < wanted) & (place + 1 < end))
        place, end, wanted = place[waiting], end[waiting], wanted[waiting]
        while len(waiting):
            place += 1
            value = self._values.take(place)
            same = value == wanted
            indexes[waiting[same]] = place[same]
            more = (value < wanted) & (place + 1 < end)
            waiting, place, end, wanted = waiting[more], place[more], end[more], wanted[more]
        return indexes

    def has(self, wanted: Hashes) -> Bools:
        mask: Bools = self.find(wanted) >= 0
        return mask
