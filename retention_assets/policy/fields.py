"""Types of single policy values: durations, instants, globs, names, attributes, with bounds and errors."""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import (
    EXPECTED_DURATION,
    EXPECTED_INSTANT,
    Duration,
    as_duration,
    parse_instant,
    text_of,
)
from retention_assets.policy.where.parse import parse_condition
from retention_assets.policy.where.tree import Condition

BRANCHED = ("SNAPSHOT", "APPEND", "UPDATE", "DELETE")
INDEPENDENT = ("RECORD", "OBJECT")
STATUSES = ("OPEN", "COMMITTED", "ABORTED")

# limit of Arrow, NumPy and databases
MOST = 2**63 - 1
_SET = re.compile(r"\[!?\]?[^\]]*\]")
_RANGE = re.compile(r"([^\[!])-([^\]])")

Type = Literal["SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT"]
Status = Literal["OPEN", "COMMITTED", "ABORTED"]
Clock = Literal["closed", "opened", "closed_or_opened", "superseded", "archived"]


def _age(value: object) -> Duration:
    age = as_duration(value)
    if not age:
        raise InvalidValue(
            "an age of zero does not narrow", "an age longer than zero", "For every transaction write `select: all`."
        )
    return age


def _instant(value: object) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str):
        raise InvalidValue("is not an instant", EXPECTED_INSTANT)
    try:
        return parse_instant(value)
    except OverflowError:
        raise InvalidValue("is out of range", EXPECTED_INSTANT) from None
    except ValueError as fault:
        raise InvalidValue(str(fault), EXPECTED_INSTANT) from None


def _condition(value: object) -> Condition:
    if isinstance(value, Condition):
        return value
    if not isinstance(value, str):
        raise InvalidValue("is not a condition", "a boolean over log columns, such as \"attributes['tier'] = 'bronze'\"")
    return parse_condition(value)


def _glob(value: str) -> str:
    if not value or not value.isprintable():
        raise InvalidValue("is not a glob", "a name or a pattern with *, ? or [a-z]")
    # Such a set matches nothing, and an exclude or a hold that matches nothing protects nothing.
    if "[" in _SET.sub("", value):
        raise InvalidValue("has a set without its end", "a closing ]", "Write [[] for the character itself.")
    if any(low > high for inside in _SET.findall(value) for low, high in _RANGE.findall(inside)):
        raise InvalidValue("has an empty range", "a range from the lower character to the higher, such as [a-z]")
    return value


def _dataset_glob(value: str) -> str:
    _glob(value)
    if "/" not in value and "*" not in value:
        raise InvalidValue(
            "can match no dataset", "store/name, with *, ? or [a-z] where wanted", f"Write for example lake/{value}."
        )
    return value


def _name(value: str) -> str:
    if not value.strip() or value != value.strip() or not value.isprintable() or len(value) > 200:
        raise InvalidValue("is not a name", "1 to 200 printable characters without spaces at the ends")
    if value.startswith("::"):
        raise InvalidValue("a name that begins with :: belongs to the system", "a name of your own")
    return value


def _string_map(value: object) -> object:
    # A bare true or 1 in YAML is no string; comparing it would silently never match.
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(item, str):
                text = str(item).lower() if isinstance(item, bool) else str(item)
                raise InvalidValue(f"attribute {key!r} is not a string", "strings", f'Put it in quotes: {key}: "{text}".')
    return value


def fraction(value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= 1):
        raise InvalidValue("is not a fraction", "a number above 0 and at most 1")
    return float(value)


def shorthand(key: str) -> Callable[[Any], Any]:
    """Accept the bare value of a mapping with a single needed key: `older_than: 30d`."""

    def widen(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return widen


_AMOUNT = "[0-9]{1,12}"
_DATE, _TIME = ("".join(f"({_AMOUNT}{unit})?" for unit in units) for units in ("YMWD", "HMS"))
_DURATION_PATTERN = f"^({_AMOUNT}(s|m|h|d|w|mo|y)|P(?=.){_DATE}(T(?=.){_TIME})?)$"
DURATION_JSON = Annotated[str, Field(description=EXPECTED_DURATION, pattern=_DURATION_PATTERN, examples=["30d", "P2Y"])]
Span = Annotated[Duration, PlainValidator(as_duration, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Age = Annotated[Duration, PlainValidator(_age, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Instant = Annotated[datetime, PlainValidator(_instant, json_schema_input_type=str), PlainSerializer(text_of)]
Where = Annotated[Condition, PlainValidator(_condition, json_schema_input_type=str), PlainSerializer(lambda c: c.text)]
Name = Annotated[
    str, BeforeValidator(lambda value: _name(value) if isinstance(value, str) else value), Field(min_length=1, max_length=200)
]
Glob = Annotated[str, BeforeValidator(lambda value: _glob(value) if isinstance(value, str) else value), Field(min_length=1)]
DatasetGlob = Annotated[
    str,
    BeforeValidator(lambda value: _dataset_glob(value) if isinstance(value, str) else value),
    Field(json_schema_extra={"pattern": "[/*]"}),
]
Attributes = Annotated[dict[str, str], BeforeValidator(_string_map)]
Text = Annotated[str, Field(min_length=1)]


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Some = Annotated[tuple[T, ...], BeforeValidator(_tupled), Field(min_length=1)]
Several = Annotated[tuple[T, ...], BeforeValidator(_tupled)]
