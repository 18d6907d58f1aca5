"""The only clock: everything else takes `as_of`, so that a run can be repeated and a test can choose its day."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

# Runs while the machine sleeps, and can't be set. The monotonic clock, the fallback, may stop then.
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Moment:
    """Moment by the wall clock, which people set, and by one that can't be set; in seconds."""

    wall: float
    running: float


def moment() -> Moment:
    """Measure by both clocks how long something takes. Real time, also where `as_of` is simulated."""
    return Moment(time.time(), time.clock_gettime(_RUNNING))
