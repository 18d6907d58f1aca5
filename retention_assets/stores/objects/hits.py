"""Keys that are asked about: those due in a sweep, and those at which edges begin; hits, which are references to them; and
witnesses, the hits that people are shown. Hits are written in the order of fingerprints, so that a lookup reads few rows. If
sources may name folders, each folder above a key has a fingerprint too, as naming it means every key in it. A lookup compares
whole keys. A reference without a realm names its key in every realm; an object without a realm is named by references of any
realm."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks
from retention_assets.policy.realms import is_within_any
from retention_assets.stores.objects.fingerprints import (
    Fingerprints,
    Hashes,
    ReferredNames,
    SortedFingerprints,
    distinct,
    lookups,
)
from retention_assets.stores.objects.folder import Pieces, ReferenceRuns, Run, ScanFolder, mask_of
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources import LookStopped, ShareRows
from retention_assets.stores.objects.tables import realms_of_keys
from retention_assets.stores.protocol import DueTransactions

_RUN = 1 << 22  # fingerprints per file, and references of a share that are held in memory
TOGETHER = 1 << 25  # fingerprints looked up together: 8 bytes each, and 4 for the index


@dataclass(frozen=True)
class GivenKeys:
    """Keys at hand, as the due transactions of a look."""

    keys: pa.ChunkedArray
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        yield from pa.table({"transaction": self.keys}).to_batches()


def write_due(
    folder: ScanFolder,
    due: DueTransactions,
    settings: ObjectsSettings,
    purging: Collection[str],
    folders: bool,
    is_stopped: Callable[[], bool],
    part: int,
) -> list[Run]:
    """Write fingerprints of due keys, except in realms being purged, where references do not count."""

    def write(hashes: Sequence[Hashes], number: int) -> Run:
        return folder.write_values(f"due/{part:06d}-{number:04d}", distinct(np.concatenate(hashes)))

    pieces = Pieces(_RUN, write)
    for batch in due.read(part):
        if is_stopped():
            raise LookStopped
        keys = batch["transaction"].cast(pa.string())
        if purging:
            keys = keys.filter(pa.array(~in_purging_realms(keys, settings, purging)))
        for hashes in hashes_of(folder.fingerprints, keys, folders=folders):
            pieces.add(hashes)
    return pieces.close()


def hashes_of(fingerprints: Fingerprints, keys: pa.Array, *, folders: bool) -> list[Hashes]:
    """Fingerprints of everything by which references may name the keys, apart from realms."""
    deepest = int(pc.max(pc.count_substring(keys, "/")).as_py() or 0) if folders and len(keys) else 0
    names = ReferredNames({None}, set(range(deepest + 1)) if folders else set())
    return [way.hashes for way in lookups(fingerprints, keys, None, names)]


def in_purging_realms(keys: pa.Array, settings: ObjectsSettings, purging: Collection[str]) -> Bools:
    """Mask of the keys whose own text puts them in a realm being purged."""
    realms = realms_of_keys(keys, settings)
    return np.zeros(len(keys), dtype=bool) if realms is None else within_realms(realms, purging)


def within_realms(realms: pa.Array | pa.ChunkedArray, purging: Collection[str]) -> Bools:
    """Mask of the realms that are, or lie below, a purged one. A null realm never is."""
    return mask_of(realms, lambda name: is_within_any(name, purging))


@dataclass(frozen=True)
class DueFingerprints:
    """Fingerprints in files, grouped into buckets that fit in memory."""

    folder: ScanFolder
    buckets: tuple[tuple[Run, ...], ...] = ()

    @classmethod
    def of(cls, folder: ScanFolder, runs: Sequence[Run]) -> "DueFingerprints":
        buckets: list[list[Run]] = []
        for run in runs:
            if not buckets or sum(other.values for other in buckets[-1]) + run.values > TOGETHER:
                buckets.append([])
            buckets[-1].append(run)
        return cls(folder, tuple(map(tuple, buckets)))

    @cached_property
    def _only(self) -> SortedFingerprints:
        return load(self.folder, self.buckets[0])

    def has(self, wanted: Hashes) -> Bools:
        """Mask of the fingerprints that are due. A single bucket stays in memory; several are read again each time."""
        mask = np.zeros(len(wanted), dtype=bool)
        for bucket in self.buckets if len(wanted) else ():
            mask |= (self._only if len(self.buckets) == 1 else load(self.folder, bucket)).has(wanted)
        return mask


def load(folder: ScanFolder, runs: Sequence[Run]) -> SortedFingerprints:
    # filled in place, so that no second copy is in memory
    values, place = np.empty(sum(run.values for run in runs), dtype=np.uint64), 0
    for run in runs:
        values[place : place + run.values] = folder.read_values(run.name).values
        place += run.values
    return SortedFingerprints(distinct(values))


HITS = pa.schema(
    [
        # as the reference names it; folders end with /
        pa.field("key", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("from", pa.string()),
        # number of the source, and row number in its share
        pa.field("source", pa.int32(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("folder", pa.bool_(), nullable=False),
        # key where the edge path begins; null if referred to directly
        pa.field("via", pa.string()),
    ]
)
# realm of keys that edges of several realms lead to; no realm has this name, so it names only objects without one
ACROSS_REALMS = "*"
_GROUP = 1 << 12  # hits per row group
_HELD = 1 << 17  # hits per file


def hits_of(columns: Mapping[str, Any], source: pa.Array | int, at: Ints) -> pa.Table:
    """Build rows of HITS; by default they are direct."""
    rows = len(at)
    numbers = source if isinstance(source, pa.Array) else pa.repeat(pa.scalar(source, pa.int32()), rows)
    defaults = {"folder": pa.repeat(False, rows), "via": pa.nulls(rows, pa.string())}
    return pa.table({**defaults, **columns, "source": numbers, "at": pa.array(at)}).select(HITS.names)


def write_hits(folder: ScanFolder, name: str, hits: pa.Table) -> Run:
    """Write hits in the order of their fingerprints, with these in a file beside."""
    hashes = folder.fingerprints.of(text_of(hits["key"]), folders=flags(hits["folder"]))
    order = np.argsort(hashes, kind="stable")
    folder.write_bytes(name, np.ascontiguousarray(hashes[order]))
    with folder.writer(f"{name}.parquet", HITS) as writer:
        writer.write_table(hits.cast(HITS).take(pa.array(order)), row_group_size=_GROUP)
    return Run(name, len(hits))


@dataclass(frozen=True)
class ReadReferences:
    """Reads a share of a source. References to wanted keys become hits; fingerprints of all are written for a scan."""

    folder: ScanFolder
    # files of fingerprints, looked up group by group
    wanted: Sequence[Sequence[Run]]
    has_realms: bool
    is_scan: bool
    turn: int = 0  # number of the bucket that is wanted, in names of files

    def __call__(self, rows: ShareRows) -> ReferenceRuns:
        hits = Pieces(_HELD, partial(self._write_hits, rows.name))
        hashes = Pieces(_RUN, partial(self._write_hashes, rows))
        names, first_row, fingerprints = ReferredNames(), 0, self.folder.fingerprints
        for batch in rows:
            keys, folders = batch["object"], names.note(batch, rows.source.names_folders)
            own = fingerprints.of(keys, batch["realm"] if self.is_scan else None, folders)
            if self.is_scan:
                hashes.add(own)
            if self.wanted:
                # without realms, these are the same
                plain = fingerprints.of(keys, folders=folders) if self.is_scan and self.has_realms else own
                found = np.flatnonzero(self._is_wanted(plain))
                named = batch.take(pa.array(found))
                is_folder = pa.array(np.zeros(len(found), dtype=bool) if folders is None else folders[found])
                columns = {"key": named["object"], "realm": named["realm"], "from": named["from"], "folder": is_folder}
                hits.add(hits_of(columns, rows.number, first_row + found))
            first_row += len(batch)
        return ReferenceRuns(hashes.close(), names, hits.close())

    def _write_hits(self, name: str, tables: Sequence[pa.Table], number: int) -> Run:
        hits = pa.concat_tables(tables)
        numbered = hits.append_column("row", pa.array(np.arange(len(hits))))
        # the first of references that name the same is enough
        first = numbered.group_by(["key", "realm", "folder"], use_threads=False).aggregate([("row", "min")])["row_min"]
        return write_hits(self.folder, f"hits/{name}-{self.turn:03d}-{number:04d}", hits.take(first))

    def _write_hashes(self, rows: ShareRows, parts: Sequence[Hashes], number: int) -> Run:
        values = np.concatenate(parts)
        # Sorting is faster than grouping by range.
        values.sort()
        return self.folder.write_values(f"references/{rows.name}-{number:03d}", values, rows.number)

    @cached_property
    def _asked(self) -> list[SortedFingerprints]:
        return [load(self.folder, runs) for runs in self.wanted]

    def _is_wanted(self, hashes: Hashes) -> Bools:
        mask = np.zeros(len(hashes), dtype=bool)
        for asked in self._asked:
            mask |= asked.has(hashes)
        return mask


@dataclass(frozen=True)
class Hits:
    """All hits of a look; only their fingerprints are in memory."""

    folder: ScanFolder
    runs: Sequence[Run]
    # depths of folders that references name; 0 is everything
    depths: frozenset[int] = frozenset()

    @cached_property
    def _index(self) -> tuple[Hashes, Ints]:
        # sorted fingerprints of all runs, and the global number of each one's hit
        values = np.empty(sum(run.values for run in self.runs), dtype=np.uint64)
        for run, begin in zip(self.runs, self._begins, strict=True):
            values[begin : begin + run.values] = np.frombuffer(self.folder.read_bytes(run.name), dtype=np.uint64)
        order = np.argsort(values, kind="stable")
        return values[order], order

    @cached_property
    def _begins(self) -> Ints:
        return np.cumsum([0, *(run.values for run in self.runs)])[:-1].astype(np.int64)

    def of(self, keys: pa.Array) -> pa.Table:
        """Hits that name the keys in any realm: rows of HITS with `asked`, the index of the key, and `run`."""
        values, order = self._index
        tables = [_WITH_PLACES.empty_table()]
        if not len(values) or not len(keys):
            return tables[0]
        for way in lookups(self.folder.fingerprints, keys, None, ReferredNames({None}, set(self.depths))):
            begins = np.searchsorted(values, way.hashes, "left")
            counts = np.searchsorted(values, way.hashes, "right") - begins
            asked = np.repeat(np.arange(len(counts)), counts)
            if not len(asked):
                continue
            offsets = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts, counts)
            rows, places = self._rows(order[begins[asked] + offsets])
            rows = rows.take(pa.array(places))
            same = flags(pc.equal(rows["key"], way.names.take(pa.array(asked)).cast(pa.string())))
            same &= flags(rows["folder"]) == way.folders
            key_rows = asked if way.rows is None else way.rows[asked]
            tables.append(rows.append_column("asked", pa.array(key_rows, pa.int64())).filter(pa.array(same)))
        return pa.concat_tables(tables)

    def _rows(self, numbers: Ints) -> tuple[pa.Table, Ints]:
        # distinct hits, and the index of each requested one among them
        wanted, places = np.unique(numbers, return_inverse=True)
        of_runs = np.searchsorted(self._begins, wanted, "right") - 1
        tables = []
        for number in np.unique(of_runs).tolist():
            rows = wanted[of_runs == number] - self._begins[number]
            groups = np.unique(rows // _GROUP)
            with self.folder.reader(f"{self.runs[number].name}.parquet") as source:
                table = source.read_row_groups(groups.tolist(), use_threads=False).cast(HITS)
            table = table.take(pa.array(np.searchsorted(groups, rows // _GROUP) * _GROUP + rows % _GROUP))
            tables.append(table.append_column("run", pa.array(np.full(len(rows), number), pa.int32())))
        return pa.concat_tables(tables), places


_WITH_PLACES = HITS.append(pa.field("run", pa.int32())).append(pa.field("asked", pa.int64()))


def first_of_each(hits: pa.Table, places: Collection[int] | Ints) -> pa.Table:
    """First hit of each place: direct references before edges, then in the order of sources and rows."""
    is_indirect = flags(pc.is_valid(hits["via"]))
    columns = (hits[name].to_numpy() for name in ("at", "run", "source"))
    where = np.asarray(places, dtype=np.int64)
    order = np.lexsort((*columns, is_indirect, where))
    _, first = np.unique(where[order], return_index=True)
    return hits.take(pa.array(order[first]))


def text_of(column: pa.ChunkedArray) -> pa.Array:
    return join_chunks(column).cast(pa.string())


def first_naming(hits: Hits, objects: pa.Table) -> pa.Table:
    """First hit of each object (realm, key) that is referred to, with `asked`, the index of the object."""
    rows = hits.of(text_of(objects["key"]))
    realms = text_of(objects["realm"]).take(join_chunks(rows["asked"]))
    # Two nulls do not compare equal, so null realms are handled apart.
    counts = flags(pc.is_null(realms)) | flags(pc.equal(join_chunks(rows["realm"]), realms)) | flags(pc.is_null(rows["realm"]))
    rows = rows.filter(pa.array(counts))
    return first_of_each(rows, np.asarray(rows["asked"], dtype=np.int64))
