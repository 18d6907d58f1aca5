"""Sizes, lengths of time and shares in words for people, the same in every medium.

Belongs here: what more than one medium writes. Forms for programs (ISO 8601, JSON) are policy/durations.py's and report.py's.
"""

import re
from datetime import timedelta

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
# Control characters, and halves of characters, which no encoding can write.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def size_of(count: int | None) -> str:
    """Bytes, rounded: `1.5 KiB`; a question mark where the store does not know."""
    if count is None:
        return "?"
    if count < 1024:
        return f"{count} B"
    power = next((power for power in range(1, len(_UNITS)) if count < 1024 ** (power + 1)), len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"


def duration_of(length: timedelta) -> str:
    """Days, hours and minutes; below a day the seconds too, as exactly as they are known."""
    if length < timedelta():
        # The clock of the database was set back in between.
        return f"-{duration_of(-length)}"
    minutes, rest = divmod(length, timedelta(minutes=1))
    amounts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    parts = [f"{amount} {unit}" for amount, unit in amounts if amount]
    seconds = f"{rest.total_seconds():.3f}".rstrip("0").rstrip(".")
    if minutes < 1440 and (seconds != "0" or not parts):
        parts.append(f"{seconds} s")
    return " ".join(parts)


def share_of(part: int, whole: int) -> str:
    """A share in per cent. What is there is never 0.0 %, and what is not all of it never 100.0 %."""
    share = 100 * part / whole
    return "under 0.1 %" if 0 < share < 0.1 else "over 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def printable(text: str) -> str:
    """The text with a replacement character for everything that no page and no picture can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)
