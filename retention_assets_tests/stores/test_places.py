"""Where stores say that their data is, and what they take for gone: never what is only looked for in the wrong place."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.settings import load_settings
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets.stores.protocol import IN_FOLDER, KNOWN_BY, Remains, Target, is_same_place
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.files.environments import S3, S3Files
from retention_assets_tests.stores.files.sweeps import line
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, replace
from retention_assets_tests.stores.records.environments import Records

STATUS = Aspects.datasets[0]


@pytest.mark.parametrize(
    ("present", "same"),
    [
        ("/data/lake", True),
        (f"/data/lake{KNOWN_BY}1f", True),
        ("/data/lake2", False),
        (f"/data/lake2{KNOWN_BY}1f", False),
        ("/data", False),
    ],
)
def test_a_place_that_has_got_an_identity_since_is_the_same(present: str, same: bool) -> None:
    assert is_same_place("/data/lake", present) == same


@pytest.mark.parametrize("present", ["/data/lake", f"/data/lake{KNOWN_BY}2f", f"/data/other{KNOWN_BY}1f"])
def test_a_place_that_has_lost_or_changed_its_identity_is_another(present: str) -> None:
    assert not is_same_place(f"/data/lake{KNOWN_BY}1f", present)


@pytest.mark.parametrize(
    ("planned", "present", "same"),
    [
        # renamed; a copy; another root in a folder of that number; without numbers
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/b{KNOWN_BY}1f{IN_FOLDER}7-1", True),
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/b{KNOWN_BY}1f{IN_FOLDER}7-2", False),
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/b{KNOWN_BY}2f{IN_FOLDER}7-1", False),
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/b{KNOWN_BY}1f", False),
        (f"/a{KNOWN_BY}1f", f"/b{KNOWN_BY}1f", False),
        # at one path: put back from a backup, known by more or less, and another root
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/a{KNOWN_BY}1f{IN_FOLDER}8-2", True),
        (f"/a{KNOWN_BY}1f", f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", True),
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/a{KNOWN_BY}1f", True),
        ("/a", f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", True),
        (f"/a{KNOWN_BY}1f{IN_FOLDER}7-1", f"/a{KNOWN_BY}2f{IN_FOLDER}7-1", False),
    ],
)
def test_a_folder_that_was_renamed_is_the_same_place_and_at_one_path_the_identity_decides(
    planned: str, present: str, same: bool
) -> None:
    assert is_same_place(planned, present) == same


def test_a_table_of_the_same_name_in_another_database_is_in_another_place(store_url: str, tmp_path: Path) -> None:
    units = Records(store_url)
    first = units.store().place(units.datasets[0])
    assert "unit_of_work" in first
    assert units.store().place(units.datasets[0]) == first
    if store_url.startswith("sqlite"):
        (tmp_path / "copy.db").write_bytes((tmp_path / "store.db").read_bytes())
        (tmp_path / "copy.db").replace(tmp_path / "store.db")
        assert units.store().place(units.datasets[0]) != first


def test_a_table_of_the_same_name_in_another_schema_or_made_anew_is_in_another_place(server: str) -> None:
    here, there = Aspects(new_schema(server)), Aspects(new_schema(server))
    first = here.store().place(STATUS)
    assert first.startswith("table test_")
    assert "of server" in first
    assert there.store().place(STATUS) != first
    here.table.do(f"ALTER TABLE {here.table.name} RENAME TO moved")
    here.table.do(f"CREATE TABLE {here.table.name} (LIKE moved)")
    assert here.store().place(STATUS) != first


@pytest.mark.parametrize(
    ("store", "fault"),
    [
        ("kind: files, log: log, data: 'lake/{dataset}/{transaction}'", None),
        ("kind: files, log: log, data: 's3://lake/tx/{dataset}/{transaction}'", None),
        ("kind: files, log: log, data: 'memory://lake/{dataset}/{transaction}'", "Data at memory://lake can't be set aside"),
        ("kind: objects, listing: {path: blobs}, references: none", None),
        (
            "kind: objects, listing: {sql: {url: 'sqlite:///o.db', table: o, key: k, created_at: t}}, references: none",
            "in rows or at an unknown place",
        ),
        ("kind: iceberg, catalog: {type: sql, uri: 'sqlite:///c.db'}", None),
        ("kind: aspects, url: 'sqlite:///a.db'", "A store of kind aspects can't set anything aside. Leave `undo` out"),
    ],
)
def test_settings_tell_which_stores_cannot_set_anything_aside(store: str, fault: str | None, tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(f"stores: [{{name: s, {store}}}]")
    [settings] = load_settings(file).stores
    assert (settings.undo_fault is None) if fault is None else fault in (settings.undo_fault or "")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_without_a_root_row_nothing_is_taken_for_gone_and_no_child_for_an_orphan(store_url: str, parallelism: int) -> None:
    """In another database there may be children of the same keys whose roots are somewhere else."""
    units = Records(store_url)
    of = units.units
    of.has("a", "b").loses(of.root, "a").loses(of.root, "b")
    children = of.there("summary")
    swept = units.store().sweep(units.datasets[0], [Target("a"), Target("b")], parallelism)
    assert [(one.outcome, "no row at all" in (one.error or "")) for one in swept] == [(Outcome.FAILED, True)] * 2
    assert of.there("summary") == children
    assert units.store().remains(units.datasets[0], [Target("a")]) == {}
    # The plan knew this very table.
    known = Target("a", place_known=True)
    assert units.store().remains(units.datasets[0], [known]) == {"a": Remains.NOTHING}
    (swept_a,) = units.store().sweep(units.datasets[0], [known], 1)
    assert swept_a.outcome is Outcome.ALREADY_GONE
    assert of.there("summary") == ["b", "b"]
    # And where any other unit of work is, it is the right one.
    of.has("c")
    (swept_b,) = units.store().sweep(units.datasets[0], [Target("b")], 1)
    assert swept_b.outcome is Outcome.ALREADY_GONE
    assert of.there("summary") == ["c", "c"]


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    (tmp_path / "one").mkdir()
    with Warehouse(tmp_path / "one") as opened:
        yield opened


def test_a_table_that_another_catalog_does_not_have_is_not_taken_for_gone(warehouse: Warehouse, tmp_path: Path) -> None:
    table = warehouse.table()
    first = append(table, 0)
    replace(table, 1)
    store = warehouse.store()
    (note,) = store.prepare("ice/db.t", [str(first)])
    target = Target(str(first), note.note, place_known=True)
    assert str(table.metadata.table_uuid) in (store.place("ice/db.t") or "")
    assert store.remains("ice/db.t", [target]) == {target.transaction: Remains.ALL}
    uri = f"sqlite:///{tmp_path / 'empty.db'}"
    with SqlCatalog("ice", uri=uri, warehouse=warehouse.properties["warehouse"]) as empty:
        empty.create_namespace("db")
    settings = store.settings.model_copy(update={"catalog": {**warehouse.properties, "uri": uri}})
    other = IcebergStore(settings)
    assert other.place("ice/db.t") is None
    assert other.remains("ice/db.t", [target]) == {}
    (swept,) = other.sweep("ice/db.t", [target], 1)
    assert swept.outcome is Outcome.FAILED
    assert "this is another catalog" in (swept.error or "")
    other.close()
    store.close()


def test_a_copy_of_a_catalog_is_another_place_in_spite_of_its_tables_identity(warehouse: Warehouse, tmp_path: Path) -> None:
    append(warehouse.table(), 0)
    store = warehouse.store()
    shutil.copy(tmp_path / "one" / "catalog.db", tmp_path / "copy.db")
    copied = {**warehouse.properties, "uri": f"sqlite:///{tmp_path / 'copy.db'}"}
    copy = IcebergStore(store.settings.model_copy(update={"catalog": copied}))
    assert store.place("ice/db.t") != copy.place("ice/db.t")
    copy.close()
    store.close()


def test_what_is_left_of_a_snapshot_is_said_by_its_manifest_list(warehouse: Warehouse) -> None:
    table = warehouse.table()
    first = append(table, 0)
    replace(table, 1)
    store = warehouse.store()
    (note,) = store.prepare("ice/db.t", [str(first)])
    target = Target(str(first), note.note)
    asked, listed = 0, table.snapshot_by_id(first)
    assert listed is not None

    def permit() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise Withheld("stopped after the first file")

    (swept,) = store.sweep("ice/db.t", [target], 1, permit)
    assert swept.outcome is Outcome.WITHHELD
    for unknown in (None, "no note"):
        assert store.remains("ice/db.t", [Target(str(first), unknown)]) == {str(first): Remains.UNKNOWN}
    assert store.remains("ice/db.t", [target]) == {str(first): Remains.SOME}
    (swept,) = store.sweep("ice/db.t", [target], 1)
    assert store.remains("ice/db.t", [target]) == {str(first): Remains.NOTHING}
    store.close()


@pytest.fixture
def lake(s3: S3) -> S3Files:
    made = S3Files(s3)
    made.put_log("0.jsonl", line() + line(transaction="T2") + line(dataset="lake/b"))
    return made


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        pytest.param("data/somebody/else", Outcome.FAILED, id="something else"),
        pytest.param("data/.retention-store", Outcome.FAILED, id="by what it is known, and nothing else"),
        pytest.param("data/a/T2/part", Outcome.ALREADY_GONE, id="another transaction"),
        pytest.param("data/b/T1/part", Outcome.ALREADY_GONE, id="another dataset"),
    ],
)
def test_in_a_bucket_without_a_sign_of_the_data_nothing_is_taken_for_gone(lake: S3Files, other: str, outcome: Outcome) -> None:
    lake.put_place(other, b"0" * 32)
    (swept,) = lake.store().sweep("lake/a", [Target("T1")], 1)
    assert swept.outcome is outcome
    assert other in lake.everything()


def test_a_bucket_is_known_by_what_a_plan_left_in_it(lake: S3Files) -> None:
    known = "data/.retention-store"
    assert lake.store().place("lake/a", claim=True) == f"s3://{lake.s3.bucket}/data"
    assert known not in lake.everything()
    lake.put("lake/a", "T1", "part", b"x")
    claimed = lake.store().place("lake/a", claim=True)
    assert claimed == f"s3://{lake.s3.bucket}/data{KNOWN_BY}{lake.everything()[known].decode().strip()}"
    assert lake.store().place("lake/a", claim=True) == claimed == lake.store().place("lake/a")
    lake.put("lake/b", "T1", "part", b"x")
    (prepared,) = lake.store().prepare("lake/a", ["T1"])
    assert prepared.bytes == 1
    (swept,) = lake.store().sweep("lake/a", [Target("T1")], 1)
    assert (swept.outcome, known in lake.everything()) == (Outcome.DELETED, True)
    # Where everything else is gone, it is still known by it.
    lake.s3.take("data/b/T1/part")
    lake.put_place("data/other", b"x")
    (swept,) = lake.store().sweep("lake/a", [Target("T1")], 1)
    assert swept.outcome is Outcome.ALREADY_GONE
