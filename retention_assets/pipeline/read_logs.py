"""Reads the logs of many datasets in Spark tasks, a share each, into one clustered folder. Rows never come to the driver."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.statistics import largest_datasets, log_sums
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.stage import SparkTasks, write_log, write_part
from retention_assets.stores.logs import ChosenDatasets, read_share, shares_of
from retention_assets.stores.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# outputs with a summary of a log, written while its rows are in memory
SUMS, LARGEST = "sums", "largest"


def read_stores(spark: "SparkSession", chosen: Sequence[ChosenDatasets], folder: str) -> int:
    """Read the chosen datasets into a folder of parts. Returns how many parts there are."""
    shares = tuple((datasets.store, share) for datasets in chosen for share in shares_of(datasets))
    if not shares:
        return write_read_log(Log(LOG.empty_table(), DATASETS.empty_table()), folder, 0)
    return sum(SparkTasks(spark).collect(_ReadShare(shares, folder), len(shares)))


def load_in_tasks(spark: "SparkSession", stores: Sequence[Store]) -> None:
    """Make the first Python workers import what reading these stores and judging needs, before anything is read."""
    SparkTasks(spark).collect(partial(_load, tuple(stores)), 1)


def _load(_: Sequence[Store], __: int) -> tuple[()]:
    # unpickling the stores has imported their kinds
    from retention_assets.pipeline import part_frames  # noqa: F401 - that it is loaded is all

    return ()


@dataclass(frozen=True)
class _ReadShare:
    """Reads datasets of one store together; yields the number of parts."""

    shares: tuple[tuple[Store, tuple[str, ...]], ...]
    folder: str
    # stores that did not answer in this task
    silent: dict[str, Exception] = field(default_factory=dict)

    def __call__(self, number: int) -> Iterator[int]:
        yield write_read_log(read_share(*self.shares[number], self.silent), self.folder, number)


def write_read_log(log: Log, folder: str, share: int) -> int:
    """Write a share with its summary; return the number of its parts."""
    files, root = place_of(folder)
    summary = {SUMS: log_sums(log.transactions), LARGEST: largest_datasets(log.transactions)}
    for name, table in summary.items():
        files.create_dir(f"{root}/{name}", recursive=True)
        write_part(table, f"{root}/{name}/part-{share:05d}.parquet", files)
    return write_log(log, folder, share=share)
