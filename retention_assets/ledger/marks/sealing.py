"""The seal of a new mark as an SQL expression: the text and hash of audit/seals.py, which a test compares.

A mark's id and time are known only under the markers' lock, so the inserting statement computes the seal: staged rows stay
valid whoever comes first, and no mark passes through this program.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_LENGTH = 32
_SQLITE = "retention_mark_seal"


class MarkSeal(FunctionElement[str]):
    """Seal of a mark over id, bytes, dataset, transaction, the hash of its common values, and its times."""

    type = Text()
    inherit_cache = True
    name = "mark_seal"

    def __init__(self, columns: Sequence[ColumnElement[Any]]) -> None:
        super().__init__(*columns)


@compiles(MarkSeal, "postgresql")
def _on_postgresql(element: MarkSeal, compiler: Any, **options: Any) -> str:
    number, size, dataset, transaction, common, opened, closed = (compiler.process(one, **options) for one in element.clauses)
    known = f"{opened} IS NOT NULL OR {closed} IS NOT NULL"
    # A null is left out of the line with its separator.
    times = ", ".join(f"CASE WHEN {known} THEN coalesce({time}::text, '?') END" for time in (opened, closed))
    names = ", ".join(f"octet_length(convert_to({name}, 'UTF8')), {name}" for name in (dataset, transaction))
    line = f"concat_ws('|', {number}, coalesce({size}::text, '?'), {names}, {common}, {times})"
    return f"substr(encode(sha256(convert_to({line}, 'UTF8')), 'hex'), 1, {_LENGTH})"


@compiles(MarkSeal, "sqlite")
def _on_sqlite(element: MarkSeal, compiler: Any, **options: Any) -> str:
    return f"{_SQLITE}({', '.join(compiler.process(one, **options) for one in element.clauses)})"


def teach_seals(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function(_SQLITE, 7, _seal, deterministic=True)


def _seal(
    number: int, size: int | None, dataset: str, transaction: str, common: str, opened: int | None, closed: int | None
) -> str:
    line = (
        f"{number}|{'?' if size is None else size}|{len(dataset.encode())}|{dataset}"
        f"|{len(transaction.encode())}|{transaction}|{common}"
    )
    if opened is not None or closed is not None:
        line = f"{line}|{'?' if opened is None else opened}|{'?' if closed is None else closed}"
    return hashlib.sha256(line.encode()).hexdigest()[:_LENGTH]
