"""The `iceberg` store against real tables: what it reads, and that a sweep takes exactly what nobody needs any more.

Belongs here: the contract on Iceberg tables, and what this store promises beyond it. Every sweep is judged by PyIceberg's and
Polars' reading of what remains, and by a listing of the disk.
Does not belong here: building tables (tables.py).
"""

import multiprocessing
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate

from retention_assets.errors import Refused
from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import aliases, commit
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.log import lines_of, own_attributes
from retention_assets.stores.iceberg.manifests import Manifest, Unreadable, live_files, manifest_list
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.iceberg.tables import (
    SCHEMA,
    Warehouse,
    add_deletes,
    append,
    change,
    content,
    entry_of,
    files_of,
    head,
    live,
    place,
    position_deletes,
    reachable,
    reaches,
    replace,
    undeletable,
    written,
)

DATASET = "ice/db.t"
DAY = 24 * 60 * 60 * 1000


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(warehouse: Warehouse) -> Iterator[IcebergStore]:
    opened = warehouse.store()
    yield opened
    opened.close()


def sweep(store: Store, *snapshots: int, dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    """As the engine does it."""
    prepared = store.prepare(dataset, [str(one) for one in snapshots])
    return swept(store, [Target(one.transaction, one.note) for one in prepared], dataset, parallelism)


def swept(store: Store, targets: Sequence[Target], dataset: str = DATASET, parallelism: int = 2) -> dict[int, SweptTarget]:
    return {int(one.transaction): one for one in store.sweep(dataset, targets, parallelism)}


def outcomes(swept: dict[int, SweptTarget]) -> dict[int, Outcome]:
    return {one: result.outcome for one, result in swept.items()}


def snapshots(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def storied(warehouse: Warehouse, **properties: str) -> Table:
    """A table on which everything has happened once: see the comments."""
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


class IcebergTables(Environment):
    """Tables of one warehouse, on which each drawn SNAPSHOT replaces all there was."""

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

    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:
        return undeletable(*(file for file in self.owned(dataset, transaction) if file.endswith(".parquet")))

    def _table(self, dataset: str) -> Table:
        return self.warehouse.load(dataset.rpartition(".")[2])


class TestIcebergStore(Contract):
    @pytest.fixture
    def environment(self, warehouse: Warehouse) -> Iterator[Environment]:
        tables = IcebergTables(warehouse)
        yield tables
        for store in tables.stores:
            store.close()


# --- reading -----------------------------------------------------------------------------------------------------------


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
    # Iceberg still keeps a tag that is exactly as old as it may become.
    ends = made_at + timedelta(days=1, milliseconds=1)
    assert dict(zip(one["tags"], one["tag_expiries"], strict=True)) == {"v1": None, "v2": ends}
    assert (two["parent"], sorted(two["heads"])) == (str(first), ["dev", "main"])
    assert dict(log.datasets["attributes"][0].as_py()) == {
        "gc.enabled": "true",
        "format-version": "2",
        "history.expire.max-snapshot-age-ms": "60000",
        "history.expire.min-snapshots-to-keep": "1",
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


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_text("{"), lambda file: file.write_text("{}")])
def test_a_table_whose_metadata_is_spoiled_has_a_fault_and_the_others_are_read(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object]
) -> None:
    spoil(Path(place(warehouse.table("broken").metadata_location)))
    append(warehouse.table("sound"), 1)
    log = sound_log(store.read(store.datasets()))
    faults = dict(zip(log.datasets["dataset"].to_pylist(), log.datasets["fault"].to_pylist(), strict=True))
    assert faults["ice/db.broken"].startswith("the table's metadata can't be read: ")
    assert faults["ice/db.sound"] is None
    assert log.transactions.num_rows == 1


def test_metadata_that_a_commit_removed_while_it_was_opened_is_read_again(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.table()
    load, gone = SqlCatalog.load_table, iter([True])

    def load_table(self: SqlCatalog, identifier: Any) -> Table:
        if next(gone, False):
            raise FileNotFoundError("00001.metadata.json")
        return load(self, identifier)

    monkeypatch.setattr(SqlCatalog, "load_table", load_table)
    assert store.read([DATASET])["fault"].to_pylist() == [None]


def test_where_the_catalog_is_no_database_the_tokens_are_the_same(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.table()
    asked = [DATASET, "ice/db.none"]
    tokens = store.tokens(asked)
    monkeypatch.setattr(aliases, "SqlCatalog", Warehouse)
    assert store.tokens(asked) == tokens == {DATASET: warehouse.load().metadata_location}


def test_tables_whose_names_differ_only_in_where_a_dot_belongs_have_tokens_of_their_own(
    warehouse: Warehouse, store: IcebergStore
) -> None:
    warehouse.catalog.create_namespace("a")
    warehouse.catalog.create_namespace("a.b")
    nested = warehouse.catalog.create_table(("a", "b", "c"), SCHEMA)
    dotted = warehouse.catalog.create_table(("a", "b.c"), SCHEMA, location=f"file://{warehouse.data}/dotted")
    asked = ["ice/a.b%2Ec", "ice/a.b.c"]
    assert store.datasets() == asked
    assert store.tokens(asked) == {asked[0]: dotted.metadata_location, asked[1]: nested.metadata_location}


def test_another_catalog_in_the_same_database_does_not_speak_for_this_one(warehouse: Warehouse, store: IcebergStore) -> None:
    mine = warehouse.table()
    with SqlCatalog("other", **warehouse.properties) as other:
        other.create_namespace("db")
        other.create_table("db.t", SCHEMA, location=f"file://{warehouse.data}/other")
        other.create_table("db.more", SCHEMA)
    assert store.tokens([DATASET, "ice/db.more"]) == {DATASET: mine.metadata_location}


def test_a_table_that_was_dropped_after_it_was_listed_has_no_line(warehouse: Warehouse, store: IcebergStore) -> None:
    warehouse.table()
    names = store.datasets()
    warehouse.catalog.drop_table("db.t")
    assert (store.read(names).num_rows, dict(store.tokens(names))) == (0, {})


def test_namespaces_are_chosen_by_globs_however_deep_they_lie(warehouse: Warehouse) -> None:
    for namespace in ("raw", "raw.eu", "raw.eu.old", "curated", "rawer"):
        warehouse.table(namespace=namespace)
    chosen = warehouse.store(namespaces=["raw", "raw.*"])
    assert chosen.datasets() == ["ice/raw.eu.old.t", "ice/raw.eu.t", "ice/raw.t"]
    assert sound_log(chosen.read(chosen.datasets())).datasets["fault"].to_pylist() == [None] * 3
    assert set(chosen.tokens(chosen.datasets())) == set(chosen.datasets())
    chosen.close()


def test_many_tables_are_read_in_shares(warehouse: Warehouse, store: IcebergStore) -> None:
    for number in range(130):
        warehouse.table(f"t{number}")
    shares = store.shares(store.datasets())
    assert [len(share) for share in shares] == [64, 64, 2]
    assert sum(store.read(share).num_rows for share in shares) == 130
    assert len(store.tokens(store.datasets())) == 130


def test_a_catalog_that_is_away_is_refused_and_not_made(tmp_path: Path) -> None:
    secret = {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db", "warehouse": str(tmp_path), "token": "hush"}
    store = IcebergStore(IcebergSettings(name="ice", catalog=secret))
    for ask in (
        store.datasets,
        lambda: store.read([DATASET]),
        lambda: store.tokens([DATASET]),
        lambda: store.prepare(DATASET, ["1"]),
    ):
        with pytest.raises(Refused, match="The catalog of the store ice can't be read: ") as refused:
            ask()
        assert "hush" not in str(refused.value)
    assert outcomes(swept(store, [Target("1")])) == {1: Outcome.FAILED}
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_without_tables_of_its_own_is_left_without(tmp_path: Path) -> None:
    store = IcebergStore(
        IcebergSettings(name="ice", catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/new.db", "warehouse": "w"})
    )
    with pytest.raises(Refused, match="can't be read"):
        store.datasets()
    store.close()
    assert (tmp_path / "new.db").stat().st_size == 0


def test_the_catalog_may_have_a_name_of_its_own(warehouse: Warehouse) -> None:
    warehouse.table()
    renamed = IcebergStore(IcebergSettings(name="lake", catalog={**warehouse.properties, "name": "ice"}))
    assert renamed.datasets() == ["lake/db.t"]
    assert renamed.read(["lake/db.t"]).num_rows == 1
    renamed.close()


def test_a_store_that_is_open_travels_without_its_connection(warehouse: Warehouse, store: IcebergStore) -> None:
    warehouse.table()
    assert store.datasets() == [DATASET]
    travelled: IcebergStore = pickle.loads(pickle.dumps(store))
    assert travelled.datasets() == [DATASET]
    travelled.close()


# --- the table's own retention -----------------------------------------------------------------------------------------

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
     {AGE: "432000000", FEW: "1"}),
    ("what is no number stays as it is written", {AGE: "soon", "history.expire.max-ref-age-ms": "8"}, {},
     {AGE: "soon", FEW: "1", "history.expire.max-ref-age-ms": "8"}),
)  # fmt: skip


@pytest.mark.parametrize(("properties", "refs", "said"), [pytest.param(*case, id=title) for title, *case in RETENTIONS])
def test_a_tables_own_retention(properties: dict[str, str], refs: dict[str, SnapshotRef], said: dict[str, str]) -> None:
    assert own_attributes(properties, refs) == said


# --- sweeping ----------------------------------------------------------------------------------------------------------

MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.mark.long
@pytest.mark.parametrize("properties", [{}, MERGING], ids=["fast appends", "merged manifests"])
@pytest.mark.parametrize("seed", range(8))
def test_after_any_sweeps_what_remains_reads_back_and_nothing_else_is_left(
    warehouse: Warehouse, store: IcebergStore, properties: dict[str, str], seed: int
) -> None:
    table = storied(warehouse, **properties)
    before, draw = content(table), random.Random(seed)
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
        assert content(table) == {one: before[one] for one in before if one in snapshots(table)}
        assert not set(snapshots(table)) & set(chosen) - named
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
def test_an_entry_that_names_metadata_of_what_stays_does_not_delete_it(
    warehouse: Warehouse, store: IcebergStore, what: str
) -> None:
    table = warehouse.table()
    first = append(table, 1)
    needed = own_metadata(table, first, what)
    table.manage_snapshots().create_tag(first, "v1").commit()
    wrong = change(table, adding=[entry_of(table, f"file://{needed}", 1, DataFileContent.DATA)])
    replace(table, 2)
    assert outcomes(sweep(store, wrong)) == {wrong: Outcome.DELETED}
    assert needed.exists()


def test_deletion_vectors_in_one_puffin_file_go_together_and_are_counted_once(
    warehouse: Warehouse, store: IcebergStore
) -> None:
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
    names = {name: Path(place(table.location()), "metadata", name) for name in ("own.stats", "shared.stats", "own.partitions")}
    for file in names.values():
        file.write_bytes(b"1234567890")
    said = {name: {"statistics-path": f"file://{file}", "file-size-in-bytes": 10} for name, file in names.items()}
    footer = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    kept = [(one, "own.stats"), (two, "shared.stats"), (three, "shared.stats")]
    table._do_commit(
        (
            *(SetStatisticsUpdate(statistics=StatisticsFile.model_validate({"snapshot-id": owner, **said[name], **footer})) for owner, name in kept),
            SetPartitionStatisticsUpdate(partition_statistics=PartitionStatisticsFile.model_validate({"snapshot-id": one, **said["own.partitions"]})),
        ),
        (),
    )  # fmt: skip
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert [name for name, file in names.items() if file.exists()] == ["shared.stats"]
    assert [stats.snapshot_id for stats in table.refresh().metadata.statistics] == [three]
    assert table.metadata.partition_statistics == []
    assert warehouse.files().keys() == reachable(table)


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


def test_files_from_elsewhere_are_left_and_said_so(warehouse: Warehouse, store: IcebergStore, tmp_path: Path) -> None:
    table = warehouse.table()
    [own] = [place(written(table, 1).file_path)]
    foreign = tmp_path / "elsewhere.parquet"
    Path(own).rename(foreign)
    table.add_files([f"file://{foreign}"])
    [one] = snapshots(table)
    replace(table, 2)
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.DELETED
    assert result.error == f"left, as outside of the table's own folders: file://{foreign}"
    assert foreign.exists()


def test_data_in_a_folder_that_the_table_names_is_its_own(warehouse: Warehouse, store: IcebergStore, tmp_path: Path) -> None:
    table = warehouse.table(**{"write.data.path": f"file://{tmp_path}/aside"})
    one, _ = replace(table, 1), replace(table, 2)
    assert len(list((tmp_path / "aside").rglob("*.parquet"))) == 2
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert len(list((tmp_path / "aside").rglob("*.parquet"))) == 1


GROUNDS = (
    ("file:///w/t", "file:///w/t/data/a", True),
    ("file:///w/t", "/w/t/data/a", True),
    ("/w/t/", "file:/w/t/data/a", True),
    ("s3://b/t", "s3a://b/t/data/a", True),
    ("s3://b/t", "s3://b/t/data/p=a%2Fb/a", True),
    ("s3://b/t", "s3://b/t2/data/a", False),
    ("s3://b/t", "s3://c/t/data/a", False),
    ("s3://b/t", "gs://b/t/data/a", False),
    ("s3://b/t", "s3://b/t", False),
    ("s3://b/t", "s3://b/t/", False),
    ("s3://b/t", "s3://b/t/../u/a", False),
    ("s3://b/t", "s3://b/t/p=a?b/a", False),
    ("s3://b/t", "s3://b/t/p=a#b/a", False),
    ("file:///w/t", "file:///w/t/../u/a", False),
    ("file:///", "file:///w/t/a", False),
    ("/", "/w/t/a", False),
    ("s3://b/t/..", "s3://b/t/../a", False),
)


@pytest.mark.parametrize(("root", "file", "own"), GROUNDS)
def test_only_what_lies_below_the_table_is_its_own(warehouse: Warehouse, root: str, file: str, own: bool) -> None:
    metadata = warehouse.table().metadata.model_copy(update={"location": root})
    assert TableFence.of(metadata).encloses(file) is own


def test_a_link_does_not_lead_out_of_the_table(warehouse: Warehouse, tmp_path: Path) -> None:
    table = warehouse.table()
    (tmp_path / "other").mkdir()
    inside = Path(place(table.location()), "data")
    inside.mkdir(exist_ok=True)
    (inside / "link").symlink_to(tmp_path / "other")
    fence = TableFence.of(table.metadata)
    assert (fence.encloses(f"{table.location()}/data/a"), fence.encloses(f"{table.location()}/data/link/a")) == (True, False)


def test_one_file_has_one_identity() -> None:
    assert len({file_identity(said) for said in ("file:///w/a", "file:/w/a", "/w/a", "file:///w/./a", "/w//a")}) == 1
    assert len({file_identity(said) for said in ("s3://b/a", "s3a://b/a", "s3n://b/a")}) == 1
    assert file_identity("s3://b//a") != file_identity("s3://b/a")


# --- others, at the same time ------------------------------------------------------------------------------------------

Commit = Callable[[Callable[[], Any]], Any]


def meddle(monkeypatch: pytest.MonkeyPatch, how: Commit, times: int = 1) -> None:
    """Let something happen around the next commits; `how` gets the commit to call, and what it commits itself counts not."""
    real, me, left = SqlCatalog.commit_table, threading.get_ident(), iter(range(times))
    busy: list[bool] = []

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        if busy or threading.get_ident() != me or next(left, None) is None:
            return real(self, *args)
        busy.append(True)
        try:
            return how(lambda: real(self, *args))
        finally:
            busy.clear()

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)


def before(act: Callable[[], object]) -> Commit:
    def commits(commit: Callable[[], Any]) -> Any:
        act()
        return commit()

    return commits


def test_what_another_writer_commits_meanwhile_is_kept(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = storied(warehouse)
    chosen = set(snapshots(table)) - {one.snapshot_id for one in table.refs().values()}
    meddle(monkeypatch, before(lambda: append(warehouse.load(), 100)))
    assert set(outcomes(sweep(store, *chosen)).values()) == {Outcome.DELETED}
    assert content(table)[table.refs()["main"].snapshot_id] == [9, 10, 100]
    assert warehouse.files().keys() == reachable(table)


def test_what_is_committed_between_the_commit_and_the_deleting_is_kept(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    file = written(table, 1)
    one, two = change(table, adding=[file]), change(table, removing=[file])

    def adds_it_again(commit: Callable[[], Any]) -> Any:
        answer = commit()
        change(warehouse.load(), adding=[file])
        return answer

    meddle(monkeypatch, adds_it_again)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert sorted(content(table).values()) == [[], [1]]
    assert two in snapshots(table)


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_ref_made_on_a_planned_snapshot_before_the_commit_spares_it(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = warehouse.table()
    one, two, _ = replace(table, 1), replace(table, 2), replace(table, 3)
    made = {"branch": lambda: warehouse.load().manage_snapshots().create_branch(one, "new").commit(),
            "tag": lambda: warehouse.load().manage_snapshots().create_tag(one, "new").commit()}  # fmt: skip
    meddle(monkeypatch, before(made[kind]))
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.SPARED, two: Outcome.DELETED}
    assert results[one].error == f"{kind} new points at it"
    assert table.refresh().refs()["new"].snapshot_id == one
    assert content(table)[one] == [1]
    assert warehouse.files().keys() == reachable(table)


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "answer lost"])
def test_a_ref_that_a_server_dropped_with_its_snapshot_keeps_the_files(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    # A REST server knows nothing of our requirement; a catalog that is no MetastoreCatalog is taken for one.
    monkeypatch.setattr(commit, "MetastoreCatalog", Warehouse)
    table = warehouse.table()
    # The second holds what the first added, so that of the first nothing but its manifest list may go.
    one, two, _ = append(table, 1), append(table, 2), replace(table, 3)
    needed = reaches(table, table.metadata.snapshots[1])

    def makes_a_branch(commit: Callable[[], Any]) -> Any:
        warehouse.load().manage_snapshots().create_branch(two, "new").commit()
        answer = commit()
        if not answers:
            raise ConnectionError("the answer never came")
        return answer

    meddle(monkeypatch, makes_a_branch)
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.DELETED, two: Outcome.SPARED}
    assert "branch new was made on it" in str(results[two].error)
    assert "new" not in table.refresh().refs()
    assert needed <= warehouse.files().keys()


def test_snapshots_that_somebody_else_expired_first_are_cleaned_up_after(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, two, _ = replace(table, 1), replace(table, 2), replace(table, 3)
    meddle(monkeypatch, before(lambda: warehouse.load().maintenance.expire_snapshots().by_ids([one]).commit()))
    assert outcomes(sweep(store, one, two)) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)


def test_what_somebody_else_expires_meanwhile_no_longer_holds_a_file(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, holds_it_too, _ = append(table, 1), append(table, 2), replace(table, 3)
    unneeded = reaches(table, table.metadata.snapshots[0])
    meddle(monkeypatch, before(lambda: warehouse.load().maintenance.expire_snapshots().by_ids([holds_it_too]).commit()))
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert not unneeded & warehouse.files().keys()


def test_a_table_that_is_dropped_meanwhile_loses_nothing(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    there = warehouse.files().keys()

    def drops(_: Callable[[], Any]) -> Any:
        warehouse.catalog.drop_table("db.t")
        raise ConnectionError("gone")

    meddle(monkeypatch, drops)
    assert outcomes(sweep(store, one)) == {one: Outcome.FAILED}
    assert warehouse.files().keys() == there


def test_a_commit_whose_answer_was_lost_is_found_to_be_made(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)

    def loses(commit: Callable[[], Any]) -> Any:
        commit()
        raise ConnectionError("the answer never came")

    meddle(monkeypatch, loses)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)


def test_a_commit_that_was_not_made_deletes_nothing(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, two = replace(table, 1), replace(table, 2)
    there = warehouse.files()

    def fails(_: Callable[[], Any]) -> Any:
        raise ConnectionError("no route")

    meddle(monkeypatch, fails)
    [result] = sweep(store, one).values()
    assert (result.outcome, result.error) == (Outcome.FAILED, "the catalog did not take the commit: ConnectionError: no route")
    assert (warehouse.files(), snapshots(table)) == (there, [one, two])
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}


def test_a_commit_that_was_answered_and_not_made_deletes_nothing(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, two = replace(table, 1), replace(table, 2)
    there = warehouse.files()
    meddle(monkeypatch, lambda _: CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location))
    [result] = sweep(store, one).values()
    assert (result.outcome, result.error) == (Outcome.FAILED, "it is in the table's metadata again")
    assert (warehouse.files(), snapshots(table)) == (there, [one, two])


def test_a_table_that_others_change_all_the_time_is_left_for_later(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    meddle(monkeypatch, before(lambda: append(warehouse.load(), 3)), times=100)
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert "others changed the table" in str(result.error)
    assert content(table)[one] == [1]


# --- what can't be read or deleted -------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


SPOILS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut off": cut,
    "empty": lambda file: file.write_bytes(b""),
    "no Avro": lambda file: file.write_bytes(b"what is this?" * 100),
}


def own_metadata(table: Table, which: int, what: str) -> Path:
    """The manifest list, or the manifest with live files, of a snapshot."""
    [snapshot] = [one for one in table.refresh().metadata.snapshots if one.snapshot_id == which]
    if what == "list":
        return Path(place(snapshot.manifest_list))
    [manifest] = [one for one in snapshot.manifests(table.io) if one.has_added_files()]
    return Path(place(manifest.manifest_path))


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_remains_and_cant_be_read_lets_nothing_be_deleted(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object], what: str
) -> None:
    table = warehouse.table()
    one, two, three = replace(table, 1), replace(table, 2), replace(table, 3)
    spoil(own_metadata(table, two, what))
    there = warehouse.files()
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith("nothing was deleted, because what other snapshots need is not known: file:///")
    assert (warehouse.files(), snapshots(table)) == (there, [one, two, three])


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_goes_and_cant_be_read_is_reported_and_skipped(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object], what: str
) -> None:
    table = warehouse.table()
    one, two, three = replace(table, 1), replace(table, 2), replace(table, 3)
    unknown = live(table, table.metadata.snapshots[0])
    file = own_metadata(table, one, what)
    spoil(file)
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert f"what it names was not deleted: file://{file} can't be read" in str(results[one].error)
    assert results[two].error is None
    assert unknown <= warehouse.files().keys()
    assert content(table) == {three: [3]}


def test_a_file_that_was_cut_off_anywhere_is_never_taken_for_a_shorter_one(warehouse: Warehouse) -> None:
    table = warehouse.table()
    change(table, adding=[written(table, number) for number in range(3)])
    for what in ("list", "manifest"):
        file = own_metadata(table, snapshots(table)[0], what)
        whole = file.read_bytes()
        read = _lists if what == "list" else _entries
        assert read(table, file)
        shorter = []
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            try:
                read(table, file)
            except Unreadable:
                continue
            shorter.append(length)
        file.write_bytes(whole)
        assert shorter == [], what


def _lists(table: Table, file: Path) -> int:
    read = manifest_list(table.io, str(file), {})
    # A list that ends with its header is whole, and empty; nothing in the file says otherwise.
    return len(read.manifests) or _refused(file)


def _entries(table: Table, file: Path) -> int:
    return len(live_files(table.io, Manifest(str(file), 0, str(file), 3, 3)))


def _refused(file: Path) -> int:
    raise Unreadable(str(file), "empty", missing=False)


def test_a_block_that_holds_more_than_it_says_is_unreadable(warehouse: Warehouse) -> None:
    table = warehouse.table(**{"write.avro.compression-codec": "null"})
    append(table, 1)
    append(table, 2)
    file = own_metadata(table, head(table), "list")
    said = bytearray(file.read_bytes())
    # The marker that ends each block also ends the header; the number of records follows it, two of them written as 4.
    amount = said.index(said[-16:]) + 16
    assert said[amount] == 4
    said[amount] = 2
    file.write_bytes(said)
    with pytest.raises(Unreadable, match="a block ends before or after its last record"):
        manifest_list(table.io, str(file), {})


def test_a_manifest_with_fewer_entries_than_its_list_says_is_unreadable(warehouse: Warehouse) -> None:
    table = warehouse.table()
    append(table, 1)
    [manifest] = table.metadata.snapshots[0].manifests(table.io)
    with pytest.raises(Unreadable, match="it holds 1 entries, but the manifest list says 2"):
        live_files(table.io, Manifest(manifest.manifest_path, 0, "m", 2, 2))


def test_of_a_manifest_with_entries_of_all_kinds_only_the_live_ones_count(warehouse: Warehouse) -> None:
    table = warehouse.table()
    location = f"{table.location()}/metadata/mixed.avro"
    added, existing, deleted = (
        entry_of(table, f"file:///{name}", 7, DataFileContent.DATA) for name in ("added", "existing", "deleted")
    )
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(location), 5, "deflate") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=5, data_file=added))
        for write, file in ((writer.existing, existing), (writer.delete, deleted)):
            write(ManifestEntry.from_args(snapshot_id=4, sequence_number=1, file_sequence_number=1, data_file=file))
    found = live_files(table.io, Manifest(location, 0, location, 3, 2))
    assert {name: file.bytes for name, file in found.items()} == {"file:/added": 7, "file:/existing": 7}


def test_a_file_that_cant_be_deleted_keeps_the_way_to_it(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    [stuck] = live(table, table.metadata.snapshots[0])
    [prepared] = store.prepare(DATASET, [str(one)])
    with undeletable(stuck):
        [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
        assert result.outcome is Outcome.FAILED
        assert stuck in str(result.error)
    [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
    assert (result.outcome, result.error) == (Outcome.DELETED, None)
    assert warehouse.files().keys() == reachable(table)


NOTES = (
    ("no JSON", "{", Outcome.FAILED),
    ("no note", "{}", Outcome.FAILED),
    ("statistics that are none", '{"table": "x", "manifest_list": "l", "statistics": [1]}', Outcome.FAILED),
    ("another table of that name", '{"table": "x", "manifest_list": "l", "statistics": []}', Outcome.ALREADY_GONE),
    ("none at all", None, Outcome.ALREADY_GONE),
)


@pytest.mark.parametrize(("note", "outcome"), [pytest.param(*case, id=title) for title, *case in NOTES])
def test_a_note_that_does_not_fit_deletes_nothing(
    warehouse: Warehouse, store: IcebergStore, note: str | None, outcome: Outcome
) -> None:
    append(warehouse.table(), 1)
    there = warehouse.files()
    assert outcomes(swept(store, [Target("12345", note)])) == {12345: outcome}
    assert warehouse.files() == there


def test_a_note_outlives_the_table_it_was_made_for(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one, _ = replace(table, 1), replace(table, 2)
    [prepared] = store.prepare(DATASET, [str(one)])
    warehouse.catalog.drop_table("db.t")
    append(warehouse.table(), 3)
    there = warehouse.files()
    [result] = swept(store, [Target(prepared.transaction, prepared.note)]).values()
    assert (result.outcome, result.error) == (
        Outcome.ALREADY_GONE,
        "another table has the name now; the files of the earlier one are left",
    )
    assert warehouse.files() == there


# --- twins -------------------------------------------------------------------------------------------------------------


def registered_again(table: Table, name: str) -> int:
    """Register a table under a second name as it is now; the snapshot that this name reads from now on."""
    table.catalog.register_table(f"db.{name}", table.metadata_location)
    return head(table)


def failed_for(swept: dict[int, SweptTarget], said: str) -> bool:
    """Whether every target failed and says so."""
    return {(one.outcome, said in str(one.error)) for one in swept.values()} == {(Outcome.FAILED, True)}


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that is no database: it tells of its tables one by one."""
    monkeypatch.setattr(aliases, "SqlCatalog", Warehouse)


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
    load = SqlCatalog.load_table

    def loads_a_last_time(self: SqlCatalog, identifier: Any) -> Table:
        found = load(self, identifier)
        (warehouse.folder / "catalog.db").rename(warehouse.folder / "away.db")
        self.engine.dispose()
        return found

    there = warehouse.files()
    monkeypatch.setattr(SqlCatalog, "load_table", loads_a_last_time)
    assert failed_for(swept(store, targets), "The catalog of the store ice can't be read: ")
    assert warehouse.files() == there


# --- killed ------------------------------------------------------------------------------------------------------------


def sweeps_until(folder: Path, targets: list[Target], last: int) -> None:
    """A sweep that kills itself at its so-manyth act: before and after the commit, and before each deletion."""
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


@pytest.fixture(scope="module")
def sweepers() -> Any:
    """Where sweeps are forked from: a program that has loaded everything and holds no connection."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


# Two acts are of the commit, then come the deletions; the last sweep comes to its end.
DELETED_FILES = 20
SURELY_KILLED = 2 + DELETED_FILES
LAST = 1000


@pytest.mark.long
@pytest.mark.parametrize("last", [*range(SURELY_KILLED), LAST])
def test_a_killed_sweep_is_finished_by_the_next(
    warehouse: Warehouse, store: IcebergStore, tmp_path: Path, sweepers: Any, last: int
) -> None:
    table = storied(warehouse)
    before = content(table)
    chosen = set(before) - {one.snapshot_id for one in table.refs().values()}
    targets = [Target(one.transaction, one.note) for one in store.prepare(DATASET, [str(one) for one in chosen])]
    there = warehouse.files().keys()
    sweeper = sweepers.Process(target=sweeps_until, args=(tmp_path, targets, last))
    sweeper.start()
    sweeper.join()
    assert sweeper.exitcode == (0 if last == LAST else -signal.SIGKILL)
    assert content(table) == {one: before[one] for one in snapshots(table)}
    results = swept(store, targets)
    ends = {Outcome.ALREADY_GONE} if last == LAST else {Outcome.DELETED, Outcome.ALREADY_GONE}
    assert set(outcomes(results).values()) <= ends
    # That files of a manifest went with another snapshot, which had it too, is nothing to report.
    assert {one.error for one in results.values()} == {None}
    assert content(table) == {one: before[one] for one in before if one not in chosen}
    assert warehouse.files().keys() == reachable(table)
    assert len(there - warehouse.files().keys()) == DELETED_FILES, "there are deletions before which no sweep is killed"
