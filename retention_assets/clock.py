"""The only clock. Everything else takes `as_of` as an input, so that a run can be repeated and a test can choose its day.

Belongs here: what time it is, and (with the ledger) the guard that refuses to mark or sweep by a clock that cannot be right.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

# It runs while the machine sleeps, and nobody sets it. Where there is none, the monotonic clock, which may stop then.
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Moment:
    """A moment by two clocks, in seconds: the one on the wall, which people set, and one that nobody sets."""

    wall: float
    running: float


def moment() -> Moment:
    """The present by both, to measure how long something takes. Always real time, also where `as_of` is simulated."""
    return Moment(time.time(), time.clock_gettime(_RUNNING))
