"""Edges, and the walk along them for scans and looks: what retains `from` retains `to`, exact by whole keys. An edge with a
realm holds in that realm, one without in every realm. Cycles are allowed; each key is visited once per scope. Walks begin at
hits, which are references or objects that are kept for another reason. Walking is a single task, which holds indexes for all
edges, and each key once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, integers, join_chunks
from retention_assets.stores.objects.fingerprints import ReferredNames, distinct, words_of
from retention_assets.stores.objects.folder import ROWS, ReferenceRuns, Run, ScanFolder
from retention_assets.stores.objects.hits import (
    ACROSS_REALMS,
    HITS,
    DueFingerprints,
    Hits,
    first_of_each,
    hashes_of,
    hits_of,
    write_hits,
)
from retention_assets.stores.objects.sources import ShareRows
from retention_assets.stores.objects.tables import EDGES

# scope of a walk: every realm alike, across all realms, or a realm's number plus REALMS
EVERYWHERE, ACROSS, REALMS = 0, 1, 2
# files of the edges that lead to due keys, and of fingerprints of the keys at which they begin
_LEADING, _AROUND = "edges/leading", "edges/around.parquet"


@dataclass(frozen=True)
class EdgeRuns:
    """A file of edges, and one of the fingerprints by which references may name the keys at which they begin."""

    part: str
    begins: Run


def write_edges(folder: ScanFolder, names_folders: bool, rows: ShareRows) -> EdgeRuns:
    part, begins = f"edges/{rows.name}.parquet", [np.zeros(0, dtype=np.uint64)]
    with folder.writer(part, EDGES) as writer:
        for batch in rows:
            begins += hashes_of(folder.fingerprints, batch["from"], folders=names_folders)
            writer.write_table(pa.Table.from_batches([batch]).select(EDGES.names).cast(EDGES))
    return EdgeRuns(part, folder.write_values(f"{part}.begins", distinct(np.concatenate(begins))))


@dataclass(frozen=True)
class CodedEdges:
    """Edges as indexes into distinct keys, and into the names of realms; the realm -1 means every realm."""

    begins: Ints
    ends: Ints
    realms: Ints
    keys: pa.Array
    names: tuple[str, ...]

    @classmethod
    def read(cls, folder: ScanFolder, parts: Sequence[str]) -> "CodedEdges":
        def coded(*names: str) -> pa.DictionaryArray:
            batches = (table[name] for name in names for part in parts for table in folder.groups(part, [name]))
            # coded batch by batch, so that a text that repeats is not held as often
            chunks = [join_chunks(batch).cast(pa.large_string()).dictionary_encode() for batch in batches]
            return join_chunks(pa.chunked_array(chunks).unify_dictionaries())

        keys = coded("from", "to")
        begins, ends = np.split(integers(keys.indices, -1).astype(np.int64), 2)
        names, realms = words_of(coded("realm"))
        return cls(begins, ends, np.where(realms == len(names), -1, realms), keys.dictionary, tuple(names))

    def states(self, scopes: Ints | int, nodes: Ints) -> Ints:
        return scopes * len(self.keys) + nodes

    def split(self, states: Ints) -> tuple[Ints, Ints]:
        return np.divmod(states, len(self.keys))

    def reached(self, front: Ints, *, back: bool = False) -> tuple[Ints, Ints]:
        """All states that edges lead to from the front (sorted, distinct), including starts that are reached again, and the
        index of each one's start. `back` follows edges of all realms backwards."""
        begins, ends = (self.ends, self.begins) if back else (self.begins, self.ends)
        order = np.argsort(begins, kind="stable")
        targets = ends[order]
        realms = np.full(len(ends), -1, dtype=np.int64) if back else self.realms[order]
        begin_of = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(begins, minlength=len(self.keys)))])
        seen, origins = _Seen(), np.arange(len(front))
        states, roots = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while len(front):
            scope, node = self.split(front)
            first = begin_of[node]
            counts = begin_of[node + 1] - first
            # edges that begin at the front, and the index of each one's state there
            starts = np.repeat(np.arange(len(front)), counts)
            edges = np.arange(len(starts)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            scope, realm = scope[starts], realms[edges]
            goes = (scope <= ACROSS) | (realm < 0) | (realm + REALMS == scope)
            scope = np.where((scope == EVERYWHERE) & (realm >= 0), realm + REALMS, scope)
            front, first = np.unique(self.states(scope, targets[edges])[goes], return_index=True)
            new = seen.new(front)
            front, origins = front[new], origins[starts[goes][first[new]]]
            states.append(front)
            roots.append(origins)
        return np.concatenate(states), np.concatenate(roots)


class _Seen:
    """Visited states in sorted pieces of decreasing size, so that adding stays cheap."""

    def __init__(self) -> None:
        self._pieces: list[Ints] = []

    def new(self, states: Ints) -> Bools:
        """Mask of the states (sorted, distinct) not seen before; marks them as seen."""
        new = np.ones(len(states), dtype=bool)
        for piece in self._pieces:
            places = np.minimum(np.searchsorted(piece, states), len(piece) - 1)
            new &= piece[places] != states
        if new.any():
            self._pieces.append(states[new])
        while len(self._pieces) > 1 and len(self._pieces[-2]) <= 2 * len(self._pieces[-1]):
            self._pieces.append(np.sort(np.concatenate([self._pieces.pop(), self._pieces.pop()])))
        return new


@dataclass(frozen=True)
class Walk:
    """States that edges lead to from hits. `begins` has the state in which each hit begins, `origins` for each reached state
    the number of its beginning, among the sorted and distinct ones."""

    edges: CodedEdges
    realms: Sequence[str | None]
    hits: pa.Table
    begins: Ints
    reached: Ints
    origins: Ints

    @classmethod
    def from_hits(cls, hits: Hits, parts: Sequence[str], *, across_realms: bool) -> "Walk":
        """Walk along edges of each realm; with `across_realms` along those of all, too, for objects without a realm."""
        edges = CodedEdges.read(hits.folder, parts)
        named = hits.of(edges.keys)
        realms = join_chunks(named["realm"])
        names = [*edges.names, *sorted(set(realms.drop_null().to_pylist()).difference(edges.names))]
        codes = integers(pc.index_in(realms, pa.array(names, pa.string()), skip_nulls=True), -1).astype(np.int64)
        nodes = named["asked"].to_numpy()
        begins = edges.states(np.where(codes < 0, EVERYWHERE, codes + REALMS), nodes)
        if across_realms and names:
            begins, named = np.append(begins, edges.states(ACROSS, nodes)), pa.concat_tables([named, named])
        return cls(edges, [None, ACROSS_REALMS, *names], named, begins, *edges.reached(np.unique(begins)))

    def keys_and_realms(self, states: Ints) -> tuple[pa.Array, pa.Array]:
        scopes, nodes = self.edges.split(states)
        return self.edges.keys.take(pa.array(nodes)), pa.array(self.realms, pa.string()).take(pa.array(scopes))


def write_retained(kept: int, hits: Hits, parts: Sequence[str], _: int) -> ReferenceRuns:
    """Write fingerprints of what edges retain and no reference does. Hits of the source `kept` are no references."""
    walk = Walk.from_hits(hits, parts, across_realms=False)
    referenced = np.unique(walk.begins[walk.hits["source"].to_numpy() != kept])
    # Keys that are retained in every realm are written once, without a realm.
    is_everywhere = np.zeros(len(walk.edges.keys), dtype=bool)
    scopes, nodes = walk.edges.split(np.append(referenced, walk.reached))
    is_everywhere[nodes[scopes == EVERYWHERE]] = True
    states = walk.reached[~np.isin(walk.reached, referenced, assume_unique=True, kind="sort")]
    scopes, nodes = walk.edges.split(states)
    keys, realms = walk.keys_and_realms(states[(scopes == EVERYWHERE) | ~is_everywhere[nodes]])
    values = distinct(hits.folder.fingerprints.of(keys, realms))
    return ReferenceRuns(
        [hits.folder.write_values("edges/retained", values)], ReferredNames(set(pc.unique(realms).to_pylist()))
    )


def write_led_to(labels: Sequence[str], hits: Hits, parts: Sequence[str], _: int) -> Run | None:
    """Write hits of what edges lead to. The last label is that of objects that are kept without references."""
    walk = Walk.from_hits(hits, parts, across_realms=True)
    if not len(walk.reached):
        return None
    first = first_of_each(walk.hits, walk.begins).take(pa.array(walk.origins))
    via, sources = walk.edges.keys.take(join_chunks(first["asked"])), join_chunks(first["source"])
    who = join_chunks(first["from"])
    who = pc.if_else(pc.fill_null(pc.equal(who, ""), True), pa.array(labels, pa.string()).take(sources), who)
    verb = pc.if_else(pc.equal(sources, len(labels) - 1), "", " refers to")
    keys, realms = walk.keys_and_realms(walk.reached)
    text = pc.binary_join_element_wise("over the edge from ", via.cast(pa.string()), ", which ", who, verb, "")
    columns = {"key": keys, "realm": realms, "from": text, "via": via}
    return write_hits(hits.folder, "hits/over", hits_of(columns, sources, first["at"].to_numpy()))


def write_leading(
    folder: ScanFolder, parts: Sequence[str], due: DueFingerprints, names_folders: bool, _: int
) -> EdgeRuns | None:
    """Write the edges from which due keys are reached, and the fingerprints of the keys at which they begin."""
    edges = CodedEdges.read(folder, parts)
    near = due.has(folder.fingerprints.of(edges.keys))
    near[edges.reached(np.flatnonzero(near), back=True)[0]] = True
    rows = np.flatnonzero(near[edges.ends])
    if not len(rows):
        return None
    with folder.writer(_AROUND, EDGES) as writer:
        for part in np.array_split(rows, -(-len(rows) // ROWS)):
            texts = (edges.keys.take(pa.array(ends[part])) for ends in (edges.begins, edges.ends))
            realms = pa.array([None, *edges.names], pa.string()).take(pa.array(edges.realms[part] + 1))
            writer.write_table(pa.table([*texts, realms], names=EDGES.names).cast(EDGES))
    begins = edges.keys.take(pa.array(distinct(edges.begins[rows])))
    values = distinct(np.concatenate(hashes_of(folder.fingerprints, begins, folders=names_folders)))
    return EdgeRuns(_AROUND, folder.write_values(_LEADING, values))


def leading_keys(folder: ScanFolder) -> pa.Array:
    """Distinct keys at which edges that `write_leading` wrote begin."""
    with folder.reader(_AROUND) as source:
        return join_chunks(pc.unique(source.read(columns=["from"], use_threads=False)["from"]).cast(pa.string()))


# objects at which edges begin (rows of `KEPT`), and why each is kept; one task's share
Candidates = Callable[[int], Iterable[tuple[pa.Table, pa.Array]]]


def find_kept(folder: ScanFolder, candidates: Candidates, kept: int, number: int) -> Run | None:
    """Write hits of the objects that are kept although nothing refers to them, as the source `kept`."""
    tables = [HITS.empty_table()]
    for objects, reasons in candidates(number):
        rows = objects.append_column("from_", reasons).filter(pc.is_valid(reasons))
        columns = {"key": rows["key"], "realm": rows["realm"], "from": rows["from_"]}
        tables.append(hits_of(columns, kept, np.arange(len(rows))).cast(HITS))
    hits = pa.concat_tables(tables)
    return write_hits(folder, f"hits/kept-{number:05d}", hits) if len(hits) else None
