"""Identity of a database, which its URL does not give: a volume may be remounted, a file replaced, a server restored."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from retention_assets.sql.engines import sqlite_file

# Device and inode: unique on a machine while the file is open.
FileId = tuple[int, int]

# Suffix in the identity of a database whose file is missing.
GONE = ", which is gone"


def identity_of(connection: Connection) -> str:
    """Text that differs for every other database and is the same for every client."""
    if connection.dialect.name == "sqlite":
        return _of_sqlite(connection)
    if connection.dialect.name == "postgresql":
        return _of_postgresql(connection)
    return _of_mysql(connection)


def _of_sqlite(connection: Connection) -> str:
    file = os.path.realpath(connection.exec_driver_sql("PRAGMA database_list").all()[0][2])
    found = _file_id(Path(file))
    # Without the device, which a disk may get anew at each boot.
    return f"SQLite file {file}, inode {found[1]}" if found else f"SQLite file {file}{GONE}"


def _of_postgresql(connection: Connection) -> str:
    name, oid, may_ask = connection.exec_driver_sql(
        "SELECT datname, oid, has_function_privilege('pg_control_system()', 'execute') FROM pg_database"
        " WHERE datname = current_database()"
    ).one()
    system = "SELECT system_identifier FROM pg_control_system()"
    server = connection.exec_driver_sql(system).scalar() if may_ask else connection.engine.url.host
    return f"PostgreSQL database {name}, oid {oid}, of server {server}"


def _of_mysql(connection: Connection) -> str:
    name, host, port = connection.exec_driver_sql("SELECT DATABASE(), @@hostname, @@port").one()
    # MySQL's and MariaDB's name; older versions have none.
    found = connection.exec_driver_sql("SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')").all()
    return f"database {name} of server {found[0][1] if found else f'{host}:{port}'}"


@dataclass(frozen=True)
class OpenedFile:
    """The file of a SQLite database when it was opened; None on a server."""

    path: Path | None
    found: FileId | None

    @classmethod
    def of(cls, engine: Engine) -> "OpenedFile":
        path = sqlite_file(engine.url.render_as_string(hide_password=False))
        return cls(path, _file_id(path) if path else None)

    def watch(self) -> Callable[[], str | None]:
        """Return a cheap check (microseconds) that tells why writes from now on would be lost, or None.

        Write once first, so that SQLite has its -wal file open. If either file is removed, writes here go on, but others no
        longer see them.
        """
        path, found = self.path, self.found
        if path is None:
            return lambda: None
        ahead = path.with_name(f"{path.name}-wal")
        written_ahead = _file_id(ahead)

        def fault() -> str | None:
            if found is None or _file_id(path) != found:
                return f"{path} was removed or replaced since it was opened"
            if _file_id(ahead) != written_ahead:
                return f"{ahead} was removed or replaced since it was opened"
            return None

        return fault


def _file_id(path: Path) -> FileId | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
