"""The `iceberg` store and the contract that every store passes."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Store
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import DRAWN, Contract, Environment, write_chains
from retention_assets_tests.stores.iceberg.tables import (
    KeptWarehouse,
    Warehouse,
    content,
    head,
    place,
    reachable,
    reaches,
    replace,
    undeletable,
)
from retention_assets_tests.stores.undo_contract import UndoContract


class IcebergTables(Environment):
    datasets: tuple[str, ...] = ("ice/db.t1", "ice/db.t2", "ice/db.t3")
    recounts = False
    misses_trash = False
    made_together = pins_restored = True

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.stores: list[IcebergStore] = []
        # what tables had set aside that are dropped since
        self.left = set[str]()

    def store(self) -> Store:
        self.stores.append(self.warehouse.store())
        return self.stores[-1]

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        table = self.warehouse.table(dataset.rpartition(".")[2])
        drawn = history(drawing, dataset=dataset).transactions
        return {row["transaction"]: str(replace(table, number)) for number, row in enumerate(drawn)}

    def commit(self, dataset: str) -> str:
        return str(replace(self._table(dataset), 99))

    def data(self) -> dict[str, bytes]:
        """Files that nothing but the metadata keeps from going: what is set aside is as if in a trash."""
        files, aside = self.warehouse.files().items(), self.trash()
        return {file: held for file, held in files if not file.endswith(".metadata.json") and file not in aside}

    def trash(self) -> set[str]:
        catalog = self.warehouse.catalog
        tables = [catalog.load_table(name) for name in catalog.list_tables("db")]
        aside = self.left.difference(*map(reachable, tables)).union(*map(self._aside, tables))
        return {file for file in aside if Path(file).exists()}

    def everything(self) -> dict[str, bytes]:
        in_sight = self.data()
        files = {file if file in in_sight else f"not in sight: {file}": held for file, held in self.warehouse.files().items()}
        return files | {"catalog": (self.warehouse.folder / "catalog.db").read_bytes()}

    def owned(self, dataset: str, transaction: str) -> set[str]:
        table = self._table(dataset)
        owners = {str(one.snapshot_id): reaches(table, one) for one in [*table.metadata.snapshots, *_set_aside(table)]}
        return owners.pop(transaction, set()).difference(*owners.values())

    def occupy(self, dataset: str, transaction: str) -> None:
        table = self._table(dataset)
        if (tag := f"restored-{transaction}") not in table.refs():
            table.manage_snapshots().create_tag(head(table), tag).commit()

    def reads(self) -> dict[str, list[int]]:
        return {str(snapshot): rows for snapshot, rows in content(self._table(self.datasets[0])).items()}

    def make_again(self, dataset: str, transaction: str) -> None:  # noqa: ARG002 - a snapshot is made again with its table
        folder = Path(place(self._table(dataset).location()))
        self.drop(dataset)
        for file in folder.rglob("*.*"):
            if str(file) not in self.left and not file.name.endswith(".metadata.json"):
                file.unlink()
        self.write(dataset, DRAWN)

    def drop(self, dataset: str) -> None:
        self.left |= self._aside(self._table(dataset))
        self.warehouse.catalog.drop_table(dataset.partition("/")[2])

    def _aside(self, table: Table) -> set[str]:
        return set[str]().union(*(reaches(table, one) for one in _set_aside(table))) - reachable(table)

    def reached(self, dataset: str, transaction: str) -> set[str]:
        table = self._table(dataset)
        return reaches(table, next(one for one in table.metadata.snapshots if str(one.snapshot_id) == transaction))

    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:
        return undeletable(*(file for file in self.owned(dataset, transaction) if file.endswith(".parquet")))

    def _table(self, dataset: str) -> Table:
        return self.warehouse.load(dataset.rpartition(".")[2])


def _set_aside(table: Table) -> list[Snapshot]:
    texts = [text for name, text in table.properties.items() if name.startswith("retention.aside.")]
    return [Snapshot.model_validate(json.loads(text)["snapshots"][0]) for text in texts]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptWarehouse[dict[str, str]]:
    return KeptWarehouse(tmp_path_factory.mktemp("chains"), lambda warehouse: write_chains(IcebergTables(warehouse)))


class TestIcebergStore(UndoContract, Contract):
    @pytest.fixture
    def environment(self, kept: KeptWarehouse[dict[str, str]]) -> Iterator[Environment]:
        with kept.opened() as warehouse:
            tables = IcebergTables(warehouse)
            yield tables
            tables.close()

    @pytest.fixture
    def ids(self, kept: KeptWarehouse[dict[str, str]]) -> dict[str, str]:
        return kept.made
