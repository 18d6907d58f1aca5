"""Two names of a catalog for one table, or for one folder: then nothing of it is swept."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import catalog as catalog_module
from retention_assets.stores.iceberg import other_tables
from retention_assets.stores.iceberg import store as iceberg_store
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, sweep, swept
from retention_assets_tests.stores.iceberg.tables import Warehouse, content, head, own_files, place, reachable, replace


def registered_again(table: Table, name: str) -> int:
    """Register a table under a second name as it is now; the snapshot that this name reads from now on."""
    table.catalog.register_table(f"db.{name}", table.metadata_location)
    return head(table)


def failed_for(swept: dict[int, SweptTarget], said: str) -> bool:
    return {(one.outcome, said in str(one.error)) for one in swept.values()} == {(Outcome.FAILED, True)}


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "SqlCatalog", Warehouse)


@pytest.mark.parametrize("dataset", [DATASET, "ice/db.a.copy"])
def test_a_table_with_two_names_in_the_catalog_loses_nothing_by_either(
    warehouse: Warehouse, store: IcebergStore, dataset: str
) -> None:
    warehouse.catalog.create_namespace("db.a")
    table = warehouse.table()
    one, two = replace(table, 1), replace(table, 2)
    registered_again(table, "a.copy")
    copy = warehouse.load("a.copy")
    replace(copy, 4)
    replace(table, 3)
    files, states = warehouse.files(), (content(table), content(copy))
    [other] = {DATASET, "ice/db.a.copy"} - {dataset}
    assert failed_for(sweep(store, one, two, dataset=dataset), f"{other} is the same table under a second name")
    assert warehouse.files() == files
    assert (content(table), content(copy)) == states


def test_a_table_is_swept_again_once_its_second_name_is_dropped(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    replace(table, 2)
    store.read(store.datasets())
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")
    warehouse.catalog.drop_table("db.copy")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)


def test_a_twin_outside_of_the_chosen_namespaces_counts_as_well(warehouse: Warehouse) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    warehouse.catalog.create_namespace("elsewhere")
    warehouse.catalog.register_table("elsewhere.copy", table.metadata_location)
    replace(table, 2)
    store = warehouse.store(namespaces=["db"])
    assert failed_for(sweep(store, one), "ice/elsewhere.copy is the same table under a second name")
    store.close()


def test_a_table_whose_name_was_changed_and_given_away_shares_its_folder(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    warehouse.catalog.rename_table("db.t", "db.before")
    warehouse.table()
    assert failed_for(sweep(store, one, dataset="ice/db.before"), "ice/db.t is another table in the same folder")
    assert sorted(content(warehouse.load("before")).values()) == [[1], [2]]


def test_tables_that_share_no_more_than_a_folder_for_metadata_are_swept(warehouse: Warehouse, store: IcebergStore) -> None:
    shared = {"write.metadata.path": f"file://{warehouse.data}/metadata"}
    table, other = warehouse.table(**shared), warehouse.table("other", **shared)
    one, _ = replace(table, 1), replace(table, 2)
    replace(other, 3)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert list(content(other).values()) == [[3]]


def test_a_twin_that_stayed_where_the_metadata_was_before_is_found(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    table.transaction().set_properties({"write.metadata.path": f"file://{warehouse.data}/moved"}).commit_transaction()
    replace(table, 2)
    assert "/moved/" in warehouse.load().metadata_location
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")


def test_a_twin_that_cant_be_read_keeps_everything(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    replace(table, 2)
    Path(place(warehouse.load("copy").metadata_location)).unlink()
    there = warehouse.files()
    assert failed_for(sweep(store, one), "mend it or drop that name: the table's metadata can't be read: ")
    assert warehouse.files() == there


@pytest.mark.usefixtures("no_database")
def test_where_the_catalog_is_no_database_a_twin_is_known_by_having_been_read(
    warehouse: Warehouse, store: IcebergStore
) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    replace(table, 2)
    there = warehouse.files()
    store.read(store.datasets())
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")
    assert warehouse.files() == there


@pytest.mark.parametrize("is_database", [True, False])
def test_a_twin_that_nobody_has_read_is_found_wherever_its_metadata_is(
    warehouse: Warehouse, store: IcebergStore, request: pytest.FixtureRequest, is_database: bool
) -> None:
    if not is_database:
        request.getfixturevalue("no_database")
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    copy = warehouse.load("copy")
    copy.transaction().set_properties({"write.metadata.path": f"file://{warehouse.data}/moved"}).commit_transaction()
    replace(table, 2)
    there = warehouse.files()
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")
    assert warehouse.files() == there


def test_a_twin_whose_metadata_is_beside_is_found_whatever_else_is_known(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    replace(table, 2)
    # Other tables are read for what they have of this one's files, and a twin is known by having been read.
    monkeypatch.setattr(other_tables.OtherTables, "claims", lambda *_: {})
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")


def test_a_twin_that_is_registered_before_the_last_look_is_seen(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    targets = [Target(each.transaction, each.note) for each in store.prepare(DATASET, [str(one)])]
    files, commit = own_files(table, one), SqlCatalog.commit_table

    def commits_and_is_registered(self: SqlCatalog, *asked: Any) -> Any:
        before = warehouse.load().metadata_location
        answer = commit(self, *asked)
        warehouse.catalog.register_table("db.copy", before)
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commits_and_is_registered)
    assert failed_for(swept(store, targets), "ice/db.copy is the same table under a second name")
    # It is expired by its one name, and what the other one reads is there.
    assert files <= warehouse.files().keys()
    assert one in content(warehouse.load("copy"))


@pytest.mark.usefixtures("no_database")
def test_a_twin_that_was_made_another_table_after_it_was_read_is_none(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table, "copy")
    replace(table, 2)
    store.read(store.datasets())
    warehouse.catalog.drop_table("db.copy")
    warehouse.table("copy")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}


def test_a_catalog_that_goes_away_before_twins_are_looked_for_fails_the_targets(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    targets = [Target(each.transaction, each.note) for each in store.prepare(DATASET, [str(one)])]

    def loads_a_last_time(catalog: SqlCatalog, *asked: Any) -> Table:
        found = catalog_module.load_table(catalog, *asked)
        (warehouse.folder / "catalog.db").rename(warehouse.folder / "away.db")
        catalog.engine.dispose()
        return found

    there = warehouse.files()
    monkeypatch.setattr(iceberg_store, "load_table", loads_a_last_time)
    assert failed_for(swept(store, targets), "The catalog of the store ice can't be read: ")
    assert warehouse.files() == there
