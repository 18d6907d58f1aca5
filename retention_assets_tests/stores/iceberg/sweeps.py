"""A sweep of an Iceberg table as the engine does it, and a table on which everything has happened once."""

from collections.abc import Sequence
from pathlib import Path

from pyiceberg.table import Table

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets_tests.stores.iceberg.tables import (
    Warehouse,
    add_deletes,
    append,
    change,
    files_of,
    place,
    position_deletes,
    replace,
)

DATASET = "ice/db.t"


def sweep(store: Store, *snapshots: int, dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    return swept(store, planned(store, *snapshots, dataset=dataset), dataset, parallelism)


def planned(store: Store, *snapshots: int, dataset: str = DATASET) -> list[Target]:
    return [Target(one.transaction, one.note) for one in store.prepare(dataset, [str(one) for one in snapshots])]


def swept(store: Store, targets: Sequence[Target], dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    return {int(one.transaction): one for one in store.sweep(dataset, targets, parallelism)}


def outcomes(swept: dict[int, SweptTarget]) -> dict[int, Outcome]:
    return {one: result.outcome for one, result in swept.items()}


def snapshots(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def storied(warehouse: Warehouse, **properties: str) -> Table:
    table = warehouse.table(**properties)
    append(table, 1, 2, 3)
    append(table, 4, 5)
    [back] = [file for file in files_of(table) if file.record_count == 2]
    # A file is removed and, later, the very same file is added again.
    change(table, removing=[back])
    append(table, 6)
    # Rows are deleted: their file is written anew, and its manifest with it.
    table.delete("id == 2")
    tagged = append(table, 7)
    table.manage_snapshots().create_tag(tagged, "v1").commit()
    table.manage_snapshots().create_branch(tagged, "dev").commit()
    append(table, 70, branch="dev")
    change(table, adding=[back])
    # Rows are deleted without a rewrite, by positions in a file, as merge-on-read writers do.
    [six] = [file for file in files_of(table) if file.lower_bounds == {1: (6).to_bytes(8, "little")}]
    add_deletes(table, position_deletes(table, six.file_path, [0]))
    append(table, 8)
    append(table, 71, branch="dev")
    replace(table, 9)
    append(table, 10)
    return table


def own_metadata(table: Table, which: int, what: str) -> Path:
    """The manifest list, or the manifest with live files, of a snapshot."""
    [snapshot] = [one for one in table.refresh().metadata.snapshots if one.snapshot_id == which]
    if what == "list":
        return Path(place(snapshot.manifest_list))
    [manifest] = [one for one in snapshot.manifests(table.io) if one.has_added_files()]
    return Path(place(manifest.manifest_path))
