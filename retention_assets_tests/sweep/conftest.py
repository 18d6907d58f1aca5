"""What tests of sweeps share: the lake of a test, and what sweepers are killed over."""

from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.forked import forking
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse, append, replace
from retention_assets_tests.sweep.lakes import Lake
from retention_assets_tests.sweep.sharing import sharing as sharing


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(params=[False, True], ids=["read again", "guards"])
def guards(request: pytest.FixtureRequest) -> bool:
    """Whether the store guards its targets, so that its log is not read again before each batch."""
    return bool(request.param)


def write_table(warehouse: Warehouse) -> dict[str, str]:
    table = warehouse.table("t1")
    made = [append(table, 0), append(table, 1), replace(table, 2), append(table, 3), replace(table, 4, 40), append(table, 5)]
    with table.manage_snapshots() as change:
        change.create_tag(made[2], "year-end").create_branch(made[3], "audit")
    made += [replace(table, 6), append(table, 7)]
    return {str(snapshot): str(snapshot) for snapshot in made}


@pytest.fixture(scope="module")
def sweepers() -> Any:
    """Where sweepers are forked from: a program that has loaded everything and holds no connection."""
    return forking()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptWarehouse[dict[str, str]]:
    return KeptWarehouse(tmp_path_factory.mktemp("table"), write_table)
