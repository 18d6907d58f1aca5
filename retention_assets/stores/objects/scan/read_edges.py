"""Reading edges, and following them: what is retained over them is written down as references are.

Belongs here: both steps. The second is one task: of all edges it holds the numbers of their keys, and each key once.
Does not belong here: the closure itself (edges.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.references.rounds import Round
from retention_assets.stores.objects.scan.edges import RealmKeys, close_edges, code_edges
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.folder import KEYS, ScanFolder
from retention_assets.stores.objects.scan.lookups import Lookup, NamedBy, Retained, lookups
from retention_assets.stores.objects.scan.read_references import MergedRange, in_order
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
    """What a task is sent: what is read, and where it is written."""

    round: Round
    folder: ScanFolder

    def __call__(self, number: int) -> ReadEdgeShare:
        """Read one share."""
        at, _ = self.round.source(number)
        part = f"edges/{at:02d}-{self.round.number}-{number:05d}.parquet"
        rows = 0

        def write(batch: pa.RecordBatch) -> None:
            nonlocal rows
            rows += batch.num_rows
            writer.write_table(pa.Table.from_batches([batch]).select(EDGES.names).cast(EDGES))

        with self.folder.writer(part, EDGES) as writer:
            end = self.round.read(number, write)
        return ReadEdgeShare(at, end, part, rows)


@dataclass(frozen=True)
class CloseEdges:
    """What the one task is sent: the edges, and the references that they begin at."""

    parts: Sequence[str]
    merged: Sequence[MergedRange]
    named_by: NamedBy
    realms: Sequence[str]
    salt: bytes
    folder: ScanFolder
    keyed: bool

    def __call__(self, _: int) -> tuple[int, NamedBy]:
        """Follow them. How much is retained over them alone, and how that is named."""
        fingerprints = Fingerprints(self.salt)
        found = close_edges(code_edges(self._read, fingerprints), self.realms, self._retained)
        hashes, keys, named_by = [], [], NamedBy()
        for realm, some in found:
            realms = pa.array([realm], pa.string()).take(pa.array(np.zeros(len(some), dtype=np.int64)))
            hashes.append(fingerprints.of(some, realms))
            keys.append(pa.table([some.cast(pa.string()), realms, pa.array(np.zeros(len(some), dtype=bool))], schema=KEYS))
            named_by |= NamedBy(in_realms=realm is not None, in_all=realm is None)
        values, table = in_order(hashes, keys if self.keyed else [])
        self.folder.write_values(OVER_EDGES, values, table)
        return len(values), named_by

    def _read(self) -> Iterator[pa.Table]:
        for part in self.parts:
            with self.folder.reader(part) as source:
                for group in range(source.num_row_groups):
                    yield source.read_row_group(group, use_threads=False).cast(EDGES)

    def _retained(self, asked: Sequence[RealmKeys]) -> list[Bools]:
        """Which keys references name. Each merged part is read once for all of them."""
        fingerprints = Fingerprints(self.salt)
        found: list[Bools] = []
        ways: list[tuple[Bools, Lookup]] = []
        for realm, keys in asked:
            known = np.zeros(len(keys), dtype=bool)
            found.append(known)
            realms = None if realm is None else pa.array([realm]).take(pa.array(np.zeros(len(keys), dtype=np.int64)))
            ways += [(known, way) for way in lookups(fingerprints, keys, realms, self.named_by)]
        texts = [way.keys() if self.keyed else None for _, way in ways]
        for part in self.merged:
            read = self.folder.read_values(part.name, part.first, part.end, keyed=self.keyed)
            retained = Retained(read.values, read.keys(part.first, part.end) if self.keyed else None)
            for (known, way), text in zip(ways, texts, strict=True):
                rows = part.rows_of(way.hashes)
                asked = KEYS.empty_table() if text is None else text.take(pa.array(rows))
                hit = rows[retained.find(way.hashes[rows], asked) >= 0]
                known[hit if way.rows is None else way.rows[hit]] = True
        return found
