"""Engines: how each kind of database is connected to and told from another, and how its transactions begin.

The ledger is this project's own: its file is created, uses WAL, and its commits are on disk. A foreign database belongs to
somebody else: no file is created, no setting outlives a connection, and no lock is waited for longer than LOCK_SECONDS.

A URL does not tell which database it leads to: a volume may be remounted, a file replaced, a server restored.
"""

import atexit
import math
import os
import sqlite3
import stat
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import NullPool

from retention_assets.errors import Refused
from retention_assets.settings.places import Url
from retention_assets.silence import silence_bound, silence_text
from retention_assets.sql.errors import RETRY_CONFLICTS
from retention_assets.sql.retry import retry

# seconds; a writer of a million marks holds the lock for some of them
BUSY_SECONDS = 60
# Longest silence of a ledger writer in a transaction: it may lock a row that every hold and every other sweep needs.
LEDGER_IDLE_SECONDS = 120
# Longest wait of a statement for a lock before the whole transaction is retried.
LOCK_SECONDS = 10
# Execution option of transactions that read; all others may write.
READS = "reads"
# Seconds between probes of a ledger connection that is silent for `timeout`.
_PROBE_SECONDS = 10
# Seconds after which psycopg checks for signals.
_INTERVAL = 0.1
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
# KiB of page cache per SQLite connection, and for one that marks a million transactions: what does not fit is written twice.
CACHE, BULK_CACHE = 32_768, 262_144
# A server may disable the check globally.
_KEYS_ARE_CHECKED = "SET foreign_key_checks = 1"
_LEDGER_PRAGMAS = ("PRAGMA foreign_keys = ON", "PRAGMA synchronous = FULL", f"PRAGMA cache_size = -{CACHE}")

_opening = threading.Lock()
_engines: dict[tuple[int, str], Engine] = {}


def ledger_engine(url: Url | str) -> Engine:
    """A new engine for a ledger. Creates a missing SQLite file and its folder, but reads nothing."""
    parsed = make_url(_exposed(url))
    if parsed.get_backend_name() == "sqlite":
        make_private(Path(parsed.database or ""))
        engine = create_engine(parsed, connect_args={"timeout": BUSY_SECONDS}, max_overflow=-1)
        event.listen(engine, "connect", _prepare_ledger_file)
        event.listen(engine, "begin", _begin)
        return engine
    return _server_engine(parsed)


def make_private(file: Path) -> None:
    """Create a ledger's file and folder for its owner alone (-wal and -shm inherit it): who may write it decides what is
    deleted.
    """
    if not file.parent.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(0o700)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def too_wide(file: Path) -> list[tuple[Path, int]]:
    """Paths of the ledger (folder, file, -wal, -shm) that others than the owner may access, each with its mode."""
    files = [file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm")]
    modes = [(path, stat.S_IMODE(path.stat().st_mode)) for path in (file.parent, *files) if path.exists()]
    return [(path, mode) for path, mode in modes if mode & 0o077]


def foreign_engine(url: Url | str) -> Engine:
    """The engine of a foreign database in this process. A fork gets its own: connections can't be shared."""
    text = _exposed(url)
    with _opening:
        key = os.getpid(), text
        if key not in _engines:
            _engines[key] = _new_foreign_engine(make_url(text))
        return _engines[key]


def close_engine(url: Url | str) -> None:
    with _opening:
        engine = _engines.pop((os.getpid(), _exposed(url)), None)
    if engine is not None:
        engine.dispose()


@atexit.register
def _close_all() -> None:
    for (process, _), engine in list(_engines.items()):
        # The connections of another process are not ours to close.
        if process == os.getpid():
            engine.dispose()


def sqlite_file(url: Url | str) -> Path | None:
    parsed = make_url(_exposed(url))
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _exposed(url: Url | str) -> str:
    # Not str(url), which masks the password.
    return url.exposed if isinstance(url, Url) else url


def _new_foreign_engine(url: URL) -> Engine:
    # Parameters are values from foreign rows and must not appear in messages.
    if url.get_backend_name() == "sqlite":
        file = Path(url.database or "")
        # Connecting takes 0.1 ms; no connection stays open to a file that others may move away.
        engine = create_engine(url, creator=lambda: _foreign_file(file), poolclass=NullPool, hide_parameters=True)
        event.listen(engine, "begin", _begin)
        return engine
    # A batch uses as many connections as its policy says, so keep them pooled.
    return _server_engine(url, LOCK_SECONDS, hide_parameters=True, pool_size=40)


def _server_engine(url: URL, lock_seconds: int | None = None, **options: Any) -> Engine:
    backend = url.get_backend_name()
    postgresql = backend == "postgresql"
    if postgresql:
        arguments: dict[str, Any] = {"application_name": "retention"}
        # Row security must not hide rows of the ledger; for foreign databases each transaction sets this.
        prepared = ["SET TIME ZONE 'UTC'"] if lock_seconds else ["SET TIME ZONE 'UTC'; SET row_security = off"]
    else:
        arguments = {"charset": "utf8mb4"}
        prepared = ["SET time_zone = '+00:00'", _KEYS_ARE_CHECKED]
    if postgresql and not lock_seconds:
        # A writer may wait long for another one; probes notice a dead server.
        seconds = math.ceil(silence_bound())
        arguments |= {"connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds}
        arguments |= {"keepalives_idle": seconds, "keepalives_interval": _PROBE_SECONDS}
        prepared.append(f"SET idle_in_transaction_session_timeout = '{LEDGER_IDLE_SECONDS}s'")
    if lock_seconds:
        prepared.append(
            f"SET lock_timeout = '{lock_seconds}s'" if postgresql else f"SET innodb_lock_wait_timeout = {lock_seconds}"
        )
    # READ COMMITTED: an update checks its condition on the newest row, and InnoDB locks no gaps.
    options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": True, "max_overflow": -1}
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    try:
        engine = create_engine(url.set(drivername=_DRIVERS[backend]), connect_args=arguments, **options)
    except ModuleNotFoundError as fault:
        raise Refused(
            f"{fault.name} is not installed. MariaDB and MySQL need it: pip install 'retention-assets[mysql]'."
        ) from fault

    def prepare(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            for statement in prepared:
                cursor.execute(statement)
        # Commit, or PostgreSQL drops the settings with the transaction.
        connection.commit()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    if lock_seconds:
        bound_waiting(engine)
    return engine


def bound_waiting(engine: Engine) -> None:
    """End waits for the server that exceed `timeout` without a byte."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, arguments: Any, named: dict[str, Any]) -> Any:
        seconds = silence_bound()
        bounds = {"connect_timeout": math.ceil(seconds)}
        if dialect.driver == "pymysql":
            bounds |= {"read_timeout": bounds["connect_timeout"], "write_timeout": bounds["connect_timeout"]}
        if dialect.name in _DRIVERS:
            named |= bounds | named
        return BoundedConnection.connect(*arguments, **named) if dialect.driver == "psycopg" else None


class BoundedConnection(psycopg.Connection[Any]):
    """A PostgreSQL connection that is closed after `timeout` without data."""

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        return super().wait(self._until_silent(gen), _INTERVAL)

    def _until_silent(self, steps: Any) -> Any:
        quiet, ready = 0.0, None
        while quiet < silence_bound():
            try:
                ready = yield steps.send(ready)
            except StopIteration as end:
                return end.value
            quiet = 0 if ready else quiet + _INTERVAL
        self.pgconn.finish()
        raise psycopg.errors.ConnectionTimeout(f"the server timed out: {silence_text()}")


def _prepare_ledger_file(connection: Any, _: Any) -> None:
    # Python would begin transactions late, and none for schema changes; _begin does it.
    connection.isolation_level = None
    for statement in _LEDGER_PRAGMAS:
        connection.execute(statement)
    # Concurrent openers of a new file collide here, and SQLite does not wait by itself.
    retry(lambda: connection.execute("PRAGMA journal_mode = WAL").close(), RETRY_CONFLICTS)


def _foreign_file(file: Path) -> sqlite3.Connection:
    if not file.is_file():
        # SQLite would create an empty file without tables.
        raise Refused(f"There is no SQLite file at {file}. Check `url` in the settings.")
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, check_same_thread=False)
    # Python would begin transactions late; _begin does it.
    connection.isolation_level = None
    # Off by default: rows that refer to deleted ones would be left dangling.
    connection.execute("PRAGMA foreign_keys = ON").close()
    connection.create_function("retention_print", -1, _print, deterministic=True)
    return connection


def _print(*values: object) -> int:
    return zlib.crc32(repr(values).encode(errors="surrogatepass"))


def _begin(connection: Connection) -> None:
    reads, dialect = connection.get_execution_options().get(READS, False), connection.dialect.name
    if dialect == "sqlite":
        driver: Any = connection.connection.driver_connection
        # Only on a change: it makes SQLite forget its prepared statements.
        if connection.info.get(READS, False) != reads:
            # On the driver, because it is not part of the transaction.
            driver.execute(f"PRAGMA query_only = {'ON' if reads else 'OFF'}")
            connection.info[READS] = reads
        # A transaction that reads before it writes can't get the lock if another wrote in between.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
    elif reads and dialect != "postgresql":
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


# Device and inode: unique on a machine while the file is open.
FileId = tuple[int, int]

# Suffix in the identity of a database whose file is missing.
GONE = ", which is gone"


def identity_of(connection: Connection) -> str:
    """Text that differs for every other database and is the same for every client."""
    if connection.dialect.name == "sqlite":
        file = os.path.realpath(connection.exec_driver_sql("PRAGMA database_list").all()[0][2])
        file_id = _file_id(Path(file))
        # Without the device, which a disk may get anew at each boot.
        return f"SQLite file {file}, inode {file_id[1]}" if file_id else f"SQLite file {file}{GONE}"
    if connection.dialect.name == "postgresql":
        name, oid, may_ask = connection.exec_driver_sql(
            "SELECT datname, oid, has_function_privilege('pg_control_system()', 'execute') FROM pg_database"
            " WHERE datname = current_database()"
        ).one()
        system = "SELECT system_identifier FROM pg_control_system()"
        server = connection.exec_driver_sql(system).scalar() if may_ask else connection.engine.url.host
        return f"PostgreSQL database {name}, oid {oid}, of server {server}"
    name, host, port = connection.exec_driver_sql("SELECT DATABASE(), @@hostname, @@port").one()
    # MySQL's and MariaDB's name; older versions have none.
    ids = connection.exec_driver_sql("SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')").all()
    return f"database {name} of server {ids[0][1] if ids else f'{host}:{port}'}"


@dataclass(frozen=True)
class OpenedFile:
    """The file of a SQLite database when it was opened; None on a server."""

    path: Path | None
    file_id: FileId | None

    @classmethod
    def of(cls, engine: Engine) -> "OpenedFile":
        path = sqlite_file(engine.url.render_as_string(hide_password=False))
        return cls(path, _file_id(path) if path else None)

    def watch(self) -> Callable[[], str | None]:
        """Return a cheap check (microseconds): why writes from now on would be lost, or None.

        Write once first, so that SQLite has its -wal file open. If either file is removed, writes here go on, but others no
        longer see them.
        """
        path, file_id = self.path, self.file_id
        if path is None:
            return lambda: None
        wal = path.with_name(f"{path.name}-wal")
        wal_id = _file_id(wal)

        def fault() -> str | None:
            if file_id is None or _file_id(path) != file_id:
                return f"{path} was removed or replaced since it was opened"
            if _file_id(wal) != wal_id:
                return f"{wal} was removed or replaced since it was opened"
            return None

        return fault


def _file_id(path: Path) -> FileId | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
