"""Lengths of time as people write them in settings: `15m`, `7d`, `P2Y`.

Belongs here: the types of such keys. policy/model.py has them as well, but would have to build every model of a policy first.
Does not belong here: what a duration is (instants.py).
"""

from collections.abc import Callable
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from retention_assets.policy.instants import EXPECTED_DURATION, Duration, parse_duration
from retention_assets.problems import Expected


def _length(value: object) -> Duration:
    if isinstance(value, Duration):
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as fault:
        raise Expected(str(fault), EXPECTED_DURATION) from None


def some_time(example: str) -> Callable[[object], Duration]:
    """A validator of lengths that are not nothing; the example is for whoever wrote none."""

    def read(value: object) -> Duration:
        length = _length(value)
        if not length:
            raise Expected("is no time at all", f"a duration longer than 0s, such as {example}")
        return length

    return read


Length = Annotated[Duration, PlainValidator(_length), PlainSerializer(str)]
Interval = Annotated[Duration, PlainValidator(some_time("15m")), PlainSerializer(str)]
