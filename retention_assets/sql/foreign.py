"""A database that belongs to somebody else, as a store reads it and deletes from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from sqlalchemy import Connection, Engine, Select, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from retention_assets.errors import Refused, Withheld
from retention_assets.settings.urls import Url
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.engines import close_engine, foreign_engine
from retention_assets.sql.errors import RETRY_TRANSIENT, WriteFailed, driver_message, hides_rows, is_lost, is_transient
from retention_assets.sql.retry import retry
from retention_assets.sql.streams import ALL_ROWS, copy_rows, stream
from retention_assets.sql.transactions import reading

T = TypeVar("T")


# Seconds per statement, and of idleness before the server undoes a transaction: work begun under a permit ends before its
# lease (ledger/leases.py).
STATEMENT_SECONDS, IDLE_SECONDS = 40, 55
_LIMITS = {
    "postgresql": f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s';"
    f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';",
    "mariadb": f"SET SESSION max_statement_time = {STATEMENT_SECONDS}, idle_transaction_timeout = {IDLE_SECONDS}",
    # MySQL has no limit for statements that write.
    "mysql": f"SET SESSION wait_timeout = {IDLE_SECONDS}",
}
# PostgreSQL drops them with the transaction. SQLite's one writer is in this program.
_NO_LIMITS = {
    "mariadb": "SET SESSION max_statement_time = DEFAULT, idle_transaction_timeout = DEFAULT",
    "mysql": "SET SESSION wait_timeout = DEFAULT",
}


# How a store treats row security policies. None, as for references: hidden rows are always wrong.
RowSecurity = Literal["off", "mine"] | None


def clear_limits(connection: Connection) -> None:
    """Reset the time-outs before the connection goes back to the pool."""
    if (dialect := _kind_of(connection)) in _NO_LIMITS:
        with suppress(SQLAlchemyError):
            connection.exec_driver_sql(_NO_LIMITS[dialect])


def _kind_of(connection: Connection) -> str:
    return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name


@dataclass(frozen=True)
class ForeignDatabase:
    """The database of a store. It travels as its URL; each process opens its own connections."""

    url: Url | str
    store: str
    row_security: RowSecurity = None

    @property
    def engine(self) -> Engine:
        return foreign_engine(self.url)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent state that blocks no writer. Raises Refused if it can't be read."""
        with self._refusing(), reading(self.engine) as connection:
            if self.dialect == "postgresql" and self.sees_all:
                connection.exec_driver_sql(ALL_ROWS)
            yield connection

    @property
    def sees_all(self) -> bool:
        """A row security policy raises instead of hiding rows."""
        return self.row_security != "mine"

    @contextmanager
    def limits(self, connection: Connection) -> Iterator[None]:
        """Limit each statement, and the time between two, to what a sweep's lease allows."""
        self.set_limits(connection)
        try:
            yield
        finally:
            clear_limits(connection)

    def set_limits(self, connection: Connection) -> None:
        if (dialect := _kind_of(connection)) in _LIMITS:
            see_all = ALL_ROWS if dialect == "postgresql" and self.sees_all else ""
            connection.exec_driver_sql(_LIMITS[dialect] + see_all)

    def present(self) -> datetime | None:
        if self.dialect == "sqlite":
            return None
        with self.reading() as connection:
            at: datetime = connection.execute(select(DatabaseTime())).scalar_one()
            return at

    def write(self, work: Callable[[Connection], T], permit: Callable[[], None] = lambda: None) -> T:
        """Run a transaction; retry it after a conflict or a lost connection. Raises WriteFailed.

        The fate of a commit without an answer is unknown, so `work` must be idempotent. Raises Withheld if it stays unknown:
        nobody may take it for done or for not done. `permit` is called before each beginning and each commit; its exception
        undoes the transaction and is raised here.
        """
        connected = unanswered = False

        def attempt() -> T:
            nonlocal connected, unanswered
            try:
                connection = self.engine.connect()
            except DBAPIError as error:
                if not connected:
                    # Never connected: do not wait for the server.
                    raise WriteFailed(driver_message(error), is_lost=True, is_transient=True) from error
                # It was there a moment ago and may be restarting.
                error.connection_invalidated = True
                raise
            except Refused as error:
                raise WriteFailed(str(error), is_lost=True, is_transient=False) from error
            connected, committing = True, False
            try:
                with connection, connection.begin(), self.limits(connection):
                    permit()
                    done = work(connection)
                    # Up to here nothing is deleted.
                    permit()
                    committing = True
            except DBAPIError as error:
                unanswered |= committing and is_lost(error)
                raise
            return done

        try:
            return retry(attempt, RETRY_TRANSIENT)
        except DBAPIError as error:
            if unanswered and is_lost(error):
                raise Withheld(
                    f"The connection to the database of the store {self.store} was lost at a commit, and nobody knows whether"
                    f" it was done: {driver_message(error)}. The next sweep looks at what is there."
                ) from error
            raise WriteFailed(self.message(error), is_lost(error), is_transient(error)) from error

    def batches(self, query: Select[Any], schema: pa.Schema, bytes_too: bool = True) -> Iterator[pa.RecordBatch]:
        """Stream a query in one consistent state, in constant memory, in the order and types of the schema.

        Any timestamp and text becomes `frames.log.INSTANT`. `bytes_too`: see `stream`; a query that casts everything to text
        needs none and is faster.
        """
        if self.dialect == "postgresql":
            with self._refusing():
                yield from copy_rows(self.engine, query, schema, self.sees_all)
        else:
            with self.reading() as connection:
                yield from stream(connection, query, schema, bytes_too)

    def close(self) -> None:
        close_engine(self.url)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, AdbcError) as error:
            if hides_rows(error):
                raise Refused(f"The database of the store {self.store} can't be read whole: {self.message(error)}") from error
            raise Refused(
                f"The database of the store {self.store} can't be read: {driver_message(error)}. Check `url` and `table` in the"
                " settings, and that it is up."
            ) from error

    def message(self, error: Exception) -> str:
        also = " Or write `row_security: mine` in the store, if its policies say which rows are the store's."
        return driver_message(error) + (also if self.row_security and hides_rows(error) else "")
