"""The only caller of a store's `sweep` and `expire`: batches of a plan, the order to a store, and the pace between batches.

Belongs here: cutting a plan into batches as the policies say (`sweep: {batch, every}`), giving the order, and an outcome for
each mark whatever happens: a target that a store does not answer for, or answers by raising, has failed.
Does not belong here: what may go (recheck.py), and recording outcomes (dataset_sweep.py).
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from retention_assets.errors import Refused, Withheld
from retention_assets.ledger.sweeps import Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Sweep
from retention_assets.stores.protocol import (
    ExpiringStore,
    Permit,
    Store,
    StoreFailed,
    SweptTarget,
    Target,
    call_store,
)

_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_NO_ANSWER = "the store said nothing of it"


@dataclass(frozen=True)
class Batch:
    """Marks of one dataset that are deleted together, by their ids, and how."""

    targets: Mapping[int, Target]
    sweep: Sweep


def cut_batches(rows: Sequence[Mapping[str, Any]], sweeps: Mapping[int, Sweep], latest: frozenset[int]) -> Iterator[Batch]:
    """The rows of a plan in their order, cut where another way of sweeping begins and where a batch is full."""
    waiting: dict[int, Target] = {}
    how: Sweep | None = None
    for row in rows:
        mark = row["id"]
        if how is not None and (sweeps[mark] != how or len(waiting) == how.batch):
            yield Batch(waiting, how)
            waiting = {}
        how = sweeps[mark]
        waiting[mark] = Target(row["transaction"], row["note"], mark in latest)
    if how is not None and waiting:
        yield Batch(waiting, how)


def pause(every: Duration, stop: threading.Event) -> None:
    """Wait as long as the policy says between two batches, or until somebody says stop."""
    seconds = (every.after(_SOME_DAY) - _SOME_DAY).total_seconds()
    stop.wait(min(seconds, threading.TIMEOUT_MAX))


def execute_deletion(
    store: Store, dataset: str, targets: Mapping[int, Target], parallelism: int, permit: Permit
) -> list[Settlement]:
    """Have the targets deleted."""
    return _execute(store, targets, lambda some: store.sweep(dataset, some, parallelism, permit))


def execute_expiry(
    store: Store, dataset: str, targets: Mapping[int, Target], at: datetime | None, parallelism: int, permit: Permit
) -> list[Settlement]:
    """Have the store expire the targets from an instant on, or never, where none is given."""
    if not (store.capabilities.expiry and isinstance(store, ExpiringStore)):
        raise Refused(f"the store {store.name} can't expire anything by itself")
    return _execute(store, targets, lambda some: store.expire(dataset, some, at, parallelism, permit))


def _execute(
    store: Store, targets: Mapping[int, Target], order: Callable[[Sequence[Target]], Sequence[SweptTarget]]
) -> list[Settlement]:
    if not targets:
        return []
    unanswered, why, found = Outcome.FAILED, _NO_ANSWER, dict[str, SweptTarget]()
    try:
        found = {one.transaction: one for one in call_store(store, lambda: order(list(targets.values())))}
    except StoreFailed as fault:
        if isinstance(fault.__cause__, Withheld):
            # A store may let it through. What is not done is not settled by that.
            unanswered, why = Outcome.WITHHELD, str(fault.__cause__)
        else:
            why = str(fault)
    answers = {
        mark: found.get(one.transaction) or SweptTarget(one.transaction, unanswered, error=why) for mark, one in targets.items()
    }
    return [Settlement(mark, one.outcome, one.bytes, one.error, one.bytes_hidden, one.left) for mark, one in answers.items()]
