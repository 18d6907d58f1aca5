"""Reads references into files of sorted fingerprints."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import moment
from retention_assets.frames.arrays import Bools, flags
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.references.rounds import Round
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import RangedValues, ScanFolder
from retention_assets.stores.objects.scan.lookups import EVERYTHING, NamedBy
from retention_assets.stores.objects.scan.membership import distinct

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
    named_by: NamedBy = field(default_factory=NamedBy)
    realms: frozenset[str] = frozenset()
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
        return ReadShare(
            at, end, found.runs, NamedBy(found.in_realms, found.in_all, frozenset(found.depths)), frozenset(found.realms),
            moment().running - began,
        )  # fmt: skip


class _Runs:
    def __init__(self, step: ReadReferences, source: int, name: str, names_folders: bool) -> None:
        self._step, self._source, self._name, self._names_folders = step, source, name, names_folders
        self._fingerprints = Fingerprints(step.salt)
        self._hashes: list[Hashes] = []
        self._rows = 0
        self.runs: list[Run] = []
        self.in_realms = self.in_all = False
        self.realms: set[str] = set()
        self.depths: set[int] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        keys, realms = batch.column("object"), batch.column("realm")
        lonely = realms.null_count
        self.in_all |= lonely > 0
        if lonely < len(realms):
            self.in_realms = True
            realms = realms if pa.types.is_dictionary(realms.type) else realms.dictionary_encode()
            self.realms.update(pc.unique(realms).dictionary_decode().drop_null().to_pylist())
        folders = self._folders(keys) if self._names_folders else None
        self._hashes.append(self._fingerprints.of(keys, realms, folders=folders))
        self._rows += len(keys)
        if self._rows >= _RUN:
            self.close()

    def _folders(self, keys: pa.Array) -> Bools | None:
        """Mask of the references that name folders; records their depths."""
        are = flags(pc.ends_with(keys, "/"))
        if not are.any():
            return None
        names = keys.filter(pa.array(are))
        everything = pc.equal(names, EVERYTHING)
        self.depths.update(pc.unique(pc.count_substring(names.filter(pc.invert(everything)), "/")).to_pylist())
        self.depths.update([0] if pc.any(everything).as_py() else [])
        return are

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
