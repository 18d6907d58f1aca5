"""Keys of the policy language that hold one value: durations, instants, names, globs, sizes, and what is wrong with others."""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar
from zoneinfo import available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator

from retention_assets.errors import InvalidValue, suggest
from retention_assets.policy.durations import EXPECTED_DURATION, EXPECTED_INSTANT, Duration, as_duration, parse_instant, text_of
from retention_assets.policy.sizes import SIZE_PATTERN, parse_size, size_text
from retention_assets.policy.where import parse_condition
from retention_assets.policy.where.tree import Condition

# limit of Arrow, NumPy and databases
MOST = 2**63 - 1
_SET = re.compile(r"\[!?\]?[^\]]*\]")
_RANGE = re.compile(r"([^\[!])-([^\]])")


def age_above_zero(value: object) -> Duration:
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
    if any(low > high for characters in _SET.findall(value) for low, high in _RANGE.findall(characters)):
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


# Each machine has a zone of its own under these names.
_LOCAL_ZONES = frozenset({"Factory", "localtime", "posixrules"})


def _zone(value: str) -> str:
    zones = available_timezones() - _LOCAL_ZONES
    if value not in zones:
        expected = "a name of the IANA database, the same on every machine, such as Europe/Berlin or UTC"
        raise InvalidValue("is not a time zone", expected, suggest(value, sorted(zones)))
    return value


def fraction(value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= 1):
        raise InvalidValue("is not a fraction", "a number above 0 and at most 1")
    return float(value)


_AMOUNT = "[0-9]{1,12}"
_DATE, _TIME = ("".join(f"({_AMOUNT}{unit})?" for unit in units) for units in ("YMWD", "HMS"))
_DURATION_PATTERN = f"^({_AMOUNT}(s|m|h|d|w|mo|y)|P(?=.){_DATE}(T(?=.){_TIME})?)$"
DURATION_JSON = Annotated[str, Field(description=EXPECTED_DURATION, pattern=_DURATION_PATTERN, examples=["30d", "P2Y"])]
Span = Annotated[Duration, PlainValidator(as_duration, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Age = Annotated[Duration, PlainValidator(age_above_zero, json_schema_input_type=DURATION_JSON), PlainSerializer(str)]
Instant = Annotated[datetime, PlainValidator(_instant, json_schema_input_type=str), PlainSerializer(text_of)]
Where = Annotated[Condition, PlainValidator(_condition, json_schema_input_type=str), PlainSerializer(lambda c: c.text)]


def _text_that(check: Callable[[str], str]) -> BeforeValidator:
    return BeforeValidator(lambda value: check(value) if isinstance(value, str) else value)


Name = Annotated[str, _text_that(_name), Field(min_length=1, max_length=200)]
Glob = Annotated[str, _text_that(_glob), Field(min_length=1)]
DatasetGlob = Annotated[str, _text_that(_dataset_glob), Field(json_schema_extra={"pattern": "[/*]"})]
Zone = Annotated[str, _text_that(_zone), Field(min_length=1)]
Size = Annotated[
    int,
    PlainValidator(parse_size, json_schema_input_type=Annotated[str, Field(pattern=SIZE_PATTERN, examples=["10GiB"])]),
    PlainSerializer(size_text),
]
Attributes = Annotated[dict[str, str], BeforeValidator(_string_map)]
Text = Annotated[str, Field(min_length=1)]


def tuple_of(value: Any) -> Any:
    # A strict model takes no list, and YAML has no tuples.
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Some = Annotated[tuple[T, ...], BeforeValidator(tuple_of), Field(min_length=1)]  # one or more
Several = Annotated[tuple[T, ...], BeforeValidator(tuple_of)]  # none or more


class Value(BaseModel):
    """The base of every part: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
