"""Locks of others: waiting for them only for a moment, and saying so where one did not come.

Belongs here: how long each kind of database is told to wait, and what people read of a row that somebody holds.
Does not belong here: what is done without that row (the stores).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from retention_assets.sql.engines import LOCK_SECONDS
from retention_assets.sql.errors import WriteFailed, is_lock_timeout

LOCKED = "Somebody holds a lock on it; the next sweep tries again."
# How long a statement about many rows waits, and one about what is left when it has been cut in pieces.
MOMENT, BLINK = 1.0, 0.1


class RowsLocked(WriteFailed):
    """A statement that waited in vain for the lock of somebody else. Who waited a moment would wait another one in vain."""

    def __init__(self) -> None:
        super().__init__(LOCKED, is_lost=False, is_transient=False)


@contextmanager
def short_lock_wait(connection: Connection, seconds: float = MOMENT) -> Iterator[None]:
    """While open, a statement does not wait for the locks of others as long as elsewhere: RowsLocked if it waits in vain."""
    dialect = connection.dialect
    if dialect.name == "postgresql":
        # Forgotten with the transaction.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")
    elif dialect.name != "sqlite":
        # MySQL waits for a second at least.
        at_least = 0 if getattr(dialect, "is_mariadb", False) else 1
        connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {max(int(seconds), at_least)}")
    try:
        yield
    except DBAPIError as fault:
        if is_lock_timeout(fault):
            raise RowsLocked from fault
        raise
    finally:
        if dialect.name not in ("postgresql", "sqlite"):
            # A connection that was lost has no patience to get back, and what lost it is on its way to be said.
            with suppress(DBAPIError):
                connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}")
