"""Column types of the ledger (instants, names), the database's own clock, and sums of bytes, the same on SQLite and PostgreSQL.

A sum of bytes stops at the largest number of a column, where SQLite and PostgreSQL would fail.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, BigInteger, ColumnElement, Dialect, Text, case, literal
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from retention_assets.policy.durations import from_micros, micros

# Compared by bytes on both databases: one order everywhere, and indexes at half the cost of a language's order.
Name = Text(collation="C").with_variant(Text(), "sqlite")
MOST_BYTES = 2**63 - 1


class InstantColumn(TypeDecorator[datetime]):
    """An instant in UTC: a timestamp with time zone on PostgreSQL; on SQLite, which has none, microseconds since the epoch."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return TIMESTAMP(timezone=True) if dialect.name == "postgresql" else BigInteger()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return micros(value)

    def result_processor(self, dialect: Dialect, _: Any) -> Callable[[Any], Any] | None:
        return None if dialect.name == "postgresql" else _instant


@lru_cache(maxsize=4096)
def _instant(value: Any) -> Any:
    # cached: many rows share few instants
    try:
        return from_micros(value) if isinstance(value, int) else value
    except OverflowError:
        return value


class MicrosColumn(TypeDecorator[datetime]):
    """Microseconds since the epoch on both databases, for instants with which no statement computes.

    PostgreSQL takes three times as long to copy and read timestamps.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> int | None:
        return None if value is None else micros(value)

    def process_result_value(self, value: Any, _: Dialect) -> Any:
        return _instant(value)


class DatabaseTime(FunctionElement[datetime]):
    """The database's clock plus some seconds. Leases expire by it, so clocks of sweepers need not agree."""

    type = InstantColumn()
    inherit_cache = True
    name = "present"

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(literal(float(seconds)))


@compiles(DatabaseTime, "postgresql")
def _on_postgresql(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Not the start of the transaction: after waiting for a lock it would be in the past.
    return f"(clock_timestamp() + {compiler.process(element.clauses, **options)} * INTERVAL '1 second')"


@compiles(DatabaseTime, "mysql")
@compiles(DatabaseTime, "mariadb")
def _on_mysql(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Microseconds, as InstantColumn reads them; independent of the session's time zone.
    epoch = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
    return f"({epoch} + CAST({compiler.process(element.clauses, **options)} * 1000000 AS SIGNED))"


@compiles(DatabaseTime, "sqlite")
def _on_sqlite(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Python 3.11 may have a SQLite before 3.42, without unixepoch('subsec'); it has milliseconds.
    epoch = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
    return f"({epoch} + CAST({compiler.process(element.clauses, **options)} * 1000000 AS INTEGER))"


class IdsColumn(TypeDecorator[Sequence[int]]):
    """Ids as one value: an array on PostgreSQL, JSON on SQLite. Bound as text, because the driver would inspect each number."""

    impl = ARRAY(BigInteger)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return ARRAY(BigInteger) if dialect.name == "postgresql" else Text()

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        text: Callable[[Any], str] = array_text if dialect.name == "postgresql" else json.dumps
        return lambda ids: None if ids is None else text(ids)

    def result_processor(self, dialect: Dialect, _: Any) -> Callable[[Any], Any] | None:
        return None if dialect.name == "postgresql" else _ids


def array_text(numbers: Iterable[int | str]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _ids(value: Any) -> Any:
    # A value written past the ledger may be anything. What is no list of ids has none, as in SQL.
    try:
        ids = value if value is None else json.loads(value)
    except (TypeError, ValueError):
        return []
    return ids if ids is None or (isinstance(ids, list) and set(map(type, ids)) <= {int}) else []


class EachOf(FunctionElement[int]):
    """The ids of an IdsColumn, as rows with the column `value`; of what can't be read, none."""

    inherit_cache = True
    name = "each_of"


@compiles(EachOf, "sqlite")
def _each_on_sqlite(element: EachOf, compiler: Any, **options: Any) -> str:
    ids = compiler.process(element.clauses, **options)
    return f"json_each(CASE WHEN json_valid({ids}) THEN {ids} END)"


@compiles(EachOf, "postgresql")
def _each_on_postgresql(element: EachOf, compiler: Any, **options: Any) -> str:
    return f"LATERAL (SELECT unnest({compiler.process(element.clauses, **options)}) AS value)"


class ByteSum(FunctionElement[int]):
    """Sum of a column of bytes: 0 for no rows, MOST_BYTES at most."""

    type = BigInteger()
    inherit_cache = True
    name = "byte_sum"

    def __init__(self, column: ColumnElement[Any]) -> None:
        super().__init__(column)


@compiles(ByteSum, "postgresql")
def _sum_on_postgresql(element: ByteSum, compiler: Any, **options: Any) -> str:
    # PostgreSQL sums bigint as numeric, without a limit.
    return f"CAST(LEAST(COALESCE(SUM({compiler.process(element.clauses, **options)}), 0), {MOST_BYTES}) AS BIGINT)"


@compiles(ByteSum, "sqlite")
def _sum_on_sqlite(element: ByteSum, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    # Two halves, each of which fits for any number of rows.
    low = f"COALESCE(SUM(({column}) & 4294967295), 0)"
    high = f"(COALESCE(SUM(({column}) >> 32), 0) + ({low} >> 32))"
    return f"(CASE WHEN {high} >= 2147483648 THEN {MOST_BYTES} ELSE ({high} << 32) | ({low} & 4294967295) END)"


def fit(size: int) -> int:
    return min(size, MOST_BYTES)


def plus(column: ColumnElement[int], size: int | ColumnElement[int]) -> ColumnElement[int]:
    """A column of bytes plus a size that is not negative, MOST_BYTES at most."""
    more = fit(size) if isinstance(size, int) else size
    return case((column > MOST_BYTES - more, MOST_BYTES), else_=column + more)
