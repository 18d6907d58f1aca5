"""Reads sources for a look: writes down possible references to due keys, and the realms of each source."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.stores.objects.look.due import DueFingerprints, check_stop
from retention_assets.stores.objects.look.hits import HITS, HitRun, write_hits
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.references.rounds import Round
from retention_assets.stores.objects.scan.filters import SortedFingerprints
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, ReferredNames
from retention_assets.stores.objects.scan.folder import ScanFolder

# hits per file
_HELD = 1 << 17


@dataclass(frozen=True)
class FoundReferences:
    source: int
    end: ShareEnd
    runs: tuple[HitRun, ...]
    names: ReferredNames


@dataclass(frozen=True)
class FindReferences:
    """Task that reads a share of a source for references to due keys."""

    round: Round
    wanted: DueFingerprints
    # keys from which edges lead to due ones
    leading: DueFingerprints
    bucket: int
    salt: bytes
    folder: ScanFolder
    # references per second, all tasks together
    rate: float
    is_stopped: Callable[[], bool]

    @cached_property
    def _known(self) -> list[SortedFingerprints]:
        # Leading keys are few, so they are only looked up with the first bucket.
        others = [self.leading.load(at) for at in range(len(self.leading.buckets))] if self.bucket == 0 else []
        return [self.wanted.load(self.bucket), *others]

    def has(self, hashes: Hashes) -> Bools:
        first, *others = (known.has(hashes) for known in self._known)
        for more in others:
            first |= more
        return first

    def __call__(self, number: int) -> FoundReferences:
        at, source = self.round.source(number)
        found = _Found(self, at, f"hits/{at:04d}-{self.round.number}-{self.bucket:03d}-{number:06d}", source.names_folders)
        end = self.round.read(number, found.add, self.rate)
        found.close()
        return FoundReferences(at, end, tuple(found.runs), found.names)


class _Found:
    def __init__(self, step: FindReferences, source: int, name: str, names_folders: bool) -> None:
        self._step, self._source, self._name, self._names_folders = step, source, name, names_folders
        self._fingerprints = Fingerprints(step.salt)
        self._held: list[tuple[pa.Table, Hashes]] = []
        self._rows = 0
        self.runs: list[HitRun] = []
        self.names = ReferredNames()

    def add(self, batch: pa.RecordBatch) -> None:
        check_stop(self._step.is_stopped)
        keys = batch["object"]
        folders = self.names.note(batch, self._names_folders)
        self._keep(batch, self._fingerprints.of(keys), None)
        if folders is not None:
            rows = np.flatnonzero(folders)
            some = batch.take(pa.array(rows))
            self._keep(some, self._fingerprints.of(some["object"], folders=np.ones(len(rows), dtype=bool)), rows)
        self._rows += len(batch)

    def _keep(self, batch: pa.RecordBatch, hashes: Hashes, rows: np.ndarray[Any, np.dtype[np.int64]] | None) -> None:
        """Keep the rows that are looked for. `rows` are their numbers in the whole batch, if they name folders."""
        hit = np.flatnonzero(self._step.has(hashes))
        if not len(hit):
            return
        some = batch.take(pa.array(hit))
        columns = {
            "key": some["object"],
            "realm": some["realm"],
            "from": some["from"],
            "source": pa.array(np.full(len(hit), self._source), pa.int32()),
            "at": pa.array(self._rows + (hit if rows is None else rows[hit])),
            "folder": pa.array(np.full(len(hit), rows is not None)),
            "over": pa.nulls(len(hit), pa.string()),
            "across": pa.array(np.zeros(len(hit), dtype=bool)),
        }
        self._held.append((pa.table(columns, schema=HITS), hashes[hit]))
        if sum(len(table) for table, _ in self._held) >= _HELD:
            self.close()

    def close(self) -> None:
        """Write the held hits. Only the first row of each key, realm and kind is kept."""
        if not self._held:
            return
        table = pa.concat_tables([table for table, _ in self._held])
        hashes = np.concatenate([hashes for _, hashes in self._held])
        first = table.group_by(["key", "realm", "folder"], use_threads=False).aggregate([("at", "min")])
        same = table.select(["key", "realm", "folder", "at"])
        once = _places_of_first(same, first)
        name = f"{self._name}-{len(self.runs):04d}"
        self.runs.append(write_hits(self._step.folder, name, table.take(pa.array(once)), hashes[once]))
        self._held = []


def _places_of_first(rows: pa.Table, first: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Row numbers of `first` in `rows`; the folder flag is part of the identity."""
    numbers = [
        2 * join_chunks(table[name]).to_numpy() + flags(table["folder"]) for table, name in ((rows, "at"), (first, "at_min"))
    ]
    return np.flatnonzero(np.isin(*numbers))
