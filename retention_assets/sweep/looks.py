"""One look for a whole sweep, of a store that has much to look at before it can answer for any transaction.

Belongs here: taking the look, in this process where no run has taken it in tasks, and leaving out what it was not asked about.
Does not belong here: what a store looks at (stores), and looks in tasks (pipeline/look_stage.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from retention_assets.ledger import Ledger
from retention_assets.stores.protocol import DueTransactions, LookingStore, Store, call_store, never
from retention_assets.stores.tasks import OpenPlace, Tasks, TasksHere, open_local
from retention_assets.stores.temporary import temporary_folder
from retention_assets.sweep.wanted import Wanted


@dataclass(frozen=True)
class DueHere:
    """What is due of some datasets, in a ledger that is open."""

    ledger: Ledger
    datasets: Sequence[str]
    as_of: datetime
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """All of it, as the ledger finds it."""
        return self.ledger.sweeps.concerned_names(self.datasets, self.as_of)


@contextmanager
def looking(store: Store, due: DueHere, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Have a store look once at what it needs to know of all that is due, unless it has; what it found is gone afterwards."""
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
    """Have a store look at what is due, by the realms and holds that the ledger has now. Raises StoreFailed."""
    purging, last, holds = ledger.realms.purging(), ledger.scans.last_whole_result(store.name), ledger.holds.known(as_of)
    return call_store(store, lambda: store.look(due, purging, last, tasks, folder, opened, is_stopped, holds))


def answer_by(stores: Mapping[str, Store], looks: Mapping[str, object]) -> None:
    """Have stores answer by the looks that their run has taken."""
    for name, store in stores.items():
        if isinstance(store, LookingStore) and name in looks:
            store.answer_by(looks[name])


def among_looked_at(store: Store, wanted: Wanted) -> Wanted:
    """What a look can answer for. What became due only after it has begun is the next sweep's."""
    if not isinstance(store, LookingStore) or not store.has_looked:
        return wanted
    kept = {
        name: asked.filter(call_store(store, lambda asked=asked: store.was_looked_at(asked, wanted.purging)))  # type: ignore[misc]
        for name, asked in wanted.transactions.items()
    }
    return replace(wanted, transactions=kept)
