"""The only clock. Everything else takes `as_of` as an input, so that a run can be repeated and a test can choose its day.

Belongs here: what time it is, and (with the ledger) the guard that refuses to mark or sweep by a clock that cannot be right.
"""

from datetime import UTC, datetime


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)
