"""Writes the log of a scan of an `objects` store in Spark tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention_assets.frames.log import DATASETS, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.read_logs import write_read_log
from retention_assets.pipeline.tasks import SparkTasks, cut
from retention_assets.stores.objects.classes import log_lines
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.scan_result import ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings

# rows of a log per task; a dataset is never split, so a giant one is a task of its own
_LOG_ROWS = 500_000


def write_log(
    tasks: SparkTasks,
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
    return sum(tasks.run(work, len(shares)))


def log_shares(result: ScanResult, datasets: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rows = dict.fromkeys(datasets, 0) | {one.name: one.rows for one in result.datasets}
    return tuple(cut(sorted(set(datasets)), rows, _LOG_ROWS))


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
