"""How much the laws try: so many random cases and points of death in the suite, and as many times that as a campaign wants.

RETENTION_ROUNDS=20 python -m pytest retention_assets_tests/policy/where
"""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

_TIMES = float(os.environ.get("RETENTION_ROUNDS", "1"))


def rounds(number: int) -> int:
    """Rounds to try where a test asks for a number: half of it in `make test`, RETENTION_ROUNDS times it in a campaign."""
    return max(1, int(number * _TIMES))


def examples(number: int) -> int:
    """Examples of a law: the number that it asks for, and more in a campaign."""
    return max(number, rounds(number))


def every(number: int) -> int:
    """Distance between points of death: the number that a test asks for, and less in a campaign."""
    return max(1, round(number / max(1, _TIMES)))


def deaths(points: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """Points of death as parameters. All of them are tried by `make test-all`, and those of `always` by `make test`."""
    return [
        pytest.param(*(point if isinstance(point, tuple) else (point,)), marks=() if point in always else pytest.mark.kill)
        for point in points
    ]
