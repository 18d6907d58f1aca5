"""Sums of bytes that stop at the largest number of a column. SQLite and PostgreSQL would fail instead."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, case
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

MOST_BYTES = 2**63 - 1


class ByteSum(FunctionElement[int]):
    """Sum of a column of bytes: 0 for no rows, MOST_BYTES at most."""

    type = BigInteger()
    inherit_cache = True
    name = "byte_sum"

    def __init__(self, column: ColumnElement[Any]) -> None:
        super().__init__(column)


@compiles(ByteSum, "postgresql")
def _on_postgresql(element: ByteSum, compiler: Any, **options: Any) -> str:
    # PostgreSQL sums bigint as numeric, without a limit.
    return f"CAST(LEAST(COALESCE(SUM({compiler.process(element.clauses, **options)}), 0), {MOST_BYTES}) AS BIGINT)"


@compiles(ByteSum, "sqlite")
def _on_sqlite(element: ByteSum, compiler: Any, **options: Any) -> str:
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
