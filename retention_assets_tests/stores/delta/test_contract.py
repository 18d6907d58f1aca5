"""The `delta` store and the contract that every store passes, on a disk and on S3."""

from pathlib import Path

import pytest

from retention_assets_tests.stores.contract import Contract, Environment, write_chains
from retention_assets_tests.stores.delta.environments import LocalTables, S3Tables, VersionedTables
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.undo_contract import UndoContract


class TestOnDisk(UndoContract, Contract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        return LocalTables(tmp_path)


@pytest.mark.matrix
class TestOnS3(Contract):
    @pytest.fixture
    def environment(self, tmp_path: Path, s3: S3) -> Environment:
        return S3Tables(tmp_path, s3)


class TestWithVersions(UndoContract):
    @pytest.fixture
    def environment(self, tmp_path: Path, s3: S3) -> Environment:
        return VersionedTables(tmp_path, s3.environment["AWS_ENDPOINT_URL"])

    @pytest.fixture
    def ids(self, environment: Environment) -> dict[str, str]:
        return write_chains(environment)
