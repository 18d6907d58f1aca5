"""What tests of the Iceberg store share: a warehouse and the store on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.tables import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(warehouse: Warehouse) -> Iterator[IcebergStore]:
    opened = warehouse.store()
    yield opened
    opened.close()
