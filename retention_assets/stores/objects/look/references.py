"""Reads sources for a look: writes down possible references to due keys, and the realms of each source."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools
from retention_assets.stores.objects.look.due import DueFingerprints, check_stop
from retention_assets.stores.objects.look.hits import HITS, hits_of, write_hits
from retention_assets.stores.objects.references.rounds import ShareRows
from retention_assets.stores.objects.scan.filters import SortedFingerprints
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, ReferredNames
from retention_assets.stores.objects.scan.folder import Run, ScanFolder, gathered
from retention_assets.stores.objects.scan.read_references import ReferenceRuns

# hits per file
_HELD = 1 << 17
_SAME = ["key", "realm", "folder"]


@dataclass(frozen=True)
class FindReferences:
    """Reads a share of a source for references to due keys."""

    wanted: DueFingerprints
    # keys from which edges lead to due ones
    leading: DueFingerprints
    bucket: int
    salt: bytes
    folder: ScanFolder
    is_stopped: Callable[[], bool]

    def __call__(self, rows: ShareRows) -> ReferenceRuns:
        runs, names = list[Run](), ReferredNames()
        for tables in gathered(self._hits(rows, names), _HELD):
            name = f"hits/{rows.name}-{self.bucket:03d}-{len(runs):04d}"
            runs.append(write_hits(self.folder, self.salt, name, _first_of_each_name(pa.concat_tables(tables))))
        return ReferenceRuns(runs, names)

    def _hits(self, rows: ShareRows, names: ReferredNames) -> Iterator[pa.Table]:
        fingerprints, before = Fingerprints(self.salt), 0
        for batch in rows:
            check_stop(self.is_stopped)
            folders = names.note(batch, rows.source.names_folders)
            hit = np.flatnonzero(self._has(fingerprints.of(batch["object"])))
            yield _hits_at(batch, hit, rows.number, before, folder=False)
            if folders is not None:
                some = np.flatnonzero(folders)
                keys = batch["object"].take(pa.array(some))
                hit = some[self._has(fingerprints.of(keys, folders=np.ones(len(some), dtype=bool)))]
                yield _hits_at(batch, hit, rows.number, before, folder=True)
            before += len(batch)

    @cached_property
    def _known(self) -> list[SortedFingerprints]:
        # Leading keys are few, so they are only looked up with the first bucket.
        others = [self.leading.load(at) for at in range(len(self.leading.buckets))] if self.bucket == 0 else []
        return [self.wanted.load(self.bucket), *others]

    def _has(self, hashes: Hashes) -> Bools:
        first, *others = (known.has(hashes) for known in self._known)
        for more in others:
            first |= more
        return first


def _hits_at(batch: pa.RecordBatch, rows: np.ndarray, source: int, before: int, folder: bool) -> pa.Table:
    some = batch.take(pa.array(rows))
    return hits_of({"key": some["object"], "realm": some["realm"], "from": some["from"]}, source, before + rows, folder)


def _first_of_each_name(hits: pa.Table) -> pa.Table:
    others = [name for name in HITS.names if name not in _SAME]
    first = pc.ScalarAggregateOptions(skip_nulls=False)
    once = hits.group_by(_SAME, use_threads=False).aggregate([(name, "first", first) for name in others])
    return once.rename_columns([name.removesuffix("_first") for name in once.column_names]).select(HITS.names)
