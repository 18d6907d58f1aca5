"""The `where` line: what is accepted, what is refused and how, and what a condition says about rows.

Belongs here: tables of cases for policy/where*.py and frames/verdicts/where_condition.py, hostile texts, and the same conditions asked of
DuckDB, which knows nothing of our reader or our arithmetic.
"""

import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retention_assets.errors import InvalidValue, Problem
from retention_assets.frames.log import INSTANT, LOG
from retention_assets.frames.verdicts import where_condition as evaluation
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.policy.durations import micros, parse_instant
from retention_assets.policy.fields import BRANCHED, INDEPENDENT, STATUSES
from retention_assets.policy.model import Selection
from retention_assets.policy.where import errors, grammar
from retention_assets.policy.where.kinds import CASTS as KIND_CASTS
from retention_assets.policy.where.kinds import FUNCTIONS, TARGETS
from retention_assets.policy.where.parse import parse_condition
from retention_assets.policy.where.tree import (
    COLUMNS,
    DEEPEST,
    MOST_CHARACTERS,
    MOST_NODES,
    VALUES,
    Apply,
    Attribute,
    Column,
    Condition,
    Kind,
    Literal,
    Term,
    columns_of,
)


def log(*rows: dict[str, Any]) -> pa.Table:
    """Rows of the log; what a row leaves out is null, or the plainest value that the schema accepts."""
    plain = {"dataset": "lake/d", "ordinal": 0, "parent_ordinal": -1, "type": "SNAPSHOT", "status": "COMMITTED"}
    filled = [{**plain, "transaction": f"T{number}", **row} for number, row in enumerate(rows, start=1)]
    columns = [pa.array([row.get(field.name) for row in filled], field.type) for field in LOG]
    return pa.Table.from_arrays(columns, schema=LOG)


def at(text: str) -> datetime:
    return parse_instant(text)


def held(text: str, rows: pa.Table) -> list[str]:
    """The transactions that a condition holds for."""
    bits = evaluate(parse_condition(text), rows)
    assert bits.dtype == np.bool_
    return [name for name, bit in zip(rows["transaction"].to_pylist(), bits.tolist(), strict=True) if bit]


def refusal(text: str) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        parse_condition(text)
    return caught.value


# --- What a condition says about rows --------------------------------------------------------------------------------

ROWS = log(
    {  # T1: an old small snapshot of the bronze tier
        "bytes": 10, "files": 3, "opened_at": at("2026-01-01T00:00:00Z"), "closed_at": at("2026-01-01T00:05:00Z"),
        "attributes": [("tier", "bronze"), ("n", "7"), ("done", "true"), ("on", "2026-01-01T02:00:00+02:00")],
    },
    {  # T2: a large append
        "type": "APPEND", "parent": "T1", "ordinal": 1, "parent_ordinal": 0, "bytes": 2**62, "files": 0,
        "closed_at": at("2026-02-01T00:00:00Z"),
        "attributes": [("tier", "Silver"), ("n", "1e2"), ("done", "no"), ("on", "2026-02-30")],
    },
    {  # T3: open, nothing known of it
        "type": "APPEND", "status": "OPEN", "parent": "T2", "ordinal": 2, "parent_ordinal": 1, "attributes": None,
    },
    {  # T4: odd texts
        "status": "ABORTED", "dataset": "lake/100%_\\x", "bytes": -5, "files": 2,
        "attributes": [
            ("tier", "  "), ("n", "seven"), ("done", ""), ("k'1", "it's"), ("tab", "\t x "), ("tier", " it's\nbronze "),
        ],
    },
)  # fmt: skip

MEANINGS = [
    # Columns of each kind.
    ("bytes > 5", "T1 T2"),  # null (T3) is not true
    ("type = 'SNAPSHOT'", "T1 T4"),  # a dictionary-encoded column
    ("parent = 'T1'", "T2"),
    ("ordinal = 1 OR parent_ordinal = 1", "T2 T3"),  # 32-bit columns
    ("transaction >= 'T3'", "T3 T4"),  # texts have an order
    ("closed_at < '2026-01-01T00:05:00Z'", ""),  # strictly
    ("closed_at <= '2026-01-01T00:05:00Z'", "T1"),
    ("closed_at <= '2026-01-01T01:05:00+01:00'", "T1"),  # the same instant in another zone
    ("closed_at = TIMESTAMP '2026-02-01T00:00:00Z'", "T2"),
    ("closed_at >= DATE '2026-02-01'", "T2"),  # a date is its midnight in UTC
    ("closed_at >= '2026-02-01'", "T2"),  # also without DATE
    ("'2026-02-01' <= closed_at", "T2"),  # from the other side
    ("closed_at > opened_at", "T1"),
    ("archived_at IS NULL", "T1 T2 T3 T4"),
    # Case of words does not matter; case of values does.
    ("BYTES > 5 aNd Type = 'APPEND'", "T2"),
    ("attributes['tier'] = 'silver'", ""),
    ("attributes['TIER'] IS NULL", "T1 T2 T3 T4"),  # keys are values
    ("`type` = 'APPEND'", "T2 T3"),  # backquotes name a column, as in Spark
    ("`attributes`['tier'] = 'bronze'", "T1"),
    # Attributes.
    ("attributes['tier'] = 'bronze'", "T1"),
    ("attributes['tier'] <> 'bronze'", "T2 T4"),  # without attributes (T3) unknown
    ("attributes['none'] IS NOT NULL", ""),
    ("attributes['k''1'] = 'it''s'", "T4"),  # a doubled quote is a quote
    ("attributes['k\\'1'] = 'it\\'s'", "T4"),  # and so is an escaped one
    ("attributes['tier'] LIKE '%it''s%'", "T4"),  # the last of two values for a key counts
    # Operators.
    ("bytes = 10", "T1"), ("bytes <> 10", "T2 T4"), ("bytes != 10", "T2 T4"), ("bytes >= 10", "T1 T2"), ("bytes < 0", "T4"),
    ("bytes IN (10, -5)", "T1 T4"),
    ("bytes NOT IN (10, -5)", "T2"),
    ("bytes IN (10.0)", "T1"),  # an integer beside a decimal becomes one
    ("bytes IN (9.5)", ""),
    ("closed_at IN ('2026-02-01', DATE '2026-03-01')", "T2"),
    ("attributes['tier'] IN ('bronze', 'Silver')", "T1 T2"),
    ("bytes BETWEEN 10 AND 11", "T1"),  # both ends belong
    ("bytes NOT BETWEEN 10 AND 11", "T2 T4"),
    ("bytes BETWEEN 11 AND 10", ""),  # an empty range
    ("bytes BETWEEN 0 AND 20 AND files = 3", "T1"),  # the first AND is BETWEEN's
    ("closed_at BETWEEN '2026-01-01' AND '2026-01-31'", "T1"),
    ("attributes['tier'] LIKE 'bron%'", "T1"), ("attributes['tier'] NOT LIKE 'bron%'", "T2 T4"),
    ("attributes['tier'] LIKE '_ilver'", "T2"),
    ("attributes['tier'] LIKE '%bronze_'", "T4"),  # % also stands for a line break
    ("attributes['tier'] LIKE 'bronze%'", "T1"),  # % may be nothing
    ("dataset LIKE '%100!%!_%' ESCAPE '!'", "T4"),
    ("dataset LIKE '%100\\\\%%'", "T4"),  # without ESCAPE a backslash escapes, and in a text it is doubled: as in Spark
    ("dataset LIKE '%\\\\\\\\x'", "T4"),  # so a backslash itself takes four
    ("dataset LIKE '%\\\\x' ESCAPE '!'", "T4"),  # and two with another escape
    ("dataset LIKE '%100_%' AND NOT dataset LIKE '%100!_%' ESCAPE '!'", "T4"),
    ("startswith(dataset, 'lake/100%_\\\\')", "T4"),  # no wildcards here
    ("endswith(dataset, '%')", ""),
    ("contains(dataset, '%_')", "T4"),
    # Precedence.
    ("bytes = 10 OR bytes = -5 AND files = 99", "T1"),  # AND before OR
    ("(bytes = 10 OR bytes = -5) AND files = 2", "T4"),
    ("NOT bytes = 10 AND files = 2", "T4"),  # NOT takes the comparison, not the AND
    ("NOT (bytes = 10 AND files = 2)", "T1 T2 T4"),  # T2: files = 2 is false, so the NOT is true
    ("NOT NOT bytes = 10", "T1"),
    ("files + 1 * 2 = 5", "T1"), ("(files + 1) * 2 = 8", "T1"), ("files - 1 - 1 = 1", "T1"), ("10 - files % 2 = 9", "T1"),
    ("- files + 4 = 1", "T1"), ("- -5 = - bytes", "T4"), ("8 / 2 / 2 = 2 AND bytes = 10", "T1"),
    # Numbers.
    ("files / 2 = 1.5", "T1"),  # division is not of integers
    ("bytes / files > 3 AND bytes / files < 4", "T1"),
    ("bytes / files > 0", "T1"),  # T2: x / 0 is null
    ("bytes % files IS NULL", "T2 T3"),
    ("bytes % 3 = -2", "T4"),  # the sign of what is divided
    ("bytes % -3 = -2", "T4"),
    ("bytes % 3.5 = -1.5", "T4"),  # also of decimals
    ("bytes * 2 IS NULL", "T2 T3"),  # beyond 64 bits, not wrapped
    ("bytes + bytes < 0", "T4"), ("0 - bytes - bytes - bytes > 0", "T4"), ("bytes * 2.0 > 9e18", "T2"),
    ("abs(bytes) = 5", "T4"), ("-bytes = 5", "T4"), ("abs(-1.5) = 1.5 AND bytes = 10", "T1"),
    ("bytes = 1e1", "T1"), ("bytes > 9.99 AND bytes < 10.01", "T1"), ("bytes * 1e308 * 10 IS NULL", "T1 T2 T3 T4"),
    ("bytes > -9223372036854775808", "T1 T2 T4"), ("bytes < 9223372036854775807", "T1 T2 T4"),
    # Functions.
    ("lower(attributes['tier']) = 'silver'", "T2"), ("upper(attributes['tier']) = 'SILVER'", "T2"),
    ("lower('ÄÉ') = 'äé' AND upper('äé') = 'ÄÉ' AND bytes = 10", "T1"),  # beyond ASCII
    ("length(trim(attributes['tier'])) = 11", "T4"),  # characters
    ("length(trim(attributes['tab'])) = 3", "T4"),  # only spaces go
    ("trim(attributes['tier']) LIKE 'it%bronze'", "T4"),
    ("coalesce(files, 99) = 99", "T3"), ("coalesce(files, bytes, 1.5) = 1.5", "T3"),
    ("coalesce(closed_at, '2026-02-01') = DATE '2026-02-01'", "T2 T3 T4"),
    ("coalesce(CAST(attributes['done'] AS BOOLEAN), TRUE)", "T1 T3 T4"),
    # Casts.
    ("CAST(attributes['n'] AS BIGINT) = 7", "T1"),  # 1e2 and seven are no integers
    ("CAST(attributes['n'] AS DOUBLE) > 7", "T2"),
    ("CAST(attributes['n'] AS BIGINT) IS NULL", "T2 T3 T4"),
    ("CAST(attributes['done'] AS BOOLEAN)", "T1"), ("NOT CAST(attributes['done'] AS BOOLEAN)", "T2"),
    ("CAST(attributes['done'] AS BOOLEAN) = FALSE", "T2"),
    ("CAST(attributes['on'] AS TIMESTAMP) = opened_at", "T1"),
    ("CAST(attributes['on'] AS TIMESTAMP) IS NULL", "T2 T3 T4"),  # there is no 30 February
    ("CAST(bytes AS STRING) = '-5'", "T4"), ("CAST(bytes / 4 AS BIGINT) = 2", "T1"), ("CAST(bytes / 4 AS BIGINT) = -1", "T4"),
    ("CAST(files / 2 AS BIGINT) = 1", "T1 T4"),  # towards zero
    ("CAST(bytes * 4.0 AS BIGINT) IS NULL", "T2 T3"),  # 2^64 does not fit
    ("CAST(bytes * 2.0 AS BIGINT) IS NULL", "T2 T3"),  # nor does 2^63
    ("CAST(bytes * -2.0 AS BIGINT) = -9223372036854775808", "T2"),  # but its negative
    ("CAST(TIMESTAMP '1969-12-31T23:59:58.5Z' AS BIGINT) = -2 AND bytes = 10", "T1"),  # the whole second before
    ("CAST(closed_at AS BIGINT) - CAST(opened_at AS BIGINT) = 300", "T1"),  # seconds
    # Truths.
    ("(bytes = 10) = (files = 3)", "T1 T2 T4"), ("TRUE <> (bytes = 10)", "T2 T4"), ("(bytes = 10) IS NULL", "T3"),
    ("(bytes = 10) IN (FALSE)", "T2 T4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MEANINGS)
def test_a_condition_holds_for(text: str, expected: str) -> None:
    assert held(text, ROWS) == expected.split()


# In every one `bytes`, `closed_at` and the attributes are null: neither it nor its opposite is true.
UNKNOWN = [
    "bytes = 1", "bytes <> 1", "bytes < 1", "bytes <= 1", "bytes > 1", "bytes >= 1", "1 = bytes", "bytes = bytes",
    "bytes IN (1, 2)", "bytes NOT IN (1, 2)", "bytes BETWEEN 1 AND 2", "bytes NOT BETWEEN 1 AND 2", "5 BETWEEN bytes AND 9",
    "bytes + 1 = 2", "1 - bytes = 2", "bytes * 0 = 0", "0 / bytes = 0", "bytes % 2 = 0", "0 % bytes = 0", "-bytes = 0",
    "bytes * 0.0 = 0.0", "abs(bytes) = 0", "coalesce(bytes, files) = 0", "CAST(bytes AS STRING) = ''",
    "CAST(bytes AS DOUBLE) = 0", "closed_at > DATE '2026-01-01'", "closed_at IN ('2026-01-01')",
    "CAST(closed_at AS BIGINT) = 0", "attributes['k'] = ''", "attributes['k'] <> ''", "attributes['k'] LIKE '%'",
    "attributes['k'] NOT LIKE '%'", "attributes['k'] IN ('')", "startswith(attributes['k'], '')",
    "length(attributes['k']) = 0", "lower(attributes['k']) = ''", "upper(attributes['k']) = ''",
    "trim(attributes['k']) = ''", "CAST(attributes['k'] AS BIGINT) = 0", "CAST(attributes['k'] AS DOUBLE) = 0",
    "CAST(attributes['k'] AS TIMESTAMP) > DATE '1970-01-01'", "CAST(attributes['k'] AS BOOLEAN)",
    "CAST(attributes['k'] AS BOOLEAN) = TRUE", "(bytes = 1) = (bytes = 1)", "(bytes = 1) IN (TRUE, FALSE)",
    "ordinal / 0 = 0", "ordinal / 0 <> 0", "ordinal % 0 = 0", "ordinal / 0.0 > 0", "1e308 * 10 * ordinal > 0",
]  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN)
@pytest.mark.parametrize("attributes", [None, [], [("k", None)]], ids=["no map", "no key", "no value"])
def test_null_makes_a_condition_neither_true_nor_false(text: str, attributes: Any) -> None:
    rows = log({"attributes": attributes, "ordinal": 1})
    assert held(text, rows) == []
    assert held(f"NOT ({text})", rows) == []
    assert held(f"({text}) IS NULL", rows) == ["T1"]


@pytest.mark.parametrize("p", [True, False, None])
@pytest.mark.parametrize("q", [True, False, None])
def test_and_or_not_follow_three_valued_logic(p: bool | None, q: bool | None) -> None:
    rows = log({"attributes": [("p", p if p is None else str(p)), ("q", q if q is None else str(q))]})
    left, right = (f"CAST(attributes['{key}'] AS BOOLEAN)" for key in "pq")
    both = False if False in (p, q) else None if None in (p, q) else True
    either = True if True in (p, q) else None if None in (p, q) else False
    for text, answer in ((f"{left} AND {right}", both), (f"{left} OR {right}", either)):
        assert bool(held(text, rows)) is (answer is True)
        assert bool(held(f"NOT ({text})", rows)) is (answer is False)


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


def test_an_integer_beyond_the_exact_decimals_can_be_compared_with_a_decimal() -> None:
    # Arrow's own comparison refuses such a row, and with it the whole column.
    assert held("bytes > 1.5", log({"bytes": 2**53 + 1}, {"bytes": 1})) == ["T1"]


def test_there_is_one_zero() -> None:
    rows = log({"bytes": 0, "attributes": [("z", "-0.0")]})
    assert held("bytes * -1.0 IN (0.0) AND bytes * 1.0 IN (-0.0) AND -(bytes * 1.0) IN (0)", rows) == ["T1"]
    assert held("CAST(attributes['z'] AS DOUBLE) IN (0.0)", rows) == ["T1"]


# --- Any shape of table ----------------------------------------------------------------------------------------------

# Reads columns of every type; true of the first row and of the last.
SHAPED = (
    "type = 'SNAPSHOT' AND dataset LIKE 'lake/%' AND ordinal = 0 AND bytes < 11"
    " AND (closed_at = '2026-01-01T00:05:00Z' OR attributes['tier'] LIKE '%it%')"
)


def _encoded(table: pa.Table) -> pa.Table:
    """Every text in a dictionary, the keys of the attributes too."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, table[field.name].dictionary_encode())
    attributes = table["attributes"].combine_chunks()
    keys = attributes.keys.dictionary_encode()
    coded = pa.MapArray.from_arrays(attributes.offsets, keys, attributes.items, mask=attributes.is_null())
    return table.set_column(table.schema.get_field_index("attributes"), "attributes", coded)


def _plain(table: pa.Table) -> pa.Table:
    """No dictionary at all, large texts, instants in another unit."""
    types = {"dataset": pa.large_string(), "type": pa.string(), "closed_at": pa.timestamp("ns", tz="Asia/Tokyo")}
    for name, to in types.items():
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(to))
    return table


def _chunked(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2), table.slice(3)])


def _other_dictionaries(table: pa.Table) -> pa.Table:
    """Chunks that number their types differently."""
    place, field = table.schema.get_field_index("type"), LOG.field("type")

    def numbered_anew(part: pa.Table) -> pa.Table:
        return part.set_column(place, field, part["type"].cast(pa.string()).cast(field.type))

    return pa.concat_tables([numbered_anew(table.slice(row, 1)) for row in range(table.num_rows)])


@pytest.mark.parametrize("shape", [_encoded, _plain, _chunked, _other_dictionaries], ids=lambda shape: shape.__name__)
def test_the_shape_of_the_table_does_not_matter(shape: Callable[[pa.Table], pa.Table]) -> None:
    assert held(SHAPED, ROWS) == held(SHAPED, shape(ROWS)) == ["T1", "T4"]


@pytest.mark.parametrize(("start", "expected"), [(0, "T1 T4"), (1, "T4"), (3, "T4"), (4, "")])
def test_a_slice_of_a_table_answers_for_its_own_rows(start: int, expected: str) -> None:
    assert held(SHAPED, ROWS.slice(start)) == expected.split()


@pytest.mark.parametrize("text", [text for text, _ in MEANINGS])
@pytest.mark.parametrize("empty", [ROWS.slice(0, 0), LOG.empty_table(), pa.concat_tables([ROWS.slice(0, 0)] * 2)])
def test_a_table_without_rows_holds_none(text: str, empty: pa.Table) -> None:
    assert held(text, empty) == []


def test_only_the_columns_that_are_read_need_to_be_there() -> None:
    assert evaluate(parse_condition("bytes > 5"), pa.table({"bytes": [1, 9, None]})).tolist() == [False, True, False]


def test_rows_are_looked_at_in_parts_and_answered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TOGETHER", 3)
    table = pa.table({"bytes": list(range(10))})
    assert evaluate(parse_condition("bytes % 2 = 1"), table).tolist() == [False, True] * 5


def test_a_million_rows_are_judged_as_arrays() -> None:
    count = 1_000_000
    offsets = pa.array(np.arange(0, 3 * count + 1, 3, dtype=np.int32))
    keys, values = pa.array(["a", "tier", "n"] * count), pa.array(["x", "bronze", "17"] * count)
    rows = pa.table({"bytes": np.arange(count), "attributes": pa.MapArray.from_arrays(offsets, keys, values)})
    condition = parse_condition("attributes['tier'] = 'bronze' AND CAST(attributes['n'] AS BIGINT) > 5 AND bytes * 2 < 1000")
    assert evaluate(condition, rows).sum() == 500


# --- What is refused -------------------------------------------------------------------------------------------------

# Each with a piece of the message, so that a person finds the place, and a piece of the remedy where there is one.
REFUSED = [
    # Kinds that do not fit.
    ("bytes > 'x'", "'x'", "number without quotes"),
    ("attributes['n'] > 5", "attributes['n']", "CAST(attributes['n'] AS BIGINT)"),
    ("attributes['n'] > 5.5", "attributes['n']", "CAST(attributes['n'] AS DOUBLE)"),
    ("attributes['n'] IN (1, 2)", "attributes['n']", "CAST(attributes['n'] AS BIGINT)"),
    ("5 BETWEEN attributes['a'] AND 9", "attributes['a']", "CAST(attributes['a'] AS BIGINT)"),
    ("attributes['d'] = TRUE", "attributes['d']", "CAST(attributes['d'] AS BOOLEAN)"),
    ("attributes['d']", "attributes['d']", "CAST(attributes['d'] AS BOOLEAN)"),
    ("NOT attributes['d']", "attributes['d']", "CAST(attributes['d'] AS BOOLEAN)"),
    ("attributes['a'] < closed_at", "attributes['a']", "CAST(attributes['a'] AS TIMESTAMP)"),
    ("attributes['a'] + 1 = 2", "attributes['a']", "CAST(attributes['a'] AS BIGINT)"),
    ("-attributes['a'] = 2", "attributes['a']", "CAST(attributes['a'] AS BIGINT)"),
    ("bytes", "bytes", "Compare it"),  # not true or false
    ("bytes AND files > 1", "bytes", "Compare it"),
    ("'a'", "'a'", ""),
    ("bytes = 1 OR 1", "1", "Compare it"),
    ("closed_at > 20260101", "closed_at", "in quotes"),
    ("closed_at - opened_at > 5", "closed_at", "CAST(closed_at AS BIGINT)"),
    ("closed_at > 'yesterday'", "yesterday", ""),
    ("closed_at > '2026-01-01T00:00:00'", "2026-01-01T00:00:00", ""),  # no zone
    ("closed_at > TIMESTAMP '2026-02-30T00:00:00Z'", "2026-02-30", ""),
    ("closed_at > DATE '2026-01-01T00:00:00Z'", "2026-01-01T00", "TIMESTAMP"),
    ("closed_at > '0001-01-01T00:00:00+23:00'", "0001-01-01", ""),  # before there were instants
    ("type LIKE 5", "5", ""),
    ("bytes LIKE '5%'", "bytes", "CAST(bytes AS STRING)"),
    ("lower(bytes) = 'x'", "bytes", "CAST(bytes AS STRING)"),
    ("length(bytes) = 1", "bytes", "CAST(bytes AS STRING)"),
    ("abs(type) = 1", "type", "CAST(type AS BIGINT)"),
    ("coalesce(bytes, 'x') = 1", "'x'", "without quotes"),
    ("CAST(closed_at AS STRING) = ''", "closed_at", ""),
    ("CAST(bytes AS TIMESTAMP) > closed_at", "bytes", ""),
    ("CAST(bytes / 2 AS STRING) = '1'", "bytes / 2", ""),
    ("(bytes = 1) < (files = 1)", "bytes = 1", ""),
    ("(bytes = 1) BETWEEN TRUE AND FALSE", "bytes = 1", ""),
    ("(bytes = 1) + 1 = 2", "bytes = 1", ""),
    # Values that a column cannot have: with <> these would select everything.
    ("type <> 'snapshot'", "snapshot", "SNAPSHOT"),
    ("status NOT IN ('COMMITED')", "COMMITED", "COMMITTED"),
    ("'CLOSED' <> status", "CLOSED", ""),
    # Names that do not exist.
    ("byte > 5", "byte", "bytes"),
    ("close_at IS NULL", "close_at", "closed_at"),
    ("`byts` > 5", "byts", "bytes"),
    ("attribute['k'] = ''", "attribute", "attributes"),
    ("tier = 'bronze'", "tier", "attributes['k']"),
    ("heads IS NULL", "heads", ""),  # a column of the log, but a list
    ("lowr(type) = 'x'", "lowr", "lower"),
    ("starts_with(type, 'S')", "starts_with", "startswith"),
    ("now() > closed_at", "now", ""),  # the clock is an input
    ("CAST(bytes AS INT) = 1", "INT", ""),
    # Things of SQL that are not of this language.
    ("bytes = 1; DROP TABLE marks", "';'", "one condition"),
    ("bytes = 1;", "';'", "one condition"),
    ("bytes = 1 -- all of them", "--", "comments"),
    ("bytes = 1 /* all */", "/*", "comments"),
    ("bytes = 1 # all", "'#'", ""),
    ("5--3 = bytes", "--", "space"),
    ("type = \"SNAPSHOT\"", '"', "'x'"),  # a text here, a column there
    ("bytes == 1", "==", "Write ="),
    ("bytes <=> NULL", "<=>", "IS NULL"),
    ("type || 'x' = 'y'", "||", ""),
    ("bytes::string = 'x'", "::", "CAST"),
    ("!(bytes = 1)", "'!'", "NOT"),
    ("attributes.k = 'x'", "'.'", "attributes['k']"),
    ("log.bytes = 1", "log", ""),
    ("type.k = 'x'", "'.'", "attributes['k']"),
    ("x -> x = 1", "'x'", ""),
    ("type -> 'k' = 1", "->", "attributes['k']"),
    ("bytes = ?", "'?'", ""),
    ("bytes = :n", "':'", ""),
    ("bytes = $1", "'$'", ""),
    ("bytes = @n", "'@'", ""),
    ("bytes = ${n}", "'$'", ""),
    ("bytes = {{ n }}", "'{'", ""),
    ("bytes & 1 = 1", "'&'", ""),
    ("~bytes = 1", "'~'", ""),
    ("bytes ^ 2 = 1", "'^'", ""),
    ("bytes = 1 | 2", "'|'", ""),
    ("SELECT 1", "SELECT", ""),
    ("bytes IN (SELECT bytes FROM log)", "SELECT", ""),
    ("EXISTS (SELECT 1)", "EXISTS", ""),
    ("CASE WHEN bytes > 1 THEN TRUE END", "CASE", ""),
    ("count(*) OVER () > 1", "count", ""),
    ("bytes = ANY (1)", "ANY", ""),
    ("type RLIKE '.*'", "RLIKE", ""),
    ("type ILIKE 's%'", "ILIKE", ""),
    ("INTERVAL 1 DAY > 1", "INTERVAL", ""),
    ("java_method('java.lang.Runtime', 'exit', 1) = 1", "java_method", ""),
    ("reflect('java.util.UUID', 'randomUUID') = ''", "reflect", ""),
    ("regexp_like(type, '(a+)+$')", "regexp_like", ""),
    ("if(bytes > 1, TRUE, FALSE)", "if", ""),
    ("array(1)[0] = 1", "ARRAY", ""),
    ("rand() > 0.5", "rand", ""),
    ("bytes IS TRUE", "TRUE", ""),
    ("bytes IS DISTINCT FROM 1", "DISTINCT", ""),
    ("X'41' = type", "'x'", ""),
    ("r'a' = type", "'r'", ""),
    ("bytes AS b", "AS", ""),
    ("bytes > 1 b", "'b'", ""),
    ("lower(DISTINCT type) = 'x'", "DISTINCT", ""),
    ("trim(BOTH ' ' FROM type) = 'x'", "both", ""),
    # Attributes by anything but a text.
    ("attributes", "ends too early", ""),
    ("attributes = 'x'", "'='", ""),
    ("attributes IS NULL", "IS", ""),
    ("attributes[type] = 'x'", "type", ""),
    ("attributes[0] = 'x'", "'0'", ""),
    ("attributes['a' 'b'] = 'x'", "'b'", ""),
    ("attributes[lower('K')] = 'x'", "lower", ""),
    ("attributes['a']['b'] = 'x'", "'['", ""),
    ("attributes('k') = 'x'", "'('", ""),
    ("type['k'] = 'x'", "'['", ""),
    # Forms that end wrong, or say nothing.
    ("", "empty", ""),
    ("   \n\t ", "empty", ""),
    ("TRUE", "no column", "select: all"),
    ("1 = 1", "no column", "select: all"),
    ("bytes >", "too early", ""),
    ("> 5", "'>'", ""),
    ("(bytes > 5", "too early", ""),
    ("bytes > 5)", "')'", ""),
    ("bytes > 5 ANDfiles > 1", "ANDfiles", ""),  # words end where letters do, whatever could follow
    ("bytes > 5AND files > 1", "5AND", ""),
    ("NOTbytes = 1", "NOTbytes", ""),
    ("bytes ISNULL", "ISNULL", ""),
    ("bytes > 5 ANDé", "é", ""),
    ("()", "')'", ""),
    ("bytes > 5 files > 1", "files", ""),
    ("bytes > 5 AND", "too early", ""),
    ("AND bytes > 5", "AND", ""),
    ("bytes > 5 OR OR files > 1", "OR", ""),
    ("bytes = files = 1", "compared again", "AND"),
    ("1 < bytes < 5", "compared again", "AND"),
    ("bytes IS NULL IS NULL", "compared again", "AND"),
    ("bytes BETWEEN 1 AND 2 BETWEEN 3 AND 4", "compared again", ""),
    ("bytes = NOT TRUE", "NOT", ""),
    ("(bytes = 1) = NOT (files = 1)", "NOT", ""),  # of the right kind, and still no operand
    ("bytes NOT = 5", "'='", "LIKE after 'NOT'"),
    ("bytes NOT NULL", "'NULL'", "LIKE after 'NOT'"),
    ("bytes IS 5", "'5'", ""),
    ("bytes = NULL", "NULL", "IS NULL"),
    ("bytes <> NULL", "NULL", "IS NULL"),
    ("bytes IN (1, NULL)", "NULL", "IS NULL"),
    ("coalesce(bytes, NULL) = 1", "NULL", ""),
    ("NULL", "NULL", ""),
    ("bytes IN ()", "')'", ""),
    ("bytes IN (1,)", "')'", ""),
    ("bytes IN 1", "'1'", ""),
    ("bytes IN (files)", "files", ""),
    ("bytes IN (1 + 1)", "1 + 1", ""),
    ("(bytes, files) IN ((1, 2))", "','", ""),
    ("bytes BETWEEN 1", "too early", ""),
    ("bytes BETWEEN 1 OR 2", "OR", ""),
    ("type LIKE", "too early", ""),
    ("type LIKE parent", "parent", ""),
    ("type LIKE lower('S%')", "lower", ""),
    ("type LIKE 'a!' ESCAPE '!'", "'!'", "!!"),
    ("type LIKE 'a!b' ESCAPE '!'", "'!b'", "!!"),
    ("type LIKE 'a' ESCAPE ''", "''", ""),
    ("type LIKE 'a' ESCAPE '!!'", "!!", ""),
    ("type LIKE 'a' ESCAPE '%'", "'%'", ""),
    ("type LIKE 'a' ESCAPE 5", "'5'", ""),
    ("dataset = 'a' ESCAPE '!'", "ESCAPE", ""),
    ("type LIKE 'a\\b'", "\\", "for a backslash"),
    ("dataset = 'a\\nb'", "\\n", ""),
    ("type LIKE 'a\\\\b'", "escapes nothing", ""),
    ("startswith(type, parent)", "parent", ""),
    ("startswith(type)", "')'", "a comma"),
    ("lower() = ''", "')'", ""),
    ("lower(type, type) = ''", "','", ")"),
    ("lower type = ''", "type", "( after 'lower'"),
    ("CAST(bytes BIGINT) = 1", "BIGINT", ""),
    ("CAST(bytes AS BIGINT FORMAT 'x') = 1", "FORMAT", ""),
    ("CAST(bytes AS) = 1", "')'", ""),
    ("CAST bytes = 1", "bytes", "( after 'cast'"),
    ("'a' 'b' = type", "'b'", ""),
    ("type = 'a", "no end", ""),
    ("type = '", "no end", ""),
    ("`type = 'a'", "no end", ""),
    ("`` = 'a'", "''", ""),
    # Numbers.
    ("bytes > 9223372036854775808", "9223372036854775808", ""),
    ("bytes > -9223372036854775809", "-9223372036854775809", ""),
    (f"bytes > {'9' * 9000}", "too large", ""),  # Python itself refuses to read that many digits
    ("bytes > 1e999", "1e999", ""),
    ("bytes > -1e999", "1e999", ""),
    ("bytes > 5GB", "5GB", "without a unit"),
    ("bytes > 5L", "5L", ""),
    ("bytes > 0x1F", "0x1F", ""),
    ("bytes > 1_000", "1_000", ""),
    ("bytes > 1.2.3", "1.2.3", ""),
    ("bytes > 1e", "1e", ""),
    ("bytes > 1.5e+", "1.5e", ""),
    ("bytes > +5", "'+'", ""),
    ("bytes > ٣", "٣", ""),
    # Characters that deceive.
    ("dataset = 'a\x00'", "invisible", ""),
    ("bytes\x00 > 5", "invisible", ""),
    ("dataset = '\ud800'", "\\ud800", ""),  # cannot be written to any table
    ("dataset <> 'a\u202e'", "\\u202e", ""),  # turns the line around
    ("dataset = 'a\x1b[2J'", "\\x1b", ""),  # clears a terminal
    ("bytes\u00a0> 5", "\\xa0", ""),
    ("bytes\u200b > 5", "\\u200b", ""),
    ("\uff42ytes > 5", "\uff42", ""),
    ("b\u0443tes > 5", "\u0443", ""),  # a Cyrillic letter that looks like y
    ("\u017ftatus = 'OPEN'", "\u017f", ""),  # a letter whose capital is S
    # More than anybody writes.
    ("bytes > 1" + " " * MOST_CHARACTERS + "AND files > 1", "characters long", str(MOST_CHARACTERS)),
    (" AND ".join(["bytes > 1"] * 200), "too many parts", str(MOST_NODES)),
    (f"bytes IN ({', '.join(map(str, range(MOST_NODES)))})", "too many parts", ""),
    ("(" * (DEEPEST + 1) + "bytes > 1" + ")" * (DEEPEST + 1), "too deep", str(DEEPEST)),
    ("(" * 9_000, "too early", ""),
    ("[" * 9_000, "'['", ""),
    ("NOT " * 2_400 + "TRUE", "too deep", ""),
    ("- " * 4_900 + "1", "too deep", ""),
    ("lower(" * 1_600, "too early", ""),
    ("CAST(" * 1_900, "too early", ""),
    ("coalesce(bytes," * 600, "too early", ""),
    ("bytes + (" * 1_000, "too early", ""),
    ("bytes = (" * 1_000, "too early", ""),
    ("bytes BETWEEN (" * 600, "too early", ""),
    ("bytes > 1 AND (files > 1 OR (" * 300, "too early", ""),
    ("NOT (TRUE = coalesce(" * 400, "too early", ""),
    ("1" + " + 1" * 200 + " = bytes", "too deep", ""),  # a chain is a deep tree
    ("bytes" + " - 1" * 2_400 + " = 0", "too deep", ""),
    ("a" * 9_999, "is not a column", ""),
    ("(a" * 4_999, "", ""),
    ("'" * 9_999, "", ""),
    ("`" * 9_999, "", ""),
    ("type LIKE '" + "%a" * 3_000 + "'", "pattern", "1000"),
    ("contains(type, '" + "%" * 999 + "')", "pattern", "1000"),
]  # fmt: skip


def _short(value: str) -> str:
    return value[:40].encode("unicode_escape").decode()


@pytest.mark.parametrize(("text", "piece", "advice"), REFUSED, ids=_short)
def test_refuses_and_says_why(text: str, piece: str, advice: str) -> None:
    fault = refusal(text)
    assert piece.lower() in fault.what.lower()
    assert advice.lower() in f"{fault.remedy} {fault.expected}".lower()
    # One readable line: a hostile text floods no terminal and sends it no orders.
    line = str(Problem(fault.what, expected=fault.expected, remedy=fault.remedy))
    assert len(line) < 500
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes >", "a column, attributes['k'] or a value after '>'"),
        ("(bytes > 5", "AND, OR or ) after 'bytes > 5'"),
        ("bytes /  2 b", "a comparison, AND, OR or the end after '2'"),
        ("bytes > 5 b", "AND, OR or the end after '5'"),
        ("bytes IS 5", "NULL after 'IS'"),
        ("attributes = 'x'", "[ after 'attributes'"),
        ("CAST(bytes) = 1", "AND, OR or AS and a type after 'bytes'"),
        ("> 5", "a column, attributes['k'] or a value"),
    ],
)
def test_names_what_could_have_stood_there(text: str, expected: str) -> None:
    assert refusal(text).expected == expected


def test_the_words_of_a_part_are_those_of_its_author() -> None:
    assert refusal("lower( (bytes\n  +1)) = 'x'").what == "'(bytes +1)' is an integer"


def test_the_limits_are_those_that_are_documented() -> None:
    assert (MOST_CHARACTERS, MOST_NODES, DEEPEST) == (10_000, 500, 50)


def test_there_is_no_chain_of_reasons_behind_a_refusal() -> None:
    # A traceback that shows the inner fault would put our code before the person's mistake.
    assert refusal("closed_at > 'x'").__suppress_context__


ACCEPTED = [
    "(" * DEEPEST + "bytes > 1" + ")" * DEEPEST,  # as deep as is allowed
    "NOT " * 48 + "bytes > 1",
    "bytes > 1 OR (" * DEEPEST + "files > 1 AND bytes + 1 * 2 = 3" + ")" * DEEPEST,
    "bytes" + " + 1" * 48 + " = 0",
    " OR ".join(["attributes['a'] = 'b'"] * 166),  # long, but flat
    f"bytes IN ({', '.join(map(str, range(MOST_NODES - 2)))})",
    f"attributes['{'k' * 9_900}'] = 'x'",
    "bytes>5 AND(files<1)AND NOT(files=2)",  # as few spaces as can be
    f"type LIKE '{'%' * 1_000}' OR type LIKE '{'_' * 1_000}' OR type LIKE '{'%a_' * 333}'",
    "\n bytes\t>\r\n5 \n",
    "attributes['日本'] = '語🤦\u200d♂️'",  # a joiner within an emoji is not hidden
    "attributes['it''s'] LIKE 'a''%' ESCAPE ''''",
    "attributes[''] IS NULL",
]


@pytest.mark.parametrize("text", ACCEPTED, ids=_short)
def test_accepts_up_to_the_limits(text: str) -> None:
    condition = parse_condition(text)
    assert condition.text == text.strip()
    assert evaluate(condition, ROWS).shape == (4,)


@pytest.mark.parametrize("text", [text for text, piece, _ in REFUSED if "deep" in piece] + ACCEPTED)
def test_does_not_need_much_of_the_stack(text: str) -> None:
    # A caller may itself be deep; nothing may then depend on how deep.
    def below(levels: int) -> bool:
        if levels:
            return below(levels - 1)
        try:
            return parse_condition(text) is not None
        except InvalidValue:
            return False

    assert below(400) in (True, False)


def test_the_parser_is_loaded_with_the_first_condition() -> None:
    # Most commands read no condition, and Lark takes longer to build its table than they may take altogether.
    code = "import sys, retention_assets.policy.model; from retention_assets.policy.where.parse import parse_condition; print('lark' in sys.modules, end=' ');"
    code += "parse_condition('bytes > 0'); print('lark' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == ["False", "True"]


def test_many_may_read_at_once() -> None:
    grammar._lark.cache_clear()
    texts = [text for text, _ in MEANINGS] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(parse_condition, texts)) == [parse_condition(text) for text in texts]


# --- The value -------------------------------------------------------------------------------------------------------


def test_two_texts_that_say_the_same_are_equal() -> None:
    one = parse_condition("bytes>5 AND (type != 'APPEND' and files = 1)")
    other = parse_condition("BYTES > 5 AND `type` <> 'APPEND' AND files = 1")
    assert one == other
    assert hash(one) == hash(other)
    assert one.text != other.text


@pytest.mark.parametrize(
    ("one", "other"), [("bytes = 1", "bytes = 1.0"), ("bytes = 1", "bytes = 2"), ("type < 'a'", "type <= 'a'")]
)
def test_two_texts_that_say_something_else_are_not(one: str, other: str) -> None:
    assert parse_condition(one) != parse_condition(other)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("files > 1 OR files > 2 AND files > 3", "files > 1 OR (files > 2 AND files > 3)"),
        ("files > 1 AND files > 2 OR files > 3", "(files > 1 AND files > 2) OR files > 3"),
        ("NOT files > 1 AND files > 2", "(NOT (files > 1)) AND files > 2"),
        ("NOT files IS NULL", "NOT (files IS NULL)"),
        ("files NOT IN (1)", "NOT (files IN (1))"),
        ("files IS NOT NULL", "NOT (files IS NULL)"),
        ("files BETWEEN 1 + 1 AND 2 * 2 AND bytes > 1", "(files BETWEEN (1 + 1) AND (2 * 2)) AND bytes > 1"),
        ("files - 1 - 2 > 0", "((files - 1) - 2) > 0"),
        ("files - 1 * 2 > 0", "(files - (1 * 2)) > 0"),
        ("files * 1 % 2 * 3 > 0", "((files * 1) % 2) * 3 > 0"),
        ("-files * 2 > 0", "(-files) * 2 > 0"),
        ("- - files > 0", "-(-files) > 0"),
        ("2 * -files - -1 > 0", "(2 * (-files)) - (-1) > 0"),
        ("startswith(dataset, '50%')", "dataset LIKE '50!%%' ESCAPE '!'"),
    ],
)
def test_binds_as_sql_does(text: str, meant: str) -> None:
    assert parse_condition(text) == parse_condition(meant)


def test_a_condition_cannot_be_changed() -> None:
    condition = parse_condition("bytes > 5")
    with pytest.raises(AttributeError):
        condition.text = "bytes > 0"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        condition.tree.op = "<"  # type: ignore[misc, union-attr]


def test_a_condition_travels_to_another_interpreter() -> None:
    condition = parse_condition("NOT (bytes > 5 AND closed_at < '2026-01-01' OR attributes['k'] LIKE 'a%')")
    copy = pickle.loads(pickle.dumps(condition))
    assert (copy, copy.text) == (condition, condition.text)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("bytes > 5", {"bytes"}),
        ("bytes > 5 AND attributes['a'] = attributes['b']", {"bytes", "attributes"}),  # keys are not columns
        ("NOT CAST(closed_at AS BIGINT) BETWEEN ordinal AND files", {"closed_at", "ordinal", "files"}),
    ],
)
def test_names_the_columns_that_it_reads(text: str, columns: set[str]) -> None:
    assert columns_of(parse_condition(text)) == columns


def test_a_policy_refuses_with_the_words_of_the_language() -> None:
    with pytest.raises(ValueError, match="'byte' is not a column"):
        Selection.model_validate({"where": "byte > 5"})


def test_columns_and_values_are_those_of_the_log_and_the_model() -> None:
    text = {pa.string(), LOG.field("type").type}
    kinds = {pa.int32(): Kind.INTEGER, pa.int64(): Kind.INTEGER, INSTANT: Kind.INSTANT, **dict.fromkeys(text, Kind.TEXT)}
    assert {field.name: kinds[field.type] for field in LOG if field.type in kinds} == COLUMNS
    assert {"type": (*BRANCHED, *INDEPENDENT), "status": STATUSES} == VALUES


def test_whatever_can_be_read_can_be_answered() -> None:
    read = {term.op for text, _ in MEANINGS for term in _terms(parse_condition(text).tree) if isinstance(term, Apply)}
    assert read == {*evaluation._OPERATORS, "cast"}
    assert {(given, wanted) for given, all_wanted in KIND_CASTS.items() for wanted in all_wanted} == set(evaluation._CASTS)


def _terms(term: Term) -> Iterator[Term]:
    yield term
    if isinstance(term, Apply):
        for part in term.terms:
            yield from _terms(part)


# --- Any text at all -------------------------------------------------------------------------------------------------

PIECES = [
    *COLUMNS, *FUNCTIONS, *grammar._WORDS, *sorted(errors.FOREIGN), *errors.SIGNS, *TARGETS,
    *["<", "<=", "<>", "!=", "=", ">=", ">", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%"],
    "attributes", "['k']", "'x'", "''", "'", "`", "`type`", "not", "as", "escape", "null", "true", "false", "date", "timestamp",
    "5", "-1", "0.5", "1e9", "9223372036854775808", "'2026-01-01'", "'%_\\\\%'", "\\", "\n", "\x00", "é", "attributes['k']",
    "(", ")", "(", ")", "and", "or", "bytes > 1", "type = 'SNAPSHOT'", "closed_at is null", "?", ":x", "{{", "}}", "#", "@",
    "$1", "cast(attributes['k'] as bigint)",
]  # fmt: skip


def check_any(text: str) -> None:
    """A text is refused with Expected, or is a condition that can be asked of any rows. There is no third."""
    try:
        condition = parse_condition(text)
    except InvalidValue:
        return
    assert evaluate(condition, ROWS).shape == (4,)
    assert parse_condition(condition.text) == condition


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=200))
@example("\N{COMBINING ACUTE ACCENT}")
@example("İ = 'x'")
def test_any_text_is_read_or_refused(text: str) -> None:
    check_any(text)


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=200))
def test_any_ascii_is_read_or_refused(text: str) -> None:
    check_any(text)


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.sampled_from([" ", "", "\n"]))
def test_any_soup_of_words_is_read_or_refused(words: list[str], between: str) -> None:
    check_any(between.join(words))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.integers(1, 3_000), st.sampled_from([" ", ""]))
def test_any_repetition_is_read_or_refused(words: list[str], times: int, between: str) -> None:
    check_any(between.join(words * times)[:MOST_CHARACTERS])


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_any_slip_of_the_pen_is_read_or_refused(data: st.DataObject) -> None:
    """A good text with a piece taken out, put in or put elsewhere is the likeliest bad one."""
    text = data.draw(st.sampled_from([text for text, _ in MEANINGS]))
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    put = data.draw(st.sampled_from(["", *PIECES]) | st.text(max_size=3))
    check_any(text[:first] + put + text[last:])


# --- The same question, asked of DuckDB ------------------------------------------------------------------------------

KEYS = ("a", "n", "d", "b", "it's")
TEXTS = (
    "", "a", "A", "b", "ab", "aab", " a ", "%", "_", "a%b", "a_b", "\\", "a\\b", "it's", "é", "Ää", "🤦", "a\nb", "SNAPSHOT",
    "lake/d",
)  # fmt: skip
NUMBERS = (
    "0", "7", "-7", "+7", " 12 ", "007", "1.5", "-.5", "5.", "1e3", "1e400", "9223372036854775807", "9223372036854775808",
    "x7", "7x", "--7",
)  # fmt: skip
DATES = (
    "2026-01-01", "2024-02-29", "2023-02-29", "2026-01-01T10:11:12Z", "2026-01-01 10:11+02:00", "2026-01-01T00:00:00.25-0130",
    "2026-01-01T10:11:12",
)  # fmt: skip
TRUTHS = ("true", "FALSE", " y", "no", "1", "0", "2")
INTEGERS = (
    0, 1, -1, 2, 3, 5, -7, 10, 1000, 2**31, 2**53 + 1, 3037000500, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1,
)  # fmt: skip
DECIMALS = (0.0, 0.5, -0.5, 1.0, 1.5, 3.0, 10.0, 1e3, 1e18, 9.3e18, 1e300, -1e300, 1e-300)
MOMENTS = ("1969-12-31T23:59:58.5Z", "1970-01-01", "2024-02-29", "2026-01-01", "2026-01-01T10:11:12Z")
INSTANTS = tuple(micros(parse_instant(text)) for text in MOMENTS)
PATTERNS = (
    "%", "", "a%", "%b", "%a%", "_", "__", "a_b", "a\\_b", "a\\%b", "%\\\\%", "\\%", "\\_", "\\\\", "%\\\\b", "_\\%_", "%a%b%",
    "%%a", "é_", "a%b%_", "L%", "%/d",
)  # fmt: skip


LITERALS: dict[Kind, tuple[Any, ...]] = {
    Kind.TEXT: TEXTS, Kind.INTEGER: INTEGERS, Kind.DECIMAL: DECIMALS, Kind.INSTANT: INSTANTS, Kind.TRUTH: (True, False),
}  # fmt: skip


@cache
def literals(kind: Kind) -> st.SearchStrategy[Term]:
    return st.sampled_from([Literal(kind, value) for value in LITERALS[kind]])


@cache
def leaves(kind: Kind) -> st.SearchStrategy[Term]:
    """What is not applied to anything; an attribute counts with the cast that makes it of the kind."""
    columns = [Column(name) for name, its in COLUMNS.items() if its is kind]
    attributes = [Attribute(key) for key in KEYS]
    cast = [attribute if kind is Kind.TEXT else Apply("cast", (attribute,), kind) for attribute in attributes]
    # Literals seldom: a condition over constants finds little.
    return st.one_of(st.sampled_from([*columns, *cast]), st.sampled_from([*columns, *cast]), literals(kind))


def applied(op: str, kind: Kind, *parts: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    return st.tuples(*parts).map(lambda terms: Apply(op, terms, kind))


@st.composite
def terms(draw: st.DrawFn, kind: Kind, depth: int) -> Term:
    """A well-kinded term, in the form in which the reader would leave it."""
    ways = grown(kind, depth)
    return draw(ways[draw(st.integers(0, len(ways) - 1))])


@cache
def grown(kind: Kind, depth: int) -> list[st.SearchStrategy[Term]]:
    """The ways to make one; what stands there several times is drawn more often, which one_of would undo."""
    return [*_grown(kind, depth - 1), *[leaves(kind)] * 3] if depth else [leaves(kind)]


def _grown(kind: Kind, depth: int) -> Iterator[st.SearchStrategy[Term]]:
    same = terms(kind, depth)
    if kind is Kind.TRUTH:
        yield from _tests(depth)
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        yield from (applied(op, kind, same, same) for op in "+-*%")
        yield applied("abs", kind, same)
        # A minus before a literal is part of it.
        yield applied("negate", kind, same.filter(lambda term: not isinstance(term, Literal)))
    if kind is Kind.DECIMAL:
        yield applied("/", kind, same, same)
    if kind is Kind.INTEGER:
        yield applied("length", kind, terms(Kind.TEXT, depth))
    if kind is Kind.TEXT:
        yield from (applied(op, kind, same) for op in ("lower", "upper", "trim"))
    yield from (applied("cast", kind, terms(given, depth)) for given, wanted in KIND_CASTS.items() if kind in wanted)
    yield applied("coalesce", kind, same, same)


def _tests(depth: int) -> Iterator[st.SearchStrategy[Term]]:
    for kind in Kind:
        # Values stay shallow: from three operations upwards nearly everything is null.
        part = terms(kind, depth if kind is Kind.TRUTH else min(depth, 2))
        yield from (applied(op, Kind.TRUTH, part, part) for op in ("=", "<>"))
        yield from (applied("in", Kind.TRUTH, part, *[literals(kind)] * count) for count in (1, 3))
        yield applied("is null", Kind.TRUTH, part)
        if kind is not Kind.TRUTH:
            yield from (applied(op, Kind.TRUTH, part, part) for op in ("<", "<=", ">", ">="))
            yield applied("between", Kind.TRUTH, part, part, part)
    patterns = st.sampled_from([Literal(Kind.TEXT, pattern) for pattern in PATTERNS])
    yield from [applied("like", Kind.TRUTH, terms(Kind.TEXT, min(depth, 1)), patterns)] * 6
    truth = terms(Kind.TRUTH, depth)
    yield from [applied("not", Kind.TRUTH, truth)] * 3
    for op in ("and", "or"):
        flat = truth.filter(partial(_is_not, op))
        yield from [applied(op, Kind.TRUTH, *[flat] * count) for count in (2, 3)] * 6


def _is_not(op: str, term: Term) -> bool:
    return not (isinstance(term, Apply) and term.op == op)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def as_condition(term: Term) -> str:
    """The term in our language, with every parenthesis."""
    match term:
        case Literal(Kind.TEXT, value):
            return quoted(str(value).replace("\\", "\\\\"))
        case Literal(Kind.INSTANT, value):
            return f"TIMESTAMP '{datetime.fromtimestamp(int(value) / 1e6, UTC).isoformat()}'"
        case Literal(_, value):
            return str(value)
        case Column(name):
            return name
        case Attribute(key):
            return f"attributes[{quoted(key)}]"
        case Apply(op, parts):
            return _operation(op, [f"({as_condition(part)})" for part in parts], term)


def as_duckdb(term: Term) -> str:
    """The term in DuckDB's SQL; instants are microseconds, each attribute is a column."""
    match term:
        case Literal(Kind.TEXT, value):
            return quoted(str(value))
        case Literal(Kind.TRUTH, value):
            return str(value)
        case Literal(kind, value):
            return f"CAST('{value}' AS {'DOUBLE' if kind is Kind.DECIMAL else 'BIGINT'})"
        case Column(name):
            return f'"{name}"'
        case Attribute(key):
            return f'"attributes.{key}"'
        case Apply("cast", (part,), kind):
            return _duckdb_cast(part.kind, kind, f"({as_duckdb(part)})")
        case Apply("like", (part, pattern)):
            return f"({as_duckdb(part)}) LIKE {as_duckdb(pattern)} ESCAPE '\\'"
        case Apply("%", (a, b), Kind.INTEGER):
            # DuckDB finds the remainder by -1 of the smallest integer beyond 64 bits; it is 0, as in Spark.
            left, right = as_duckdb(a), as_duckdb(b)
            return f"TRY(CASE WHEN ({right}) = -1 THEN ({left}) * 0 ELSE ({left}) % ({right}) END)"
        case Apply(op, parts, kind):
            sql = _operation(op, [f"({as_duckdb(part)})" for part in parts], term)
            return _finite(sql) if kind is Kind.DECIMAL else f"TRY({sql})" if kind is Kind.INTEGER else sql


def _operation(op: str, parts: list[str], term: Apply) -> str:
    """What both languages write the same way."""
    first, *others = parts
    match op:
        case "not":
            return f"NOT {first}"
        case "negate":
            return f"- {first}"
        case "is null":
            return f"{first} IS NULL"
        case "in":
            return f"{first} IN ({', '.join(others)})"
        case "between":
            return f"{first} BETWEEN {others[0]} AND {others[1]}"
        case "like":
            return f"{first} LIKE {as_condition(term.terms[1])}"
        case "cast":
            return f"CAST({first} AS {next(name for name, kind in TARGETS.items() if kind is term.kind)})"
        case "lower" | "upper" | "length" | "abs" | "coalesce":
            return f"{op}({', '.join(parts)})"
        case "trim":
            return f"trim({first})"
    return f" {op} ".join(parts)


def _finite(sql: str) -> str:
    return f"list_extract([x + 0.0 FOR x IN [TRY({sql})] IF isfinite(x)], 1)"


def _duckdb_cast(given_kind: Kind, kind: Kind, sql: str) -> str:
    digits = "[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
    match given_kind, kind:
        case Kind.TEXT, Kind.INTEGER:
            return f"CASE WHEN regexp_full_match(trim({sql}), '[+-]?[0-9]+') THEN TRY_CAST(trim({sql}) AS BIGINT) END"
        case Kind.TEXT, Kind.DECIMAL:
            number = _finite(f"TRY_CAST(trim({sql}) AS DOUBLE)")
            return f"CASE WHEN regexp_full_match(trim({sql}), '{digits}') THEN {number} END"
        case Kind.TEXT, Kind.TRUTH:
            true = f"WHEN lower(trim({sql})) IN ('t', 'true', 'y', 'yes', '1') THEN TRUE"
            return f"CASE {true} WHEN lower(trim({sql})) IN ('f', 'false', 'n', 'no', '0') THEN FALSE END"
        case Kind.TEXT, Kind.INSTANT:
            day = f"WHEN regexp_full_match({sql}, '.{{10}}') THEN epoch_us(TRY_CAST({sql} || ' 00:00Z' AS TIMESTAMPTZ))"
            zoned = f"WHEN regexp_full_match({sql}, '.*[0-9](Z|[+-][0-9:]+)') THEN epoch_us(TRY_CAST({sql} AS TIMESTAMPTZ))"
            return f"CASE {day} {zoned} END"
        case Kind.DECIMAL, Kind.INTEGER:
            return f"TRY_CAST(trunc({sql}) AS BIGINT)"
        case Kind.INSTANT, Kind.INTEGER:
            return f"({sql} - (({sql} % 1000000 + 1000000) % 1000000)) // 1000000"
        case _, Kind.INTEGER | Kind.DECIMAL | Kind.TEXT if given_kind is not kind:
            return f"CAST({sql} AS {'DOUBLE' if kind is Kind.DECIMAL else 'BIGINT' if kind is Kind.INTEGER else 'VARCHAR'})"
    return sql


def random_rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Rows of values that meet each other, and of nulls."""
    pick = random.Random(seed)
    every = {"a": TEXTS, "n": NUMBERS, "d": DATES, "b": TRUTHS, "it's": TEXTS + NUMBERS}

    def maybe(values: tuple[Any, ...]) -> Any:
        return pick.choice(values) if pick.random() < 0.8 else None

    def row() -> dict[str, Any]:
        instants = {name: maybe(INSTANTS) for name, kind in COLUMNS.items() if kind is Kind.INSTANT}
        attributes = [(key, maybe(values)) for key, values in every.items() if pick.random() < 0.9]
        return {
            **instants, "dataset": pick.choice(TEXTS), "transaction": pick.choice(TEXTS), "parent": maybe(TEXTS),
            "type": pick.choice(VALUES["type"]), "status": pick.choice(VALUES["status"]),
            "bytes": maybe(INTEGERS), "files": maybe(INTEGERS),
            "ordinal": pick.randrange(20), "parent_ordinal": pick.randrange(-1, 20),
            "attributes": attributes if pick.random() < 0.9 else None,
        }  # fmt: skip

    return [row() for _ in range(count)]


def in_pieces(seed: int, table: pa.Table) -> pa.Table:
    """The same rows, cut at random places."""
    cuts = sorted(random.Random(seed).choices(range(table.num_rows + 1), k=3))
    return pa.concat_tables([table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)])


def for_duckdb(rows: list[dict[str, Any]]) -> pa.Table:
    types = {Kind.TEXT: pa.string(), Kind.INTEGER: pa.int64(), Kind.INSTANT: pa.int64()}
    columns = {name: pa.array([row[name] for row in rows], types[kind]) for name, kind in COLUMNS.items()}
    for key in KEYS:
        columns[f"attributes.{key}"] = pa.array([dict(row["attributes"] or ()).get(key) for row in rows], pa.string())
    return pa.table(columns)


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@settings(max_examples=500, deadline=None)
@given(tree=terms(Kind.TRUTH, 4), seed=st.integers(0, 2**16), count=st.integers(1, 60))
def test_duckdb_answers_the_same(engine: duckdb.DuckDBPyConnection, tree: Term, seed: int, count: int) -> None:
    rows = random_rows(seed, count)
    table = in_pieces(seed, log(*rows))
    engine.register("rows", for_duckdb(rows))
    # Every condition within the condition, too: the whole is often one and the same for all rows.
    parts = [term for term in _terms(tree) if term.kind is Kind.TRUTH]
    query = ", ".join(f"({as_duckdb(part)})" for part in parts)
    for part, answers in zip(parts, zip(*engine.execute(f"SELECT {query} FROM rows").fetchall(), strict=True), strict=True):
        assert evaluate(Condition("", part), table).tolist() == [answer is True for answer in answers]
        opposite = Apply("not", (part,), Kind.TRUTH)
        assert evaluate(Condition("", opposite), table).tolist() == [answer is False for answer in answers]


@settings(max_examples=600, deadline=None)
@given(tree=terms(Kind.TRUTH, 4))
def test_what_is_written_out_is_read_back(tree: Term) -> None:
    text = as_condition(tree)
    if columns_of(Condition("", tree)) and not _names_a_value_that_is_none(tree):
        assert parse_condition(text) == Condition(text, tree)


def _names_a_value_that_is_none(tree: Term) -> bool:
    """Whether type or status is compared with what it can never be, which is refused."""
    compared = [term.terms for term in _terms(tree) if isinstance(term, Apply) and term.op in ("=", "<>", "in")]
    return any(
        isinstance(one, Column) and one.name in VALUES and isinstance(other, Literal) and other.value not in VALUES[one.name]
        for parts in compared for one in parts for other in parts
    )  # fmt: skip
