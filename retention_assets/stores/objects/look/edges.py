"""Edges around due keys: which keys lead there, and which of these are referred to or kept.

Each walk runs in one task that holds all edges; cycles are allowed. An object that is kept retains what its edges lead to, just
as one that is referred to does. The walk back tells realms apart: edges and references with a realm count in that realm, those
without one in every realm. An object without a realm is retained over edges of any realms: better kept by mistake than lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Ints, integers, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.listings.finished import FinishedListing
from retention_assets.stores.objects.look.due import DueFingerprints, hashes_of
from retention_assets.stores.objects.look.hits import Hits, first_of_each, hits_of, write_hits
from retention_assets.stores.objects.naming import with_names
from retention_assets.stores.objects.scan.classes import ClassRules, why_kept
from retention_assets.stores.objects.scan.edges import ACROSS, EVERYWHERE, REALMS, CodedEdges, read_edge_files, realms_of
from retention_assets.stores.objects.scan.filters import distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import ROWS, Run, ScanFolder
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import EDGES, OBJECTS

_LEADING, _AROUND = "leading", "edges/around.parquet"
# label of objects that are kept by rules or holds
KEPT_LABEL = "edges"
_NAMED = OBJECTS.append(pa.field("dataset", pa.string(), nullable=False))


@dataclass(frozen=True)
class FindLeading:
    parts: Sequence[str]
    wanted: DueFingerprints
    salt: bytes
    folder: ScanFolder
    folders: bool

    def __call__(self, number: int) -> Run | None:  # noqa: ARG002 - there is one
        """Write all keys from which edges lead to due ones, and these edges; None if there are none."""
        fingerprints = Fingerprints(self.salt)
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, self.parts), fingerprints)
        near = self.wanted.has(fingerprints.of(edges.keys))
        near[edges.walk(back=True).reached(np.flatnonzero(near))[0]] = True
        rows = np.flatnonzero(near[edges.ends])
        if not len(rows):
            return None
        with self.folder.writer(_AROUND, EDGES) as writer:
            for some in np.array_split(rows, -(-len(rows) // ROWS)):
                texts = (edges.keys.take(pa.array(ends[some])) for ends in (edges.begins, edges.ends))
                table = pa.table([*texts, realms_of(edges.realms[some] + REALMS, edges.names)], names=EDGES.names)
                writer.write_table(table.cast(EDGES))
        leading = edges.keys.take(pa.array(distinct(edges.begins[rows])))
        hashes = hashes_of(fingerprints, leading, folders=self.folders)
        return self.folder.write_values(_LEADING, distinct(np.concatenate(hashes)))


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

    def __call__(self, number: int) -> Run | None:
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
        columns = {"key": kept["key"], "realm": kept["realm"], "from": kept["from_"]}
        hits = hits_of(columns, self.source, np.arange(len(kept)))
        return write_hits(self.folder, self.salt, f"hits/kept-{number:05d}", hits)

    def _named(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches([with_names(batch, self.settings) for batch in batches], _NAMED)


@dataclass(frozen=True)
class FollowEdges:
    """Task that follows edges from the hits. The last label stands for objects that are kept themselves."""

    hits: Hits
    labels: Sequence[str]
    folder: ScanFolder

    def __call__(self, number: int) -> Run | None:  # noqa: ARG002 - there is one
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, [_AROUND]), Fingerprints(self.hits.salt))
        named = self.hits.of(edges.keys)
        if not len(named):
            return None
        realms = join_chunks(named["realm"])
        names = [*edges.names, *sorted(set(realms.drop_null().to_pylist()).difference(edges.names))]
        codes = integers(pc.index_in(realms, pa.array(names, pa.string()), skip_nulls=True), -1).astype(np.int64)
        starts, hits = _starts(named, codes, len(edges.keys), across=len(names) > 0)
        states, origins = edges.walk().reached(starts)
        if not len(states):
            return None
        return self._write(edges.keys, names, states, hits.take(pa.array(origins)))

    def _write(self, keys: pa.Array, names: Sequence[str], states: Ints, hits: pa.Table) -> Run:
        scopes = states // len(keys)
        ends, over = (keys.take(nodes) for nodes in (pa.array(states % len(keys)), join_chunks(hits["asked"])))
        who = _filled(hits["from"], pa.array(self.labels, pa.string()).take(join_chunks(hits["source"])))
        behind = pc.if_else(pc.equal(join_chunks(hits["source"]), len(self.labels) - 1), "", " refers to")
        words = pc.binary_join_element_wise("over the edge from ", over.cast(pa.string()), ", which ", who, behind, "")
        columns = {
            "key": ends,
            "realm": realms_of(scopes, names),
            "from": words,
            "over": over,
            "across": pa.array(scopes == ACROSS),
        }
        found = hits_of(columns, join_chunks(hits["source"]), hits["at"].to_numpy())
        return write_hits(self.folder, self.hits.salt, "hits/over", found)


def _filled(texts: pa.ChunkedArray, instead: pa.Array) -> pa.Array:
    given = join_chunks(texts)
    return pc.if_else(pc.fill_null(pc.equal(given, ""), True), instead, given)


def _starts(named: pa.Table, realms: Ints, nodes: int, *, across: bool) -> tuple[Ints, pa.Table]:
    """Distinct sorted states in which walks begin, and the first hit of each."""
    node = named["asked"].to_numpy()
    states = np.where(realms < 0, EVERYWHERE, realms + REALMS) * nodes + node
    if across:
        states = np.concatenate([states, ACROSS * nodes + node])
        named = pa.concat_tables([named, named])
    return np.unique(states), first_of_each(named, states)
