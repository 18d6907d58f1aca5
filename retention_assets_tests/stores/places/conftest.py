"""Roots that tests of places share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_assets.stores.places import fsspec
from retention_assets_tests.stores.places.roots import LocalRoot, MemoryRoot, Root, S3Root


@pytest.fixture(params=["local", "s3", "memory"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Root]:
    if request.param == "memory":
        memory = MemoryRoot()
        monkeypatch.setattr(fsspec, "open_file_system", lambda location: (memory.fs, location.removeprefix("memory:/")))
        yield memory
        memory.empty()
    else:
        yield LocalRoot(tmp_path / "root") if request.param == "local" else S3Root(request.getfixturevalue("s3"))
