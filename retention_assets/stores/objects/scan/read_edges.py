"""Reading edges, and following them: what is retained over them is written down as references are.

Belongs here: both steps. The second is one task, and holds all edges.
Does not belong here: the closure itself (edges.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools
from retention_assets.stores.objects.listings.pacing import Pace
from retention_assets.stores.objects.references import RowSource, ShareEnd
from retention_assets.stores.objects.scan.edges import RealmKeys, close_edges
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import KEYS, RANGE_SHIFT, ScanFolder
from retention_assets.stores.objects.scan.lookups import Lookup, NamedBy, Retained, lookups
from retention_assets.stores.objects.scan.read_references import MergedRange, in_order, read_to_end
from retention_assets.stores.objects.tables import EDGES

OVER_EDGES = "edges/retained"


@dataclass(frozen=True)
class ReadEdgeShare:
    """What reading a share of a source of edges came to."""

    source: int
    end: ShareEnd
    part: str
    rows: int


@dataclass(frozen=True)
class ReadEdges:
    """What a task is sent: the sources, and which share of which of them each number is."""

    sources: Sequence[RowSource]
    shares: Sequence[tuple[int, Any]]
    folder: ScanFolder
    round: int

    def __call__(self, number: int) -> ReadEdgeShare:
        """Read one share."""
        at, share = self.shares[number]
        part = f"edges/{at:02d}-{self.round}-{number:05d}.parquet"
        rows = 0

        def write(batch: pa.RecordBatch) -> None:
            nonlocal rows
            rows += batch.num_rows
            writer.write_table(pa.Table.from_batches([batch]).select(EDGES.names).cast(EDGES))

        with self.folder.writer(part, EDGES) as writer:
            end = read_to_end(self.sources[at].read(share), write, Pace(0))
        return ReadEdgeShare(at, end, part, rows)


@dataclass(frozen=True)
class Bucket:
    """Merged ranges that are in memory together."""

    parts: tuple[MergedRange, ...]

    @property
    def first(self) -> int:
        """Its first range."""
        return self.parts[0].first

    @property
    def end(self) -> int:
        """The range behind its last one."""
        return self.parts[-1].end

    def rows_of(self, hashes: Hashes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Which of some fingerprints are in its ranges."""
        ranges = hashes >> np.uint64(RANGE_SHIFT)
        return np.flatnonzero((ranges >= np.uint64(self.first)) & (ranges < np.uint64(self.end)))

    def read(self, folder: ScanFolder, *, keyed: bool) -> Retained:
        """Its references."""
        values = np.empty(sum(part.values for part in self.parts), dtype=np.uint64)
        keys, at = [KEYS.empty_table()], 0
        for part in self.parts:
            some, theirs = folder.read_values(part.name, keyed=keyed)
            values[at : at + len(some)] = some
            at += len(some)
            keys.append(theirs)
        return Retained(values, pa.concat_tables(keys).combine_chunks() if keyed else None)


@dataclass(frozen=True)
class CloseEdges:
    """What the one task is sent: the edges, and the references that they begin at."""

    parts: Sequence[str]
    buckets: Sequence[Bucket]
    named_by: NamedBy
    realms: Sequence[str]
    salt: bytes
    folder: ScanFolder
    keyed: bool

    def __call__(self, _: int) -> tuple[int, NamedBy]:
        """Follow them. How much is retained over them alone, and how that is named."""
        tables = []
        for part in self.parts:
            with self.folder.reader(part) as source:
                tables.append(source.read(use_threads=False).cast(EDGES))
        found = close_edges(pa.concat_tables(tables), self.realms, self._retained)
        fingerprints = Fingerprints(self.salt)
        hashes, keys, named_by = [], [], NamedBy()
        for realm, some in found:
            realms = pa.array([realm], pa.string()).take(pa.array(np.zeros(len(some), dtype=np.int64)))
            hashes.append(fingerprints.of(some, realms))
            keys.append(pa.table([some.cast(pa.string()), realms, pa.array(np.zeros(len(some), dtype=bool))], schema=KEYS))
            named_by |= NamedBy(in_realms=realm is not None, in_all=realm is None)
        values, table = in_order(hashes, keys if self.keyed else [])
        self.folder.write_values(OVER_EDGES, values, table)
        return len(values), named_by

    def _retained(self, asked: Sequence[RealmKeys]) -> list[Bools]:
        """Which keys references name. Each bucket is read once for all of them."""
        fingerprints = Fingerprints(self.salt)
        found: list[Bools] = []
        ways: list[tuple[Bools, Lookup]] = []
        for realm, keys in asked:
            known = np.zeros(len(keys), dtype=bool)
            found.append(known)
            realms = None if realm is None else pa.array([realm]).take(pa.array(np.zeros(len(keys), dtype=np.int64)))
            ways += [(known, way) for way in lookups(fingerprints, keys, realms, self.named_by)]
        for bucket in self.buckets:
            retained = bucket.read(self.folder, keyed=self.keyed)
            for known, way in ways:
                rows = bucket.rows_of(way.hashes)
                hit = rows[retained.find(way, rows) >= 0]
                known[hit if way.rows is None else way.rows[hit]] = True
        return found
