"""Short waits for locks of others, and the error if one does not come."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from retention_assets.sql.engines import LOCK_SECONDS
from retention_assets.sql.errors import WriteFailed, is_lock_timeout

LOCKED = "Somebody holds a lock on it; the next sweep tries again."
# Seconds: for a statement about many rows, and for its pieces after it was split.
MOMENT, BLINK = 1.0, 0.1


class RowsLocked(WriteFailed):
    """A statement that waited in vain for another's lock. Retrying after such a wait is useless."""

    def __init__(self) -> None:
        super().__init__(LOCKED, is_lost=False, is_transient=False)


@contextmanager
def short_lock_wait(connection: Connection, seconds: float = MOMENT) -> Iterator[None]:
    """Shorten the lock wait of statements. Raises RowsLocked if one waits in vain."""
    dialect = connection.dialect
    if dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")
    elif dialect.name != "sqlite":
        # MySQL waits for at least a second.
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
            # A lost connection has nothing to reset, and its error is already on the way.
            with suppress(DBAPIError):
                connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}")
