"""A database that belongs to somebody else, as a store reads it and deletes from it.

Belongs here: what every store over SQL has in common: reading, writing that is tried again, and streaming.
Does not belong here: which tables there are (reflection.py), and what one of them means (the stores).
"""

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


# What is begun under a permit ends before the lease does (ledger/sweeps/leases.py): so long one statement takes at most, and so
# long a server waits for a program that was stopped in the middle of a transaction, before it undoes it.
STATEMENT_SECONDS, IDLE_SECONDS = 40, 55
_LIMITS = {
    "postgresql": f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s';"
    f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';",
    "mariadb": f"SET SESSION max_statement_time = {STATEMENT_SECONDS}, idle_transaction_timeout = {IDLE_SECONDS}",
    # It knows no limit of a statement that writes.
    "mysql": f"SET SESSION wait_timeout = {IDLE_SECONDS}",
}
# PostgreSQL forgets them with the transaction. SQLite has one writer, who is in the same program.
_NO_LIMITS = {
    "mariadb": "SET SESSION max_statement_time = DEFAULT, idle_transaction_timeout = DEFAULT",
    "mysql": "SET SESSION wait_timeout = DEFAULT",
}


# How a store treats policies on rows. None, as for references: rows that are hidden are never right.
RowSecurity = Literal["off", "mine"] | None


def clear_limits(connection: Connection) -> None:
    """Not any more, so that whoever has the connection next may read as long as it takes."""
    if (dialect := _kind_of(connection)) in _NO_LIMITS:
        # A connection that was lost has none any more.
        with suppress(SQLAlchemyError):
            connection.exec_driver_sql(_NO_LIMITS[dialect])


def _kind_of(connection: Connection) -> str:
    return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name


@dataclass(frozen=True)
class ForeignDatabase:
    """The database of a store. Travels as its URL; connections are made in the process that asks."""

    url: Url | str
    store: str
    row_security: RowSecurity = None

    @property
    def engine(self) -> Engine:
        """The engine of this process."""
        return foreign_engine(self.url)

    @property
    def dialect(self) -> str:
        """sqlite, postgresql, mysql or mariadb."""
        return self.engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One state of the database, however long it is read; no writer waits. Raises Refused where it can't be read."""
        with self._refusing(), reading(self.engine) as connection:
            if self.dialect == "postgresql" and self.sees_all:
                connection.exec_driver_sql(ALL_ROWS)
            yield connection

    @property
    def sees_all(self) -> bool:
        """Whether a policy on rows raises instead of hiding some."""
        return self.row_security != "mine"

    @contextmanager
    def limits(self, connection: Connection) -> Iterator[None]:
        """While open, neither a statement of a transaction nor the time between two takes longer than a sweep may count on."""
        self.set_limits(connection)
        try:
            yield
        finally:
            clear_limits(connection)

    def set_limits(self, connection: Connection) -> None:
        """From now on, in the transaction of a connection."""
        if (dialect := _kind_of(connection)) in _LIMITS:
            see_all = ALL_ROWS if dialect == "postgresql" and self.sees_all else ""
            connection.exec_driver_sql(_LIMITS[dialect] + see_all)

    def present(self) -> datetime | None:
        """What time it is by the server; none for a file, which has no clock of its own."""
        if self.dialect == "sqlite":
            return None
        with self.reading() as connection:
            at: datetime = connection.execute(select(DatabaseTime())).scalar_one()
            return at

    def write(self, work: Callable[[Connection], T], permit: Callable[[], None] = lambda: None) -> T:
        """One transaction, tried again when another one got in its way or the connection was lost. Raises WriteFailed.

        The fate of a commit whose answer got lost is unknown, so `work` must do the same when it is done twice. Withheld where
        it stays unknown: nobody may take it for done, or for not done.
        `permit` is asked before each beginning and each commit; what it raises undoes the transaction and is raised here.
        """
        connected = unanswered = False

        def attempt() -> T:
            nonlocal connected, unanswered
            try:
                connection = self.engine.connect()
            except DBAPIError as error:
                if not connected:
                    # Who was not there before is not waited for.
                    raise WriteFailed(driver_message(error), is_lost=True, is_transient=True) from error
                # Who was there a moment ago may be coming up again.
                error.connection_invalidated = True
                raise
            except Refused as error:
                raise WriteFailed(str(error), is_lost=True, is_transient=False) from error
            connected, committing = True, False
            try:
                with connection, connection.begin(), self.limits(connection):
                    permit()
                    done = work(connection)
                    # Until here nothing of it is gone.
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
        """What a query finds in one state of the database, in memory that does not grow with it.

        The columns come in the order and the types of the schema; `frames.log.INSTANT` is made of any timestamp, and of text.
        `bytes_too`: see `stream`; a query that makes text of everything that is none has no bytes, and is read faster.
        """
        if self.dialect == "postgresql":
            with self._refusing():
                yield from copy_rows(self.engine, query, schema, self.sees_all)
        else:
            with self.reading() as connection:
                yield from stream(connection, query, schema, bytes_too)

    def close(self) -> None:
        """Give back the connections of this process. Asking again opens them again."""
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
        """An error in words, with the remedies that this store has."""
        also = " Or write `row_security: mine` in the store, if its policies say which rows are the store's."
        return driver_message(error) + (also if self.row_security and hides_rows(error) else "")
