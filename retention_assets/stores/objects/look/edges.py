"""Edges around what is due: from which keys they lead there, and which of these are referred to.

Belongs here: both walks, each in one task, which holds all edges; cycles are allowed. What is kept for what it is now retains
what its edges lead to as what is referred to does. Realms are told apart on the way back:
an edge with a realm holds in that realm, one without in every realm, and so it is with references. An object without a realm is
kept over edges of whatever realms, for it is kept by mistake rather than lost.
Does not belong here: reading edges from their sources (scan/read_edges.py).
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
# What is said to name an object that is kept for what it is.
KEPT_LABEL = "edges"
_NAMED = OBJECTS.append(pa.field("dataset", pa.string(), nullable=False))
# Where a walk is: in every realm alike, across all realms, or in the realm of a number from here on.
_EVERYWHERE, _ACROSS, _REALMS = 0, 1, 2


@dataclass(frozen=True)
class _Arrows:
    """Edges sorted by where they begin: those of a node stand together."""

    starts: Ints
    ends: Ints
    realms: Ints

    @classmethod
    def of(cls, begin: Ints, end: Ints, realms: Ints, nodes: int) -> Self:
        order = np.argsort(begin, kind="stable")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(begin, minlength=nodes))])
        return cls(starts, end[order], realms[order])

    def step(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Along every edge of some nodes: places in `nodes`, and places in `ends`."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        origins = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(origins)) + np.repeat(self.starts[nodes] - (np.cumsum(counts) - counts), counts)
        return origins, places


def _coded(edges: pa.Table) -> tuple[pa.Array, Ints, Ints]:
    """All keys, and as places among them where each edge begins and ends."""
    both = pa.chunked_array([*edges["from"].chunks, *edges["to"].chunks], pa.string())
    coded = join_chunks(both).dictionary_encode()
    numbers = integers(coded.indices, -1).astype(np.int64)
    return coded.dictionary, numbers[: len(edges)], numbers[len(edges) :]


@dataclass(frozen=True)
class FindLeading:
    """What the one task is sent: the edges, and what is due."""

    parts: Sequence[str]
    wanted: DueFingerprints
    salt: bytes
    folder: ScanFolder
    folders: bool

    def __call__(self, number: int) -> DueRun | None:  # noqa: ARG002 - there is one
        """Write down every key from which edges lead to what is due, and these edges; none if there are none."""
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
    """What a task is sent: by what objects are kept, and how many tasks ask for those at which edges begin."""

    settings: ObjectsSettings
    rules: ClassRules
    holds: Sequence[Hold]
    # The number of their label.
    source: int
    tasks: int
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> HitRun | None:
        """Write down those that are kept as hits, with why; none if there are none."""
        with self.folder.reader(_AROUND) as source:
            begins = pc.unique(source.read(columns=["from"], use_threads=False)["from"]).cast(pa.string())
        keys = begins.take(pa.array(np.arange(number, len(begins), self.tasks)))
        listing = open_listing(self.settings)
        found = self._named(listing.find(keys.to_pylist()))
        kept = found.append_column("from_", why_kept(found, self.rules, self.holds))
        if isinstance(listing, FinishedListing) and listing.place is not None:
            # A list names nothing that is newer than it is.
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
    """What the one task is sent: the hits, and what the sources of them are called, the last of which are objects that are kept
    for what they are. The edges are in the folder."""

    hits: Hits
    labels: Sequence[str]
    folder: ScanFolder

    def __call__(self, number: int) -> HitRun | None:  # noqa: ARG002 - there is one
        """Write down what is retained over edges, each with whom that goes back to."""
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
    """Some texts, and others where one is missing or says nothing."""
    given = join_chunks(texts)
    return pc.if_else(pc.fill_null(pc.equal(given, ""), True), instead, given)


def _realm_codes(realms: pa.Array, names: pa.Array) -> Ints:
    """The number of each realm; -1 for none, which is all."""
    return integers(pc.index_in(realms, names, skip_nulls=True), -1).astype(np.int64)


def _starts(named: pa.Table, realms: Ints, nodes: int, *, across: bool) -> tuple[Ints, pa.Table]:
    """Where walks begin, each once and in order, and the hit with which each does. The nodes are `asked` of the hits."""
    node = named["asked"].to_numpy()
    states = np.where(realms < 0, _EVERYWHERE, realms + _REALMS) * nodes + node
    if across:
        states = np.concatenate([states, _ACROSS * nodes + node])
        named = pa.concat_tables([named, named])
    return np.unique(states), first_of_each(named, states)


@dataclass(frozen=True)
class _Walk:
    """Walks along edges, of which each place is a node and where its realms are."""

    arrows: _Arrows
    nodes: int

    def reached(self, front: Ints) -> tuple[Ints, Ints]:
        """Every place that edges lead to from some, also one of those itself, and the number of the one from which."""
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
    """Places that were reached, in pieces each of which is larger than the one behind it: to add costs little, however many."""

    def __init__(self) -> None:
        self._pieces: list[Ints] = []

    def new(self, states: Ints) -> Bools:
        """Which of some places, in order and each once, were never there; by now they are."""
        new = np.ones(len(states), dtype=bool)
        for piece in self._pieces:
            at = np.minimum(np.searchsorted(piece, states), len(piece) - 1)
            new &= piece[at] != states
        if new.any():
            self._pieces.append(states[new])
        while len(self._pieces) > 1 and len(self._pieces[-2]) <= 2 * len(self._pieces[-1]):
            self._pieces.append(np.sort(np.concatenate([self._pieces.pop(), self._pieces.pop()])))
        return new
