"""A sweep takes what its targets have, and nothing that earlier sweeps left or that was put back since."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.stores.iceberg.sweeps import outcomes, snapshots, sweep
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    append,
    content,
    own_files,
    reachable,
    reaches,
    replace,
    replaced,
)
from retention_assets_tests.stores.iceberg.test_commit import before, meddle
from retention_assets_tests.stores.iceberg.test_undo import data, facts, give, statistics_of, targets_of


def puts_back(warehouse: Warehouse, files: dict[str, bytes]) -> None:
    for file, held in files.items():
        if not Path(file).exists():
            Path(file).write_bytes(held)


def puts_back_with_its_table(warehouse: Warehouse, files: dict[str, bytes]) -> None:
    puts_back(warehouse, files)
    shutil.copy(warehouse.folder / "backup.db", warehouse.folder / "catalog.db")


@pytest.mark.parametrize("backup", [puts_back, puts_back_with_its_table], ids=["its files", "its files and its table"])
def test_what_was_put_back_from_a_backup_after_its_sweep_stays(
    warehouse: Warehouse, store: Any, backup: Callable[..., None]
) -> None:
    table = warehouse.table()
    one, two, three, _ = append(table, 1), append(table, 2), append(table, 3), replace(table, 4)
    files, read = warehouse.files(), content(table)
    reached = {number: reaches(table, snapshot) for number, snapshot in enumerate(table.metadata.snapshots)}
    shutil.copy(warehouse.folder / "catalog.db", warehouse.folder / "backup.db")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    backup(warehouse, files)
    there, is_back = data(warehouse.files()), one in snapshots(warehouse.load())
    assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
    # three needs what one and two have; without it in the metadata one needs nothing that it does not have alone
    assert there - data(warehouse.files()) == reached[1] - reached[2] - (reached[0] if is_back else set())
    assert reached[0] - reached[1] <= warehouse.files().keys()
    assert content(warehouse.load()) == {
        number: rows for number, rows in read.items() if number != two and (is_back or number != one)
    }
    # all that has what one had is swept
    assert outcomes(sweep(store, three)) == {three: Outcome.DELETED}
    assert reached[0] - reached[1] <= warehouse.files().keys()
    assert (reached[0] <= warehouse.files().keys()) is is_back


def test_what_a_sweep_left_to_another_table_is_not_taken_by_the_next_once_it_is_free(warehouse: Warehouse, store: Any) -> None:
    table, (one, two, _) = replaced(warehouse, 3)
    [file] = [file for file in own_files(table, one) if file.endswith(".parquet")]
    second, other = own_files(table, two), warehouse.table("u")
    other.add_files([f"file://{file}"])
    [result] = sweep(store, one).values()
    assert (result.outcome, result.left) == (Outcome.DELETED, 1)
    replace(other, 9)
    other.maintenance.expire_snapshots().by_id(snapshots(other)[0]).commit()
    there = data(warehouse.files())
    assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
    assert there - data(warehouse.files()) == second
    assert file in warehouse.files()


@pytest.mark.parametrize("end", [Order.RESTORE, Order.DELETE_ASIDE])
def test_what_a_sweep_left_to_an_undo_goes_with_it_alone(warehouse: Warehouse, store: Any, end: Order) -> None:
    table = warehouse.table()
    one, two, three, _ = append(table, 1), append(table, 2), replace(table, 3), replace(table, 4)
    targets, [shared] = targets_of(store, one), [file for file in reached_by(table, one) if file.endswith(".parquet")]
    give(store, Order.SET_ASIDE, targets)
    assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
    third = own_files(table, three)
    give(store, end, targets)
    assert (shared in warehouse.files()) is (end is Order.RESTORE)
    there = data(warehouse.files())
    assert outcomes(sweep(store, three)) == {three: Outcome.DELETED}
    assert there - data(warehouse.files()) == third


def reached_by(table: Table, which: int) -> set[str]:
    [snapshot] = [one for one in table.refresh().metadata.snapshots if one.snapshot_id == which]
    return reaches(table, snapshot)


def test_a_snapshot_of_which_nothing_is_freed_is_swept_for_it_has_left_the_table(warehouse: Warehouse, store: Any) -> None:
    table, (one, _) = replaced(warehouse, 2)
    # as some writers note a rollback
    again = table.metadata.snapshots[1].model_copy(update={"snapshot_id": one + 1, "sequence_number": 3})
    tag = {"type": "tag", "ref-name": "again", "snapshot-id": again.snapshot_id}
    table._do_commit((AddSnapshotUpdate(snapshot=again), SetSnapshotRefUpdate.model_validate(tag)), ())
    table.manage_snapshots().remove_tag("again").commit()
    there = data(warehouse.files())
    [result] = sweep(store, again.snapshot_id).values()
    assert (result.outcome, result.bytes, again.snapshot_id in snapshots(table)) == (Outcome.DELETED, 0, False)
    assert data(warehouse.files()) == there


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_spared_for_a_branch_that_a_server_dropped_is_in_the_table_when_others_are_swept(
    warehouse: Warehouse, store: Any, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    table = warehouse.table()
    one, two, _ = append(table, 1), append(table, 2), replace(table, 3)
    statistics_of(table, one)
    known = facts(table)
    with monkeypatch.context() as patched:
        patched.setattr("retention_assets.stores.iceberg.commit.MetastoreCatalog", Warehouse)
        if not is_known:
            patched.setattr("retention_assets.stores.iceberg.commit.FromInputFile", None)
        meddle(patched, before(lambda: warehouse.load().manage_snapshots().create_branch(one, "new").commit()), times=1)
        assert outcomes(sweep(store, one)) == {one: Outcome.SPARED}
    assert outcomes(sweep(store, two)) == {two: Outcome.DELETED}
    assert {number: fact for number, fact in known.items() if number != two} == facts(table)
    assert table.refs()[f"restored-{one}"].snapshot_id == one
    assert data(warehouse.files()) == data(reachable(table))
