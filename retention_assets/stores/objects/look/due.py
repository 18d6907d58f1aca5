"""Fingerprints of due keys: written by tasks, sorted, and looked up. If sources may name folders, each folder above a due key
gets a fingerprint too, as naming it means every key in it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.policy.realms import is_within_any
from retention_assets.stores.objects.naming import realms_of_keys
from retention_assets.stores.objects.scan.filters import SortedFingerprints, distinct
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes, NamedBy, lookups
from retention_assets.stores.objects.scan.folder import Run, ScanFolder, gathered
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import DueTransactions

# fingerprints per file
_RUN = 1 << 23
# fingerprints looked up together: 8 bytes each, and 4 for the index
TOGETHER = 1 << 25


class LookStopped(Refused):
    def __init__(self) -> None:
        super().__init__("the look at references was stopped")


def check_stop(is_stopped: Callable[[], bool]) -> None:
    """Raises LookStopped if a stop was requested."""
    if is_stopped():
        raise LookStopped


@dataclass(frozen=True)
class GivenKeys:
    keys: pa.ChunkedArray
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        yield from pa.table({"transaction": self.keys}).to_batches()


@dataclass(frozen=True)
class WriteDue:
    """Task that writes fingerprints of due keys, except in realms being purged, where references do not count."""

    due: DueTransactions
    settings: ObjectsSettings | None
    purging: Collection[str]
    salt: bytes
    folder: ScanFolder
    folders: bool
    is_stopped: Callable[[], bool]

    def __call__(self, part: int) -> list[Run]:
        runs = list[Run]()
        for values in map(np.concatenate, gathered(self._hashes(part), _RUN)):
            runs.append(self.folder.write_values(f"due/{part:06d}-{len(runs):04d}", distinct(values)))
        return runs

    def _hashes(self, part: int) -> Iterator[Hashes]:
        fingerprints = Fingerprints(self.salt)
        for batch in self.due.read(part):
            check_stop(self.is_stopped)
            keys = batch["transaction"].cast(pa.string())
            if self.settings is not None and self.purging:
                keys = keys.filter(pa.array(~in_purging_realms(keys, self.settings, self.purging)))
            yield from hashes_of(fingerprints, keys, folders=self.folders)


def hashes_of(fingerprints: Fingerprints, keys: pa.Array, *, folders: bool) -> list[Hashes]:
    """Fingerprints of everything by which references may name the keys, apart from realms."""
    deepest = int(pc.max(pc.count_substring(keys, "/")).as_py() or 0) if folders and len(keys) else 0
    named_by = NamedBy(in_all=True, depths=frozenset(range(deepest + 1)) if folders else frozenset())
    return [way.hashes for way in lookups(fingerprints, keys, None, named_by)]


def in_purging_realms(keys: pa.Array, settings: ObjectsSettings, purging: Collection[str]) -> Bools:
    """Mask of the keys whose own text puts them in a realm being purged."""
    realms = realms_of_keys(keys, settings)
    return np.zeros(len(keys), dtype=bool) if realms is None else within_realms(realms, purging)


def within_realms(realms: pa.Array | pa.ChunkedArray, purging: Collection[str]) -> Bools:
    """Mask of the realms that are, or lie below, a purged one. A null realm never is."""
    coded = join_chunks(realms).dictionary_encode()
    within = pa.array([is_within_any(name, purging) for name in coded.dictionary.to_pylist()], pa.bool_())
    return flags(within.take(coded.indices))


@dataclass(frozen=True)
class DueFingerprints:
    """Fingerprints in files, grouped into buckets that fit in memory."""

    folder: ScanFolder
    buckets: tuple[tuple[Run, ...], ...] = ()

    @classmethod
    def of(cls, folder: ScanFolder, runs: Sequence[Run]) -> "DueFingerprints":
        buckets: list[list[Run]] = []
        for run in runs:
            if not buckets or sum(one.values for one in buckets[-1]) + run.values > TOGETHER:
                buckets.append([])
            buckets[-1].append(run)
        return cls(folder, tuple(map(tuple, buckets)))

    def load(self, bucket: int) -> SortedFingerprints:
        runs = self.buckets[bucket]
        values = np.empty(sum(run.values for run in runs), dtype=np.uint64)
        at = 0
        for run in runs:
            values[at : at + run.values] = self.folder.read_values(run.name).values
            at += run.values
        return SortedFingerprints(distinct(values))

    @cached_property
    def _only(self) -> SortedFingerprints:
        return self.load(0)

    def has(self, wanted: Hashes) -> Bools:
        """Mask of the fingerprints that are due. A single bucket stays in memory; several are read again each time."""
        found = np.zeros(len(wanted), dtype=bool)
        for bucket in range(len(self.buckets) if len(wanted) else 0):
            found |= (self._only if len(self.buckets) == 1 else self.load(bucket)).has(wanted)
        return found
