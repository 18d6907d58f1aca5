"""Reads references into files of sorted fingerprints."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.references.rounds import Round
from retention_assets.stores.objects.scan.filters import distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, ReferredNames
from retention_assets.stores.objects.scan.folder import RangedValues, ScanFolder

# rows of a share held in memory
_RUN = 1 << 22


@dataclass(frozen=True)
class Run:
    """A file of sorted fingerprints."""

    source: int
    name: str
    values: int


@dataclass
class ReadShare:
    source: int
    end: ShareEnd
    runs: list[Run] = field(default_factory=list)
    names: ReferredNames = field(default_factory=ReferredNames)
    seconds: float = 0.0


@dataclass(frozen=True)
class ReadReferences:
    round: Round
    salt: bytes
    folder: ScanFolder
    # references per second, all tasks together
    rate: float

    def __call__(self, number: int) -> ReadShare:
        began = moment().running
        at, source = self.round.source(number)
        found = _Runs(self, at, f"references/{at:02d}-{self.round.number}-{number:05d}", source.names_folders)
        end = self.round.read(number, found.add, self.rate)
        found.close()
        return ReadShare(at, end, found.runs, found.names, moment().running - began)


class _Runs:
    def __init__(self, step: ReadReferences, source: int, name: str, names_folders: bool) -> None:
        self._step, self._source, self._name, self._names_folders = step, source, name, names_folders
        self._fingerprints = Fingerprints(step.salt)
        self._hashes: list[Hashes] = []
        self._rows = 0
        self.runs: list[Run] = []
        self.names = ReferredNames()

    def add(self, batch: pa.RecordBatch) -> None:
        folders = self.names.note(batch, self._names_folders)
        self._hashes.append(self._fingerprints.of(batch["object"], batch["realm"], folders=folders))
        self._rows += len(batch)
        if self._rows >= _RUN:
            self.close()

    def close(self) -> None:
        if not self._rows:
            return
        name = f"{self._name}-{len(self.runs):03d}"
        values = np.concatenate(self._hashes)
        # Sorting is faster than grouping by range.
        values.sort()
        self._step.folder.write_values(name, values)
        run = Run(self._source, name, len(values))
        self.runs.append(run)
        self._hashes, self._rows = [], 0


def in_order(hashes: Sequence[Hashes]) -> Hashes:
    return distinct(np.concatenate(hashes)) if hashes else np.zeros(0, dtype=np.uint64)


def distinct_of(sources: Sequence[Sequence[RangedValues]], low: int, high: int) -> tuple[Hashes, list[int]]:
    """Distinct values of all sources in some ranges, and how many each source has."""
    sides = [in_order([run.between(low, high) for run in runs]) for runs in sources]
    return sides[0] if len(sides) == 1 else in_order(sides), [len(side) for side in sides]


def read_sources(folder: ScanFolder, runs: Sequence[Run], sources: int, first: int, end: int) -> list[list[RangedValues]]:
    return [[folder.read_values(run.name, first, end) for run in runs if run.source == source] for source in range(sources)]
