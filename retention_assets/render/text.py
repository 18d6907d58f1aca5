"""Sizes, times and shares in words, the same in every medium; and foreign text made safe to look at."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

from retention_assets.policy.durations import Duration, minute_of, text_of

# each write of JSON flushes, so a row is not a write of its own
_ROWS_AT_ONCE = 1_000
# Invisible characters and those that change how their neighbours look: control characters but tab and line end, direction
# marks, zero width, other line ends, and lone surrogates, which no encoding can write.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_SPACES = str.maketrans({"\n": "\\n", "\t": "\\t"})


def kib(count: int) -> float:
    """Bytes as a number to plot, whose name has the unit."""
    return round(count / 1024, 1)


def duration_of(length: timedelta) -> str:
    """`43 ms`, `12 seconds`, `2 minutes`, `3 hours and 5 minutes`, `2 days and 4 hours`; rounded down."""
    if length < timedelta():
        # The clock of the database was set back in between.
        return f"-{duration_of(-length)}"
    if length < timedelta(seconds=1):
        return f"{length // timedelta(milliseconds=1)} ms"
    units = ((86_400, 3_600), (3_600, 60), (60, 60), (0, 1))
    least = next(least for unit, least in units if length >= timedelta(seconds=unit))
    seconds = length // timedelta(seconds=least) * least
    return Duration(days=seconds // 86_400, seconds=seconds % 86_400).words()


def iso_of(length: timedelta) -> str:
    """ISO 8601, such as PT32M1.01S."""
    if length < timedelta():
        # The clock of the database was set back in between.
        return f"-{iso_of(-length)}"
    hours, rest = divmod(length, timedelta(hours=1))
    minutes, rest = divmod(rest, timedelta(minutes=1))
    seconds = f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{seconds}S" if seconds != "0" else ""]
    return "PT" + ("".join(parts) or "0S")


def date_of(day: date) -> str:
    """`3 July 2026`: a page is read on later days as well, so it says neither today nor tomorrow."""
    return f"{day.day} {day:%B %Y}"


def day_of_month(day: date) -> str:
    """`31 Jan`"""
    return f"{day.day} {day:%b}"


def period_of(first: date, last: date) -> str:
    """`31 Dec to 9 Jan 2026 (UTC)`"""
    return f"{day_of_month(first)} to {day_of_month(last)} {last.year} (UTC)"


def until_of(instant: datetime, now: datetime) -> str:
    """Time until an instant, rounded down: `in 6 days`, `in 40 minutes`, `now`; past two months the instant."""
    length = instant - now
    if length <= timedelta():
        return "now"
    for unit, least, most in (("day", timedelta(days=2), timedelta(days=61)), ("hour", timedelta(hours=2), timedelta(days=2))):
        if least <= length < most:
            return f"in {length // timedelta(**{f'{unit}s': 1})} {unit}s"
    if length >= timedelta(days=61):
        return minute_of(instant)
    minutes = length // timedelta(minutes=1)
    return f"in {minutes} minute{'' if minutes == 1 else 's'}"


def share_of(part: int, whole: int) -> str:
    """Per cent. A part above zero is never 0.0 %, and less than all is never 100.0 %."""
    share = 100 * part / whole
    return "under 0.1 %" if 0 < share < 0.1 else "over 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def visible(text: str) -> str:
    r"""Escape characters that nobody would see, such as `\x1b` or `\u202e`."""
    return _UNSEEN.sub(lambda match: _escape(ord(match[0])), text)


def visible_line(text: str) -> str:
    """`visible`, with line ends and tabs escaped too."""
    return visible(text).translate(_SPACES)


def visible_note(text: str) -> str:
    """`visible` for a log: lines after the first are indented, so that no foreign text begins a line."""
    return visible(text).replace("\n", "\n  ")


def visible_json(text: str) -> str:
    """Equivalent JSON with invisible characters escaped."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSEEN.sub(lambda match: _json_escape(match[0]), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def sentence_case(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


# --- JSON: instants as `text_of` writes them, what JSON lacks as `str` does; a million rows in pieces ---


def plain_json(value: object) -> Any:
    """Return it as a program reads it: lists, objects, texts and numbers."""
    return json.loads(json_text(value))


def json_text(value: object, indent: int | None = None) -> str:
    return json.dumps(
        value, ensure_ascii=False, indent=indent,
        default=lambda each: text_of(each) if isinstance(each, datetime) else str(each),
    )  # fmt: skip


def json_rows(rows: Iterable[object], head: Mapping[str, object] | None = None, key: str = "rows") -> Iterator[str]:
    """Yield rows as one JSON array; with a `head` it stands in that object, under a key of its own."""
    remaining = iter(rows)
    yield f"{json_text(head)[:-1]}, {json_text(key)}: [" if head else "["
    separator = "\n"
    while batch := [json_text(row) for row in islice(remaining, _ROWS_AT_ONCE)]:
        yield separator + ",\n".join(batch)
        separator = ",\n"
    yield ("]" if separator == "\n" else "\n]") + ("}\n" if head else "\n")
