"""What readers that travel in time are told after a sweep: the state of before, or that it is gone; never another state."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.commit import remove_snapshots
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import outcomes, sweep
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, content, place


def instants(table: Table) -> list[int]:
    return sorted({entry.timestamp_ms + by for entry in table.metadata.snapshot_log for by in (-1, 0, 1)})


def by_pyiceberg(table: Table, instant: int) -> int | None:
    found = table.snapshot_as_of_timestamp(instant)
    return found.snapshot_id if found else None


def by_hand(table: Table, instant: int) -> int | None:
    """The metadata file as it is written, read by the rule of the specification."""
    written: dict[str, Any] = json.loads(Path(place(table.metadata_location)).read_text())
    entries = [one for one in written.get("snapshot-log", []) if one["timestamp-ms"] <= instant]
    there = {one["snapshot-id"] for one in written["snapshots"]}
    return entries[-1]["snapshot-id"] if entries and entries[-1]["snapshot-id"] in there else None


def travel(table: Table, at: list[int]) -> dict[int, int | None]:
    """The snapshot that answers for each instant, by two readers that have to agree."""
    table.refresh()
    answers = {instant: by_pyiceberg(table, instant) for instant in at}
    assert {instant: by_hand(table, instant) for instant in at} == answers
    return answers


def keep_by_tag(table: Table, made: list[int]) -> None:
    table.manage_snapshots().create_tag(made[0], "v1").commit()


def keep_by_branch(table: Table, made: list[int]) -> None:
    table.manage_snapshots().create_branch(made[0], "dev").commit()
    append(table, 99, branch="dev")


def roll_back(table: Table, made: list[int]) -> None:
    back = {"ref-name": "main", "type": SnapshotRefType.BRANCH.value, "snapshot-id": made[0]}
    table._do_commit((SetSnapshotRefUpdate.model_validate(back),), ())


GAPS: dict[str, Callable[[Table, list[int]], None]] = {"tag": keep_by_tag, "branch": keep_by_branch, "rollback": roll_back}


@pytest.mark.parametrize("keep", GAPS.values(), ids=GAPS)
def test_each_instant_answers_the_same_state_as_before_or_is_refused(
    warehouse: Warehouse, store: IcebergStore, keep: Callable[[Table, list[int]], None]
) -> None:
    table = warehouse.table()
    made = [append(table, number) for number in range(5)]
    keep(table, made)
    table.refresh()
    at, states = instants(table), content(table)
    before = travel(table, at)
    assert set(outcomes(sweep(store, made[1], made[2])).values()) == {Outcome.DELETED}
    after = travel(table, at)
    assert all(after[instant] in (before[instant], None) for instant in at)
    # What is behind the gap is told as before, and what stays reads back.
    newest = [instant for instant in at if before[instant] in (made[3], made[4])]
    assert newest
    assert {instant: after[instant] for instant in newest} == {instant: before[instant] for instant in newest}
    assert content(table) == {one: rows for one, rows in states.items() if one not in made[1:3]}


def test_a_snapshot_that_was_never_current_takes_no_history_along(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, _ = append(table, 1), append(table, 2)
    table.manage_snapshots().create_branch(one, "dev").commit()
    side, _ = append(table, 3, branch="dev"), append(table, 4, branch="dev")
    at = instants(table.refresh())
    before = travel(table, at)
    assert outcomes(sweep(store, side)) == {side: Outcome.DELETED}
    assert travel(table, at) == before


def test_a_commit_that_pyiceberg_applies_leaves_no_gap_either(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from retention_assets.stores.iceberg import commit

    # A server of our own making knows nothing of our requirement, and a ref goes with its snapshot.
    monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table = warehouse.table()
    made = [append(table, number) for number in range(4)]
    keep_by_tag(table, made)
    table.manage_snapshots().create_tag(made[1], "goes").commit()
    at = instants(table.refresh())
    before = travel(table, at)
    remove_snapshots(table, [made[1]])
    assert all(answer in (before[instant], None) for instant, answer in travel(table, at).items())
