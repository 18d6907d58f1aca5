"""What tests of stores share: the S3 of the session as a store finds it, and DataHub's table and units of work in each database."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from retention_assets.stores.places import delete_s3, fsspec
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.records.environments import Units


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    for module, name in ((fsspec, "FOLDER_PATIENCE"), (delete_s3, "DELETE_PATIENCE")):
        monkeypatch.setattr(module, name, replace(getattr(module, name), pause=0))
    s3_server.empty()
    yield s3_server
    s3_server.faults.clear()


@pytest.fixture
def units(store_url: str) -> Iterator[Units]:
    units = Units(store_url, pooled=True)
    yield units
    units.close()


@pytest.fixture
def table(store_url: str) -> Iterator[Table]:
    table = Table(store_url)
    yield table
    table.database.close()
