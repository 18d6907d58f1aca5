"""What tests of the files store share: a lake on this machine, or on either file system."""

from pathlib import Path

import pytest

from retention_assets_tests.stores.files.environments import Files, LocalFiles, S3Files
from retention_assets_tests.stores.files.sweeps import filled


@pytest.fixture
def lake(tmp_path: Path) -> LocalFiles:
    return filled(LocalFiles(tmp_path))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return LocalFiles(tmp_path) if request.param == "local" else S3Files(request.getfixturevalue("s3"))


@pytest.fixture
def environment(empty: Files) -> Files:
    return filled(empty)
