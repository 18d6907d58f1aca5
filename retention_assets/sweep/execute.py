"""The only module that gives stores orders about targets: cuts a plan into batches (`sweep: {batch, every}`) and waits
between them.

Each mark gets an outcome whatever happens: a target that a store does not answer for, or answers by raising, has failed.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from retention_assets.errors import Refused, Withheld
from retention_assets.ledger.batches import Settlement
from retention_assets.outcomes import IN_PLACE, Order, Outcome
from retention_assets.policy.model import Sweep
from retention_assets.settings.secrets import masked
from retention_assets.stores.protocol import Permit, Store, StoreFailed, SweptTarget, Target, call_store, thread_of

_NO_ANSWER = "the store gave no result"


@dataclass(frozen=True)
class Batch:
    """Marks deleted together, by dataset and id, how, and how many of each policy they are."""

    # transaction, note and number of the plan, by mark
    targets: Mapping[str, Mapping[int, tuple[str, str | None, int | None]]]
    sweep: Sweep
    policies: Mapping[str, int]
    order: Order = Order.DELETE
    # until when what it sets aside can be restored
    until: datetime | None = None

    def takes(self) -> dict[str, timedelta]:
        """Return the time of each policy that the batch uses; a batch that is not full uses its part."""
        every = self.sweep.every.length
        return {name: every * amount / self.sweep.batch for name, amount in self.policies.items()} if every else {}


def cut_batches(rows: pa.Table, sweeps: Mapping[int, Sweep], together: Mapping[int, int] | None = None) -> Iterator[Batch]:
    """Group marks in their order by how they are swept, cutting where a batch is full.

    A batch has as many marks as its policy says, of however many datasets they are. Where transactions share data, it has all
    of a dataset that are swept in one way. Marks that go `together`, by the first of them, are swept at the gentlest pace of
    any, and can be restored as long as any.
    """
    groups, ways = together or {}, dict[int, _Way]()
    columns = ("id", "dataset", "transaction", "note", "plan", "policy", "order", "until")
    every = [*zip(*(rows[name].to_pylist() for name in columns), strict=True)]
    for mark, *_, order, until in every:
        way, first = _Way(sweeps[mark], order, until), groups.get(mark, mark)
        ways[first] = ways[first].with_(way) if first in ways else way
    alike: dict[tuple[_Way, str], list[tuple[Any, ...]]] = {}
    for row in every:
        alike.setdefault((ways[groups.get(row[0], row[0])], row[1] if row[0] in groups else ""), []).append(row[:-2])
    for ((how, order, until), dataset), marks in alike.items():
        size = len(marks) if dataset else how.batch
        for at in range(0, len(marks), size):
            targets: dict[str, dict[int, tuple[str, str | None, int | None]]] = {}
            part = marks[at : at + size]
            for mark, dataset, *target, _ in part:
                targets.setdefault(dataset, {})[mark] = (target[0], target[1], target[2])
            yield Batch(targets, how, Counter(row[-1] for row in part), Order(order), until)


class _Way(NamedTuple):
    """How a mark is swept: at what pace, by which order, and until when it can be restored."""

    sweep: Sweep
    order: str
    until: datetime | None

    def with_(self, other: "_Way") -> "_Way":
        """Return the gentlest pace of both, and the longest time."""
        pace = max(self.sweep, other.sweep, key=lambda sweep: (sweep.every.length, -sweep.batch, -sweep.parallelism))
        longer = self if other.until is None or (self.until is not None and self.until >= other.until) else other
        return longer._replace(sweep=pace)


def pause(time: timedelta, stop: threading.Event) -> None:
    stop.wait(min(time.total_seconds(), threading.TIMEOUT_MAX))


def execute_order(
    store: Store, dataset: str, targets: Mapping[int, Target], order: Order, parallelism: int, permit: Permit
) -> list[Settlement]:
    if order in IN_PLACE:
        return _execute(store, targets, lambda chosen, asked: store.sweep(dataset, chosen, parallelism, asked), permit)
    if store.settings.undo_fault is not None:
        raise Refused(f"the store {store.name} can't set anything aside, and brings nothing back")
    answers = _execute(
        store, targets, lambda chosen, asked: store.carry_out(order, dataset, chosen, parallelism, asked), permit
    )
    if order is not Order.SET_ASIDE:
        return answers
    # A killed sweep may have set it aside, and FAILED would say that it is at its place.
    unsure = {mark for mark, target in targets.items() if target.begun_earlier}
    return [
        replace(answer, outcome=Outcome.WITHHELD) if answer.outcome is Outcome.FAILED and answer.mark in unsure else answer
        for answer in answers
    ]


def find_there(store: Store, dataset: str, rows: pa.Table) -> dict[int, str]:
    """Ask a store about set aside marks (rows of their plans): why each is not gone from the trash. Gone ones have no answer.

    It is an order to delete without any permit, so that nothing can go, whatever the store finds.
    """

    def refuse() -> None:
        raise Withheld("something of it is in the trash, or the store can't tell")

    targets = {
        row["id"]: Target(row["transaction"], row["note"], begun_earlier=True, aside=f"{row['plan']}/{row['id']}")
        for row in rows.to_pylist()
    }
    answers = execute_order(store, dataset, targets, Order.DELETE_ASIDE, 1, refuse)
    return {one.mark: one.error or one.outcome for one in answers if one.outcome is not Outcome.ALREADY_GONE}


def execute_expiry(
    store: Store, dataset: str, targets: Mapping[int, Target], at: datetime | None, parallelism: int, permit: Permit
) -> list[Settlement]:
    """Have the store expire the targets at an instant, or clear their time where `at` is None."""
    if store.expiry is None:
        raise Refused(f"the store {store.name} can't expire anything by itself")
    return _execute(store, targets, lambda chosen, asked: store.expire(dataset, chosen, at, parallelism, asked), permit)


def _execute(
    store: Store,
    targets: Mapping[int, Target],
    order: Callable[[Sequence[Target], Permit], Sequence[SweptTarget]],
    permit: Permit,
) -> list[Settlement]:
    if not targets:
        return []
    thread, asked = thread_of(store), permit
    if thread:

        def asked() -> None:
            # asking for a permit counts as a sign of life; after a time-out no permit is given
            thread.beat()
            permit()

    unanswered, why, swept = Outcome.FAILED, _NO_ANSWER, dict[str, SweptTarget]()
    try:
        answered = call_store(store, lambda: order(list(targets.values()), asked), thread)
        swept = {answer.transaction: answer for answer in answered}
    except StoreFailed as fault:
        if isinstance(fault.__cause__, Withheld):
            # a store may pass the exception on, but what is not done is not settled by it
            unanswered, why = Outcome.WITHHELD, str(fault.__cause__)
        else:
            why = str(fault)
    answers = {
        mark: swept.get(target.transaction) or SweptTarget(target.transaction, unanswered, error=why)
        for mark, target in targets.items()
    }
    return [
        Settlement(mark, answer.outcome, answer.bytes, answer.error and masked(answer.error), answer.bytes_hidden, answer.left)
        for mark, answer in answers.items()
    ]
