"""The files store and the contract that every store passes, on a local folder and on S3."""

from pathlib import Path

import pytest

from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.files.environments import S3, LocalFiles, S3Files


class TestLocalFiles(Contract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        return LocalFiles(tmp_path)


@pytest.mark.long
class TestS3Files(Contract):
    @pytest.fixture
    def environment(self, s3: S3) -> Environment:
        return S3Files(s3)
