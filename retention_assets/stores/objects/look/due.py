"""Fingerprints of what is due: written by tasks as the ledger gives the keys, put in order, and looked up.

Belongs here: these steps. With folders, the fingerprint of each folder that a due key lies in stands beside its own: a source
may name a folder, and mean every key in it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.policy.realms import is_within_any
from retention_assets.stores.objects.naming import realms_of_keys
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import RANGES, ScanFolder
from retention_assets.stores.objects.scan.lookups import NamedBy, lookups
from retention_assets.stores.objects.scan.membership import SortedFingerprints, distinct
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import DueTransactions

# So many fingerprints are held before they become a file, and put in order by one task.
_RUN = 1 << 23
# So many are looked up together: 8 bytes each, and 4 of an index.
TOGETHER = 1 << 25


class LookStopped(Refused):
    """Whoever started it was asked to end."""

    def __init__(self) -> None:
        super().__init__("the look at references was stopped")


def check_stop(is_stopped: Callable[[], bool]) -> None:
    """Raises LookStopped once somebody said so."""
    if is_stopped():
        raise LookStopped


@dataclass(frozen=True)
class DueRun:
    """A file of fingerprints in order, each once."""

    name: str
    values: int


@dataclass(frozen=True)
class GivenKeys:
    """Keys in hand."""

    keys: pa.ChunkedArray
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """All of them."""
        yield from pa.table({"transaction": self.keys}).to_batches()


@dataclass(frozen=True)
class WriteDue:
    """What a task is sent: where keys are read, and the realms of whose objects nobody asks who needs them."""

    due: DueTransactions
    settings: ObjectsSettings | None
    purging: Collection[str]
    salt: bytes
    folder: ScanFolder
    folders: bool
    is_stopped: Callable[[], bool]

    def __call__(self, part: int) -> list[DueRun]:
        """Write the fingerprints of a part."""
        fingerprints, held, runs = Fingerprints(self.salt), list[Hashes](), list[DueRun]()

        def close() -> None:
            if held:
                name = f"due/{part:06d}-{len(runs):04d}"
                runs.append(write_run(self.folder, name, distinct(np.concatenate(held))))
                held.clear()

        for batch in self.due.read(part):
            check_stop(self.is_stopped)
            keys = batch["transaction"].cast(pa.string())
            if self.settings is not None and self.purging:
                keys = keys.filter(pa.array(~in_purging_realms(keys, self.settings, self.purging)))
            held += hashes_of(fingerprints, keys, folders=self.folders)
            if sum(map(len, held)) >= _RUN:
                close()
        close()
        return runs


def write_run(folder: ScanFolder, name: str, values: Hashes) -> DueRun:
    """Fingerprints in order as a file."""
    folder.write_values(name, values)
    return DueRun(name, len(values))


def hashes_of(fingerprints: Fingerprints, keys: pa.Array, *, folders: bool) -> list[Hashes]:
    """Everything by which references may name some keys, apart from realms."""
    deepest = int(pc.max(pc.count_substring(keys, "/")).as_py() or 0) if folders and len(keys) else 0
    named_by = NamedBy(in_all=True, depths=frozenset(range(deepest + 1)) if folders else frozenset())
    return [way.hashes for way in lookups(fingerprints, keys, None, named_by)]


def in_purging_realms(keys: pa.Array, settings: ObjectsSettings, purging: Collection[str]) -> Bools:
    """Which keys say themselves that they are of a realm that is being purged."""
    realms = realms_of_keys(keys, settings)
    return np.zeros(len(keys), dtype=bool) if realms is None else within_realms(realms, purging)


def within_realms(realms: pa.Array | pa.ChunkedArray, purging: Collection[str]) -> Bools:
    """Which realms are some others, or below them. None is none."""
    coded = join_chunks(realms).dictionary_encode()
    within = pa.array([is_within_any(name, purging) for name in coded.dictionary.to_pylist()], pa.bool_())
    return flags(within.take(coded.indices))


@dataclass(frozen=True)
class MergeDue:
    """What a task is sent: all runs, of which it takes some ranges."""

    runs: Sequence[DueRun]
    folder: ScanFolder
    bounds: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, runs: Sequence[DueRun], folder: ScanFolder) -> "MergeDue":
        """Cut into as many tasks as it takes."""
        count = min(RANGES, max(1, -(-sum(run.values for run in runs) // _RUN)))
        return cls(runs, folder, list(pairwise(RANGES * number // count for number in range(count + 1))))

    def __call__(self, number: int) -> DueRun:
        """Put some ranges in order."""
        first, end = self.bounds[number]
        values = [self.folder.read_values(run.name, first, end).values for run in self.runs]
        return write_run(self.folder, f"asked/{number:03d}", distinct(np.concatenate(values)))


@dataclass(frozen=True)
class DueFingerprints:
    """Fingerprints in files that follow each other, of which as many as fit are in memory together."""

    folder: ScanFolder
    buckets: tuple[tuple[DueRun, ...], ...] = ()

    @classmethod
    def of(cls, folder: ScanFolder, runs: Sequence[DueRun]) -> "DueFingerprints":
        """Runs of ranges in their order."""
        buckets: list[list[DueRun]] = []
        for run in runs:
            if not buckets or sum(one.values for one in buckets[-1]) + run.values > TOGETHER:
                buckets.append([])
            buckets[-1].append(run)
        return cls(folder, tuple(map(tuple, buckets)))

    def load(self, bucket: int) -> SortedFingerprints:
        """Those of a bucket."""
        runs = self.buckets[bucket]
        values = np.empty(sum(run.values for run in runs), dtype=np.uint64)
        at = 0
        for run in runs:
            values[at : at + run.values] = self.folder.read_values(run.name).values
            at += run.values
        return SortedFingerprints(values)

    @cached_property
    def _only(self) -> SortedFingerprints:
        return self.load(0)

    def has(self, wanted: Hashes) -> Bools:
        """Whether each of some is there. A single bucket stays in memory, of more each is read once more."""
        found = np.zeros(len(wanted), dtype=bool)
        for bucket in range(len(self.buckets) if len(wanted) else 0):
            found |= (self._only if len(self.buckets) == 1 else self.load(bucket)).has(wanted)
        return found
