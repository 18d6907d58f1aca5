"""Transactions: how one that reads and one that writes begin, alike on every kind of database.

Belongs here: what a reader sees and may do, that a writer does all or nothing, and how many values one statement takes.
Does not belong here: doing a transaction again (retry.py, errors.py), and what it is about.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from retention_assets.sql.engines import BULK_CACHE, CACHE, READS

T = TypeVar("T")

# Well below what any of the databases takes as parameters of one statement.
PORTION = 10_000


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent state of the database, however long it is read. Locks no writer, and can't write."""
    options: dict[str, Any] = {READS: True}
    if engine.dialect.name != "sqlite":
        # MySQL calls it the same; its snapshot begins with the transaction.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect() as connection, connection.execution_options(**options).begin():
        yield connection


@contextmanager
def writing(engine: Engine, attach: Path | None = None) -> Iterator[Connection]:
    """One transaction that writes: all of it, or, after any error, nothing. `attach` is a SQLite file to be read in it."""
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if attach:
            # Not possible once a transaction has begun.
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
    """Values as statements take them, some at a time; nothing if there are none."""
    for at in range(0, len(values), PORTION):
        yield values[at : at + PORTION]
