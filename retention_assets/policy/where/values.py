"""Literals of a condition: numbers, texts, instants and patterns, from their spelling, within their bounds."""

import math
import re

from retention_assets.errors import InvalidValue, quote
from retention_assets.policy.durations import EXPECTED_INSTANT, micros, parse_instant
from retention_assets.policy.where.tree import LONGEST_PATTERN, Kind, Literal

BACKSLASH = "\\"  # escapes in a pattern unless ESCAPE says otherwise, as in Spark

_INT64 = range(-(2**63), 2**63)
_ESCAPED = re.compile(r"['\\](['\\])")  # the grammar lets both of them stand in a text only in pairs


def number(sign: str, digits: str) -> Literal:
    if not digits.isdecimal():
        decimal = float(sign + digits) + 0.0  # which makes one zero of the two
        if not math.isfinite(decimal):
            raise InvalidValue(f"{quote(digits)} is too large", "a decimal number below 1.8e308")
        return Literal(Kind.DECIMAL, decimal)
    digits = digits.lstrip("0") or "0"
    # The length first: Python itself refuses to read thousands of digits.
    if len(digits) > 19 or int(sign + digits) not in _INT64:
        raise InvalidValue(f"{quote(sign + digits)} is too large", "an integer of 64 bits")
    return Literal(Kind.INTEGER, int(sign + digits))


def unquoted(token: str) -> str:
    return _ESCAPED.sub(r"\1", token[1:-1])


def instant(words: str) -> Literal:
    try:
        return Literal(Kind.INSTANT, micros(parse_instant(words)))
    except (ValueError, OverflowError):
        raise InvalidValue(f"{quote(words)} is not an instant", EXPECTED_INSTANT) from None


def date(words: str) -> Literal:
    if len(words) != len("2026-01-01"):
        raise InvalidValue(f"{quote(words)} is not a date", "a date such as 2026-01-01", "Write TIMESTAMP '…' for an instant.")
    return instant(words)


def escaping(text: str) -> str:
    if len(text) != 1 or text in "%_":
        raise InvalidValue(f"{quote(text)} cannot escape", "one character other than % and _")
    return text


def pattern(text: str, escape: str) -> Literal:
    """A pattern with a backslash as its escape, whichever the person chose."""
    if len(text) > LONGEST_PATTERN:
        raise InvalidValue(f"a pattern of {len(text)} characters", f"at most {LONGEST_PATTERN}")
    made, rest = "", iter(text)
    for char in rest:
        if char != escape:
            made += BACKSLASH * 2 if char == BACKSLASH else char
            continue
        char = next(rest, "")
        if char not in ("%", "_", escape):
            what = f"{quote(escape + char)} in the pattern escapes nothing"
            raise InvalidValue(what, f"%, _ or {escape} after {escape}", f"Write {escape}{escape} for a plain {escape}.")
        made += verbatim(char)
    return Literal(Kind.TEXT, made)


def verbatim(text: str) -> str:
    """A text as a pattern that matches just itself."""
    return "".join(BACKSLASH + char if char in "%_\\" else char for char in text)
