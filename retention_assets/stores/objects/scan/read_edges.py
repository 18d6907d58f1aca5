"""Reads edges, follows them, and writes what is retained over them as fingerprints. Following is a single task, which holds
indexes for all edges, and each key once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.references.rounds import ShareRows
from retention_assets.stores.objects.scan.classes import ClassRules, why_kept
from retention_assets.stores.objects.scan.edges import EVERYWHERE, REALMS, CodedEdges, read_edge_files, realms_of
from retention_assets.stores.objects.scan.filters import SortedFingerprints, distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, Lookup, ReferredNames, lookups
from retention_assets.stores.objects.scan.folder import KEPT, ScanFolder
from retention_assets.stores.objects.scan.listed import ListedObjects
from retention_assets.stores.objects.scan.read_references import ReferenceRuns, in_order
from retention_assets.stores.objects.tables import EDGES


@dataclass(frozen=True)
class ReadEdges:
    salt: bytes
    folder: ScanFolder

    def __call__(self, rows: ShareRows) -> str:
        """Write the edges of a share, and the fingerprints (without realms) of the keys at which they begin."""
        part, fingerprints = f"edges/{rows.name}.parquet", Fingerprints(self.salt)
        begins = list[Hashes]()
        with self.folder.writer(part, EDGES) as writer:
            for batch in rows:
                begins.append(fingerprints.of(batch["from"]))
                writer.write_table(pa.Table.from_batches([batch]).select(EDGES.names).cast(EDGES))
        self.folder.write_values(f"{part}.begins", in_order(begins))
        return part


@dataclass(frozen=True)
class FindKept:
    """Task that finds kept objects in every `tasks`-th part of the listing."""

    listed: ListedObjects
    tasks: int
    edges: Sequence[str]
    rules: ClassRules
    holds: Sequence[Hold]
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> ReferenceRuns:
        """Write objects that rules or holds keep and at which edges begin, in the form of references."""
        fingerprints, hashes, names = Fingerprints(self.salt), list[Hashes](), ReferredNames()
        begins = SortedFingerprints(in_order([self.folder.read_values(f"{part}.begins").values for part in self.edges]))
        for part in range(number, len(self.listed.parts), self.tasks):
            for table in self.listed.read(part, KEPT):
                near = table.filter(pa.array(begins.has(fingerprints.of(join_chunks(table["key"])))))
                near = near.filter(pc.is_valid(why_kept(near, self.rules, self.holds)))
                texts, realms = join_chunks(near["key"]), join_chunks(near["realm"]).cast(pa.string())
                hashes.append(fingerprints.of(texts, realms))
                names.realms.update(pc.unique(realms).to_pylist())
        return ReferenceRuns([self.folder.write_values(f"edges/kept-{number:05d}", in_order(hashes))], names)


@dataclass(frozen=True)
class CloseEdges:
    parts: Sequence[str]
    references: ReferenceRuns
    kept: ReferenceRuns
    salt: bytes
    folder: ScanFolder

    def __call__(self, _: int) -> ReferenceRuns:
        """Write the keys that are retained over edges, but by no reference."""
        fingerprints = Fingerprints(self.salt)
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, self.parts), fingerprints)
        nodes = len(edges.keys)
        everywhere, *own = edges.begins_of_realms
        # If every edge has a realm, other realms have no edges.
        realms = self.references.names.realms | self.kept.names.realms
        others = sorted({name for name in realms if name is not None}.difference(edges.names)) if len(everywhere) else []
        names = [*edges.names, *others]
        begins = [everywhere, *(distinct(np.append(everywhere, some)) for some in own), *[everywhere] * len(others)]
        scopes = [EVERYWHERE, *range(REALMS, REALMS + len(names))]
        asked = list(zip([None, *names], (edges.keys.take(pa.array(some)) for some in begins), strict=True))
        named, kept = (
            np.concatenate([scope * nodes + some[mask] for scope, some, mask in zip(scopes, begins, masks, strict=True)])
            for masks in (self._among(asked, self.references), self._among(asked, self.kept))
        )
        states = edges.walk().reached(distinct(np.append(named, kept)))[0]
        in_all = np.zeros(nodes, dtype=bool)
        for retained in (named, states):
            in_all[retained[retained < nodes]] = True
        new = states[~np.isin(states, named, assume_unique=True, kind="sort")]
        new = new[(new < nodes) | ~in_all[new % nodes]]
        named_in = realms_of(new // nodes, names)
        values = distinct(fingerprints.of(edges.keys.take(pa.array(new % nodes)), named_in))
        return ReferenceRuns(
            [self.folder.write_values("edges/retained", values)], ReferredNames(set(pc.unique(named_in).to_pylist()))
        )

    def _among(self, asked: Sequence[tuple[str | None, pa.Array]], references: ReferenceRuns) -> list[Bools]:
        """Masks of the keys that the references name. Each run is read once."""
        fingerprints = Fingerprints(self.salt)
        masks: list[Bools] = []
        ways: list[tuple[Bools, Lookup]] = []
        for realm, keys in asked:
            mask = np.zeros(len(keys), dtype=bool)
            masks.append(mask)
            realms = None if realm is None else pa.array([realm]).take(pa.array(np.zeros(len(keys), dtype=np.int64)))
            ways += [(mask, way) for way in lookups(fingerprints, keys, realms, references.names.named_by)]
        wanted = SortedFingerprints(in_order([way.hashes for _, way in ways]))
        # one place more: find() returns -1 for missing values
        named = np.zeros(len(wanted) + 1, dtype=bool)
        for run in references.runs:
            named[wanted.find(self.folder.read_values(run.name).values)] = True
        named[-1] = False
        for mask, way in ways:
            hit = np.flatnonzero(named[wanted.find(way.hashes)])
            mask[hit if way.rows is None else way.rows[hit]] = True
        return masks
