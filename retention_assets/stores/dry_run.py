"""The recording store of a dry run: it records what it is told to delete, and deletes nothing.

Every method is passed on explicitly, so that no order reaches the store behind it by its name alone; and each of them is, since
what it answered by a default of the base would part the dry run from the run.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.book import OutsideEntry
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Keeper, Policy
from retention_assets.stores.concurrency import OpenPlace, Tasks, open_local
from retention_assets.stores.protocol import (
    DueTransactions,
    ExpiryCount,
    ExpiryTerms,
    FindData,
    Only,
    Permit,
    PreparedTarget,
    Reads,
    Remains,
    Store,
    SweptTarget,
    Target,
    always,
    never,
)


@dataclass(frozen=True)
class RecordedDeletion:
    """A transaction that a sweep would have deleted, and the bytes it would free."""

    dataset: str
    transaction: str
    bytes: int | None
    # it would get a time, and the store would expire it
    expires: bool = False
    # branches and tags that would be dropped with it
    refs: tuple[str, ...] = ()
    # in a latest view, where its policy may select
    in_latest_view: bool = False
    # it would be set aside, and deleted later
    aside: bool = False


class RecordingStore(Store):
    """Wraps a store: answers as it does, and records instead of deleting."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.settings)
        self.store = store
        self.recorded: list[RecordedDeletion] = []
        self._prepared: dict[tuple[str, str], PreparedTarget] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store,)

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def innermost(self) -> Store:
        return self.store.innermost

    def close(self) -> None:
        self.store.close()

    @property
    def log_is_complete(self) -> bool:
        return self.store.log_is_complete

    @property
    def reads(self) -> Reads:
        return self.store.reads

    @property
    def guards(self) -> bool:
        return self.store.guards

    @property
    def shares_data(self) -> bool:
        return self.store.shares_data

    @property
    def drops_refs(self) -> bool:
        return self.store.drops_refs

    @property
    def parts_at(self) -> str | None:
        return self.store.parts_at

    @property
    def expiry(self) -> ExpiryTerms | None:
        return self.store.expiry

    def datasets(self) -> list[str]:
        return self.store.datasets()

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return self.store.shares(datasets)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        return self.store.read(datasets, only)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        return self.store.tokens(datasets)

    def policies(self) -> Sequence[OutsideEntry]:
        return self.store.policies()

    def present(self) -> datetime | None:
        return self.store.present()

    def place(self, dataset: str, claim: bool = False) -> str | None:
        """Return the place; `claim` writes nothing."""
        return self.store.place(dataset)

    def store_place(self, claim: bool = False) -> str | None:
        """Return the place; `claim` writes nothing."""
        return self.store.store_place()

    def data_finder(self, dataset: str) -> FindData:
        return self.store.data_finder(dataset)

    def warnings(self) -> list[str]:
        return self.store.warnings()

    def policy_warnings(self, policies: Sequence[Policy]) -> list[str]:
        return self.store.policy_warnings(policies)

    def undo_warnings(self, undo: Duration) -> list[str]:
        return self.store.undo_warnings(undo)

    def accepted_cascades(self) -> str | None:
        return self.store.accepted_cascades()

    def explain_needs(self, dataset: str, transaction: str) -> list[str]:
        return self.store.explain_needs(dataset, transaction)

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str], kept: Collection[str]) -> None:
        self.store.know_swept(dataset, deleted, aside, kept)

    def check_needs(self, dataset: str, going: Sequence[str], retained: Sequence[str]) -> Mapping[str, str]:
        return self.store.check_needs(dataset, going, retained)

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:
        return self.store.wanted_again(dataset, transactions)

    @property
    def has_looked(self) -> bool:
        return self.store.has_looked

    def look(
        self,
        due: DueTransactions,
        purging: Collection[str],
        last: str | None,
        tasks: Tasks,
        folder: str,
        opened: OpenPlace = open_local,
        is_stopped: Callable[[], bool] = never,
        holds: Sequence[Keeper] = (),
    ) -> object:
        return self.store.look(due, purging, last, tasks, folder, opened, is_stopped, holds)

    def answer_by(self, look: object) -> None:
        self.store.answer_by(look)

    def was_looked_at(self, transactions: pa.Array, purging: Collection[str]) -> pa.Array:
        return self.store.was_looked_at(transactions, purging)

    def among(self, tasks: int) -> Self:
        """Return this one, or a copy that records in the same list."""
        if (store := self.store.among(tasks)) is self.store:
            return self
        one = object.__new__(type(self))
        vars(one).update(vars(self), store=store)
        return one

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        prepared = self.store.prepare(dataset, transactions)
        self._prepared |= {(dataset, target.transaction): target for target in prepared}
        return prepared

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        return self.store.remains(dataset, targets)

    def undo_fault(self) -> str | None:
        return self.store.undo_fault()

    def find_postponable(
        self, dataset: str, within: datetime, archived_types: Collection[str], is_held: Callable[[str], bool] | None
    ) -> Iterator[list[Target]]:
        return self.store.find_postponable(dataset, within, archived_types, is_held)

    def count_expiring(
        self, dataset: str, begin: datetime, end: datetime, archived_types: Collection[str]
    ) -> list[ExpiryCount]:
        return self.store.count_expiring(dataset, begin, end, archived_types)

    # --- orders, which are recorded ---

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        return RecordingStore.carry_out(self, Order.DELETE, dataset, targets, parallelism, permit)

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        if order is Order.RESTORE:
            return [SweptTarget(target.transaction, order.done) for target in targets]
        deletions = [
            RecordedDeletion(
                dataset,
                target.transaction,
                prepared.bytes,
                refs=tuple(sorted(target.ended_refs)),
                in_latest_view=target.in_latest_view,
                aside=order is Order.SET_ASIDE,
            )
            for target, prepared in self._with_prepared(dataset, targets)
        ]
        self.recorded += deletions
        return [SweptTarget(each.transaction, order.done, each.bytes or 0) for each in deletions]

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        if at is not None:
            self.recorded += [
                RecordedDeletion(dataset, target.transaction, prepared.bytes, True, in_latest_view=target.in_latest_view)
                for target, prepared in self._with_prepared(dataset, targets)
            ]
        return [SweptTarget(target.transaction, Outcome.EXPIRING) for target in targets]

    def postpone(
        self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime, permit: Permit = always
    ) -> list[SweptTarget]:
        return [SweptTarget(target.transaction, Outcome.EXPIRING) for target in targets]

    def _with_prepared(self, dataset: str, targets: Sequence[Target]) -> Iterator[tuple[Target, PreparedTarget]]:
        for target in targets:
            yield target, self._prepared.get((dataset, target.transaction), PreparedTarget(target.transaction))
