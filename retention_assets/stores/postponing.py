"""The protocol of a store whose rows expire by themselves, and in which housekeeping puts off what must not expire yet.

Belongs here: the words between housekeeping and such a store. Does not belong here: any store.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from retention_assets.policy.durations import Duration
from retention_assets.stores.protocol import Store, SweptTarget, Target


@dataclass(frozen=True)
class ExpiryCount:
    """How many transactions of one type expire in an interval; and how many of them though they are not done with."""

    type: str | None
    transactions: int
    unfinished: int
    unarchived: int


@dataclass(frozen=True)
class PostponementTerms:
    """How many days ahead is looked for what would expire, and for how long it is put off."""

    days: int
    length: Duration


@runtime_checkable
class PostponingStore(Store, Protocol):
    """A store that expires rows by a time that they carry. Only asked where it has the ability `expiry`."""

    @property
    def putting_off(self) -> PostponementTerms:
        """As its settings say."""

    def postponable(
        self, dataset: str, within: datetime, archived_types: Collection[str], is_held: Callable[[str], bool] | None
    ) -> Iterator[list[Target]]:
        """What would expire by an instant though it is unfinished, or not archived and of a type that must be, or held.

        Piece by piece. Without `is_held` nothing is held, and only what is not done with has to be looked at.
        """

    def postpone(self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime) -> list[SweptTarget]:
        """Let them expire later: EXPIRING, or SPARED if they have changed and are looked at again the next time."""

    def expected(self, dataset: str, begin: datetime, end: datetime, archived_types: Collection[str]) -> list[ExpiryCount]:
        """What expires in an interval, by type."""
