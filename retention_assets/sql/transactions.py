"""Transactions that read or write, alike on every kind of database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from retention_assets.sql.engines import BULK_CACHE, CACHE, READS

T = TypeVar("T")

# values per statement, well below every database's limit of parameters
PORTION = 10_000


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent state, read-only; locks no writer."""
    options: dict[str, Any] = {READS: True}
    if engine.dialect.name != "sqlite":
        # MySQL has the same name; its snapshot begins with the transaction.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect() as connection, connection.execution_options(**options).begin():
        yield connection


@contextmanager
def writing(engine: Engine, attach: Path | None = None) -> Iterator[Connection]:
    """One transaction: everything is written, or nothing after any error. `attach` is a SQLite file to read in it."""
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if attach:
            # Not possible within a transaction.
            driver.execute("ATTACH DATABASE ? AS staged", (str(attach),))
            driver.execute(f"PRAGMA cache_size = -{BULK_CACHE}")
        try:
            with connection.begin():
                yield connection
        finally:
            if attach:
                driver.execute("DETACH DATABASE staged")
                driver.execute(f"PRAGMA cache_size = -{CACHE}")


def portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), PORTION):
        yield values[at : at + PORTION]
