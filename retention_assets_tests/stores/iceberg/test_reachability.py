"""A sweep takes exactly the files that nobody needs any more.

Every sweep is judged by PyIceberg's and Polars' reading of what remains, and by a listing of the disk.
"""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.update import AddSnapshotUpdate

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.iceberg.sweeps import DATASET, outcomes, own_metadata, snapshots, storied, sweep, swept
from retention_assets_tests.stores.iceberg.tables import (
    COUNTS,
    KeptWarehouse,
    Warehouse,
    add_deletes,
    add_statistics,
    append,
    change,
    content,
    entry_of,
    place,
    reachable,
    reaches,
    replace,
    replaced,
    write_counts,
    written,
)

MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("properties", "counts", "seed"),
    [
        *(pytest.param({}, (), seed, id=f"fast appends {seed}") for seed in range(rounds(4))),
        *(pytest.param(MERGING, (), seed, id=f"merged manifests {seed}") for seed in range(rounds(4))),
        pytest.param({}, COUNTS, 7, id="lists without counts"),
    ],
)
def test_after_any_sweeps_what_remains_reads_back_and_nothing_else_is_left(
    storied_warehouse: Callable[..., KeptWarehouse[dict[int, list[int]]]],
    properties: dict[str, str],
    counts: tuple[str, ...],
    seed: int,
) -> None:
    kept, draw = storied_warehouse(**properties), random.Random(seed)
    with kept.opened() as warehouse, closing(warehouse.store()) as store:
        table = warehouse.load()
        if counts:
            write_counts(table, dict.fromkeys(counts))
        # PyIceberg leaves the manifests behind that it merged into one within the same commit; no snapshot ever named them.
        orphans = warehouse.files().keys() - reachable(table)
        assert bool(orphans) is bool(properties)
        for _ in range(2):
            # By chance also heads and tags, which are spared.
            chosen = draw.sample(snapshots(table), k=draw.randint(1, len(snapshots(table))))
            named = {one.snapshot_id for one in table.refs().values()}
            there = warehouse.files()
            results = sweep(store, *chosen)
            assert outcomes(results) == {one: Outcome.SPARED if one in named else Outcome.DELETED for one in chosen}
            left = snapshots(table)
            assert content(table) == {one: kept.made[one] for one in kept.made if one in left}
            assert not set(left) & set(chosen) - named
            assert warehouse.files().keys() == reachable(table) | orphans
            gone = there.keys() - warehouse.files().keys()
            assert sum(one.bytes for one in results.values()) == sum(len(there[file]) for file in gone)


def test_a_table_of_the_first_format_is_swept_as_well(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table(**{"format-version": "1"})
    one, two, three = append(table, 1), replace(table, 2), replace(table, 3)
    assert table.metadata.format_version == 1
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert content(table) == {three: [3]}
    assert warehouse.files().keys() == reachable(table)


def test_the_bytes_that_were_prepared_are_those_that_become_free(warehouse: Warehouse, store: IcebergStore) -> None:
    table = storied(warehouse)
    chosen = [str(one) for one in snapshots(table)]
    prepared = store.prepare(DATASET, chosen)
    results = swept(store, [Target(one.transaction, one.note) for one in prepared])
    assert {int(one.transaction): one.bytes for one in prepared} == {one: result.bytes for one, result in results.items()}


def test_a_file_that_was_removed_and_added_again_is_kept(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    file = written(table, 1)
    added, removed = change(table, adding=[file]), change(table, removing=[file])
    again = change(table, adding=[file])
    assert outcomes(sweep(store, added, removed)) == {added: Outcome.DELETED, removed: Outcome.DELETED}
    assert content(table) == {again: [1]}
    assert place(file.file_path) in warehouse.files()


def test_a_file_that_remaining_snapshots_only_call_deleted_goes(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    file = written(table, 1)
    added, other, removed = change(table, adding=[file]), append(table, 2), change(table, removing=[file])
    sweep(store, added, other)
    assert content(table) == {removed: [2]}
    assert place(file.file_path) not in warehouse.files()


@pytest.mark.parametrize("what", ["list", "manifest"])
def test_an_entry_that_names_metadata_of_what_stays_deletes_none(warehouse: Warehouse, store: IcebergStore, what: str) -> None:
    table = warehouse.table()
    first = append(table, 1)
    needed = own_metadata(table, first, what)
    table.manage_snapshots().create_tag(first, "v1").commit()
    wrong = change(table, adding=[entry_of(table, f"file://{needed}", 1, DataFileContent.DATA)])
    replace(table, 2)
    assert outcomes(sweep(store, wrong)) == {wrong: Outcome.DELETED}
    assert needed.exists()


def test_deletion_vectors_of_one_puffin_file_go_together_and_count_once(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    first = append(table, 1, 2)
    puffin = Path(place(table.location()), "data", "vectors.puffin")
    puffin.write_bytes(b"PFA1" * 25)
    vector = entry_of(table, f"file://{puffin}", 100)
    one, two = add_deletes(table, vector, vector), add_deletes(table, vector)
    # Roll back, so that nothing carries the vectors on.
    table.manage_snapshots().set_current_snapshot(first).commit()
    append(table, 3)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert puffin.exists()
    there = warehouse.files()
    [result] = sweep(store, two).values()
    assert not puffin.exists()
    assert result.bytes == sum(len(there[file]) for file in there.keys() - warehouse.files().keys())
    assert warehouse.files().keys() == reachable(table)


def test_statistics_go_with_their_snapshot_unless_another_has_them(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, two, three = append(table, 1), append(table, 2), append(table, 3)
    names = {
        name: Path(place(table.location()), "metadata", name)
        for name in ("own.stats", "shared.stats", "own.partitions", "kept.partitions")
    }
    for file in names.values():
        file.write_bytes(b"1234567890")
    add_statistics(table, one, f"file://{names['own.stats']}", f"file://{names['own.partitions']}")
    add_statistics(table, two, f"file://{names['shared.stats']}")
    add_statistics(table, three, f"file://{names['shared.stats']}", f"file://{names['kept.partitions']}")
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert [name for name, file in names.items() if file.exists()] == ["shared.stats", "kept.partitions"]
    assert [stats.snapshot_id for stats in table.refresh().metadata.statistics] == [three]
    assert [stats.snapshot_id for stats in table.metadata.partition_statistics] == [three]
    assert warehouse.files().keys() == reachable(table)


@pytest.mark.parametrize("counts", [COUNTS, *((one,) for one in COUNTS)], ids=lambda counts: " and ".join(counts))
@pytest.mark.parametrize("again", [True, False], ids=["added again", "carried over"])
def test_what_stays_is_read_where_its_list_does_not_count_files(
    warehouse: Warehouse, store: IcebergStore, counts: tuple[str, ...], again: bool
) -> None:
    table = warehouse.table()
    kept, left = written(table, 1), written(table, 2)
    one = change(table, adding=[kept, left])
    # The manifest of what stays holds the file as one that it adds, or as one that was there before.
    two = change(table, removing=[kept, left]) if again else change(table, removing=[left])
    three = change(table, adding=[kept]) if again else append(table, 3)
    write_counts(table, dict.fromkeys(counts))
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert content(table) == {three: [1] if again else [1, 3]}
    assert warehouse.files().keys() == reachable(table)


@pytest.mark.parametrize("spelled", ["file://{}", "file:{}", "{}"])
def test_shared_statistics_are_one_file_in_any_spelling(warehouse: Warehouse, store: IcebergStore, spelled: str) -> None:
    table = warehouse.table()
    one, two, three, _ = (replace(table, number) for number in range(4))
    file = Path(place(table.location()), "metadata", "shared.stats")
    file.write_bytes(b"1234567890")
    for owner, location in ((one, f"file://{file}"), (two, spelled.format(file)), (three, f"file://{file}")):
        add_statistics(table, owner, location)
    for going, left in (((two,), True), ((one, three), False)):
        there = warehouse.files()
        prepared = store.prepare(DATASET, [str(one) for one in going])
        results = swept(store, [Target(one.transaction, one.note) for one in prepared])
        gone = there.keys() - warehouse.files().keys()
        size = sum(len(there[name]) for name in gone if not name.endswith(".metadata.json"))
        assert sum(one.bytes or 0 for one in prepared) == sum(one.bytes for one in results.values()) == size
        assert file.exists() is left


def test_snapshots_with_one_manifest_list_free_its_files_with_the_last_one(warehouse: Warehouse, store: IcebergStore) -> None:
    table, (one, _) = replaced(warehouse, 2)
    first = table.metadata.snapshots[0]
    # As a table that was rolled back by writing its snapshots anew.
    number = len(table.metadata.snapshots) + 1
    twins = [one + 1, one + 2]
    for at, twin in enumerate(twins):
        again = first.model_copy(update={"snapshot_id": twin, "parent_snapshot_id": None, "sequence_number": number + at})
        table._do_commit((AddSnapshotUpdate(snapshot=again),), ())
    files = reaches(table, first)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert files <= warehouse.files().keys()
    assert content(table)[twins[0]] == content(table)[twins[1]] == [1]
    size = sum(len(said) for name, said in warehouse.files().items() if name in files)
    prepared = store.prepare(DATASET, [str(twin) for twin in twins])
    results = swept(store, [Target(twin.transaction, twin.note) for twin in prepared])
    assert outcomes(results) == dict.fromkeys(twins, Outcome.DELETED)
    assert sum(result.bytes for result in results.values()) == sum(twin.bytes or 0 for twin in prepared) == size
    assert not files & warehouse.files().keys()
