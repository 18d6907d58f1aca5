"""Which files are the table's own to delete."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.delete import ExactFileIO, is_literal
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.iceberg.sweeps import DATASET, snapshots, sweep
from retention_assets_tests.stores.iceberg.tables import Warehouse, place, reachable, reaches, replace, replaced, rows, written


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


GROUNDS = (
    ("file:///w/t", "file:///w/t/data/a", True),
    ("file:///w/t", "/w/t/data/a", True),
    ("s3://b/t", "s3a://b/t/data/a", True),
    ("s3://b/t", "s3://b/t2/data/a", False),
    ("s3://b/t", "s3://c/t/data/a", False),
    ("s3://b/t", "gs://b/t/data/a", False),
    ("s3://b/t", "s3://b/t", False),
    ("s3://b/t", "s3://b/t/../u/a", False),
    ("s3://b/t#1", "s3://b/t#1/a", True),
    ("s3://b/t#1", "s3://b/t#2/a", False),
    ("s3://b/t 1%", "s3://b/t%201%25/a", False),
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


@pytest.mark.parametrize(("key", "kind"), [("write.data.path", "*.parquet"), ("write.metadata.path", "*.avro")])
def test_what_is_in_a_folder_that_the_table_names_is_its_own(
    warehouse: Warehouse, store: IcebergStore, tmp_path: Path, key: str, kind: str
) -> None:
    table = warehouse.table(**{key: f"file://{tmp_path}/aside"})
    one, _ = replace(table, 1), replace(table, 2)
    aside = {str(file) for file in (tmp_path / "aside").rglob(kind)}
    kept = aside & reaches(table, table.metadata.snapshots[1])
    assert aside > kept
    [result] = sweep(store, one).values()
    assert (result.outcome, result.error) == (Outcome.DELETED, None)
    assert {str(file) for file in (tmp_path / "aside").rglob(kind)} == kept


EXACT = {"py-io-impl": f"{ExactFileIO.__module__}.{ExactFileIO.__qualname__}"}
NAMES = ("a#b", "a?b", "a?b#c d", "a%20b", "a b", "a%b", "100%", "ä;b&c=d+e")


@pytest.mark.parametrize("scheme", ["file://", ""], ids=["uri", "path"])
@pytest.mark.parametrize("name", NAMES)
def test_a_table_in_a_folder_of_any_name_is_read_and_swept_to_the_end(tmp_path: Path, name: str, scheme: str) -> None:
    # What a name that is cut would lead to.
    (tmp_path / "a").write_text("somebody else's")
    with Warehouse(tmp_path, name, f"{scheme}{tmp_path}/{name}", **EXACT) as warehouse:
        # As it is used: nothing is said of how files are reached.
        warehouse.properties.pop("py-io-impl")
        table, (one, two) = replaced(warehouse, 2)
        store = warehouse.store()
        log = sound_log(store.read([DATASET]))
        assert log.transactions["transaction"].to_pylist() == [str(one), str(two)]
        [result] = sweep(store, one).values()
        assert (result.outcome, result.error, result.left) == (Outcome.DELETED, None, 0)
        assert warehouse.files().keys() == reachable(table)
        assert table.scan().to_arrow()["id"].to_pylist() == [2]
        store.close()
    assert (tmp_path / "a").read_text() == "somebody else's"


@pytest.mark.parametrize("name", ["a#b", "a?b=c d%20"])
def test_a_table_in_a_bucket_below_a_key_of_any_name_is_swept_to_the_end(tmp_path: Path, s3: S3, name: str) -> None:
    endpoint = {"s3.endpoint": s3.environment["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    s3.put("a", b"somebody else's")
    with Warehouse(tmp_path, root=f"s3://{s3.bucket}/{name}", **endpoint, **EXACT) as warehouse:
        table = warehouse.table()
        table.append(rows(1))
        table.overwrite(rows(2))
        (one, *_), store = table.refresh().metadata.snapshots, warehouse.store()
        [result] = sweep(store, one.snapshot_id).values()
        assert (result.outcome, result.error, result.left) == (Outcome.DELETED, None, 0)
        assert table.refresh().scan().to_arrow()["id"].to_pylist() == [2]
        keys = {f"s3://{s3.bucket}/{key}" for key in s3.objects() if key != "a" and not key.endswith("/")}
        assert one.manifest_list not in keys
        assert keys == reachable(table)
        store.close()
    assert s3.objects()["a"] == b"somebody else's"


def test_where_a_location_leads_to_another_file_it_is_left_and_counted(tmp_path: Path) -> None:
    with Warehouse(tmp_path, "a#b", f"{tmp_path}/a#b", **EXACT) as warehouse:
        table, (one, _) = replaced(warehouse, 2)
        # Somebody wants files reached in PyIceberg's way, which cuts a URI there; a plain path it does not.
        said = f"{PyArrowFileIO.__module__}.{PyArrowFileIO.__qualname__}"
        warehouse.properties["py-io-impl"] = said
        before, store = warehouse.files().keys(), warehouse.store()
        [result] = sweep(store, one).values()
        assert (result.outcome, result.left) == (Outcome.DELETED, len(before - reachable(table)))
        assert "left, as its location leads to another file: " in str(result.error)
        assert before <= warehouse.files().keys()
        store.close()


def test_what_pyiceberg_cuts_is_only_reached_by_what_does_not() -> None:
    exact, plain = ExactFileIO({}), PyArrowFileIO({})
    assert [is_literal(exact, one) for one in ("file:///a#b", "s3://a/b?c", "/a#b", "file:///a")] == [True] * 4
    assert [is_literal(plain, one) for one in ("file:///a#b", "s3://a/b?c", "file:///a")] == [False, False, True]
