"""Reads the logs of many datasets in Spark tasks, a share each, into one clustered folder. Rows never come to the driver."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.statistics import column_statistics, largest_datasets
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.stage import TASKS_PER_SLOT, slots, write_log, write_part
from retention_assets.stores.logs import ChosenDatasets, read_share, shares_of
from retention_assets.stores.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# summary of a log beside its parts, written while its rows are in memory
COLUMNS, LARGEST = "columns", "largest"


def read_stores(spark: "SparkSession", chosen: Sequence[ChosenDatasets], folder: str) -> int:
    """Read the chosen datasets into a folder of parts. Returns how many parts there are."""
    shares = [_Share(one.store, share) for one in chosen if one.datasets for share in shares_of(one)]
    if not shares:
        return write_read_log(Log(LOG.empty_table(), DATASETS.empty_table()), folder, 0)
    work = _Work(tuple(shares), folder)
    tasks = spark.range(0, len(shares), 1, min(len(shares), TASKS_PER_SLOT * slots(spark)))
    return sum(row["parts"] for row in tasks.mapInArrow(work, "parts bigint").collect())


def load_in_tasks(spark: "SparkSession", stores: Sequence[Store]) -> None:
    """Make the first Python workers import what reading these stores and judging needs, before anything is read."""
    spark.range(0, 1, 1, 1).mapInArrow(_Loading(tuple(stores)), "id bigint").collect()


@dataclass(frozen=True)
class _Loading:
    """Unpickling it imports the kinds of these stores."""

    stores: tuple[Store, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from retention_assets.pipeline import part_frames  # noqa: F401 - that it is loaded is all

        yield from batches


@dataclass(frozen=True)
class _Share:
    """Datasets of one store that are read together."""

    store: Store
    datasets: tuple[str, ...]


@dataclass(frozen=True)
class _Work:
    """Payload of a task: stores and names, never rows."""

    shares: tuple[_Share, ...]
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        silent: dict[str, Exception] = {}
        for batch in batches:
            for number in batch.column(0).to_pylist():
                share = self.shares[number]
                parts = write_read_log(read_share(share.store, share.datasets, silent), self.folder, number)
                yield pa.record_batch({"parts": [parts]})


def write_read_log(log: Log, folder: str, share: int) -> int:
    """Write a share with its summary; return the number of its parts."""
    files, root = place_of(folder)
    seen = {COLUMNS: column_statistics(log.transactions), LARGEST: largest_datasets(log.transactions)}
    for name, table in seen.items():
        files.create_dir(f"{root}/{name}", recursive=True)
        write_part(table, f"{root}/{name}/part-{share:05d}.parquet", files)
    return write_log(log, folder, share=share)
