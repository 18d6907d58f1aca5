"""Calendar periods of instants, in UTC or as the clocks of a time zone show them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import NEVER, Ints, from_micros, integers

HOUR, DAY = 3_600_000_000, 86_400_000_000
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def local_times(times: Ints, zone: str | None) -> Ints:
    """Microseconds as the clocks of the zone showed them: an hour that they showed twice is one."""
    if zone is None:
        return times
    try:
        shown = pc.local_timestamp(from_micros(times).cast(pa.timestamp("us", tz=zone)))
    except pa.ArrowInvalid:
        raise Refused(f"The time zone {zone} is not known on this machine. Install its time zones (tzdata).") from None
    local: Ints = integers(shown.view(pa.int64()), int(NEVER))
    return local


def period_of_day(day: Ints, period: str) -> Ints:
    """Number of the day, ISO week, month, quarter or year of each day since 1970."""
    if period == "day":
        return day
    if period == "week":
        # 1970-01-01 was a Thursday.
        return (day + 3) // 7
    months: Ints = day.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return months // _MONTHS[period]


def period_start(times: Ints, period: str, later: int = 0) -> Ints:
    """Start in UTC of the period of each time, or of one that many periods later."""
    number = period_of_day(times // DAY, period) + later
    if period in _MONTHS:
        start: Ints = (number * _MONTHS[period]).astype("M8[M]").astype("M8[us]").astype(np.int64)
        return start
    return (number if period == "day" else number * 7 - 3) * DAY
