"""What became of a transaction that a sweep took up: the words that stores, the ledger and reports share.

Belongs here: the outcomes, and nothing about how any of them comes to be.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """What became of a transaction that the store was told to delete."""

    DELETED = "DELETED"
    ALREADY_GONE = "ALREADY_GONE"
    # It is not listed any more, and its place keeps versions of it that can be read: nothing was deleted.
    HIDDEN = "HIDDEN"
    FAILED = "FAILED"
    # The store itself found, at the very door, that somebody needs it: nothing of it was deleted.
    SPARED = "SPARED"
    # The store was given its time, and deletes it by itself: nothing of it is gone yet.
    EXPIRING = "EXPIRING"
    # The permit was refused before it was done: it stays begun, and whoever resumes looks at what is there.
    WITHHELD = "WITHHELD"
