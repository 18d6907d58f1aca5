"""Which database it is: what tells one database from another that is reached by the same URL.

Belongs here: the identity of a database as its server or its file gives it, and watching that an open SQLite file still is the
one at its path. A URL is only a way to a database: a volume may be mounted anew, a file replaced, a server restored.
Does not belong here: what follows from another identity (sweep), and tables (reflection.py).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from retention_assets.sql.engines import sqlite_file

# Device and inode: while a file is open, no other file of the machine has both.
FileId = tuple[int, int]

# The end of the words for a database without a file.
GONE = ", which is gone"


def identity_of(connection: Connection) -> str:
    """A database in words that are other ones for every other database, and the same for whoever asks."""
    if connection.dialect.name == "sqlite":
        return _of_sqlite(connection)
    if connection.dialect.name == "postgresql":
        return _of_postgresql(connection)
    return _of_mysql(connection)


def _of_sqlite(connection: Connection) -> str:
    file = os.path.realpath(connection.exec_driver_sql("PRAGMA database_list").all()[0][2])
    found = _file_id(Path(file))
    # Without its device, which a disk may get anew with each start of the machine.
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
    # MySQL's name for it, and MariaDB's; older ones have none.
    found = connection.exec_driver_sql("SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')").all()
    return f"database {name} of server {found[0][1] if found else f'{host}:{port}'}"


@dataclass(frozen=True)
class OpenedFile:
    """The file of a SQLite database as it was when it was opened; none on a server."""

    path: Path | None
    found: FileId | None

    @classmethod
    def of(cls, engine: Engine) -> "OpenedFile":
        """Of an engine that has just opened its file."""
        path = sqlite_file(engine.url.render_as_string(hide_password=False))
        return cls(path, _file_id(path) if path else None)

    def watch(self) -> Callable[[], str | None]:
        """A question that costs microseconds: why what is written from now on would be lost, or None.

        A write must have been made before, so that SQLite has its second file (-wal) open. Whoever removes either takes away
        what others read, while it goes on working here.
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
