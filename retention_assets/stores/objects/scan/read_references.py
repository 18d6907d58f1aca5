"""Reads references into files of sorted fingerprints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from retention_assets.stores.objects.references.rounds import ShareRead, ShareRows
from retention_assets.stores.objects.scan.filters import distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, ReferredNames
from retention_assets.stores.objects.scan.folder import RangedValues, Run, ScanFolder, gathered

# rows of a share held in memory
_RUN = 1 << 22


@dataclass(frozen=True)
class ReferenceRuns:
    """Files of the references of a share, and how these name objects."""

    runs: Sequence[Run]
    names: ReferredNames


@dataclass(frozen=True)
class ReadReferences:
    salt: bytes
    folder: ScanFolder

    def __call__(self, rows: ShareRows) -> ReferenceRuns:
        runs, names = list[Run](), ReferredNames()
        for values in map(np.concatenate, gathered(self._hashes(rows, names), _RUN)):
            # Sorting is faster than grouping by range.
            values.sort()
            runs.append(self.folder.write_values(f"references/{rows.name}-{len(runs):03d}", values, rows.number))
        return ReferenceRuns(runs, names)

    def _hashes(self, rows: ShareRows, names: ReferredNames) -> Iterator[Hashes]:
        fingerprints = Fingerprints(self.salt)
        for batch in rows:
            folders = names.note(batch, rows.source.names_folders)
            yield fingerprints.of(batch["object"], batch["realm"], folders)


def names_of_sources(read: Sequence[ShareRead[ReferenceRuns]], sources: int) -> list[ReferredNames]:
    return [ReferredNames.all_of(one.result.names for one in read if one.source == number) for number in range(sources)]


def in_order(hashes: Sequence[Hashes]) -> Hashes:
    return distinct(np.concatenate(hashes)) if hashes else np.zeros(0, dtype=np.uint64)


def distinct_of(sources: Sequence[Sequence[RangedValues]], low: int, high: int) -> tuple[Hashes, list[int]]:
    """Distinct values of all sources in some ranges, and how many each source has."""
    sides = [in_order([run.between(low, high) for run in runs]) for runs in sources]
    return sides[0] if len(sides) == 1 else in_order(sides), [len(side) for side in sides]


def read_sources(folder: ScanFolder, runs: Sequence[Run], sources: int, first: int, end: int) -> list[list[RangedValues]]:
    return [[folder.read_values(run.name, first, end) for run in runs if run.source == source] for source in range(sources)]
