"""What a text becomes as a value of another kind, and arithmetic at the edges of 64 bits: exact, or null."""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.frames.verdicts import where_condition as evaluation
from retention_assets.policy import micros, parse_instant
from retention_assets.policy.where.tree import TARGETS, Kind
from retention_assets_tests.policy.where.conditions import held, log

# What the text of an attribute is as another kind; null where there is no one answer.
CASTS = [
    *[("BIGINT", text, number) for text, number in (
        ("0", 0), ("-0", 0), ("+5", 5), (" 5\t", 5), ("007", 7), ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)), ("0" * 40 + "1", 1),
        ("9223372036854775808", None), ("-9223372036854775809", None), ("9" * 19, None), ("9" * 25, None), ("", None),
        (" ", None),
        ("+", None), ("--5", None), ("5 5", None), ("1.0", None), ("1e3", None), ("0x10", None), ("1_000", None), ("٣", None),
        ("5\n6", None), ("5\x00", None), ("TRUE", None),
    )],
    *[("DOUBLE", text, number) for text, number in (
        ("0", 0.0), ("-0.0", 0.0), ("1.5", 1.5), ("+1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("-1E-3", -0.001),
        ("1e-999", 0.0), (" 2 ", 2.0), ("9007199254740993", 9007199254740992.0),
        ("1e999", None), ("-1e999", None), ("nan", None), ("inf", None), ("Infinity", None), ("1e", None), (".", None),
        ("", None), ("1,5", None), ("1.5f", None), ("0x1p3", None),
    )],
    *[("BOOLEAN", text, truth) for text, truth in (
        ("true", True), ("TRUE", True), (" t ", True), ("y", True), ("Yes", True), ("1", True),
        ("false", False), ("F", False), ("n", False), ("NO", False), ("0", False),
        ("", None), ("2", None), ("on", None), ("truee", None), ("null", None),
    )],
    *[("TIMESTAMP", text, instant) for text, instant in (
        ("2026-01-01", "2026-01-01T00:00:00Z"), (" 2026-01-01T10:11:12Z ", "2026-01-01T10:11:12Z"),
        ("2026-01-01 10:11Z", "2026-01-01T10:11:00Z"), ("2026-01-01T10:11:12.5+02:30", "2026-01-01T07:41:12.5Z"),
        ("2026-01-01T10:11:12-02", "2026-01-01T12:11:12Z"), ("2026-01-01T00:00:00+0100", "2025-12-31T23:00:00Z"),
        ("2026-01-01T10:11:12.123456789Z", "2026-01-01T10:11:12.123456Z"),  # cut, as Python does
        ("2024-02-29", "2024-02-29T00:00:00Z"), ("2000-02-29", "2000-02-29T00:00:00Z"), ("0001-01-01", "0001-01-01T00:00:00Z"),
        ("2026-04-30", "2026-04-30T00:00:00Z"), ("2026-12-31", "2026-12-31T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"), ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
        ("2026-01-01T10:11:12", None),  # without a zone nobody knows when that is
        ("2023-02-29", None), ("1900-02-29", None), ("2026-04-31", None), ("2026-11-31", None),
        ("2026-02-30", None), ("2026-13-01", None), ("2026-00-10", None),
        ("2026-01-32", None), ("2026-01-00", None), ("2026-01-01T24:00Z", None), ("2026-01-01T10:60Z", None),
        ("2026-01-01T10:11:60Z", None), ("2026-01-01T10:11+24:00", None), ("2026-01-01T", None), ("2026-1-1", None),
        ("0000-01-01", None), ("0001-01-01T00:00:00+01:00", None), ("9999-12-31T23:59:59-01:00", None), ("", None),
        ("now", None), ("2026-01-01T10:11:12 Europe/Berlin", None), ("2026-01-01Z", None), ("20260101", None),
        ("1767225600", None),
    )],
]  # fmt: skip


@pytest.mark.parametrize(("target", "text", "value"), CASTS)
def test_a_text_becomes(target: str, text: str, value: Any) -> None:
    array = evaluation._CASTS[Kind.TEXT, TARGETS[target.lower()]](pa.array([text, None, "no", text]))
    if target == "TIMESTAMP" and value is not None:
        value = micros(parse_instant(value))
    assert array.to_pylist() == [value, None, None if target != "BOOLEAN" else False, value]


@pytest.mark.parametrize("text", [text for target, text, value in CASTS if target == "TIMESTAMP" and value is not None])
def test_an_instant_in_an_attribute_is_the_instant_of_the_same_text_in_the_condition(text: str) -> None:
    rows = log({"attributes": [("on", text)]})
    assert held(f"CAST(attributes['on'] AS TIMESTAMP) = TIMESTAMP '{text.strip()}'", rows) == ["T1"]


def test_a_day_is_a_day_if_python_knows_it() -> None:
    years = (1, 4, 100, 400, 1900, 1970, 2000, 2023, 2024, 2096, 2100, 9999)
    texts = [f"{year:04}-{month:02}-{day:02}" for year in years for month in range(14) for day in range(33)]

    def instant(text: str) -> int | None:
        try:
            return micros(parse_instant(text))
        except ValueError:
            return None

    array = evaluation._CASTS[Kind.TEXT, Kind.INSTANT](pa.array(texts))
    assert array.to_pylist() == [instant(text) for text in texts]


EDGES = [0, 1, -1, 2, 3, -3, 2**31, -(2**31), 2**32 + 1, 3037000500, -3037000500, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]


def _exact(op: str, a: int, b: int) -> int | None:
    """What Python's unlimited integers say, or null where that is not of 64 bits."""
    if op == "%":
        return None if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))
    result = {"+": a + b, "-": a - b, "*": a * b}[op]
    return result if -(2**63) <= result < 2**63 else None


@pytest.mark.parametrize("op", ["+", "-", "*", "%"])
def test_arithmetic_is_exact_or_null_at_the_edges_of_64_bits(op: str) -> None:
    pairs = [(a, b) for a in EDGES for b in EDGES]
    left, right = (pa.array(side, pa.int64()) for side in zip(*pairs, strict=True))
    expected = [_exact(op, a, b) for a, b in pairs]
    assert evaluation._OPERATORS[op](left, right).to_pylist() == expected
    # The same with a literal at the right, which is not spread over the rows.
    scalars = [evaluation._OPERATORS[op](pa.array([a], pa.int64()), pa.scalar(b, pa.int64()))[0].as_py() for a, b in pairs]
    assert scalars == expected


@pytest.mark.parametrize(("op", "change"), [("abs", abs), ("negate", lambda value: -value)])
def test_a_change_of_sign_is_exact_or_null(op: str, change: Callable[[int], int]) -> None:
    expected = [None if value == -(2**63) else change(value) for value in EDGES]
    assert evaluation._OPERATORS[op](pa.array(EDGES, pa.int64())).to_pylist() == expected
