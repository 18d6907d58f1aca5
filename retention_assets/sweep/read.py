"""Logs read fresh from their stores: many datasets at once, each known to be current when its turn comes.

Belongs here: reading, and the tokens by which a reading is known to be the store's present state. To read one dataset costs
what reading its file or its neighbours costs, so datasets are read in the shares that the store proposes; a sweep may reach the
last of them an hour later, and then asks for its token before it believes what was read. A store that need not be read whole is
asked for what is wanted of it alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.grouping import bounds_of
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.stores.protocol import SelectiveStore, Store, call_store
from retention_assets.stores.realms import read_lines
from retention_assets.sweep.wanted import Wanted


@dataclass(frozen=True)
class DatasetReading:
    """One dataset as a store had it. `token` is from before it was read; none if the store does not have the dataset."""

    dataset: str
    log: Log
    token: str | None
    # The transactions that were asked for; none where the log was read whole.
    asked: pa.Array | None = None

    @property
    def fault(self) -> str | None:
        """Why nothing of it can be judged, if so."""
        if self.token is None or not len(self.log.datasets):
            return "its store does not have it (any more)"
        row = self.log.datasets.slice(0, 1).to_pylist()[0]
        at = f" (transaction {row['fault_transaction']})" if row["fault_transaction"] else ""
        return f"its log is not sound: {row['fault']}{at}" if row["fault"] else None


@dataclass(frozen=True)
class StoreReading:
    """Datasets that were read together."""

    log: Log
    datasets: tuple[DatasetReading, ...]

    def newest_closed_at(self, present: datetime) -> datetime | None:
        """The newest time that the logs know. One that is still to come is a fault of whoever wrote it."""
        closed = self.log.transactions["closed_at"]
        newest: datetime | None = pc.max(closed.filter(pc.less_equal(closed, pa.scalar(present, closed.type)))).as_py()
        return newest


def read_fresh(store: Store, datasets: Sequence[str], wanted: Wanted | None = None) -> StoreReading:
    """Some datasets now, or what is wanted of them. What changes from here on changes their tokens."""
    tokens = call_store(store, lambda: store.tokens(datasets))
    log = sound_log(call_store(store, lambda: _lines(store, datasets, wanted)))
    if wanted is not None:
        log = replace(log, datasets=wanted.with_sizes(log.datasets))
    transactions = by_dataset(log.transactions)
    about = by_dataset(log.datasets)
    readings = []
    for name in datasets:
        one = Log(transactions.get(name, LOG.empty_table()), about.get(name, DATASETS.empty_table()))
        readings.append(DatasetReading(name, one, tokens.get(name), wanted.transactions[name] if wanted else None))
    return StoreReading(log, tuple(readings))


def _lines(store: Store, datasets: Sequence[str], wanted: Wanted | None) -> pa.Table:
    if wanted is None or not isinstance(store, SelectiveStore):
        return read_lines(store, datasets)
    return store.read_some({name: asked.to_pylist() for name, asked in wanted.transactions.items()}, wanted.purging)


def current(store: Store, readings: Collection[DatasetReading]) -> set[str]:
    """Of some datasets those of which the store still says what was read."""
    if not readings:
        return set()
    present = call_store(store, lambda: store.tokens([one.dataset for one in readings]))
    return {one.dataset for one in readings if one.token is not None and present.get(one.dataset) == one.token}


def joined(readings: Sequence[DatasetReading]) -> Log:
    """What was read of some datasets as one log."""
    if len(readings) == 1:
        return readings[0].log
    transactions, datasets = ([getattr(one.log, name) for one in readings] for name in ("transactions", "datasets"))
    return Log(pa.concat_tables(transactions).unify_dictionaries(), pa.concat_tables(datasets))


def by_dataset(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of each dataset; those of one stand together."""
    if not len(table):
        return {}
    column = table["dataset"].cast(pa.string()).dictionary_encode().unify_dictionaries()
    bounds = bounds_of(pa.table({"dataset": column}))
    names = table["dataset"].take(pa.array(bounds[:-1])).cast(pa.string()).to_pylist()
    return {
        name: table.slice(begin, end - begin)
        for name, begin, end in zip(names, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    }
