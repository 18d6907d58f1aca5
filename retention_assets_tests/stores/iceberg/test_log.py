"""What a log says of an Iceberg table: its snapshots, refs and properties."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from retention_assets.frames import sound_log
from retention_assets.stores.iceberg.log import lines_of, own_attributes
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import DATASET, snapshots, sweep
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, files_of

DAY = 24 * 60 * 60 * 1000


def test_a_table_is_read_with_its_snapshots_refs_and_properties(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table(**{"history.expire.max-snapshot-age-ms": "60000"})
    first, second = append(table, 1), append(table, 2)
    table.manage_snapshots().create_tag(first, "v1").create_tag(first, "v2", max_ref_age_ms=DAY).commit()
    table.manage_snapshots().create_branch(second, "dev").commit()
    log = sound_log(store.read([DATASET]))
    one, two = log.transactions.to_pylist()
    made_at = datetime.fromtimestamp(table.metadata.snapshots[0].timestamp_ms / 1000, UTC)
    assert one["transaction"] == str(first)
    assert (one["type"], one["status"], one["opened_at"], one["closed_at"]) == ("SNAPSHOT", "COMMITTED", made_at, made_at)
    assert (one["bytes"], one["files"], one["attributes"]) == (
        files_of(table)[1].file_size_in_bytes,
        1,
        [("operation", "append")],
    )
    # A tag that is past its age pins all the same, until somebody drops it.
    assert dict(zip(one["tags"], one["tag_expiries"], strict=True)) == {"v1": None, "v2": None}
    assert (two["parent"], sorted(two["heads"])) == (str(first), ["dev", "main"])
    assert dict(log.datasets["attributes"][0].as_py()) == {
        "gc.enabled": "true",
        "format-version": "2",
        "history.expire.max-snapshot-age-ms": "60000",
        "history.expire.min-snapshots-to-keep": "1",
        "history.expire.tag.v2.max-ref-age-ms": str(DAY),
    }


def test_a_snapshot_whose_parent_was_expired_begins_its_history(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    first, second = append(table, 1), append(table, 2)
    sweep(store, first)
    assert [row["parent"] for row in sound_log(store.read([DATASET])).transactions.to_pylist()] == [None]
    assert snapshots(table) == [second]


# What the summary says, and the type in `deltas`. Only a proof that nothing is carried over makes a SNAPSHOT.
DELTAS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("append", {"added-data-files": "1", "total-data-files": "3"}, "APPEND"),
    ("append", {"added-data-files": "1", "total-data-files": "1"}, "SNAPSHOT"),
    ("append", {"added-data-files": "1"}, "APPEND"),
    ("append", {}, "APPEND"),
    ("overwrite", {"added-data-files": "2", "total-data-files": "2"}, "SNAPSHOT"),
    ("overwrite", {"added-data-files": "2", "total-data-files": "3"}, "UPDATE"),
    ("overwrite", {"total-data-files": "many", "added-data-files": "many"}, "UPDATE"),
    ("replace", {"added-data-files": "1", "total-data-files": "2"}, "UPDATE"),
    ("delete", {"deleted-data-files": "1", "total-data-files": "1"}, "DELETE"),
    ("delete", {"deleted-data-files": "2", "total-data-files": "0"}, "SNAPSHOT"),
    ("delete", {"deleted-data-files": "2"}, "DELETE"),
)


@pytest.mark.parametrize(("operation", "summary", "type_"), DELTAS)
def test_in_deltas_a_snapshot_is_what_its_operation_says(
    warehouse: Warehouse, operation: str, summary: dict[str, str], type_: str
) -> None:
    told = Snapshot(snapshot_id=1, timestamp_ms=0, manifest_list="l", summary=Summary(Operation(operation), **summary))
    metadata = warehouse.table().metadata.model_copy(update={"snapshots": [told]})
    assert [line["type"] for line in lines_of(DATASET, metadata, "deltas") if "type" in line] == [type_]
    assert [line["type"] for line in lines_of(DATASET, metadata, "states") if "type" in line] == ["SNAPSHOT"]


def test_a_table_without_snapshots_is_a_dataset_without_transactions(warehouse: Warehouse, store: IcebergStore) -> None:
    warehouse.table()
    log = sound_log(store.read([DATASET]))
    assert (log.datasets["transactions"].to_pylist(), log.datasets["fault"].to_pylist()) == ([0], [None])


AGE, FEW = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
BRANCH = "history.expire.branch"


def ref(kind: str = "branch", **numbers: int) -> SnapshotRef:
    return SnapshotRef.model_validate(
        {"snapshot-id": 1, "type": kind, **{key.replace("_", "-"): value for key, value in numbers.items()}}
    )


RETENTIONS: tuple[tuple[Any, ...], ...] = (
    ("nothing said: Iceberg's defaults", {}, {"main": ref()}, {AGE: "432000000", FEW: "1"}),
    ("the table says", {AGE: "7", FEW: "3", "owner": "me"}, {"main": ref()}, {AGE: "7", FEW: "3"}),
    ("a branch overrides one number", {FEW: "3"}, {"dev": ref(max_snapshot_age_ms=9)},
     {AGE: "432000000", FEW: "3", f"{BRANCH}.dev.max-snapshot-age-ms": "9"}),
    ("a ref that ages says nothing of snapshots", {}, {"dev": ref(max_ref_age_ms=9), "v": ref("tag", max_ref_age_ms=9)},
     {AGE: "432000000", FEW: "1", f"{BRANCH}.dev.max-ref-age-ms": "9", "history.expire.tag.v.max-ref-age-ms": "9"}),
    ("what is no number stays as it is written", {AGE: "soon", "history.expire.max-ref-age-ms": "8"}, {},
     {AGE: "soon", FEW: "1", "history.expire.max-ref-age-ms": "8"}),
)  # fmt: skip


@pytest.mark.parametrize(("properties", "refs", "said"), [pytest.param(*case, id=title) for title, *case in RETENTIONS])
def test_a_tables_own_retention(properties: dict[str, str], refs: dict[str, SnapshotRef], said: dict[str, str]) -> None:
    assert own_attributes(properties, refs) == said
