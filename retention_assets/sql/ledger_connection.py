"""One database, opened by its URL: how it is connected to, how a transaction begins, and which failures are tried again.

Belongs here: what SQLite and PostgreSQL each need so that the rest of the ledger need not ask which of them it is.
Does not belong here: tables, and what a transaction is about.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from retention_assets.errors import Refused
from retention_assets.settings.urls import Url

T = TypeVar("T")

# A million marks take seconds to write; who waits for such a writer must not give up before it is done.
BUSY_SECONDS = 60
ATTEMPTS = 12
_SERIALIZATION, _DEADLOCK = "40001", "40P01"
_BUSY, _LOCKED = 5, 6
_WRITES = "ledger_writes"


def file_of(url: Url | str) -> Path | None:
    """The file of a ledger on SQLite; none for one on a server."""
    parsed = _parsed(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _parsed(url: Url | str) -> URL:
    # Not str(url): that is the text for people, without the password.
    return make_url(url.exposed if isinstance(url, Url) else url)


def connect(url: Url | str) -> Engine:
    """An engine for a ledger. Nothing is read yet; the folder of a new SQLite file is made."""
    parsed = _parsed(url)
    engine = _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)
    event.listen(engine, "begin", _begun)
    return engine


def _sqlite(url: URL) -> Engine:
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, max_overflow=-1)
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _postgresql(url: URL) -> Engine:
    # Whatever driver the URL names: both speak libpq, and the ledger's bulk loads are written for this one.
    url = url.set(drivername="postgresql+psycopg")
    named = {} if "application_name" in url.query else {"application_name": "retention"}
    # READ COMMITTED: every write of the ledger is a compare-and-set that PostgreSQL evaluates again on the newest row.
    engine = create_engine(url, connect_args=named, isolation_level="READ COMMITTED", pool_pre_ping=True, max_overflow=-1)
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # Python would begin transactions by itself, late and never for a schema change; _begun does it instead.
    connection.isolation_level = None
    for statement in ("PRAGMA foreign_keys = ON", "PRAGMA synchronous = FULL", "PRAGMA cache_size = -262144"):
        connection.execute(statement)
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").close())


def _patiently(act: Callable[[], None]) -> None:
    """Two who open a new file at once collide in turning WAL on, and there SQLite doesn't wait by itself."""
    for attempt in range(ATTEMPTS):
        try:
            return act()
        except sqlite3.OperationalError as error:
            if attempt == ATTEMPTS - 1 or not _is_transient_sqlite(error):
                raise
            _pause(attempt)
    return None


def _prepare_postgresql(connection: Any, _: Any) -> None:
    before, connection.autocommit = connection.autocommit, True
    connection.execute("SET TIME ZONE 'UTC'")
    connection.autocommit = before


def _begun(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        # A transaction that reads first and writes later can't get the lock if another has written in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent state of the ledger, however long it is read."""
    options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True} if engine.dialect.name != "sqlite" else {}
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
        try:
            with connection.execution_options(**{_WRITES: True}).begin():
                yield connection
        finally:
            if attach:
                driver.execute("DETACH DATABASE staged")


def with_retries(act: Callable[[], T]) -> T:
    """Do a whole transaction again when the database undid it in favour of another one."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return act()
        except DBAPIError as error:
            if not _is_transient(error):
                raise
            _pause(attempt)
    return act()


def _is_transient(error: DBAPIError) -> bool:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return _is_transient_sqlite(cause)
    return getattr(cause, "sqlstate", None) in (_SERIALIZATION, _DEADLOCK)


def _is_transient_sqlite(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (_BUSY, _LOCKED)


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0, min(0.01 * 2**attempt, 1)))


def unreachable(engine: Engine, error: SQLAlchemyError) -> Refused:
    """The sentence for a database that can't be opened; the URL in it shows no password."""
    cause = getattr(error, "orig", None) or error
    shown = engine.url.render_as_string(hide_password=True)
    first = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
    return Refused(
        f"The ledger {shown} cannot be opened: {first}. Check the key ledger in the settings, and that it is reachable."
    )
