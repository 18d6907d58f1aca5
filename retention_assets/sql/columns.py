"""What the columns of the ledger are made of: instants, names and the database's own clock, alike on SQLite and PostgreSQL.

Belongs here: types, and the one expression whose text differs between the two databases.
Does not belong here: tables (schema.py), and any question to a database.
"""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Dialect, Text, literal
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from retention_assets.policy.durations import from_micros, micros

# Compared byte by byte on both databases: one order everywhere, and indexes that cost half of what a language's order costs.
Name = Text(collation="C").with_variant(Text(), "sqlite")


class InstantColumn(TypeDecorator[datetime]):
    """An instant in UTC: a timestamp with zone on PostgreSQL; on SQLite, which has none, microseconds since the epoch."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return TIMESTAMP(timezone=True) if dialect.name == "postgresql" else BigInteger()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return micros(value)

    def result_processor(self, dialect: Dialect, _: Any) -> Callable[[Any], Any] | None:
        """Asked once of a statement, and its answer of each of a million rows."""
        return None if dialect.name == "postgresql" else _instant


@lru_cache(maxsize=4096)
def _instant(value: Any) -> Any:
    """The instant of a number, and anything else as it is. Many rows have few."""
    try:
        return from_micros(value) if isinstance(value, int) else value
    except OverflowError:
        return value


class MicrosColumn(TypeDecorator[datetime]):
    """An instant that is microseconds since the epoch on both databases: what a million rows carry, and nobody computes with.

    As timestamps PostgreSQL takes three times as long to copy and to read them.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> int | None:
        return None if value is None else micros(value)

    def process_result_value(self, value: Any, _: Dialect) -> Any:
        return _instant(value)


class DatabaseTime(FunctionElement[datetime]):
    """The database's clock, so many seconds from now. Leases expire by it: the clocks of two sweepers need not agree."""

    type = InstantColumn()
    inherit_cache = True
    name = "present"

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(literal(float(seconds)))


@compiles(DatabaseTime, "postgresql")
def _on_postgresql(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Not the time at which the transaction began: one that waited for a lock would otherwise live in the past.
    return f"(clock_timestamp() + {compiler.process(element.clauses, **options)} * INTERVAL '1 second')"


@compiles(DatabaseTime, "mysql")
@compiles(DatabaseTime, "mariadb")
def _on_mysql(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Microseconds, as InstantColumn reads them; the session's zone does not matter.
    epoch = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
    return f"({epoch} + CAST({compiler.process(element.clauses, **options)} * 1000000 AS SIGNED))"


@compiles(DatabaseTime, "sqlite")
def _on_sqlite(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    # Python 3.11 may come with a SQLite before 3.42, which has no unixepoch('subsec'). Milliseconds are what it knows.
    epoch = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
    return f"({epoch} + CAST({compiler.process(element.clauses, **options)} * 1000000 AS INTEGER))"
