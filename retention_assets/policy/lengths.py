"""Lengths of time as people write them in settings: `15m`, `7d`, `P2Y`.

Belongs here: the types of such keys, and whether one length is longer than others. policy/model.py has such types as well, but
would have to build every model of a policy first.
Does not belong here: what a duration is (durations.py).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import EXPECTED_DURATION, Duration, parse_duration

# Months and years are of several lengths. Of the first of these years one has a 29th of February; from the last on, there is
# none for eight.
_DAYS = [
    datetime(year, 3, 1, tzinfo=UTC) + timedelta(days=day)
    for year, days in ((1999, 4 * 366), (2096, 366))
    for day in range(days)
]


def is_always_longer(length: Duration, *others: Duration) -> bool:
    """Whether a length is longer than some others one after the other, whatever the day on which they begin."""

    def end(begin: datetime) -> datetime:
        for other in others:
            begin = other.after(begin)
        return begin

    return all(length.after(day) > end(day) for day in _DAYS)


def _length(value: object) -> Duration:
    if isinstance(value, Duration):
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as fault:
        raise InvalidValue(str(fault), EXPECTED_DURATION) from None


def some_time(example: str) -> Callable[[object], Duration]:
    """A validator of lengths that are not nothing; the example is for whoever wrote none."""

    def read(value: object) -> Duration:
        length = _length(value)
        if not length:
            raise InvalidValue("is no time at all", f"a duration longer than 0s, such as {example}")
        return length

    return read


Length = Annotated[Duration, PlainValidator(_length), PlainSerializer(str)]
Interval = Annotated[Duration, PlainValidator(some_time("15m")), PlainSerializer(str)]
