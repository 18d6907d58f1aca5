"""How each kind of database is connected to, and how a transaction begins there.

Belongs here: engines, one for each URL and operating-system process, and what SQLite, PostgreSQL and MariaDB or MySQL each need
so that nobody else has to ask which of them it is.
Does not belong here: statements about anybody's tables. These databases belong to others: nothing here creates a file, turns on
a mode or sets anything that outlives a connection.
"""

import atexit
import os
import sqlite3
import threading
import zlib
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import NullPool

from retention_assets.errors import Refused
from retention_assets.settings.urls import Url

# How long one statement waits for the lock of somebody else before the whole transaction is tried again.
LOCK_SECONDS = 10
_READS = "store_reads"
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}

_opening = threading.Lock()
_engines: dict[tuple[int, str], Engine] = {}


def engine_of(url: Url | str) -> Engine:
    """The engine of a URL in this process. A forked process gets its own: connections can't be shared."""
    # Not str(url): that is the text for people, without the password.
    text = url.exposed if isinstance(url, Url) else url
    with _opening:
        key = os.getpid(), text
        if key not in _engines:
            _engines[key] = _opened(make_url(text))
        return _engines[key]


def forget(url: Url | str) -> None:
    """Give back the connections of an engine. Asking for it again opens it again."""
    text = url.exposed if isinstance(url, Url) else url
    with _opening:
        engine = _engines.pop((os.getpid(), text), None)
    if engine is not None:
        engine.dispose()


@atexit.register
def _forget_all() -> None:
    for (process, _), engine in list(_engines.items()):
        # The connections of another process are not ours to say goodbye to.
        if process == os.getpid():
            engine.dispose()


def as_reader(engine: Engine) -> Engine:
    """The same engine for transactions that see one state of the database, lock no writer and can't write."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_READS: True})
    # MySQL calls it the same; the snapshot begins in _begun.
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", _READS: True}
    return engine.execution_options(**options, postgresql_readonly=True)


def _opened(url: URL) -> Engine:
    backend = url.get_backend_name()
    # Parameters are values out of somebody's rows: they belong in no message.
    common: dict[str, Any] = {"hide_parameters": True}
    if backend == "sqlite":
        file = Path(url.database or "")
        # A connection takes a tenth of a millisecond; none is left open behind a file that others may move away.
        engine = create_engine(url, creator=lambda: _sqlite(file), poolclass=NullPool, **common)
    else:
        # READ COMMITTED: a deletion is evaluated again on the newest row, and InnoDB locks no gaps between rows.
        common |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": True, "max_overflow": -1}
        # A batch takes as many connections as its policy says, one after the other: none is made anew for each.
        common |= {"pool_size": 40}
        try:
            engine = create_engine(url.set(drivername=_DRIVERS[backend]), connect_args=_named(url, backend), **common)
        except ModuleNotFoundError as fault:
            raise Refused(
                f"{fault.name} is not installed, which speaks with MariaDB and MySQL: pip install 'retention-assets[mysql]'."
            ) from fault
        event.listen(engine, "connect", _prepare_postgresql if backend == "postgresql" else _prepare_mysql)
    event.listen(engine, "begin", _begun)
    return engine


def _named(url: URL, backend: str) -> dict[str, Any]:
    """Who asks, for those who watch the server; and text as all of Unicode."""
    if backend != "postgresql":
        return {} if "charset" in url.query else {"charset": "utf8mb4"}
    return {} if "application_name" in url.query else {"application_name": "retention"}


def _sqlite(file: Path) -> sqlite3.Connection:
    if not file.is_file():
        # SQLite would make an empty one, which then holds no table.
        raise Refused(f"There is no SQLite file at {file}. Check `url` in the settings.")
    opened = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, check_same_thread=False)
    # Python would begin transactions by itself, and late; _begun does it instead.
    opened.isolation_level = None
    # SQLite has no hash of its own.
    opened.create_function("retention_print", -1, _print, deterministic=True)
    return opened


def _print(*values: object) -> int:
    return zlib.crc32(repr(values).encode(errors="surrogatepass"))


def _prepare_postgresql(connection: Any, _: Any) -> None:
    _tell(connection, "SET TIME ZONE 'UTC'", f"SET lock_timeout = '{LOCK_SECONDS}s'")


def _prepare_mysql(connection: Any, _: Any) -> None:
    _tell(connection, "SET time_zone = '+00:00'", f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}")


def _tell(connection: Any, *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    # On PostgreSQL what a transaction sets is gone with it, unless it commits.
    connection.commit()


def _begun(connection: Connection) -> None:
    reads, dialect = connection.get_execution_options().get(_READS, False), connection.dialect.name
    if dialect == "sqlite":
        # A transaction that reads first and writes later can't get the lock if another has written in between.
        connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if reads else 'OFF'}")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
    elif reads and dialect != "postgresql":
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
