"""Random conditions over random rows, asked of DuckDB as well, which knows nothing of our reader or our arithmetic."""

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.frames import evaluate
from retention_assets.policy.where.tree import COLUMNS, VALUES, Apply, Attribute, Column, Condition, Kind, Literal, Term
from retention_assets_tests.policy.where.conditions import log, terms_of
from retention_assets_tests.policy.where.random_terms import (
    DATES,
    INSTANTS,
    INTEGERS,
    KEYS,
    NUMBERS,
    TEXTS,
    TRUTHS,
    operation,
    quoted,
    terms,
)
from retention_assets_tests.rounds import examples


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
            sql = operation(op, [f"({as_duckdb(part)})" for part in parts], term)
            return _finite(sql) if kind is Kind.DECIMAL else f"TRY({sql})" if kind is Kind.INTEGER else sql


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


@settings(max_examples=examples(20), deadline=None)
@given(tree=terms(Kind.TRUTH, 4), seed=st.integers(0, 2**16), count=st.integers(1, 60))
def test_duckdb_answers_the_same(engine: duckdb.DuckDBPyConnection, tree: Term, seed: int, count: int) -> None:
    rows = random_rows(seed, count)
    table = in_pieces(seed, log(*rows))
    engine.register("rows", for_duckdb(rows))
    # Every condition within the condition, too: the whole is often one and the same for all rows.
    parts = [term for term in terms_of(tree) if term.kind is Kind.TRUTH]
    query = ", ".join(f"({as_duckdb(part)})" for part in parts)
    for part, answers in zip(parts, zip(*engine.execute(f"SELECT {query} FROM rows").fetchall(), strict=True), strict=True):
        assert evaluate(Condition("", part), table).tolist() == [answer is True for answer in answers]
        opposite = Apply("not", (part,), Kind.TRUTH)
        assert evaluate(Condition("", opposite), table).tolist() == [answer is False for answer in answers]
