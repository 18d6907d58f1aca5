"""Instants and durations in UTC, their text forms, and calendar arithmetic. Nothing here reads a clock."""

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from retention_assets.errors import InvalidValue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)

# Longer durations could leave the range of a timestamp.
LONGEST_YEARS = 1000

_SHORT = re.compile(r"(\d{1,12})(s|m|h|d|w|mo|y)", re.ASCII)
_ISO = re.compile(
    r"P(?=.)(?:(\d{1,12})Y)?(?:(\d{1,12})M)?(?:(\d{1,12})W)?(?:(\d{1,12})D)?"
    r"(?:T(?=.)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12})S)?)?",
    re.ASCII,
)
_AHEAD = re.compile(r"in\s+(\S+)", re.ASCII)
EXPECTED_DURATION = "a duration such as 90s, 45m, 12h, 30d, 2w, 6mo, 2y, P2Y or PT36H"
EXPECTED_INSTANT = "an instant with a zone, such as 2026-01-01T00:00:00Z"
EXPECTED_MOMENT = f"{EXPECTED_INSTANT}, or one counted from now: 7d (7 days ago), in 7d"


@dataclass(frozen=True, order=False)
class Duration:
    """A length of time in three parts that do not convert: calendar months, days of 24 hours, seconds.

    Years are months, weeks are days. Never negative, never longer than a thousand years.
    """

    months: int = 0
    days: int = 0
    seconds: int = 0

    def __post_init__(self) -> None:
        if min(self.months, self.days, self.seconds) < 0:
            raise ValueError("a duration is not negative")
        years = self.months / 12 + self.days / 365 + self.seconds / (365 * 86_400)
        if years > LONGEST_YEARS:
            raise ValueError(f"a duration is at most {LONGEST_YEARS} years")

    def __bool__(self) -> bool:
        return bool(self.months or self.days or self.seconds)

    def __str__(self) -> str:
        """Shortest text that parses back to this value."""
        months, days, seconds = self.months, self.days, self.seconds
        if not self:
            return "0s"
        if months and not days and not seconds:
            return f"{months // 12}y" if months % 12 == 0 else f"{months}mo"
        if days and not months and not seconds:
            return f"{days // 7}w" if days % 7 == 0 else f"{days}d"
        if seconds and not months and not days:
            for unit, size in (("h", 3600), ("m", 60)):
                if seconds % size == 0:
                    return f"{seconds // size}{unit}"
            return f"{seconds}s"
        date = (f"{months}M" if months else "") + (f"{days}D" if days else "")
        return f"P{date}" + (f"T{seconds}S" if seconds else "")

    @property
    def _amounts(self) -> tuple[int, ...]:
        """Number of years, months, days, hours, minutes and seconds."""
        hours, rest = divmod(self.seconds, 3600)
        return self.months // 12, self.months % 12, self.days, hours, rest // 60, rest % 60

    def iso(self) -> str:
        """ISO 8601: `P2Y`, `P30D`, `PT36H`. It parses back to this value."""
        amounts = [f"{amount}{unit}" if amount else "" for amount, unit in zip(self._amounts, "YMDHMS", strict=True)]
        day, clock = "".join(amounts[:3]), "".join(amounts[3:])
        return f"P{day}" + (f"T{clock}" if clock else "") if day or clock else "PT0S"

    def words(self) -> str:
        """For people: `2 years`, `30 days`, `1 day and 12 hours`."""
        units = ("year", "month", "day", "hour", "minute", "second")
        amounts = [(amount, unit) for amount, unit in zip(self._amounts, units, strict=True) if amount]
        return " and ".join(f"{amount} {unit}{'' if amount == 1 else 's'}" for amount, unit in amounts) or "0 seconds"

    def before(self, instant: datetime) -> datetime:
        return _move(instant, -self.months, timedelta(days=-self.days, seconds=-self.seconds))

    def after(self, instant: datetime) -> datetime:
        return _move(instant, self.months, timedelta(days=self.days, seconds=self.seconds))

    @property
    def length(self) -> timedelta:
        """Length when it begins on 1 January 2000, to compare durations whose months differ."""
        return self.after(_FIRST_DAY) - _FIRST_DAY


def _move(instant: datetime, months: int, rest: timedelta) -> datetime:
    # Calendar months first, clamped at the month's end, then exact time. 2y before 2024-02-29 is 2022-02-28.
    if months:
        year, month = divmod(instant.year * 12 + instant.month - 1 + months, 12)
        if not 1 <= year <= 9999:
            raise OverflowError(f"{instant.isoformat()} cannot be moved by {months} months")
        day = min(instant.day, calendar.monthrange(year, month + 1)[1])
        instant = instant.replace(year=year, month=month + 1, day=day)
    return instant + rest


def parse_duration(text: str) -> Duration:
    """Read a duration. Raise ValueError with a sentence that says why not."""
    if short := _SHORT.fullmatch(text):
        amount, unit = int(short[1]), short[2]
        if unit in ("mo", "y"):
            return Duration(months=amount * (12 if unit == "y" else 1))
        if unit in ("d", "w"):
            return Duration(days=amount * (7 if unit == "w" else 1))
        return Duration(seconds=amount * {"s": 1, "m": 60, "h": 3600}[unit])
    if iso := _ISO.fullmatch(text):
        years, months, weeks, days, hours, minutes, seconds = (int(group or 0) for group in iso.groups())
        return Duration(months=years * 12 + months, days=weeks * 7 + days, seconds=hours * 3600 + minutes * 60 + seconds)
    raise ValueError("is not a duration")


def parse_instant(text: str) -> datetime:
    """Read an instant that names its zone; a plain date is its midnight in UTC. Raise ValueError otherwise."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not an instant") from None
    if instant.tzinfo is None:
        if len(text) == len("2026-01-01"):
            return instant.replace(tzinfo=UTC)
        raise ValueError("has no zone")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range") from None


def parse_moment(text: str, now: datetime) -> datetime:
    """Read an instant that a person types: a fixed one, `7d` (that long before now) or `in 7d` (that long after it).

    Only for commands and forms: instants in files have to stay fixed, so files use `parse_instant`.
    """
    now = now.replace(microsecond=0)
    if ahead := _AHEAD.fullmatch(text):
        return parse_duration(ahead[1]).after(now)
    try:
        return parse_duration(text).before(now)
    except ValueError as fault:
        # A duration that is too long is no instant either.
        if _SHORT.fullmatch(text) or _ISO.fullmatch(text):
            raise OverflowError(str(fault)) from None
        return parse_instant(text)


def micros(instant: datetime) -> int:
    """Microseconds since the epoch: the form in which frames compare instants."""
    return (instant - EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def text_of(instant: datetime) -> str:
    """ISO 8601, UTC, `Z`."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def minute_of(instant: datetime | None) -> str:
    """`2026-01-31 07:05`, in UTC; empty for None."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if instant else ""


def minute_in_utc(instant: datetime | None) -> str:
    """`2026-01-31 07:05 UTC`, where nothing else names the zone."""
    return f"{minute_of(instant)} UTC" if instant else ""


# Months and years differ in length: four years with a 29th of February, and one after which there is none for eight years.
_DAYS = [
    datetime(year, 3, 1, tzinfo=UTC) + timedelta(days=day)
    for year, days in ((1999, 4 * 366), (2096, 366))
    for day in range(days)
]


@cache
def is_always_longer(length: Duration, *others: Duration) -> bool:
    """Tell whether a length is longer than the others in sequence, whatever the day on which they begin."""

    def end(begin: datetime) -> datetime:
        for other in others:
            begin = other.after(begin)
        return begin

    return all(length.after(day) > end(day) for day in _DAYS)


def as_duration(value: object) -> Duration:
    """Read the value of a key. Raise InvalidValue otherwise."""
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise InvalidValue("is not a duration", EXPECTED_DURATION, "Write a number and its unit, for example 30d.")
    try:
        return parse_duration(value)
    except ValueError as fault:
        raise InvalidValue(str(fault), EXPECTED_DURATION) from None


def some_time(example: str) -> Callable[[object], Duration]:
    """Validator of lengths above zero; `example` goes into its error."""

    def read(value: object) -> Duration:
        length = as_duration(value)
        if not length:
            raise InvalidValue("is no time at all", f"a duration longer than 0s, such as {example}")
        return length

    return read


Length = Annotated[Duration, PlainValidator(as_duration), PlainSerializer(str)]
Interval = Annotated[Duration, PlainValidator(some_time("15m")), PlainSerializer(str)]
