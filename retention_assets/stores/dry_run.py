"""Recording stores: they write down what they are told to delete, and delete nothing. The dry run is such a store.

Belongs here: the answers to deletions, and a store that also remembers its log. Every other question goes to the store behind.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Hold
from retention_assets.stores.protocol import (
    Capabilities,
    LocatedStore,
    Permit,
    PreparedTarget,
    Remains,
    SelectiveStore,
    ServedStore,
    Store,
    SweptTarget,
    Target,
    always,
)
from retention_assets.stores.settings import StoreSettings


@dataclass(frozen=True)
class RecordedDeletion:
    """One transaction that a sweep would have deleted, and the bytes that would be free."""

    dataset: str
    transaction: str
    bytes: int | None
    # It would be given a time, and the store would expire it by itself.
    expires: bool = False
    # Branches and tags that would be dropped with it.
    refs: tuple[str, ...] = ()
    # It is in a latest view, where its policy may select.
    in_latest_view: bool = False


@dataclass
class RecordingStore:
    """Stands before a store: reads from it, writes down instead of deleting."""

    store: Store
    recorded: list[RecordedDeletion] = field(default_factory=list)
    _sizes: dict[tuple[str, str], int | None] = field(default_factory=dict)

    @classmethod
    def before(cls, store: Store) -> "RecordingStore":
        """One of this kind before a store; it answers for some transactions where the store does."""
        return SelectiveRecordingStore(store) if cls is RecordingStore and isinstance(store, SelectiveStore) else cls(store)

    @property
    def name(self) -> str:
        """The store's own name."""
        return self.store.name

    @property
    def settings(self) -> StoreSettings | None:
        """The store's own settings, as far as it says them."""
        return getattr(self.store, "settings", None)

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do."""
        return self.store.capabilities

    def datasets(self) -> list[str]:
        """The store's datasets."""
        return self.store.datasets()

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """How the store wants them read."""
        return self.store.shares(datasets)

    def read(self, datasets: Sequence[str]) -> pa.Table:
        """What the store says of them now."""
        return self.store.read(datasets)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """The store's own tokens."""
        return self.store.tokens(datasets)

    def present(self) -> datetime | None:
        """What the store's server says."""
        return self.store.present() if isinstance(self.store, ServedStore) else None

    def warnings(self) -> list[str]:
        """The store's own warnings."""
        return self.store.warnings()

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """What the store would want written down."""
        prepared = self.store.prepare(dataset, transactions)
        self._sizes |= {(dataset, one.transaction): one.bytes for one in prepared}
        return prepared

    def place(self, dataset: str, claim: bool = False) -> str | None:  # noqa: ARG002 - the protocol's
        """Where the store's data is. Nothing is left there."""
        return self.store.place(dataset) if isinstance(self.store, LocatedStore) else None

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """What the store says."""
        return self.store.remains(dataset, targets) if isinstance(self.store, LocatedStore) else {}

    def sweep(
        self,
        dataset: str,
        targets: Sequence[Target],
        parallelism: int,  # noqa: ARG002 - the protocol's
        permit: Permit = always,  # noqa: ARG002 - the protocol's
    ) -> list[SweptTarget]:
        """Write down what would be deleted."""
        would = [
            RecordedDeletion(
                dataset,
                one.transaction,
                self._sizes.get((dataset, one.transaction)),
                refs=tuple(sorted(one.ended_refs)),
                in_latest_view=one.in_latest_view,
            )
            for one in targets
        ]
        self.recorded += would
        return [SweptTarget(one.transaction, Outcome.DELETED, one.bytes or 0) for one in would]

    def expire(
        self,
        dataset: str,
        targets: Sequence[Target],
        at: datetime | None,
        parallelism: int,  # noqa: ARG002 - the protocol's
        permit: Permit = always,  # noqa: ARG002 - the protocol's
    ) -> list[SweptTarget]:
        """Write down what would be left to expire."""
        if at is not None:
            sizes = (self._sizes.get((dataset, one.transaction)) for one in targets)
            self.recorded += [
                RecordedDeletion(dataset, one.transaction, size, True, in_latest_view=one.in_latest_view)
                for one, size in zip(targets, sizes, strict=True)
            ]
        return [SweptTarget(one.transaction, Outcome.EXPIRING) for one in targets]


@dataclass
class SelectiveRecordingStore(RecordingStore):
    """A recording store before one that answers for some transactions as truly as for all of them."""

    def read_some(
        self, wanted: Mapping[str, Sequence[str]], purging: Collection[str] = (), holds: Sequence[Hold] = ()
    ) -> pa.Table:
        """What the store says of them now."""
        assert isinstance(self.store, SelectiveStore)
        return self.store.read_some(wanted, purging, holds)


@dataclass
class RememberingStore(RecordingStore):
    """A recording store that asks for each log once: over however many days, the history is the one of the first."""

    _read: list[tuple[frozenset[str], pa.Table]] = field(default_factory=list)
    _tokens: dict[str, str | None] = field(default_factory=dict)

    def read(self, datasets: Sequence[str]) -> pa.Table:
        """What the store said of them when it was first asked."""
        known = frozenset[str]().union(*(names for names, _ in self._read))
        if new := [name for name in datasets if name not in known]:
            self._read.append((frozenset(new), self.store.read(new)))
        wanted = pa.array(datasets, pa.string())
        mine = [lines for names, lines in self._read if not names.isdisjoint(datasets)]
        return pa.concat_tables([lines.filter(pc.is_in(lines["dataset"], wanted)) for lines in mine])

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """The tokens that the logs had then."""
        if new := [name for name in datasets if name not in self._tokens]:
            found = self.store.tokens(new)
            self._tokens |= {name: found.get(name) for name in new}
        return {name: token for name in datasets if (token := self._tokens[name]) is not None}
