"""What tests of the Iceberg store share: a warehouse and the store on it, and warehouses that are written once."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import storied
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse, content


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


@pytest.fixture(scope="package")
def storied_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., KeptWarehouse[dict[int, list[int]]]]:
    """One with the table of `storied`, by the properties of this; it says what each snapshot of it reads."""
    return cache(
        lambda **properties: KeptWarehouse(
            tmp_path_factory.mktemp("storied"), lambda warehouse: content(storied(warehouse, **properties))
        )
    )
