"""What a store answers when it is told to act on a batch: an outcome for each mark, whatever happens.

Belongs here: asking, and that what a store says nothing of, or says by raising, has failed. A batch is deleted, or it is given
the time at which the store may expire it (sweep.mode: ttl).
Does not belong here: what is in a batch, and writing the outcomes down (dataset_sweep.py).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from retention_assets.errors import Refused
from retention_assets.ledger.sweeps import Settlement
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import ExpiringStore, Store, StoreFailed, SweptTarget, Target, call_store

_SILENT = "the store said nothing of it"


def execute_deletion(store: Store, dataset: str, targets: Mapping[int, Target], parallelism: int) -> list[Settlement]:
    """Have the targets deleted."""
    return _answers(store, targets, lambda some: store.sweep(dataset, some, parallelism))


def execute_expiry(
    store: Store, dataset: str, targets: Mapping[int, Target], at: datetime | None, parallelism: int
) -> list[Settlement]:
    """Have the store expire the targets from an instant on, or never, where none is given."""
    if not (store.capabilities.expiry and isinstance(store, ExpiringStore)):
        raise Refused(f"the store {store.name} can't expire anything by itself")
    return _answers(store, targets, lambda some: store.expire(dataset, some, at, parallelism))


def _answers(
    store: Store, targets: Mapping[int, Target], ask: Callable[[Sequence[Target]], Sequence[SweptTarget]]
) -> list[Settlement]:
    if not targets:
        return []
    why, found = _SILENT, dict[str, SweptTarget]()
    try:
        found = {one.transaction: one for one in call_store(store, lambda: ask(list(targets.values())))}
    except StoreFailed as fault:
        why = str(fault)
    answers = {
        mark: found.get(one.transaction) or SweptTarget(one.transaction, Outcome.FAILED, error=why)
        for mark, one in targets.items()
    }
    return [Settlement(mark, one.outcome, one.bytes, one.error) for mark, one in answers.items()]
