"""A sweep of an Iceberg table: what it spares, what it cannot delete, and a sweep that is killed at each step."""

from pathlib import Path

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.iceberg.sweeps import DATASET, sweep, swept
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    append,
    live,
    reachable,
    replaced,
    undeletable,
)


def test_what_a_ref_points_at_is_spared_and_the_ref_is_named(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, two, three = append(table, 1), append(table, 2), append(table, 3)
    table.manage_snapshots().create_tag(one, "v1").create_branch(two, "dev").commit()
    before = warehouse.files()
    results = sweep(store, one, two, three)
    assert {name: (result.outcome, result.error) for name, result in results.items()} == {
        one: (Outcome.SPARED, "tag v1 points at it"),
        two: (Outcome.SPARED, "branch dev points at it"),
        three: (Outcome.SPARED, "branch main points at it"),
    }
    assert warehouse.files() == before


@pytest.mark.parametrize("said", ["false", "FALSE", "flase"])
def test_a_table_that_forbids_it_is_left_alone(warehouse: Warehouse, store: IcebergStore, said: str) -> None:
    table = warehouse.table(**{"gc.enabled": said})
    one, _ = append(table, 1), append(table, 2)
    before = warehouse.files()
    assert store.prepare(DATASET, [str(one)])[0].note is None
    [result] = sweep(store, one).values()
    assert (result.outcome, result.error) == (Outcome.SPARED, "table property gc.enabled is false")
    assert warehouse.files() == before


def test_a_file_that_cant_be_deleted_keeps_the_way_to_it(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, _) = replaced(warehouse, 2)
    [stuck] = live(table, table.metadata.snapshots[0])
    [prepared] = store.prepare(DATASET, [str(one)])
    with undeletable(stuck):
        [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
        assert result.outcome is Outcome.FAILED
        assert stuck in str(result.error)
    [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
    assert (result.outcome, result.error) == (Outcome.DELETED, None)
    assert warehouse.files().keys() == reachable(table)


def test_a_file_that_was_gone_before_frees_nothing(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, _) = replaced(warehouse, 2)
    [gone] = live(table, table.metadata.snapshots[0])
    Path(gone).unlink()
    there = warehouse.files()
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.DELETED
    assert result.bytes == sum(len(said) for name, said in there.items() if name not in warehouse.files())
