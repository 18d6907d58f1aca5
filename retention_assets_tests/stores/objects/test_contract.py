"""The contract of every store, for objects in a folder, in a bucket, and in a table."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets import clock
from retention_assets.stores.objects import store
from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.environments import LocalObjects, S3Objects, SqlObjects
from retention_assets_tests.stores.undo_contract import UndoContract


class ObjectsContract(Contract):
    """Two promises are others here: nobody lists all objects to see whether any of them changed."""

    def test_a_token_stays_until_the_history_changes(self, environment: Environment) -> None:
        """It stays for a day: as often a scan is made."""
        opened, names = environment.store(), environment.datasets
        before = opened.tokens(names)
        assert set(before) == set(names)
        environment.commit(names[0])
        assert environment.store().tokens(names) == before
        tomorrow = clock.now() + timedelta(days=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "now", lambda: tomorrow)
            assert not before.items() & environment.store().tokens(names).items()

    def test_what_is_not_there_has_no_token(self, environment: Environment) -> None:
        """What a key may name is taken to be there, and what is no dataset of this store is not."""
        assert environment.store().tokens(["others/a"]) == {}


class TestFolder(ObjectsContract, UndoContract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        return LocalObjects(tmp_path)


class TestBucket(ObjectsContract):
    @pytest.fixture
    def environment(self, tmp_path: Path, s3: S3) -> Environment:
        return S3Objects(tmp_path, s3)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
class TestTable(ObjectsContract):
    """On SQLite and PostgreSQL; what MariaDB needs besides has tests of its own."""

    @pytest.fixture
    def environment(self, tmp_path: Path, store_url: str) -> Iterator[Environment]:
        (tmp_path / "environment").mkdir()
        environment = SqlObjects(tmp_path / "environment", store_url, pooled=True)
        yield environment
        environment.close()
