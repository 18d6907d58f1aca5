"""The recording store of a dry run: it records what it is told to delete, and deletes nothing.

Every method is forwarded explicitly, so that no deleting method reaches the store behind it by its name alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import Duration
from retention_assets.stores.protocol import (
    Capabilities,
    LocatedStore,
    NeedingStore,
    Only,
    Permit,
    PreparedTarget,
    Remains,
    ServedStore,
    SharingStore,
    Store,
    SweptTarget,
    Target,
    UndoStore,
    always,
)
from retention_assets.stores.settings import StoreSettings


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
    # it was set aside before, and would be deleted for good
    from_trash: bool = False


@dataclass
class RecordingStore:
    """Wraps a store: reads from it, records instead of deleting."""

    store: Store
    recorded: list[RecordedDeletion] = field(default_factory=list)
    _prepared: dict[tuple[str, str], PreparedTarget] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def settings(self) -> StoreSettings | None:
        return getattr(self.store, "settings", None)

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    def datasets(self) -> list[str]:
        return self.store.datasets()

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return self.store.shares(datasets)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        # a store of another package may know no other way than whole
        return self.store.read(datasets) if only is None else self.store.read(datasets, only)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        return self.store.tokens(datasets)

    def present(self) -> datetime | None:
        return self.store.present() if isinstance(self.store, ServedStore) else None

    def warnings(self) -> list[str]:
        return self.store.warnings()

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        prepared = self.store.prepare(dataset, transactions)
        self._prepared |= {(dataset, target.transaction): target for target in prepared}
        return prepared

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str], kept: Collection[str]) -> None:
        if isinstance(self.store, SharingStore):
            self.store.know_swept(dataset, deleted, aside, kept)

    def check_needs(self, dataset: str, going: Sequence[str], retained: Sequence[str]) -> Mapping[str, str]:
        return self.store.check_needs(dataset, going, retained) if isinstance(self.store, SharingStore) else {}

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:
        return self.store.wanted_again(dataset, transactions) if isinstance(self.store, NeedingStore) else {}

    def place(self, dataset: str, claim: bool = False) -> str | None:  # noqa: ARG002 - the protocol's
        """Return the place; `claim` writes nothing."""
        return self.store.place(dataset) if isinstance(self.store, LocatedStore) else None

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        return self.store.remains(dataset, targets) if isinstance(self.store, LocatedStore) else {}

    def undo_fault(self) -> str | None:
        return self.store.undo_fault() if isinstance(self.store, UndoStore) else None

    def undo_warnings(self, undo: Duration) -> list[str]:
        return self.store.undo_warnings(undo) if isinstance(self.store, UndoStore) else []

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        return RecordingStore.carry_out(self, Order.DELETE, dataset, targets, parallelism, permit)

    def carry_out(
        self,
        order: Order,
        dataset: str,
        targets: Sequence[Target],
        parallelism: int,  # noqa: ARG002 - the protocol's
        permit: Permit = always,  # noqa: ARG002 - the protocol's
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
                from_trash=order is Order.DELETE_ASIDE,
            )
            for target, prepared in self._with_prepared(dataset, targets)
        ]
        self.recorded += deletions
        return [SweptTarget(each.transaction, order.done, each.bytes or 0) for each in deletions]

    def expire(
        self,
        dataset: str,
        targets: Sequence[Target],
        at: datetime | None,
        parallelism: int,  # noqa: ARG002 - the protocol's
        permit: Permit = always,  # noqa: ARG002 - the protocol's
    ) -> list[SweptTarget]:
        if at is not None:
            self.recorded += [
                RecordedDeletion(dataset, target.transaction, prepared.bytes, True, in_latest_view=target.in_latest_view)
                for target, prepared in self._with_prepared(dataset, targets)
            ]
        return [SweptTarget(target.transaction, Outcome.EXPIRING) for target in targets]

    def _with_prepared(self, dataset: str, targets: Sequence[Target]) -> Iterator[tuple[Target, PreparedTarget]]:
        for target in targets:
            yield target, self._prepared.get((dataset, target.transaction), PreparedTarget(target.transaction))
