"""Reading stores: the logs of many datasets, each share by a Spark task, written clustered into one folder.

Belongs here: who reads what, and what becomes of a store or a share that can't be read: it is refused by name, the others go
on. Rows never come to the driver.
Does not belong here: how a store reads (stores), what makes a log sound (frames).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.partitions import Choice
from retention_assets.problems import Refused
from retention_assets.resources.stage import TASKS_PER_SLOT, slots, write_log
from retention_assets.stores.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Chosen:
    """The datasets of a store that are to be read, and why the store could not even list them, if so."""

    store: Store
    datasets: tuple[str, ...]
    fault: str | None = None


def choose(stores: Iterable[Store], choice: Choice) -> list[Chosen]:
    """The datasets that are chosen, store by store."""
    chosen = []
    for store in stores:
        try:
            names = store.datasets()
        except Exception as fault:  # noqa: BLE001 - a store may be anybody's; one that is away must not keep others from being read
            chosen.append(Chosen(store, (), f"{type(fault).__name__}: {fault}"))
        else:
            chosen.append(Chosen(store, tuple(choice.of(names))))
    return chosen


def read_stores(spark: "SparkSession", chosen: Sequence[Chosen], folder: str) -> int:
    """Read the chosen datasets into a folder of parts. Returns how many parts there are."""
    shares = [_Share(one.store, share) for one in chosen if one.datasets for share in _shares(one)]
    if not shares:
        return write_log(Log(LOG.empty_table(), DATASETS.empty_table()), folder)
    work = _Work(tuple(shares), folder)
    tasks = spark.range(0, len(shares), 1, min(len(shares), TASKS_PER_SLOT * slots(spark)))
    return sum(row["parts"] for row in tasks.mapInArrow(work, "parts bigint").collect())


def _shares(one: Chosen) -> Sequence[tuple[str, ...]]:
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
                parts = write_log(_read(self.shares[number]), self.folder, share=number)
                yield pa.record_batch({"parts": [parts]})


def _read(share: _Share) -> Log:
    """The logs of a share; where it can't be read, its datasets are refused."""
    try:
        return sound_log(share.store.read(share.datasets))
    except Exception as fault:  # noqa: BLE001 - see above: a share that can't be read is refused by name
        return _refused(share.datasets, fault)


def _refused(datasets: Sequence[str], fault: Exception) -> Log:
    text = str(fault) if isinstance(fault, Refused) else f"{type(fault).__name__}: {fault}"
    rows = [
        {"dataset": name, "transactions": 0, "attributes": None, "fault": f"cannot be read: {text}", "fault_transaction": None}
        for name in datasets
    ]
    return Log(LOG.empty_table(), pa.Table.from_pylist(rows, DATASETS))
