"""One look for a whole sweep, of a store that must look at a lot before it can answer for any transaction."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from retention_assets.ledger import Ledger
from retention_assets.stores.concurrency import OpenPlace, Tasks, TasksHere, open_local
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import DueTransactions, LookingStore, Store, call_store, never
from retention_assets.sweep.read import Wanted


@dataclass(frozen=True)
class DueHere:
    """Due transactions of datasets, in an open ledger."""

    ledger: Ledger
    datasets: Sequence[str]
    as_of: datetime
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Yield everything; there is one part."""
        return self.ledger.sweeps.concerned_names(self.datasets, self.as_of)


@contextmanager
def looking(store: Store, due: DueHere, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Have a store look once at what it needs to know of all that is due, unless it has; the results are removed afterwards."""
    if not isinstance(store, LookingStore) or store.has_looked:
        yield
        return
    with temporary_folder("look") as folder:
        store.answer_by(take_look(store, due, due.ledger, due.as_of, TasksHere(), folder, is_stopped=is_stopped))
        try:
            yield
        finally:
            store.answer_by(None)


def take_look(
    store: LookingStore,
    due: DueTransactions,
    ledger: Ledger,
    as_of: datetime,
    tasks: Tasks,
    folder: str,
    opened: OpenPlace = open_local,
    is_stopped: Callable[[], bool] = never,
) -> object:
    """Have a store look at what is due, with the ledger's present realms and holds. Raises StoreFailed."""
    purging, last, holds = ledger.realms.purging(), ledger.scans.last_whole_result(store.name), ledger.holds.known(as_of)
    return call_store(store, lambda: store.look(due, purging, last, tasks, folder, opened, is_stopped, holds))


def answer_by(stores: Mapping[str, Store], looks: Mapping[str, object]) -> None:
    """Make stores answer from the looks that their run has taken."""
    for name, store in stores.items():
        if isinstance(store, LookingStore) and name in looks:
            store.answer_by(looks[name])


def among_looked_at(store: Store, wanted: Wanted) -> Wanted:
    """Restrict to what the look can answer for. What became due after it began is left to the next sweep."""
    if not isinstance(store, LookingStore) or not store.has_looked:
        return wanted
    kept = {
        name: asked.filter(call_store(store, lambda asked=asked: store.was_looked_at(asked, wanted.purging)))  # type: ignore[misc]
        for name, asked in wanted.transactions.items()
    }
    return replace(wanted, transactions=kept)
