"""An S3 on loopback for the whole session, which fails where a test tells it to."""

from collections.abc import Iterator

import pytest

from retention_assets.stores import remote_removal
from retention_assets_tests.stores.files_worlds import S3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """A server that is there for this session alone."""
    server = S3()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The server, empty and well, and the environment in which drivers find it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote_removal, "WAITS", (0.0, 0.0))
    s3_server.empty()
    yield s3_server
    s3_server.faults.clear()
