"""Reads edges, follows them, and writes what is retained over them as fingerprints. Following is a single task, which holds
indexes for all edges, and each key once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.references.rounds import Round
from retention_assets.stores.objects.scan.classes import ClassRules, why_kept
from retention_assets.stores.objects.scan.edges import EVERYWHERE, REALMS, CodedEdges, read_edge_files, realms_of
from retention_assets.stores.objects.scan.filters import SortedFingerprints, distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, Lookup, NamedBy, lookups
from retention_assets.stores.objects.scan.folder import KEPT, OVER_EDGES, ScanFolder
from retention_assets.stores.objects.scan.listed import ListedObjects
from retention_assets.stores.objects.scan.read_references import Run, in_order
from retention_assets.stores.objects.tables import EDGES


@dataclass(frozen=True)
class ReadEdgeShare:
    source: int
    end: ShareEnd
    part: str


@dataclass(frozen=True)
class ReadEdges:
    round: Round
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> ReadEdgeShare:
        """Write the edges of a share, and the fingerprints (without realms) of the keys at which they begin."""
        at, _ = self.round.source(number)
        part = f"edges/{at:02d}-{self.round.number}-{number:05d}.parquet"
        begins, fingerprints = [np.zeros(0, dtype=np.uint64)], Fingerprints(self.salt)

        def write(batch: pa.RecordBatch) -> None:
            begins.append(fingerprints.of(batch["from"]))
            writer.write_table(pa.Table.from_batches([batch]).select(EDGES.names).cast(EDGES))

        with self.folder.writer(part, EDGES) as writer:
            end = self.round.read(number, write)
        self.folder.write_values(f"{part}.begins", distinct(np.concatenate(begins)))
        return ReadEdgeShare(at, end, part)


@dataclass(frozen=True)
class KeptObjects:
    """Objects at which edges begin and that rules or holds keep, in the form of references."""

    run: Run
    named_by: NamedBy
    realms: frozenset[str]


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

    def __call__(self, number: int) -> KeptObjects:
        fingerprints, hashes, names = Fingerprints(self.salt), list[Hashes](), list[pa.Array]()
        begins = SortedFingerprints(
            distinct(np.concatenate([self.folder.read_values(f"{part}.begins").values for part in self.edges]))
        )
        for part in range(number, len(self.listed.parts), self.tasks):
            for table in self.listed.read(part, KEPT):
                near = table.filter(pa.array(begins.has(fingerprints.of(join_chunks(table["key"])))))
                near = near.filter(pc.is_valid(why_kept(near, self.rules, self.holds)))
                texts, realms = join_chunks(near["key"]), join_chunks(near["realm"]).cast(pa.string())
                hashes.append(fingerprints.of(texts, realms))
                names.append(realms)
        values = in_order(hashes)
        name, realms = f"edges/kept-{number:05d}", pa.chunked_array([*names, pa.array([], pa.string())])
        self.folder.write_values(name, values)
        named_by = NamedBy(in_realms=realms.null_count < len(realms), in_all=realms.null_count > 0)
        said = frozenset(pc.unique(realms).drop_null().to_pylist())
        return KeptObjects(Run(0, name, len(values)), named_by, said)


@dataclass(frozen=True)
class CloseEdges:
    parts: Sequence[str]
    references: Sequence[Run]
    named_by: NamedBy
    kept: Sequence[KeptObjects]
    realms: Sequence[str]
    salt: bytes
    folder: ScanFolder

    def __call__(self, _: int) -> tuple[int, NamedBy]:
        """Return how many keys are retained over edges, but by no reference, and how they are named."""
        fingerprints = Fingerprints(self.salt)
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, self.parts), fingerprints)
        nodes = len(edges.keys)
        everywhere, *own = edges.begins_of_realms
        # If every edge has a realm, other realms have no edges.
        others = sorted({*self.realms}.difference(edges.names)) if len(everywhere) else []
        names = [*edges.names, *others]
        begins = [everywhere, *(distinct(np.append(everywhere, some)) for some in own), *[everywhere] * len(others)]
        scopes = [EVERYWHERE, *range(REALMS, REALMS + len(names))]
        asked = list(zip([None, *names], (edges.keys.take(pa.array(some)) for some in begins), strict=True))
        kept_by = reduce(or_, (one.named_by for one in self.kept), NamedBy())
        named, kept = (
            np.concatenate([scope * nodes + some[mask] for scope, some, mask in zip(scopes, begins, masks, strict=True)])
            for masks in (
                self._among(asked, self.references, self.named_by),
                self._among(asked, [one.run for one in self.kept], kept_by),
            )
        )
        states = edges.walk().reached(distinct(np.append(named, kept)))[0]
        in_all = np.zeros(nodes, dtype=bool)
        for retained in (named, states):
            in_all[retained[retained < nodes]] = True
        new = states[~np.isin(states, named, assume_unique=True, kind="sort")]
        new = new[(new < nodes) | ~in_all[new % nodes]]
        realms = realms_of(new // nodes, names)
        values = distinct(fingerprints.of(edges.keys.take(pa.array(new % nodes)), realms))
        self.folder.write_values(OVER_EDGES, values)
        return len(values), NamedBy(in_realms=realms.null_count < len(realms), in_all=realms.null_count > 0)

    def _among(self, asked: Sequence[tuple[str | None, pa.Array]], runs: Sequence[Run], named_by: NamedBy) -> list[Bools]:
        """Masks of the keys that the runs name. Each run is read once."""
        fingerprints = Fingerprints(self.salt)
        masks: list[Bools] = []
        ways: list[tuple[Bools, Lookup]] = []
        for realm, keys in asked:
            mask = np.zeros(len(keys), dtype=bool)
            masks.append(mask)
            realms = None if realm is None else pa.array([realm]).take(pa.array(np.zeros(len(keys), dtype=np.int64)))
            ways += [(mask, way) for way in lookups(fingerprints, keys, realms, named_by)]
        wanted = SortedFingerprints(in_order([way.hashes for _, way in ways]))
        # one place more: find() returns -1 for missing values
        named = np.zeros(len(wanted) + 1, dtype=bool)
        for run in runs:
            named[wanted.find(self.folder.read_values(run.name).values)] = True
        named[-1] = False
        for mask, way in ways:
            hit = np.flatnonzero(named[wanted.find(way.hashes)])
            mask[hit if way.rows is None else way.rows[hit]] = True
        return masks
