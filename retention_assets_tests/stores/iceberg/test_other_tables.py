"""Files that two tables have: what one of them expires is left for the other. A table with two names is not swept at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg import catalog as catalog_module
from retention_assets.stores.iceberg import other_tables
from retention_assets.stores.iceberg import store as iceberg_store
from retention_assets.stores.iceberg.fence import TableFence
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.stores.iceberg.sweeps import (
    DATASET,
    KEEP,
    SHORT,
    TableCycle,
    outcomes,
    planned,
    snapshots,
    sweep,
    swept,
)
from retention_assets_tests.stores.iceberg.tables import (
    SCHEMA,
    Warehouse,
    change,
    content,
    files_of,
    live,
    own_files,
    place,
    reachable,
    replace,
    replaced,
)
from retention_assets_tests.sweep.datasets import DUE


def add_as_people_do(other: Table, table: Table) -> None:
    other.add_files([one.file_path for one in files_of(table)])


def add_as_programs_do(other: Table, table: Table) -> None:
    change(other, adding=files_of(table))


ADDS: dict[str, Callable[[Table, Table], None]] = {"add_files": add_as_people_do, "a commit": add_as_programs_do}
NAMESPACES = ("db", "elsewhere")


@pytest.fixture(params=["a database", "another catalog"])
def catalogs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "another catalog":
        monkeypatch.setattr(catalog_module, "SqlCatalog", Warehouse)


@pytest.mark.usefixtures("catalogs")
@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("add", ADDS.values(), ids=ADDS)
def test_files_that_another_table_has_as_well_are_left_and_it_still_reads(
    warehouse: Warehouse, add: Callable[[Table, Table], None], namespace: str
) -> None:
    table, other = warehouse.table(), warehouse.table("other", namespace)
    one = replace(table, 1)
    add(other, table)
    replace(table, 2)
    shared, own = live(table, table.metadata.snapshots[0]), own_files(table, one)
    store = warehouse.store(namespaces=["db"])
    [result] = sweep(store, one).values()
    assert (result.outcome, result.left) == (Outcome.DELETED, 1)
    assert result.error == f"left, as ice/{namespace}.other has it too: file://{next(iter(shared))}"
    assert list(content(other).values()) == [[1]]
    assert own & warehouse.files().keys() == shared
    store.close()


def nested(warehouse: Warehouse, name: str, inside: Table) -> Table:
    return warehouse.catalog.create_table(f"db.{name}", SCHEMA, location=f"{inside.location()}/data/{name}")


@pytest.mark.parametrize("outer_is_swept", [True, False])
def test_a_table_in_anothers_folder_keeps_what_it_has(warehouse: Warehouse, store: IcebergStore, outer_is_swept: bool) -> None:
    outer = warehouse.table("outer")
    inner = nested(warehouse, "inner", outer)
    swept, reads = (outer, inner) if outer_is_swept else (inner, outer)
    one = replace(inner if outer_is_swept else swept, 1)
    change(outer if outer_is_swept else reads, adding=files_of(inner))
    one = snapshots(swept)[-1]
    replace(swept, 2)
    before = content(reads)
    [result] = sweep(store, one, dataset=f"ice/{'.'.join(swept.name())}").values()
    assert (result.outcome, result.left) == (Outcome.DELETED, 1)
    assert content(reads) == before


def test_tables_in_each_others_folders_that_share_nothing_are_swept(warehouse: Warehouse, store: IcebergStore) -> None:
    outer = warehouse.table("outer")
    inner = nested(warehouse, "inner", outer)
    one, _ = replace(outer, 1), replace(outer, 2)
    replace(inner, 3)
    own = own_files(outer, one)
    [result] = sweep(store, one, dataset="ice/db.outer").values()
    assert (result.outcome, result.left, own & warehouse.files().keys()) == (Outcome.DELETED, 0, set())


def test_a_table_that_only_one_around_it_has_asked_is_asked_by_others_as_well(
    warehouse: Warehouse, store: IcebergStore
) -> None:
    outer, table = warehouse.table("outer"), warehouse.table()
    inner = nested(warehouse, "inner", outer)
    first, one = replace(outer, 1), replace(table, 1)
    add_as_programs_do(inner, table)
    replace(outer, 2)
    replace(table, 2)
    assert outcomes(sweep(store, first, dataset="ice/db.outer")) == {first: Outcome.DELETED}
    assert [(each.outcome, each.left) for each in sweep(store, one).values()] == [(Outcome.DELETED, 1)]
    assert list(content(inner).values()) == [[1]]


def test_a_table_that_was_gone_for_a_while_is_asked_again(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = warehouse.table("outer")
    inner = nested(warehouse, "inner", outer)
    one, two, three = (replace(outer, number) for number in (1, 2, 3))
    change(inner, adding=files_of(outer))
    replace(outer, 4)
    assert outcomes(sweep(store, one, dataset="ice/db.outer")) == {one: Outcome.DELETED}
    load = store._load
    with monkeypatch.context() as gone:
        gone.setattr(store, "_load", lambda name: None if name == "ice/db.inner" else load(name))
        assert outcomes(sweep(store, two, dataset="ice/db.outer")) == {two: Outcome.DELETED}
    assert [(each.outcome, each.left) for each in sweep(store, three, dataset="ice/db.outer").values()] == [
        (Outcome.DELETED, 1)
    ]
    assert list(content(inner).values()) == [[3]]


@pytest.mark.parametrize("times", [1, 3])
def test_a_table_that_is_swept_while_it_is_asked_is_asked_anew(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Its manifest lists go between its metadata and themselves. Should that never end, nothing goes."""
    outer = warehouse.table("outer")
    inner = nested(warehouse, "inner", outer)
    one, _ = replace(outer, 1), replace(outer, 2)
    going = [replace(inner, number) for number in range(4)][:times]
    real, beside = other_tables._files_needed, warehouse.store()

    def needed(other: Table, *more: Any) -> Any:
        if other.name()[-1] == "inner" and going:
            [result] = sweep(beside, going.pop(0), dataset="ice/db.inner").values()
            assert result.outcome is Outcome.DELETED
        return real(other, *more)

    monkeypatch.setattr(other_tables, "_files_needed", needed)
    [result] = sweep(store, one, dataset="ice/db.outer").values()
    assert result.outcome is (Outcome.DELETED if times < 3 else Outcome.FAILED)
    assert (one in snapshots(outer)) == (times == 3)
    # What was not sure is asked once more.
    assert sweep(store, one, dataset="ice/db.outer")[one].outcome is (Outcome.ALREADY_GONE if times < 3 else Outcome.DELETED)
    beside.close()


def break_metadata(other: Table) -> None:
    Path(place(other.metadata_location)).write_text("{")


def break_list(other: Table) -> None:
    Path(place(other.metadata.snapshots[-1].manifest_list)).unlink()


def break_manifest(other: Table) -> None:
    [manifest] = other.metadata.snapshots[-1].manifests(other.io)
    file = Path(place(manifest.manifest_path))
    file.write_bytes(file.read_bytes()[:-1])


BREAKS: dict[str, Callable[[Table], None]] = {"metadata": break_metadata, "list": break_list, "manifest": break_manifest}


@pytest.mark.parametrize("damage", BREAKS.values(), ids=BREAKS)
def test_while_another_table_cant_be_read_nothing_is_expired_that_it_may_have(
    warehouse: Warehouse, store: IcebergStore, damage: Callable[[Table], None]
) -> None:
    table, other = warehouse.table(), warehouse.table("other")
    one, two = replace(table, 1), replace(table, 2)
    replace(other, 3)
    damage(other)
    there = warehouse.files()
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith(
        "it is unknown whether ice/db.other has files of this table, so nothing was deleted; mend"
    )
    assert (warehouse.files(), snapshots(table)) == (there, [one, two])
    # Only deleting has to wait: what is read, judged, marked and planned does not depend on other tables.
    assert set(store.read(["ice/db.t"])["fault"].to_pylist()) == {None}
    assert [prepared.note is None for prepared in store.prepare("ice/db.t", [str(one)])] == [False]
    warehouse.catalog.drop_table("db.other")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}


def test_what_another_table_adds_between_two_sweeps_is_noticed(warehouse: Warehouse, store: IcebergStore) -> None:
    table, other = warehouse.table(), warehouse.table("other")
    replace(other, 9)
    one, two = replace(table, 1), replace(table, 2)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    add_as_programs_do(other, table)
    replace(table, 3)
    assert [(each.outcome, each.left) for each in sweep(store, two).values()] == [(Outcome.DELETED, 1)]
    assert sorted(content(other).values()) == [[2, 9], [9]]


def test_a_table_that_only_loses_snapshots_is_not_read_again(warehouse: Warehouse, store: IcebergStore) -> None:
    table, other = warehouse.table(), warehouse.table("other")
    mine, gone, stays = replace(table, 1), replace(other, 1), replace(other, 2)
    replace(table, 2)
    assert outcomes(sweep(store, mine)) == {mine: Outcome.DELETED}
    before = store._others._lists_read
    assert outcomes(sweep(store, gone, dataset="ice/db.other")) == {gone: Outcome.DELETED}
    # Were it read once more, this would be found.
    break_list(other.refresh())
    later, _ = snapshots(table)[-1], replace(table, 3)
    assert outcomes(sweep(store, later)) == {later: Outcome.DELETED}
    assert (before, snapshots(other)) == (2, [stays])


@pytest.mark.parametrize("add", ADDS.values(), ids=ADDS)
def test_what_another_table_adds_after_it_was_read_is_noticed(
    warehouse: Warehouse, store: IcebergStore, add: Callable[[Table, Table], None]
) -> None:
    table, other = warehouse.table(), warehouse.table("other")
    one = replace(table, 1)
    store.read(store.datasets())
    add(other, table)
    replace(table, 2)
    assert [(each.outcome, each.left) for each in sweep(store, one).values()] == [(Outcome.DELETED, 1)]
    assert list(content(other).values()) == [[1]]


@pytest.fixture
def nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_tables, "_MOST_LISTS", 0)


@pytest.mark.usefixtures("nothing_more_is_read")
def test_past_what_is_read_of_all_tables_those_are_read_that_show_a_sign(warehouse: Warehouse, store: IcebergStore) -> None:
    table, other = warehouse.table(), warehouse.table("other")
    one = replace(table, 1)
    add_as_people_do(other, table)
    # It shows no sign, so that it is not even found to be broken.
    silent = warehouse.table("silent")
    replace(silent, 3)
    break_list(silent)
    replace(table, 2)
    assert [(each.outcome, each.left) for each in sweep(store, one).values()] == [(Outcome.DELETED, 1)]
    assert list(content(other).values()) == [[1]]


SIGNS = {"it forbids deleting": ({"gc.enabled": "false"}, None), "its metadata is elsewhere": ({}, "moved")}


@pytest.mark.usefixtures("nothing_more_is_read")
@pytest.mark.parametrize(("properties", "moved"), SIGNS.values(), ids=SIGNS)
def test_each_sign_has_a_table_read(
    warehouse: Warehouse, store: IcebergStore, properties: dict[str, str], moved: str | None
) -> None:
    table, other = warehouse.table(), warehouse.table("other", **properties)
    one = replace(table, 1)
    add_as_programs_do(other, table)
    replace(table, 2)
    if moved:
        metadata = other.refresh().metadata.model_copy(update={"location": f"file://{warehouse.data}/{moved}"})
        Path(place(other.metadata_location)).write_text(metadata.model_dump_json())
    assert [(each.outcome, each.left) for each in sweep(store, one).values()] == [(Outcome.DELETED, 1)]
    assert DATASET not in store._others._known


def test_files_that_are_left_are_counted_and_told_of(warehouse: Warehouse) -> None:
    cycle = TableCycle(warehouse)
    cycle.says(KEEP)
    table, other = warehouse.table(**SHORT), warehouse.table("other", **SHORT)
    one = replace(table, 1)
    add_as_people_do(other, table)
    [shared] = live(table, table.metadata.snapshots[0])
    replace(table, 2)
    assert cycle.judges()[one][0] == "mark"
    result = cycle.sweep()
    assert (result.outcomes[Outcome.DELETED], result.left) == (1, 1)
    assert result.warnings == [f"left, as ice/db.other has it too: file://{shared}"]
    with cycle.opened() as ledger:
        [report] = ledger.reports.of(DUE.date(), DATASET)
    assert (report["deleted"], report["left"]) == (1, 1)


def test_a_table_that_forbids_deleting_is_spared_before_anything_is_planned(warehouse: Warehouse) -> None:
    cycle = TableCycle(warehouse)
    cycle.says(KEEP)
    table = warehouse.table(**SHORT)
    one, _ = replace(table, 1), replace(table, 2)
    cycle.judges()
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    assert cycle.judges()[one] == ("spare", [("GC_DISABLED", "gc.enabled=false")])
    cycle.sweep()
    why = "Its table forbids deleting its files: property 'gc.enabled=false'."
    assert (cycle.fates()[one], cycle.notes()) == (("SPARED", why), [])


def test_of_many_tables_only_those_are_asked_that_changed_or_are_near(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {name: warehouse.table(name) for name in ("t", "far", "changed", "sharing")}
    one, two = replace(tables["t"], 1), replace(tables["t"], 2)
    add_as_programs_do(tables["sharing"], tables["t"])
    asked, real = list[str](), other_tables.OtherTables._claimed_by

    def claimed_by(known: other_tables.OtherTables, name: str, *about: Any) -> Any:
        asked.append(name)
        return real(known, name, *about)

    monkeypatch.setattr(other_tables.OtherTables, "_claimed_by", claimed_by)
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert set(asked) == {"ice/db.far", "ice/db.changed", "ice/db.sharing"}
    asked.clear()
    replace(tables["changed"], 3)
    replace(tables["t"], 3)
    assert [(each.outcome, each.left) for each in sweep(store, two).values()] == [(Outcome.DELETED, 1)]
    assert set(asked) == {"ice/db.changed", "ice/db.sharing"}


PLACES = {
    "the same folder": (("file:/a/b/",), (), True),
    "a folder in it": (("file:/a/b/c/",), (), True),
    "the folder around it": (("file:/a/",), (), True),
    "a name that begins alike": (("file:/a/bc/",), (), False),
    "a folder beside it, files in it": (("file:/a/d/",), ("file:/a/b/c",), True),
    "a folder beside it, files beside it": (("file:/a/d/",), ("file:/a/e",), False),
    "files around it": (("file:/a/d/",), ("file:/a",), False),
}


@pytest.mark.parametrize(("roots", "folders", "is_near"), PLACES.values(), ids=PLACES)
def test_a_table_is_near_by_roots_and_folders_of_files(roots: tuple[str, ...], folders: tuple[str, ...], is_near: bool) -> None:
    places, fence = other_tables._Places(), TableFence(("file:/a/b/",))
    summary = other_tables.TableSummary("", TableFence(roots), frozenset(), False, frozenset(folders))
    places.put("other", summary)
    # As it is told without looking anything up.
    assert is_near == (summary.fence.overlaps(fence) or any(fence.names(f"{folder}/") for folder in folders))
    assert places.near(fence) == ({"other"} if is_near else set())
    places.put("other", other_tables.TableSummary("", TableFence(("file:/z/",)), frozenset(), False))
    assert places.near(fence) == set()


def registered_again(table: Table, name: str = "db.copy") -> None:
    table.catalog.register_table(name, table.metadata_location)


def failed_for(swept: dict[int, SweptTarget], said: str) -> bool:
    return {(one.outcome, said in str(one.error)) for one in swept.values()} == {(Outcome.FAILED, True)}


@pytest.mark.parametrize("dataset", [DATASET, "ice/db.a.copy"])
def test_a_table_with_two_names_loses_nothing_by_either(warehouse: Warehouse, store: IcebergStore, dataset: str) -> None:
    warehouse.catalog.create_namespace("db.a")
    table, (one, two) = replaced(warehouse, 2)
    registered_again(table, "db.a.copy")
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
    registered_again(table)
    replace(table, 2)
    store.read(store.datasets())
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")
    warehouse.catalog.drop_table("db.copy")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}
    assert warehouse.files().keys() == reachable(table)


def test_a_table_whose_name_was_changed_and_given_away_shares_its_folder(warehouse: Warehouse, store: IcebergStore) -> None:
    _, (one, _) = replaced(warehouse, 2)
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


def outside_of_the_chosen_namespaces(warehouse: Warehouse, table: Table) -> str:
    warehouse.catalog.create_namespace("elsewhere")
    registered_again(table, "elsewhere.copy")
    return "ice/elsewhere.copy is the same table under a second name"


def where_the_metadata_was_before(warehouse: Warehouse, table: Table) -> str:
    registered_again(table)
    moves(warehouse, table)
    return "ice/db.copy is the same table under a second name"


def with_metadata_elsewhere(warehouse: Warehouse, table: Table) -> str:
    registered_again(table)
    moves(warehouse, warehouse.load("copy"))
    return "ice/db.copy is the same table under a second name"


def that_cant_be_read(warehouse: Warehouse, table: Table) -> str:
    registered_again(table)
    # Its metadata is its own.
    moves(warehouse, warehouse.load("copy"))
    break_metadata(warehouse.load("copy"))
    return "mend it or drop that name: the table's metadata can't be read: "


def moves(warehouse: Warehouse, table: Table) -> None:
    table.transaction().set_properties({"write.metadata.path": f"file://{warehouse.data}/moved"}).commit_transaction()
    assert "/moved/" in table.metadata_location


@pytest.mark.usefixtures("catalogs")
@pytest.mark.parametrize(
    "twin", [outside_of_the_chosen_namespaces, where_the_metadata_was_before, with_metadata_elsewhere, that_cant_be_read]
)
def test_a_twin_that_nobody_has_read_keeps_everything(warehouse: Warehouse, twin: Callable[[Warehouse, Table], str]) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    said = twin(warehouse, table)
    replace(table.refresh(), 2)
    there, store = warehouse.files(), warehouse.store(namespaces=["db"])
    assert failed_for(sweep(store, one), said)
    assert warehouse.files() == there
    store.close()


def test_a_twin_beside_is_found(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table)
    replace(table, 2)
    # Other tables are read for what they have of this one's files, and a twin is known by having been read.
    monkeypatch.setattr(other_tables.OtherTables, "claims", lambda *_: {})
    assert failed_for(sweep(store, one), "ice/db.copy is the same table under a second name")


def test_a_twin_of_the_last_moment_is_seen(warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (one, _) = replaced(warehouse, 2)
    targets = planned(store, one)
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


@pytest.mark.usefixtures("catalogs")
def test_a_twin_that_was_made_another_table_after_it_was_read_is_none(warehouse: Warehouse, store: IcebergStore) -> None:
    table = warehouse.table()
    one = replace(table, 1)
    registered_again(table)
    replace(table, 2)
    store.read(store.datasets())
    warehouse.catalog.drop_table("db.copy")
    warehouse.table("copy")
    assert outcomes(sweep(store, one)) == {one: Outcome.DELETED}


def test_a_catalog_that_goes_away_before_twins_are_looked_for_fails_the_targets(
    warehouse: Warehouse, store: IcebergStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (one, _) = replaced(warehouse, 2)
    targets = planned(store, one)

    def loads_a_last_time(catalog: SqlCatalog, *asked: Any) -> Table:
        found = catalog_module.load_table(catalog, *asked)
        (warehouse.folder / "catalog.db").rename(warehouse.folder / "away.db")
        catalog.engine.dispose()
        return found

    there = warehouse.files()
    monkeypatch.setattr(iceberg_store, "load_table", loads_a_last_time)
    assert failed_for(swept(store, targets), "The catalog of the store ice can't be read: ")
    assert warehouse.files() == there
