"""Runs a scan of an `objects` store, and writes its log, in Spark tasks.

A task gets a step and its number, and returns one small value: no row comes to the driver, which needs as much memory for a
billion objects as for a thousand.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.frames.log import DATASETS, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.read_logs import write_read_log
from retention_assets.pipeline.stage import TASKS_PER_SLOT, slots
from retention_assets.stores.objects.scan.folder import ScanFolder
from retention_assets.stores.objects.scan.log_lines import log_lines
from retention_assets.stores.objects.scan.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import ScannedDataset, ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.tasks import set_aside_what_is_loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Scan", "SparkTasks", "run_scan", "write_log"]

# rows of a log per task; a dataset is never split, so a giant one is a task of its own
_LOG_ROWS = 500_000

T = TypeVar("T")


def run_scan(spark: "SparkSession", scan: Scan, folder: str, last: ScanResult | None, refused: int | None = None) -> ScanResult:
    """Scan a store into a new folder of the warehouse. Raises ScanFailed.

    `last` is the last whole scan of the store; `refused` the number of references for which a later scan failed
    (`ScanFailed.references`).
    """
    return scan_in(SparkTasks(spark), scan, ScanFolder(folder, place_of), last, refused)


def write_log(
    spark: "SparkSession",
    scan_folder: str,
    result: ScanResult,
    settings: ObjectsSettings,
    target_folder: str,
    datasets: Sequence[str],
    first_share: int,
) -> int:
    """Write the log of datasets of a scan as parts of whole datasets, beside those of other stores.

    Returns the number of parts, which are numbered from `first_share` on.
    """
    shares = log_shares(result, datasets)
    work = _WriteLog(ScanFolder(scan_folder, place_of), result, settings, target_folder, shares, first_share)
    return sum(SparkTasks(spark).run(work, len(shares)))


def log_shares(result: ScanResult, datasets: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    known = {one.name: one for one in result.datasets}
    return tuple(_shares([known.get(name, ScannedDataset(name, "", 0)) for name in sorted(set(datasets))]))


def _shares(datasets: Sequence[ScannedDataset]) -> Iterator[tuple[str, ...]]:
    held: list[str] = []
    rows = 0
    for one in datasets:
        if held and rows + one.rows > _LOG_ROWS:
            yield tuple(held)
            held, rows = [], 0
        held.append(one.name)
        rows += one.rows
    if held:
        yield tuple(held)


@dataclass(frozen=True)
class _WriteLog:
    """Payload of a task: names of datasets, never rows."""

    scan: ScanFolder
    result: ScanResult
    settings: ObjectsSettings
    target: str
    shares: tuple[tuple[str, ...], ...]
    first: int

    def __call__(self, number: int) -> int:
        """Returns the number of parts written."""
        datasets = self.shares[number]
        log = sound_log(log_lines(self.scan, self.result, self.settings, datasets))
        empty = sorted(set(datasets).difference(log.datasets["dataset"].to_pylist()))
        rows = [{"dataset": name, "transactions": 0} for name in empty]
        every = pa.concat_tables([log.datasets, pa.Table.from_pylist(rows, DATASETS)]).sort_by("dataset")
        return write_read_log(Log(log.transactions, every), self.target, self.first + number)


@dataclass(frozen=True)
class SparkTasks:
    """Numbered tasks, placed by Spark."""

    spark: "SparkSession"

    @property
    def slots(self) -> int:
        return slots(self.spark)

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """Return the results in the order of the numbers."""
        if not count:
            return []
        tasks = self.spark.range(0, count, 1, min(count, TASKS_PER_SLOT * self.slots))
        lines = tasks.mapInArrow(_Work(step), "number bigint, told binary, fault string").collect()
        faults = sorted((line["number"], line["fault"]) for line in lines if line["fault"])
        if faults:
            raise Refused(faults[0][1])
        return [pickle.loads(line["told"]) for line in sorted(lines, key=lambda line: line["number"])]


@dataclass(frozen=True)
class _Work:
    step: Callable[[int], Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        set_aside_what_is_loaded()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                told, fault = None, None
                # a fault is an answer: Spark would retry it, and report it in a hundred lines
                try:
                    told = pickle.dumps(self.step(number))
                except Refused as refused:
                    fault = str(refused)
                except Exception as broken:  # noqa: BLE001 - a listing and a source may be anybody's, and so may what they raise
                    fault = f"{type(broken).__name__}: {' '.join(str(broken).split())}"
                yield pa.record_batch(
                    {
                        "number": pa.array([number], pa.int64()),
                        "told": pa.array([told], pa.binary()),
                        "fault": pa.array([fault], pa.string()),
                    }
                )
