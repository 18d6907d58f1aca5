"""What the tests of `where` share, here and in frames/verdicts: rows of a log, and conditions with the rows each holds for."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.errors import InvalidValue
from retention_assets.frames import LOG, evaluate
from retention_assets.policy import parse_condition, parse_instant
from retention_assets.policy.where.tree import Apply, Term


def log(*rows: dict[str, Any]) -> pa.Table:
    """Rows of the log; what a row leaves out is null, or the plainest value that the schema accepts."""
    plain = {"dataset": "lake/d", "ordinal": 0, "parent_ordinal": -1, "type": "SNAPSHOT", "status": "COMMITTED"}
    filled = [{**plain, "transaction": f"T{number}", **row} for number, row in enumerate(rows, start=1)]
    columns = [pa.array([row.get(field.name) for row in filled], field.type) for field in LOG]
    return pa.Table.from_arrays(columns, schema=LOG)


def at(text: str) -> datetime:
    return parse_instant(text)


def held(text: str, rows: pa.Table) -> list[str]:
    bits = evaluate(parse_condition(text), rows)
    assert bits.dtype == np.bool_
    return [name for name, bit in zip(rows["transaction"].to_pylist(), bits.tolist(), strict=True) if bit]


def refusal(text: str) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        parse_condition(text)
    return caught.value


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
            ("n", "seven"), ("done", ""), ("k'1", "it's"), ("tab", "\t x "), ("tier", " it's\nbronze "),
        ],
    },
)  # fmt: skip


MEANINGS = [
    # Columns of each kind.
    ("bytes > 5", "T1 T2"),  # null (T3) is not true
    ("type = 'SNAPSHOT'", "T1 T4"),  # a dictionary-encoded column
    ("ordinal = 1 OR parent_ordinal = 1", "T2 T3"),  # 32-bit columns
    ("transaction >= 'T3'", "T3 T4"),  # texts have an order
    ("closed_at <= '2026-01-01T01:05:00+01:00'", "T1"),  # the same instant in another zone
    ("closed_at = TIMESTAMP '2026-02-01T00:00:00Z'", "T2"),
    ("closed_at >= DATE '2026-02-01'", "T2"),  # a date is its midnight in UTC
    ("closed_at > opened_at", "T1"),
    ("archived_at IS NULL", "T1 T2 T3 T4"),
    # Case of words does not matter; case of values does.
    ("BYTES > 5 aNd Type = 'APPEND'", "T2"),
    ("attributes['tier'] = 'silver'", ""),
    ("attributes['TIER'] IS NULL", "T1 T2 T3 T4"),  # keys are values
    ("`type` = 'APPEND'", "T2 T3"),  # backquotes name a column, as in Spark
    ("`attributes`['tier'] = 'bronze'", "T1"),
    # Attributes.
    ("attributes['tier'] <> 'bronze'", "T2 T4"),  # without attributes (T3) unknown
    ("attributes['k''1'] = 'it''s'", "T4"),  # a doubled quote is a quote
    ("attributes['k\\'1'] = 'it\\'s'", "T4"),  # and so is an escaped one
    ("attributes['tier'] LIKE '%it''s%'", "T4"),
    # Operators.
    ("bytes = 10", "T1"), ("bytes <> 10", "T2 T4"), ("bytes != 10", "T2 T4"), ("bytes >= 10", "T1 T2"), ("bytes < 0", "T4"),
    ("bytes IN (10, -5)", "T1 T4"),
    ("bytes NOT IN (10, -5)", "T2"),
    ("bytes IN (10.0)", "T1"),  # an integer beside a decimal becomes one
    ("bytes BETWEEN 10 AND 11", "T1"),  # both ends belong
    ("attributes['tier'] LIKE 'bron%'", "T1"), ("attributes['tier'] NOT LIKE 'bron%'", "T2 T4"),
    ("attributes['tier'] LIKE '%bronze_'", "T4"),  # % also stands for a line break
    ("dataset LIKE '%100!%!_%' ESCAPE '!'", "T4"),
    ("dataset LIKE '%100\\\\%%'", "T4"),  # without ESCAPE a backslash escapes, and in a text it is doubled: as in Spark
    ("dataset LIKE '%\\\\\\\\x'", "T4"),  # so a backslash itself takes four
    ("dataset LIKE '%100_%' AND NOT dataset LIKE '%100!_%' ESCAPE '!'", "T4"),
    ("startswith(dataset, 'lake/100%_\\\\')", "T4"),  # no wildcards here
    # Precedence.
    ("NOT (bytes = 10 AND files = 2)", "T1 T2 T4"),  # T2: files = 2 is false, so the NOT is true
    # Numbers.
    ("files / 2 = 1.5", "T1"),  # division is not of integers
    ("bytes / files > 0", "T1"),  # T2: x / 0 is null
    ("bytes % files IS NULL", "T2 T3"),
    ("bytes % -3 = -2", "T4"),  # the sign of what is divided
    ("bytes * 2 IS NULL", "T2 T3"),  # beyond 64 bits, not wrapped
    ("bytes + bytes < 0", "T4"), ("0 - bytes - bytes - bytes > 0", "T4"), ("bytes * 2.0 > 9e18", "T2"),
    ("abs(bytes) = 5", "T4"), ("-bytes = 5", "T4"), ("abs(-1.5) = 1.5 AND bytes = 10", "T1"),
    ("bytes = 1e1", "T1"), ("bytes > 9.99 AND bytes < 10.01", "T1"), ("bytes * 1e308 * 10 IS NULL", "T1 T2 T3 T4"),
    ("bytes > -9223372036854775808", "T1 T2 T4"), ("bytes < 9223372036854775807", "T1 T2 T4"),
    # Functions.
    ("lower(attributes['tier']) = 'silver'", "T2"), ("upper(attributes['tier']) = 'SILVER'", "T2"),
    ("lower('ÄÉ') = 'äé' AND upper('äé') = 'ÄÉ' AND bytes = 10", "T1"),  # beyond ASCII
    ("length(trim(attributes['tier'])) = 11", "T4"),  # characters
    ("trim(attributes['tier']) LIKE 'it%bronze'", "T4"),
    ("coalesce(files, 99) = 99", "T3"), ("coalesce(files, bytes, 1.5) = 1.5", "T3"),
    ("coalesce(closed_at, '2026-02-01') = DATE '2026-02-01'", "T2 T3 T4"),
    ("coalesce(CAST(attributes['done'] AS BOOLEAN), TRUE)", "T1 T3 T4"),
    # Casts.
    ("CAST(attributes['n'] AS BIGINT) = 7", "T1"),  # 1e2 and seven are no integers
    ("CAST(attributes['n'] AS DOUBLE) > 7", "T2"),
    ("CAST(attributes['n'] AS BIGINT) IS NULL", "T2 T3 T4"),
    ("CAST(attributes['done'] AS BOOLEAN)", "T1"), ("NOT CAST(attributes['done'] AS BOOLEAN)", "T2"),
    ("CAST(attributes['on'] AS TIMESTAMP) IS NULL", "T2 T3 T4"),  # there is no 30 February
    ("CAST(bytes AS STRING) = '-5'", "T4"), ("CAST(bytes / 4 AS BIGINT) = 2", "T1"), ("CAST(bytes / 4 AS BIGINT) = -1", "T4"),
    ("CAST(files / 2 AS BIGINT) = 1", "T1 T4"),  # towards zero
    ("CAST(bytes * -2.0 AS BIGINT) = -9223372036854775808", "T2"),  # 2^63 has no such number
    ("CAST(TIMESTAMP '1969-12-31T23:59:58.5Z' AS BIGINT) = -2 AND bytes = 10", "T1"),  # the whole second before
    ("CAST(closed_at AS BIGINT) - CAST(opened_at AS BIGINT) = 300", "T1"),  # seconds
    # Truths.
    ("(bytes = 10) = (files = 3)", "T1 T2 T4"), ("TRUE <> (bytes = 10)", "T2 T4"), ("(bytes = 10) IS NULL", "T3"),
]  # fmt: skip


def short_id(value: str) -> str:
    return value[:40].encode("unicode_escape").decode()


def terms_of(term: Term) -> Iterator[Term]:
    yield term
    if isinstance(term, Apply):
        for part in term.terms:
            yield from terms_of(part)
