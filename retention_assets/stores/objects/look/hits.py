"""Hits: references to what is due, written down as they are found, and found again for whole keys.

Belongs here: the files of hits, and which hits are of which keys, compared to the byte. Each file is in order of fingerprints,
so that whoever asks reads of it the few rows that may be meant.
Does not belong here: in which realms a reference counts (witnesses.py), and finding references (references.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Ints, flags, join_chunks
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import ScanFolder
from retention_assets.stores.objects.scan.lookups import NamedBy, lookups

HITS = pa.schema(
    [
        # As the reference has it: of a folder, with / at its end.
        pa.field("key", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("from", pa.string()),
        # The number of its source, and which of the rows of a share it was.
        pa.field("source", pa.int32(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("folder", pa.bool_(), nullable=False),
        # From where edges lead to it, if it is not named itself.
        pa.field("over", pa.string()),
        # Where edges of several realms lead to it it counts for objects without a realm alone.
        pa.field("across", pa.bool_(), nullable=False),
    ]
)
_GROUP = 1 << 12


@dataclass(frozen=True)
class HitRun:
    """A file of hits."""

    name: str
    rows: int


def write_hits(folder: ScanFolder, name: str, hits: pa.Table, fingerprints: Hashes) -> HitRun:
    """Hits as a file: in order of their fingerprints, which stand beside it."""
    order = np.argsort(fingerprints, kind="stable")
    folder.write_bytes(name, np.ascontiguousarray(fingerprints[order]))
    with folder.writer(f"{name}.parquet", HITS) as writer:
        writer.write_table(hits.select(HITS.names).cast(HITS).take(pa.array(order)), row_group_size=_GROUP)
    return HitRun(name, len(hits))


@dataclass(frozen=True)
class Hits:
    """All hits of a look: in memory are their fingerprints alone."""

    folder: ScanFolder
    runs: Sequence[HitRun]
    salt: bytes
    # How deep the folders are that references name; 0 is everything.
    depths: frozenset[int] = frozenset()

    @cached_property
    def _index(self) -> tuple[Hashes, Ints]:
        """The fingerprints of all runs in order, and which hit each is of, counted through all runs."""
        values = np.empty(sum(run.rows for run in self.runs), dtype=np.uint64)
        for run, begin in zip(self.runs, self._begins, strict=True):
            values[begin : begin + run.rows] = np.frombuffer(self.folder.read_bytes(run.name), dtype=np.uint64)
        order = np.argsort(values, kind="stable")
        return values[order], order

    @cached_property
    def _begins(self) -> Ints:
        return np.cumsum([0, *(run.rows for run in self.runs)])[:-1].astype(np.int64)

    def of(self, keys: pa.Array) -> pa.Table:
        """Every hit that names one of some keys in any realm: rows of HITS with `asked`, the place of the key, and `run`."""
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
            same = flags(pc.equal(rows["key"], way.names().take(pa.array(asked)).cast(pa.string())))
            same &= flags(rows["folder"]) == way.folders
            places = asked if way.rows is None else way.rows[asked]
            found.append(rows.append_column("asked", pa.array(places, pa.int64())).filter(pa.array(same)))
        return pa.concat_tables(found)

    def _rows(self, numbers: Ints) -> tuple[pa.Table, Ints]:
        """Some hits, each read once, and where each of those asked for is among them."""
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
    """Of the hits of each place the first: who names it itself before edges do, then in the order of sources and their rows."""
    over = flags(pc.is_valid(hits["over"]))
    columns = (hits[name].to_numpy() for name in ("at", "run", "source"))
    where = np.asarray(places, dtype=np.int64)
    order = np.lexsort((*columns, over, where))
    _, first = np.unique(where[order], return_index=True)
    return hits.take(pa.array(order[first]))


def text_of(column: pa.ChunkedArray) -> pa.Array:
    """A column of texts as one array."""
    return join_chunks(column).cast(pa.string())
