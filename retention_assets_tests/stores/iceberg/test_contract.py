"""The `iceberg` store and the contract that every store passes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from pyiceberg.table import Table

from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Store
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import Contract, Environment, write_chains
from retention_assets_tests.stores.iceberg.tables import KeptWarehouse, Warehouse, reaches, replace, undeletable


class IcebergTables(Environment):
    datasets = ("ice/db.t1", "ice/db.t2", "ice/db.t3")

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.stores: list[IcebergStore] = []

    def store(self) -> Store:
        self.stores.append(self.warehouse.store())
        return self.stores[-1]

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        table = self.warehouse.table(dataset.rpartition(".")[2])
        drawn = history(drawing, dataset=dataset).transactions
        return {row["transaction"]: str(replace(table, number)) for number, row in enumerate(drawn)}

    def commit(self, dataset: str) -> str:
        return str(replace(self._table(dataset), 99))

    def data(self) -> dict[str, bytes]:
        return {file: said for file, said in self.warehouse.files().items() if not file.endswith(".metadata.json")}

    def everything(self) -> dict[str, bytes]:
        return self.warehouse.files() | {"catalog": (self.warehouse.folder / "catalog.db").read_bytes()}

    def owned(self, dataset: str, transaction: str) -> set[str]:
        table = self._table(dataset)
        found = {str(one.snapshot_id): reaches(table, one) for one in table.metadata.snapshots}
        return found.pop(transaction).difference(*found.values())

    def reached(self, dataset: str, transaction: str) -> set[str]:
        table = self._table(dataset)
        (snapshot,) = (one for one in table.metadata.snapshots if str(one.snapshot_id) == transaction)
        return reaches(table, snapshot)

    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:
        return undeletable(*(file for file in self.owned(dataset, transaction) if file.endswith(".parquet")))

    def _table(self, dataset: str) -> Table:
        return self.warehouse.load(dataset.rpartition(".")[2])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptWarehouse[dict[str, str]]:
    return KeptWarehouse(tmp_path_factory.mktemp("chains"), lambda warehouse: write_chains(IcebergTables(warehouse)))


class TestIcebergStore(Contract):
    @pytest.fixture
    def environment(self, kept: KeptWarehouse[dict[str, str]]) -> Iterator[Environment]:
        with kept.opened() as warehouse:
            tables = IcebergTables(warehouse)
            yield tables
            for store in tables.stores:
                store.close()

    @pytest.fixture
    def ids(self, kept: KeptWarehouse[dict[str, str]]) -> dict[str, str]:
        return kept.made
