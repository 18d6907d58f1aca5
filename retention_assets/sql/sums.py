"""Sums of bytes in a database: those of very many large ones end at the largest number that a column holds.

Belongs here: adding up and adding to without an overflow. SQLite ends a statement whose sum does not fit; PostgreSQL sums on,
and then refuses the column. A number that large says nothing more to anybody, so it stops there.
"""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, case
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

MOST_BYTES = 2**63 - 1


class ByteSum(FunctionElement[int]):
    """The sum of a column of bytes, of nothing 0, at most MOST_BYTES."""

    type = BigInteger()
    inherit_cache = True
    name = "byte_sum"

    def __init__(self, column: ColumnElement[Any]) -> None:
        super().__init__(column)


@compiles(ByteSum, "postgresql")
def _on_postgresql(element: ByteSum, compiler: Any, **options: Any) -> str:
    # Its sum of bigints is a numeric, which has no end.
    return f"CAST(LEAST(COALESCE(SUM({compiler.process(element.clauses, **options)}), 0), {MOST_BYTES}) AS BIGINT)"


@compiles(ByteSum, "sqlite")
def _on_sqlite(element: ByteSum, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    # In two halves, each of which fits for more rows than there can be.
    low = f"COALESCE(SUM(({column}) & 4294967295), 0)"
    high = f"(COALESCE(SUM(({column}) >> 32), 0) + ({low} >> 32))"
    return f"(CASE WHEN {high} >= 2147483648 THEN {MOST_BYTES} ELSE ({high} << 32) | ({low} & 4294967295) END)"


def fit(size: int) -> int:
    """A sum that was made here, as a column holds it."""
    return min(size, MOST_BYTES)


def plus(column: ColumnElement[int], size: int | ColumnElement[int]) -> ColumnElement[int]:
    """A column of bytes and a size that is not negative, together."""
    more = fit(size) if isinstance(size, int) else size
    return case((column > MOST_BYTES - more, MOST_BYTES), else_=column + more)
