"""Edges around due keys: which keys lead there, and which of these are referred to or kept.

Each walk runs in one task that holds all edges; cycles are allowed. An object that is kept retains what its edges lead to, just
as one that is referred to does. The walk back tells realms apart: edges and references with a realm count in that realm, those
without one in every realm. An object without a realm is retained over edges of any realms: better kept by mistake than lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, integers, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.listings.finished import FinishedListing
from retention_assets.stores.objects.look.due import DueFingerprints, DueRun, hashes_of, write_run
from retention_assets.stores.objects.look.hits import HITS, HitRun, Hits, first_of_each, write_hits
from retention_assets.stores.objects.naming import with_names
from retention_assets.stores.objects.scan.classes import ClassRules, why_kept
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import ScanFolder
from retention_assets.stores.objects.scan.membership import distinct
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import EDGES, OBJECTS

_LEADING, _AROUND = "leading", "edges/around.parquet"
# label of objects that are kept by rules or holds
KEPT_LABEL = "edges"
_NAMED = OBJECTS.append(pa.field("dataset", pa.string(), nullable=False))
# scope of a walk: every realm alike, across all realms, or a realm's number plus _REALMS
_EVERYWHERE, _ACROSS, _REALMS = 0, 1, 2


@dataclass(frozen=True)
class _Arrows:
    """Edges grouped by their start node."""

    starts: Ints
    ends: Ints
    realms: Ints

    @classmethod
    def of(cls, begin: Ints, end: Ints, realms: Ints, nodes: int) -> Self:
        order = np.argsort(begin, kind="stable")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(begin, minlength=nodes))])
        return cls(starts, end[order], realms[order])

    def step(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Follow all edges of the nodes: indexes into `nodes`, and indexes into `ends`."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        origins = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(origins)) + np.repeat(self.starts[nodes] - (np.cumsum(counts) - counts), counts)
        return origins, places


def _coded(edges: pa.Table) -> tuple[pa.Array, Ints, Ints]:
    """All distinct keys, and the indexes at which each edge begins and ends."""
    both = pa.chunked_array([*edges["from"].chunks, *edges["to"].chunks], pa.string())
    coded = join_chunks(both).dictionary_encode()
    numbers = integers(coded.indices, -1).astype(np.int64)
    return coded.dictionary, numbers[: len(edges)], numbers[len(edges) :]


@dataclass(frozen=True)
class FindLeading:
    parts: Sequence[str]
    wanted: DueFingerprints
    salt: bytes
    folder: ScanFolder
    folders: bool

    def __call__(self, number: int) -> DueRun | None:  # noqa: ARG002 - there is one
        """Write all keys from which edges lead to due ones, and these edges; None if there are none."""
        tables = []
        for part in self.parts:
            with self.folder.reader(part) as source:
                tables.append(source.read(use_threads=False).cast(EDGES))
        edges = pa.concat_tables(tables)
        keys, begin, end = _coded(edges)
        fingerprints = Fingerprints(self.salt)
        near = self.wanted.has(fingerprints.of(keys))
        arrows = _Arrows.of(end, begin, np.zeros(len(edges), np.int64), len(keys))
        front = np.flatnonzero(near)
        while len(front):
            _, places = arrows.step(front)
            front = np.unique(arrows.ends[places])
            front = front[~near[front]]
            near[front] = True
        around = edges.filter(pa.array(near[end]))
        if not len(around):
            return None
        with self.folder.writer(_AROUND, EDGES) as writer:
            writer.write_table(around)
        leading = keys.take(pa.array(np.unique(begin[near[end]])))
        return write_run(
            self.folder, _LEADING, distinct(np.concatenate(hashes_of(fingerprints, leading, folders=self.folders)))
        )


@dataclass(frozen=True)
class FindKeptNow:
    settings: ObjectsSettings
    rules: ClassRules
    holds: Sequence[Hold]
    # number of their label
    source: int
    tasks: int
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> HitRun | None:
        """Write kept objects as hits with the reason; None if there are none."""
        with self.folder.reader(_AROUND) as source:
            begins = pc.unique(source.read(columns=["from"], use_threads=False)["from"]).cast(pa.string())
        keys = begins.take(pa.array(np.arange(number, len(begins), self.tasks)))
        listing = open_listing(self.settings)
        found = self._named(listing.find(keys.to_pylist()))
        kept = found.append_column("from_", why_kept(found, self.rules, self.holds))
        if isinstance(listing, FinishedListing) and listing.place is not None:
            # A list does not name objects newer than itself.
            unlisted = self._named(listing.place.find(keys.filter(pc.invert(pc.is_in(keys, found["key"]))).to_pylist()))
            kept = pa.concat_tables([kept, unlisted.append_column("from_", pa.repeat("is not in the listing", len(unlisted)))])
        kept = kept.filter(pc.is_valid(kept["from_"]))
        if not len(kept):
            return None
        columns = {
            "key": kept["key"],
            "realm": kept["realm"],
            "from": kept["from_"],
            "source": pa.repeat(pa.scalar(self.source, pa.int32()), len(kept)),
            "at": pa.array(np.arange(len(kept))),
            "folder": pa.repeat(False, len(kept)),
            "over": pa.nulls(len(kept), pa.string()),
            "across": pa.repeat(False, len(kept)),
        }
        hashes = Fingerprints(self.salt).of(join_chunks(kept["key"]))
        return write_hits(self.folder, f"hits/kept-{number:05d}", pa.table(columns, schema=HITS), hashes)

    def _named(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches([with_names(batch, self.settings) for batch in batches], _NAMED)


@dataclass(frozen=True)
class FollowEdges:
    """Task that follows edges from the hits. The last label stands for objects that are kept themselves."""

    hits: Hits
    labels: Sequence[str]
    folder: ScanFolder

    def __call__(self, number: int) -> HitRun | None:  # noqa: ARG002 - there is one
        with self.folder.reader(_AROUND) as source:
            edges = source.read(use_threads=False).cast(EDGES)
        keys, begin, end = _coded(edges)
        named = self.hits.of(keys)
        if not len(named):
            return None
        realms = join_chunks(edges["realm"])
        names = pc.unique(pa.concat_arrays([realms, join_chunks(named["realm"])]).drop_null())
        walk = _Walk(_Arrows.of(begin, end, _realm_codes(realms, names), len(keys)), len(keys))
        starts, hits = _starts(named, _realm_codes(join_chunks(named["realm"]), names), len(keys), across=len(names) > 0)
        states, origins = walk.reached(starts)
        if not len(states):
            return None
        return self._write(keys, names, states, hits.take(pa.array(origins)), len(keys))

    def _write(self, keys: pa.Array, names: pa.Array, states: Ints, hits: pa.Table, nodes: int) -> HitRun:
        scopes = states // nodes
        mine = keys.take(pa.array(states % nodes))
        over = keys.take(join_chunks(hits["asked"]))
        who = _filled(hits["from"], pa.array(self.labels, pa.string()).take(join_chunks(hits["source"])))
        behind = pc.if_else(pc.equal(join_chunks(hits["source"]), len(self.labels) - 1), "", " refers to")
        words = pc.binary_join_element_wise("over the edge from ", over, ", which ", who, behind, "")
        in_realm = pa.array(np.where(scopes >= _REALMS, scopes - _REALMS, 0), mask=scopes < _REALMS)
        columns = {
            "key": mine,
            "realm": names.take(in_realm),
            "from": words,
            "source": hits["source"],
            "at": hits["at"],
            "folder": pa.array(np.zeros(len(mine), dtype=bool)),
            "over": over,
            "across": pa.array(scopes == _ACROSS),
        }
        table = pa.table([columns[name] for name in HITS.names], schema=HITS)
        return write_hits(self.folder, "hits/over", table, Fingerprints(self.hits.salt).of(mine))


def _filled(texts: pa.ChunkedArray, instead: pa.Array) -> pa.Array:
    given = join_chunks(texts)
    return pc.if_else(pc.fill_null(pc.equal(given, ""), True), instead, given)


def _realm_codes(realms: pa.Array, names: pa.Array) -> Ints:
    """Number of each realm; -1 for null, which means every realm."""
    return integers(pc.index_in(realms, names, skip_nulls=True), -1).astype(np.int64)


def _starts(named: pa.Table, realms: Ints, nodes: int, *, across: bool) -> tuple[Ints, pa.Table]:
    """Distinct sorted states in which walks begin, and the first hit of each."""
    node = named["asked"].to_numpy()
    states = np.where(realms < 0, _EVERYWHERE, realms + _REALMS) * nodes + node
    if across:
        states = np.concatenate([states, _ACROSS * nodes + node])
        named = pa.concat_tables([named, named])
    return np.unique(states), first_of_each(named, states)


@dataclass(frozen=True)
class _Walk:
    """Walks along edges; a state is a scope and a node in one number."""

    arrows: _Arrows
    nodes: int

    def reached(self, front: Ints) -> tuple[Ints, Ints]:
        """All states that edges lead to from the front, including starts that are reached again, and the index of the start of
        each."""
        seen, found, origins = _Seen(), [np.zeros(0, np.int64)], np.arange(len(front))
        roots = [np.zeros(0, np.int64)]
        while len(front):
            at, places = self.arrows.step(front % self.nodes)
            scope, realm = front[at] // self.nodes, self.arrows.realms[places]
            goes = (scope <= _ACROSS) | (realm < 0) | (realm + _REALMS == scope)
            scope = np.where((scope == _EVERYWHERE) & (realm >= 0), realm + _REALMS, scope)
            states = (scope * self.nodes + self.arrows.ends[places])[goes]
            front, first = np.unique(states, return_index=True)
            new = seen.new(front)
            front, origins = front[new], origins[at[goes][first[new]]]
            found.append(front)
            roots.append(origins)
        return np.concatenate(found), np.concatenate(roots)


class _Seen:
    """Visited states in sorted pieces of decreasing size, so that adding stays cheap."""

    def __init__(self) -> None:
        self._pieces: list[Ints] = []

    def new(self, states: Ints) -> Bools:
        """Mask of the states (sorted, distinct) not seen before; marks them as seen."""
        new = np.ones(len(states), dtype=bool)
        for piece in self._pieces:
            at = np.minimum(np.searchsorted(piece, states), len(piece) - 1)
            new &= piece[at] != states
        if new.any():
            self._pieces.append(states[new])
        while len(self._pieces) > 1 and len(self._pieces[-2]) <= 2 * len(self._pieces[-1]):
            self._pieces.append(np.sort(np.concatenate([self._pieces.pop(), self._pieces.pop()])))
        return new
