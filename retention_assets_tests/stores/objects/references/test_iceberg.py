"""Iceberg catalogs as sources: exactly what their tables reach, whatever became of a file; or the table that can't be read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.table import Table

from retention_assets.stores.iceberg import IcebergSettings
from retention_assets.stores.iceberg import store as iceberg_store
from retention_assets.stores.iceberg.catalog import load_table
from retention_assets.stores.iceberg.commit import remove_snapshots
from retention_assets.stores.objects.references import RowSource, SourceNotWhole, open_references
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.iceberg.format3 import add_vectors
from retention_assets_tests.stores.iceberg.tables import (
    STORE,
    Warehouse,
    add_deletes,
    add_statistics,
    append,
    change,
    entry_of,
    files_of,
    head,
    live,
    place,
    position_deletes,
    replace,
    rows,
    written,
)
from retention_assets_tests.stores.objects.references.sources import ends_of, objects_of, rows_of, settings, source, travelled


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse(tmp_path) as made:
        yield made


def of_catalog(warehouse: Warehouse, path: str | None = None, **given: Any) -> RowSource:
    catalog = {**warehouse.properties, "name": STORE}
    return source(warehouse.folder, {"iceberg": {"catalog": catalog, **given}}, path=path or str(warehouse.data))


def of_store(warehouse: Warehouse, **given: Any) -> RowSource:
    store = IcebergSettings(name=STORE, catalog=warehouse.properties, **given)
    known = settings(warehouse.folder, {"store": STORE}, path=str(warehouse.data)).with_others({STORE: store})
    [found] = open_references(known)
    return travelled(found)


def listed(warehouse: Warehouse) -> list[str]:
    return sorted(file.removeprefix(f"{warehouse.data}/") for file in warehouse.files())


def put(table: Table, name: str) -> str:
    location = f"{table.location()}/{name}"
    Path(place(location)).parent.mkdir(exist_ok=True)
    Path(place(location)).write_bytes(b"0123456789")
    return location


def everything(warehouse: Warehouse) -> Table:
    table = warehouse.table()
    append(table, 1, 2, 3)
    [file] = files_of(table)
    add_deletes(table, position_deletes(table, file.file_path, [1]))
    add_deletes(table.refresh(), entry_of(table, put(table, "data/deleted.puffin"), 10))
    table.refresh().manage_snapshots().create_branch(head(table), "dev").commit()
    append(table, 4, branch="dev")
    table.manage_snapshots().create_tag(append(table, 5), "kept").commit()
    staged = append(table, 6, branch="dev")
    table.manage_snapshots().remove_branch("dev").commit()
    assert staged in {one.snapshot_id for one in table.refresh().metadata.snapshots}
    replace(table, 7)
    add_statistics(table, staged, put(table, "metadata/s.stats"), put(table, "metadata/p.stats"))
    put(table, "metadata/version-hint.text")
    return table.refresh()


@pytest.mark.parametrize("of", [of_catalog, of_store])
def test_every_class_of_file_is_reached_and_a_stray_is_not(warehouse: Warehouse, of: Callable[[Warehouse], RowSource]) -> None:
    table = everything(warehouse)
    whole = listed(warehouse)
    put(table, "data/stray"), put(table, "metadata/stray")
    found = rows_of(of(warehouse))
    assert sorted({str(row["object"]) for row in found}) == whole
    assert {row["from"] for row in found} == {
        f"table db.t: {what}"
        for what in (
            "metadata file", "metadata log", "version hint", "manifest list", "manifest", "data file", "delete file", "statistics",
            "partition statistics",
        )
    }  # fmt: skip
    [puffin] = [row["from"] for row in found if str(row["object"]).endswith(".puffin")]
    assert puffin == "table db.t: delete file"
    assert {row["realm"] for row in found} == {None}


@pytest.mark.parametrize("of", [of_catalog, of_store])
def test_the_file_of_deletion_vectors_of_a_table_of_format_3_is_reached(
    warehouse: Warehouse, of: Callable[[Warehouse], RowSource]
) -> None:
    table = warehouse.table()
    append(table, 1, 2), append(table, 3)
    puffin = add_vectors(warehouse, table)
    assert warehouse.load().metadata.format_version == 3
    whole = listed(warehouse)
    assert place(puffin) in warehouse.files()
    put(table, "data/stray.puffin")
    found = rows_of(of(warehouse))
    assert sorted({str(row["object"]) for row in found}) == whole
    assert {row["from"] for row in found if str(row["object"]).endswith(".puffin")} == {"table db.t: delete file"}


def test_what_only_expired_snapshots_held_is_reached_no_more(warehouse: Warehouse) -> None:
    table = warehouse.table()
    first = append(table, 1)
    gone = live(table, table.metadata.snapshots[0]) | {place(table.metadata.snapshots[0].manifest_list)}
    replace(table, 2)
    assert {f"{warehouse.data}/{key}" for key in objects_of(of_catalog(warehouse))} >= gone
    remove_snapshots(table.refresh(), [first])
    # The manifest of the snapshot that stays still names the file, as deleted.
    assert {f"{warehouse.data}/{key}" for key in objects_of(of_catalog(warehouse))}.isdisjoint(gone)


def test_a_file_that_two_tables_have_is_reached_as_long_as_one_has_it(warehouse: Warehouse) -> None:
    table, other = warehouse.table(), warehouse.table("other", "elsewhere")
    one = replace(table, 1)
    other.add_files([file.file_path for file in files_of(table)])
    shared = place(files_of(table)[0].file_path).removeprefix(f"{warehouse.data}/")
    replace(table, 2)
    remove_snapshots(table.refresh(), [one])
    found = [row for row in rows_of(of_store(warehouse, namespaces=["db"])) if row["object"] == shared]
    assert [row["from"] for row in found] == ["table elsewhere.other: data file"]
    assert shared not in objects_of(of_catalog(warehouse, namespaces=["db"]))
    assert shared in objects_of(of_catalog(warehouse, namespaces=["else*"]))


@pytest.mark.parametrize("value", ["false", "no", "fasle"])
def test_below_a_table_that_keeps_its_garbage_everything_is_reached(warehouse: Warehouse, value: str) -> None:
    table = warehouse.table(**{"gc.enabled": value, "write.data.path": f"file://{warehouse.data}/far/data"})
    append(table, 1)
    given = of_catalog(warehouse)
    assert given.names_folders
    folders = [row for row in rows_of(given) if str(row["object"]).endswith("/")]
    assert sorted(str(row["object"]) for row in folders) == ["db/t/", "far/data/"]
    assert {row["from"] for row in folders} == {"table db.t: gc.enabled is not true, so everything stays"}


def test_a_table_above_the_root_that_keeps_its_garbage_keeps_all(warehouse: Warehouse) -> None:
    append(warehouse.table(**{"gc.enabled": "false"}), 1)
    assert "/" in objects_of(of_catalog(warehouse, path=f"{warehouse.data}/db/t/data"))


def test_a_second_metadata_folder_is_looked_into_for_a_version_hint(warehouse: Warehouse) -> None:
    table = warehouse.table(**{"write.metadata.path": f"file://{warehouse.data}/far/meta"})
    append(table, 1)
    hint = Path(place(table.refresh().metadata_location)).with_name("version-hint.text")
    hint.write_text("1")
    assert "far/meta/version-hint.text" in objects_of(of_catalog(warehouse))


def test_files_outside_of_the_root_are_no_keys(warehouse: Warehouse) -> None:
    append(warehouse.table(), 1)
    append(warehouse.table("u"), 1)
    found = objects_of(of_catalog(warehouse, path=f"{warehouse.data}/db/u"))
    assert sorted(set(found)) == [key.removeprefix("db/u/") for key in listed(warehouse) if key.startswith("db/u/")]


def test_a_path_in_another_place_that_may_be_the_same_is_refused_by_table(warehouse: Warehouse) -> None:
    append(warehouse.table(), 1)
    with pytest.raises(SourceNotWhole, match=r"table db\.t names file:.*declare it.*equal_schemes: \{file: s3\}"):
        rows_of(of_catalog(warehouse, path=f"s3://b{warehouse.data}"))
    assert rows_of(of_catalog(warehouse, path=f"s3://b{warehouse.data}", equal_schemes={"file": "file"})) == []
    declared = {"equal_schemes": {"file": "s3"}, "equal_authorities": {"": "b"}}
    assert sorted(set(objects_of(of_catalog(warehouse, path=f"s3://b{warehouse.data}", **declared)))) == listed(warehouse)


SPOILS: dict[str, Callable[[Path], object]] = {
    "manifest list": Path.unlink,
    "manifest": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "metadata file": lambda file: file.write_bytes(b""),
}


@pytest.mark.parametrize("which", SPOILS)
def test_one_table_of_ten_that_cannot_be_read_is_named(warehouse: Warehouse, which: str) -> None:
    for number in range(10):
        append(warehouse.table(f"t{number}"), 1)
    table = warehouse.load("t7")
    snapshot = table.metadata.snapshots[0]
    files = {
        "manifest list": snapshot.manifest_list,
        "manifest": snapshot.manifests(table.io)[0].manifest_path,
        "metadata file": table.metadata_location,
    }
    SPOILS[which](Path(place(files[which])))
    with pytest.raises(SourceNotWhole, match=r"table db\.t7 can't be read"):
        rows_of(of_catalog(warehouse), wanted=3)


def test_an_old_manifest_that_is_unreadable_fails_as_well(warehouse: Warehouse) -> None:
    table = warehouse.table()
    for value in (1, 2, 3):
        replace(table, value)
    oldest = table.metadata.snapshots[0].manifests(table.io)[0]
    Path(place(oldest.manifest_path)).write_bytes(b"")
    with pytest.raises(SourceNotWhole, match=r"table db\.t can't be read"):
        rows_of(of_catalog(warehouse))


def test_what_is_committed_made_or_dropped_meanwhile_is_read_again(warehouse: Warehouse) -> None:
    tables = {name: warehouse.table(name) for name in ("quiet", "busy", "dropped")}
    for table in tables.values():
        append(table, 1)
    given = of_catalog(warehouse)
    ends = ends_of(given, given.shares(3))
    assert given.finish(ends) == []
    append(tables["busy"], 2)
    append(warehouse.table("new"), 1)
    warehouse.catalog.drop_table("db.dropped")
    again = given.finish(ends)
    assert sorted(entry.name for share in again for entry in share) == ["blobs/db.busy", "blobs/db.new"]
    more = ends_of(given, again)
    assert given.finish([*ends, *more]) == []
    change(tables["busy"], [written(tables["busy"], 3)])
    assert [entry.name for share in given.finish([*ends, *more]) for entry in share] == ["blobs/db.busy"]


def test_a_table_that_was_dropped_before_it_was_read_is_no_reference(warehouse: Warehouse) -> None:
    append(warehouse.table(), 1)
    append(warehouse.table("dropped"), 1)
    given = of_catalog(warehouse)
    shares = given.shares(1)
    warehouse.catalog.drop_table("db.dropped")
    ends = ends_of(given, shares)
    assert given.finish(ends) == []
    # It is there again: nobody has read it.
    append(warehouse.catalog.create_table("db.dropped", warehouse.load().schema()), 1)
    assert [entry.name for share in given.finish(ends) for entry in share] == ["blobs/db.dropped"]


def test_a_table_that_is_listed_and_never_there_is_named(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    append(warehouse.table(), 1)
    monkeypatch.setattr(SqlCatalog, "list_tables", lambda *_: [("db", "t"), ("db", "ghost")])
    with pytest.raises(SourceNotWhole, match=r"table db\.ghost is listed, but can't be loaded"):
        rows_of(of_catalog(warehouse))


def test_a_table_that_is_new_in_the_end_is_asked_for_even_if_it_cannot_be_loaded(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(warehouse.table(), 1)
    given = of_catalog(warehouse)
    ends = ends_of(given, given.shares(1))
    monkeypatch.setattr(SqlCatalog, "list_tables", lambda *_: [("db", "t"), ("db", "ghost")])
    again = given.finish(ends)
    assert [entry.name for share in again for entry in share] == ["blobs/db.ghost"]
    with pytest.raises(SourceNotWhole, match=r"table db\.ghost is listed, but can't be loaded"):
        given.finish([*ends, *ends_of(given, again)])


def test_files_of_a_snapshot_that_is_expired_while_it_is_read_are_not_missed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.table()
    first = replace(table, 1)
    replace(table, 2)
    oldest = Path(place(table.metadata.snapshots[0].manifest_list))
    said = list[Any]()

    def load_and_expire(*asked: Any) -> Table:
        found = load_table(*asked)
        if not said:
            said.append(asked)
            remove_snapshots(load_table(*asked), [first])
            oldest.unlink()
        return found

    monkeypatch.setattr(iceberg_store, "load_table", load_and_expire)
    found = objects_of(of_catalog(warehouse))
    assert said
    assert place(warehouse.load().metadata_location).removeprefix(f"{warehouse.data}/") in found


def test_everything_of_a_view_is_reached(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"db.v": f"file://{warehouse.data}/db/v", "db.gone": None}

    def load_view(_: SqlCatalog, identifier: Any) -> Any:
        location = places[".".join(identifier)]
        if location is None:
            raise NoSuchViewError("gone")
        return SimpleNamespace(metadata=SimpleNamespace(location=location, properties={}))

    monkeypatch.setattr(SqlCatalog, "list_views", lambda *_: [tuple(name.split(".")) for name, at in places.items() if at])
    monkeypatch.setattr(SqlCatalog, "load_view", load_view)
    given = of_catalog(warehouse)
    [end] = ends_of(given, given.shares(1))
    assert rows_of(given) == [{"object": "db/v/", "realm": None, "from": "view db.v: folder"}]
    places["db.v"] = f"file://{warehouse.data}/moved"
    assert len(given.finish([end])) == 1
    places["db.v"] = None
    assert given.finish([end]) == []
    monkeypatch.setattr(SqlCatalog, "list_views", lambda *_: [("db", "broken")])
    with pytest.raises(SourceNotWhole, match=r"view db\.broken can't be read: .*KeyError"):
        rows_of(given)


def test_a_warehouse_in_a_bucket_is_read_whatever_its_scheme_is_called(tmp_path: Path, s3: S3) -> None:
    endpoint = {"s3.endpoint": s3.environment["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    with Warehouse(tmp_path, root=f"s3a://{s3.bucket}/wh a", **endpoint) as warehouse:
        table = warehouse.table()
        table.append(rows(1))
        keys = sorted(key.removeprefix("wh a/") for key in s3.objects() if not key.endswith("/"))
        assert sorted(set(objects_of(of_catalog(warehouse, path=f"s3://{s3.bucket}/wh a/")))) == keys


def test_a_catalog_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": "postgresql+psycopg2://u:secret@127.0.0.1:1/db"}
    with pytest.raises(SourceNotWhole, match="catalog") as raised:
        rows_of(source(tmp_path, {"iceberg": {"catalog": catalog}}))
    assert "secret" not in str(raised.value)
