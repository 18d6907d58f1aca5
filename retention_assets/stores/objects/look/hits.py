"""Hits: references to due keys, written in the order of fingerprints so that a lookup reads few rows, and witnesses among them.
A lookup compares whole keys. A reference without a realm names its key in every realm; an object without a realm is named by
references of any realm."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, join_chunks
from retention_assets.stores.objects.look.due import DueFingerprints, check_stop
from retention_assets.stores.objects.references.rounds import ShareRows
from retention_assets.stores.objects.scan.filters import SortedFingerprints
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, NamedBy, ReferredNames, lookups
from retention_assets.stores.objects.scan.folder import Run, ScanFolder, gathered
from retention_assets.stores.objects.scan.read_references import ReferenceRuns

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
        # start of the edge that leads here, unless named itself
        pa.field("over", pa.string()),
        # reached over edges of several realms: counts only for objects without a realm
        pa.field("across", pa.bool_(), nullable=False),
    ]
)
_GROUP = 1 << 12
# hits per file
_HELD = 1 << 17
_SAME = ["key", "realm", "folder"]


def hits_of(columns: Mapping[str, Any], source: pa.Array | int, at: Ints, folder: bool = False) -> pa.Table:
    """Build rows of HITS; by default they lead over no edge."""
    rows = len(at)
    numbers = source if isinstance(source, pa.Array) else pa.repeat(pa.scalar(source, pa.int32()), rows)
    usual = {"folder": pa.repeat(folder, rows), "over": pa.nulls(rows, pa.string()), "across": pa.repeat(False, rows)}
    return pa.table({**usual, **columns, "source": numbers, "at": pa.array(at)}).select(HITS.names)


def write_hits(folder: ScanFolder, salt: bytes, name: str, hits: pa.Table) -> Run:
    """Write hits in the order of their fingerprints, with these in a file beside."""
    hashes = Fingerprints(salt).of(text_of(hits["key"]), folders=flags(hits["folder"]))
    order = np.argsort(hashes, kind="stable")
    folder.write_bytes(name, np.ascontiguousarray(hashes[order]))
    with folder.writer(f"{name}.parquet", HITS) as writer:
        writer.write_table(hits.cast(HITS).take(pa.array(order)), row_group_size=_GROUP)
    return Run(name, len(hits))


@dataclass(frozen=True)
class FindReferences:
    """Reads a share of a source for references to due keys."""

    wanted: DueFingerprints
    # keys from which edges lead to due ones
    leading: DueFingerprints
    bucket: int
    salt: bytes
    folder: ScanFolder
    is_stopped: Callable[[], bool]

    def __call__(self, rows: ShareRows) -> ReferenceRuns:
        runs, names = list[Run](), ReferredNames()
        for tables in gathered(self._hits(rows, names), _HELD):
            name = f"hits/{rows.name}-{self.bucket:03d}-{len(runs):04d}"
            runs.append(write_hits(self.folder, self.salt, name, _first_of_each_name(pa.concat_tables(tables))))
        return ReferenceRuns(runs, names)

    def _hits(self, rows: ShareRows, names: ReferredNames) -> Iterator[pa.Table]:
        fingerprints, before = Fingerprints(self.salt), 0
        for batch in rows:
            check_stop(self.is_stopped)
            folders = names.note(batch, rows.source.names_folders)
            hit = np.flatnonzero(self._has(fingerprints.of(batch["object"])))
            yield _hits_at(batch, hit, rows.number, before, folder=False)
            if folders is not None:
                some = np.flatnonzero(folders)
                keys = batch["object"].take(pa.array(some))
                hit = some[self._has(fingerprints.of(keys, folders=np.ones(len(some), dtype=bool)))]
                yield _hits_at(batch, hit, rows.number, before, folder=True)
            before += len(batch)

    @cached_property
    def _known(self) -> list[SortedFingerprints]:
        # Leading keys are few, so they are only looked up with the first bucket.
        others = [self.leading.load(at) for at in range(len(self.leading.buckets))] if self.bucket == 0 else []
        return [self.wanted.load(self.bucket), *others]

    def _has(self, hashes: Hashes) -> Bools:
        first, *others = (known.has(hashes) for known in self._known)
        for more in others:
            first |= more
        return first


def _hits_at(batch: pa.RecordBatch, rows: np.ndarray, source: int, before: int, folder: bool) -> pa.Table:
    some = batch.take(pa.array(rows))
    return hits_of({"key": some["object"], "realm": some["realm"], "from": some["from"]}, source, before + rows, folder)


def _first_of_each_name(hits: pa.Table) -> pa.Table:
    others = [name for name in HITS.names if name not in _SAME]
    first = pc.ScalarAggregateOptions(skip_nulls=False)
    once = hits.group_by(_SAME, use_threads=False).aggregate([(name, "first", first) for name in others])
    return once.rename_columns([name.removesuffix("_first") for name in once.column_names]).select(HITS.names)


@dataclass(frozen=True)
class Hits:
    """All hits of a look; only their fingerprints are in memory."""

    folder: ScanFolder
    runs: Sequence[Run]
    salt: bytes
    # depths of folders that references name; 0 is everything
    depths: frozenset[int] = frozenset()

    @cached_property
    def _index(self) -> tuple[Hashes, Ints]:
        """Sorted fingerprints of all runs, and the global number of each one's hit."""
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
        found = [_WITH_PLACES.empty_table()]
        if not len(values) or not len(keys):
            return found[0]
        for way in lookups(Fingerprints(self.salt), keys, None, NamedBy(in_all=True, depths=self.depths)):
            begins = np.searchsorted(values, way.hashes, "left")
            counts = np.searchsorted(values, way.hashes, "right") - begins
            mine = np.flatnonzero(counts)
            if not len(mine):
                continue
            asked = np.repeat(mine, counts[mine])
            within = np.arange(len(asked)) - np.repeat(np.cumsum(counts[mine]) - counts[mine], counts[mine])
            rows, at = self._rows(order[begins[asked] + within])
            rows = rows.take(pa.array(at))
            same = flags(pc.equal(rows["key"], way.names.take(pa.array(asked)).cast(pa.string())))
            same &= flags(rows["folder"]) == way.folders
            places = asked if way.rows is None else way.rows[asked]
            found.append(rows.append_column("asked", pa.array(places, pa.int64())).filter(pa.array(same)))
        return pa.concat_tables(found)

    def _rows(self, numbers: Ints) -> tuple[pa.Table, Ints]:
        """Distinct hits, and the index of each requested one among them."""
        wanted, at = np.unique(numbers, return_inverse=True)
        of_runs = np.searchsorted(self._begins, wanted, "right") - 1
        tables = []
        for number in np.unique(of_runs).tolist():
            mine = wanted[of_runs == number] - self._begins[number]
            rows = self._read(self.runs[number].name, mine)
            tables.append(rows.append_column("run", pa.array(np.full(len(rows), number), pa.int32())))
        return pa.concat_tables(tables), at

    def _read(self, name: str, rows: Ints) -> pa.Table:
        groups = np.unique(rows // _GROUP)
        with self.folder.reader(f"{name}.parquet") as source:
            table = source.read_row_groups(groups.tolist(), use_threads=False).cast(HITS)
        places = np.searchsorted(groups, rows // _GROUP) * _GROUP + rows % _GROUP
        return table.take(pa.array(places))


_WITH_PLACES = HITS.append(pa.field("run", pa.int32())).append(pa.field("asked", pa.int64()))


def first_of_each(hits: pa.Table, places: Collection[int] | Ints) -> pa.Table:
    """First hit of each place: direct references before edges, then in the order of sources and rows."""
    over = flags(pc.is_valid(hits["over"]))
    columns = (hits[name].to_numpy() for name in ("at", "run", "source"))
    where = np.asarray(places, dtype=np.int64)
    order = np.lexsort((*columns, over, where))
    _, first = np.unique(where[order], return_index=True)
    return hits.take(pa.array(order[first]))


def text_of(column: pa.ChunkedArray) -> pa.Array:
    return join_chunks(column).cast(pa.string())


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
