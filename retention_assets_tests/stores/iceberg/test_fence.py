"""Which files are the table's own to delete."""

from pathlib import Path

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import snapshots, sweep
from retention_assets_tests.stores.iceberg.tables import Warehouse, place, reaches, replace, written


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
    ("/w/t/", "file:/w/t/data/a", True),
    ("s3://b/t", "s3a://b/t/data/a", True),
    ("s3://b/t", "s3://b/t/data/p=a%2Fb/a", True),
    ("s3://b/t", "s3://b/t2/data/a", False),
    ("s3://b/t", "s3://c/t/data/a", False),
    ("s3://b/t", "gs://b/t/data/a", False),
    ("s3://b/t", "s3://b/t", False),
    ("s3://b/t", "s3://b/t/", False),
    ("s3://b/t", "s3://b/t/../u/a", False),
    ("s3://b/t", "s3://b/t/p=a?b/a", True),
    ("s3://b/t#1", "s3://b/t#1/a", True),
    ("s3://b/t#1", "s3://b/t#2/a", False),
    ("s3://b/t#1", "s3://b/t/a", False),
    ("s3://b/t 1%", "s3://b/t 1%/a", True),
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
