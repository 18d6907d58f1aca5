"""Reading stores: the logs of many datasets, each share by a Spark task, written clustered into one folder.

Belongs here: who reads what, and what becomes of a store or a share that can't be read: it is refused by name, the others go
on. Rows never come to the driver.
Does not belong here: how a store reads (stores), what makes a log sound (frames).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from retention_assets.datasets import DatasetFilter
from retention_assets.errors import Refused
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.statistics import column_statistics, largest_datasets
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.stage import TASKS_PER_SLOT, slots, write_log, write_part
from retention_assets.stores.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A share that can't be read is asked for in so many pieces.
_PIECES = 8
# What a log looks like from afar, beside its parts: written by who has its rows in memory anyhow.
COLUMNS, LARGEST = "columns", "largest"


@dataclass(frozen=True)
class ChosenDatasets:
    """The datasets of a store that are to be read, and why the store could not even list them, if so."""

    store: Store
    datasets: tuple[str, ...]
    fault: str | None = None


def choose_datasets(stores: Iterable[Store], wanted: DatasetFilter) -> list[ChosenDatasets]:
    """The datasets that are chosen, store by store."""
    chosen = []
    for store in stores:
        try:
            names = store.datasets()
        except Exception as fault:  # noqa: BLE001 - a store may be anybody's; one that is away must not keep others from being read
            chosen.append(ChosenDatasets(store, (), f"{type(fault).__name__}: {fault}"))
        else:
            chosen.append(ChosenDatasets(store, tuple(wanted.select(names))))
    return chosen


def read_stores(spark: "SparkSession", chosen: Sequence[ChosenDatasets], folder: str) -> int:
    """Read the chosen datasets into a folder of parts. Returns how many parts there are."""
    shares = [_Share(one.store, share) for one in chosen if one.datasets for share in _shares(one)]
    if not shares:
        return _written(Log(LOG.empty_table(), DATASETS.empty_table()), folder, 0)
    work = _Work(tuple(shares), folder)
    tasks = spark.range(0, len(shares), 1, min(len(shares), TASKS_PER_SLOT * slots(spark)))
    return sum(row["parts"] for row in tasks.mapInArrow(work, "parts bigint").collect())


def _shares(one: ChosenDatasets) -> Sequence[tuple[str, ...]]:
    """The shares of a store; where it can't say, all in one, which is then refused by name if it can't be read either."""
    try:
        return one.store.shares(one.datasets)
    except Exception:  # noqa: BLE001 - see above: one store that fails must not keep others from being read
        return [one.datasets]


@dataclass(frozen=True)
class _Share:
    """Datasets of one store that are read together."""

    store: Store
    datasets: tuple[str, ...]


@dataclass(frozen=True)
class _Work:
    """What a task is sent: stores and names, never rows."""

    shares: tuple[_Share, ...]
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                parts = _written(_read(self.shares[number]), self.folder, number)
                yield pa.record_batch({"parts": [parts]})


def _written(log: Log, folder: str, share: int) -> int:
    """Write a share with what it looks like from afar; how many parts it has."""
    files, root = place_of(folder)
    seen = {COLUMNS: column_statistics(log.transactions), LARGEST: largest_datasets(log.transactions)}
    for name, table in seen.items():
        files.create_dir(f"{root}/{name}", recursive=True)
        write_part(table, f"{root}/{name}/part-{share:05d}.parquet", files)
    return write_log(log, folder, share=share)


def _read(share: _Share) -> Log:
    """The logs of a share; those that can't be read are refused, the others go on."""
    logs = _logs(share.store, share.datasets)
    if len(logs) == 1:
        return logs[0]
    rows = pa.concat_tables([log.transactions for log in logs]).unify_dictionaries()
    return Log(rows, pa.concat_tables([log.datasets for log in logs]))


def _logs(store: Store, datasets: Sequence[str]) -> list[Log]:
    try:
        return [_of_all(store, datasets)]
    except Exception as fault:  # noqa: BLE001 - see above: what can't be read is refused by name
        if len(datasets) == 1:
            return [_refused(datasets, fault)]
        # One of them may keep the others from being read. Where no piece can be, it is not one, and nobody asks any further.
        step = -(-len(datasets) // _PIECES)
        pieces = [datasets[at : at + step] for at in range(0, len(datasets), step)]
        found = [_whole(store, piece) for piece in pieces]
        if all(one is None for one in found):
            return [_refused(datasets, fault)]
        return [log for piece, one in zip(pieces, found, strict=True) for log in ([one] if one else _logs(store, piece))]


def _whole(store: Store, datasets: Sequence[str]) -> Log | None:
    try:
        return _of_all(store, datasets)
    except Exception:  # noqa: BLE001 - see above: it is asked for in pieces
        return None


def _of_all(store: Store, datasets: Sequence[str]) -> Log:
    """The log of all datasets that were asked for. One of which the store has no line is there as well, without transactions.

    Left out, it would be published by nobody and looked at by nobody, and so be asked for again and again.
    """
    log = sound_log(store.read(datasets))
    empty = sorted(set(datasets).difference(log.datasets["dataset"].to_pylist()))
    if not empty:
        return log
    rows = [{"dataset": name, "transactions": 0} for name in empty]
    every = pa.concat_tables([log.datasets, pa.Table.from_pylist(rows, DATASETS)])
    # In the order that a sound log has, in which those without transactions stand anywhere.
    return Log(log.transactions, every.sort_by("dataset"))


def _refused(datasets: Sequence[str], fault: Exception) -> Log:
    text = str(fault) if isinstance(fault, Refused) else f"{type(fault).__name__}: {fault}"
    rows = [
        {"dataset": name, "transactions": 0, "attributes": None, "fault": f"cannot be read: {text}", "fault_transaction": None}
        for name in datasets
    ]
    return Log(LOG.empty_table(), pa.Table.from_pylist(rows, DATASETS))
