"""A sweep of an Iceberg table: what it spares, what it cannot delete, and a sweep that is killed at each step."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.forked import forking
from retention_assets_tests.rounds import deaths
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, planned, snapshots, sweep, swept
from retention_assets_tests.stores.iceberg.tables import (
    KeptWarehouse,
    Warehouse,
    append,
    content,
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


def sweeps_until(folder: Path, targets: list[Target], last: int) -> None:
    acts = iter(range(last))

    def counts() -> None:
        if next(acts, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    commit, delete = SqlCatalog.commit_table, PyArrowFileIO.delete

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        counts()
        answer = commit(self, *args)
        counts()
        return answer

    def delete_and_count(self: PyArrowFileIO, location: Any) -> None:
        counts()
        delete(self, location)

    with Warehouse(folder) as warehouse, pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit_table)
        patch.setattr(PyArrowFileIO, "delete", delete_and_count)
        warehouse.store().sweep(DATASET, targets, 1)


# Two acts are of the commit, then come the deletions; the last sweep comes to its end.
DELETED_FILES = 20
SURELY_KILLED = 2 + DELETED_FILES
LAST = 1000


@pytest.mark.long
@pytest.mark.parametrize("last", deaths([*range(SURELY_KILLED), LAST], [3, 12]))
def test_a_killed_sweep_is_finished(storied_warehouse: Callable[..., KeptWarehouse[dict[int, list[int]]]], last: int) -> None:
    kept = storied_warehouse()
    with kept.opened() as warehouse, closing(warehouse.store()) as store:
        table = warehouse.load()
        chosen = set(kept.made) - {one.snapshot_id for one in table.refs().values()}
        targets = planned(store, *chosen)
        there = warehouse.files().keys()
        sweeper = forking().Process(target=sweeps_until, args=(kept.folder, targets, last))
        sweeper.start()
        sweeper.join()
        assert sweeper.exitcode == (0 if last == LAST else -signal.SIGKILL)
        assert content(table) == {one: kept.made[one] for one in snapshots(table)}
        results = swept(store, targets)
        ends = {Outcome.ALREADY_GONE} if last == LAST else {Outcome.DELETED, Outcome.ALREADY_GONE}
        assert set(outcomes(results).values()) <= ends
        # That files of a manifest went with another snapshot, which had it too, is nothing to report.
        assert {one.error for one in results.values()} == {None}
        assert content(table) == {one: kept.made[one] for one in kept.made if one not in chosen}
        assert warehouse.files().keys() == reachable(table)
        gone = there - warehouse.files().keys()
        assert len(gone) == DELETED_FILES, "there are deletions before which no sweep is killed"


def test_a_file_that_was_gone_before_frees_nothing(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, _) = replaced(warehouse, 2)
    [gone] = live(table, table.metadata.snapshots[0])
    Path(gone).unlink()
    there = warehouse.files()
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.DELETED
    assert result.bytes == sum(len(said) for name, said in there.items() if name not in warehouse.files())
