"""Locations with characters that mean something elsewhere: each is the very file that it names."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.delete import ExactFileIO, LiteralFileIO, is_literal
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.iceberg.sweeps import DATASET, sweep
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, reachable, replace, rows

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
        table = warehouse.table()
        one, two = replace(table, 1), replace(table, 2)
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
        table = warehouse.table()
        one, _ = replace(table, 1), replace(table, 2)
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


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("s3://bucket/a/#1/b?c", "bucket/a/#1/b?c"),
        ("s3://bucket/a?c#d", "bucket/a?c#d"),
        ("file:///a/#1", "/a/#1"),
        ("file:/a#1", "/a#1"),
        ("/a/#1/../b", "/a/b"),
        ("s3://bucket/a/b", "bucket/a/b"),
    ],
)
def test_a_location_is_a_path_to_its_last_character(location: str, path: str) -> None:
    assert LiteralFileIO.parse_location(location)[2] == path


def test_appending_once_more_is_read_by_the_store(tmp_path: Path) -> None:
    with Warehouse(tmp_path, "x#y", **EXACT) as warehouse:
        table = warehouse.table()
        made = [append(table, number) for number in range(3)]
        store = warehouse.store()
        assert set(store.tokens([DATASET]).values()) == {table.refresh().metadata_location}
        assert [one.bytes for one in store.prepare(DATASET, [str(made[0])])] != [None]
        store.close()
