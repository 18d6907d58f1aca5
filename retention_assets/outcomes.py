"""Orders that a sweep gives to stores, and outcomes of a transaction, shared by stores, the ledger and reports."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Outcome of an order to a store for one transaction."""

    DELETED = "DELETED"
    ALREADY_GONE = "ALREADY_GONE"
    # no longer listed, but its place keeps readable versions: nothing was deleted
    HIDDEN = "HIDDEN"
    # out of sight, and whole in the store's trash: it can be restored for a while
    SET_ASIDE = "SET_ASIDE"
    RESTORED = "RESTORED"
    FAILED = "FAILED"
    # the store found at the last moment that it is needed: nothing was deleted
    SPARED = "SPARED"
    # the store was given its time, and deletes it by itself: nothing of it is gone yet
    EXPIRING = "EXPIRING"
    # the permit was refused before it was done: it stays begun, and whoever resumes checks what is there
    WITHHELD = "WITHHELD"


class Order(StrEnum):
    """Order to a store about a batch of marks."""

    DELETE = "DELETE"
    SET_ASIDE = "SET_ASIDE"
    DELETE_ASIDE = "DELETE_ASIDE"
    RESTORE = "RESTORE"
    # of what was deleted before and is there again
    REPLAY = "REPLAY"

    @property
    def starts_in_trash(self) -> bool:
        return self in (Order.DELETE_ASIDE, Order.RESTORE)

    @property
    def deletes(self) -> bool:
        return self in IN_PLACE or self is Order.DELETE_ASIDE

    @property
    def done(self) -> Outcome:
        return Outcome.DELETED if self.deletes else Outcome.RESTORED if self is Order.RESTORE else Outcome.SET_ASIDE

    def failed(self, in_doubt: bool) -> Outcome:
        """Outcome of what failed. What was to be moved, and may be at its other place already, stays begun."""
        return Outcome.WITHHELD if in_doubt and not self.deletes else Outcome.FAILED


# orders to delete what was never moved
IN_PLACE = (Order.DELETE, Order.REPLAY)


@dataclass(frozen=True)
class SweptTarget:
    """Outcome of one target, and the bytes freed, or to be freed if SET_ASIDE. `error`: why it failed, was spared or stays."""

    transaction: str
    outcome: Outcome
    bytes: int = 0
    error: str | None = None
    # if HIDDEN: bytes that can still be read
    bytes_hidden: int = 0
    # files of it that stay, because the dataset does not own them, or retained transactions need them
    left: int = 0
