"""Scans in Spark's tasks: the same as in one process, and the log that comes of them.

Belongs here: placement, what fails in a task, and parts of a log. What a scan finds is the business of stores/objects/scan.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.frames.log import DATASETS, LOG
from retention_assets.pipeline import scans
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.scans import write_log
from retention_assets.pipeline.stage import Source as LogSource
from retention_assets.pipeline.stage import SparkTasks, read_datasets, read_output
from retention_assets.stores.objects.folder import ScanFolder, read_classes
from retention_assets.stores.objects.scan import Scan, read_here, scan_in
from retention_assets.stores.objects.scan_result import ScanFailed, ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.scan.environments import (
    Listed,
    edge,
    edges,
    judge,
    listed,
    named,
    scan_of,
    source,
    stored,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = cast("SparkSession", Session())


def _scan(**keys: Any) -> Scan:
    objects = [stored(f"{folder}/o{number}", None, "m", size=number) for folder in "abc" for number in range(20)]
    references = [named(f"{folder}/o{number}") for folder in "ab" for number in range(0, 20, 2)]
    over = [edges(edge("a/o0", "a/o1"), edge("a/o1", "c/o1"))]
    about: dict[str, Any] = {"listing": {"path": "/lake/blobs"}, "realm": "{0}", "dataset": "{realm}"}
    return scan_of(listed(*objects, size=7), source(*references, size=4), over=over, **about, **keys)


def _without_times(result: ScanResult) -> dict[str, Any]:
    return {
        "classes": sorted(result.classes, key=str), "datasets": result.datasets, "edges": result.edges,
        "distinct": (result.distinct_references, result.unresolved_references), "scanned": (result.scanned, result.scanned_bytes),
        "sources": [(one.label, one.rows, one.distinct, one.realms) for one in result.sources],
    }  # fmt: skip


@pytest.mark.spark
def test_tasks_find_what_is_found_here(spark: "SparkSession", tmp_path: Path) -> None:
    scan = _scan()
    result = scan_in(SparkTasks(spark), scan, ScanFolder(str(tmp_path / "scan"), place_of), None)
    here = judge(scan)
    assert _without_times(result) == _without_times(here.result)
    folder = ScanFolder(str(tmp_path / "scan"), place_of)
    rows = [row for table in read_classes(folder) for row in table.to_pylist()]
    assert {(row["realm"], row["key"]): row["class"] for row in rows} == here.classes
    assert {row["dataset"] for row in rows} == {"blobs/a", "blobs/b", "blobs/c"}
    assert here.counts == {"referenced": 22, "unreferenced": 38}


@pytest.mark.spark
def test_a_source_that_fails_in_a_task_fails_the_scan_in_its_own_words(spark: "SparkSession", tmp_path: Path) -> None:
    scan = scan_of(_listed(), source(*(named(f"k{number}") for number in range(9)), fails_at=6))
    with pytest.raises(
        ScanFailed, match=r"^The scan of the store blobs failed, .*: lines refs/\*.jsonl is not whole: refs/1.jsonl:6"
    ):
        scan_in(SparkTasks(spark), scan, ScanFolder(str(tmp_path / "scan"), place_of), None)


@dataclass(frozen=True)
class Broken(Listed):
    """A listing that can't be read."""

    def read(self, share: int) -> Any:
        raise OSError(f"part {share} is gone")


def test_a_listing_that_fails_in_a_task_fails_the_scan(tmp_path: Path) -> None:
    with pytest.raises(ScanFailed, match="OSError: part 0 is gone"):
        scan_in(
            SparkTasks(HERE),
            scan_of(Broken(_listed().rows), source(named("a"))),
            ScanFolder(str(tmp_path / "scan"), place_of),
            None,
        )


def _listed() -> Listed:
    return listed(*(stored(f"k{number}") for number in range(9)))


def test_the_log_of_a_scan_is_that_of_here_in_parts_of_whole_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_LOG_ROWS", 25)
    scan = _scan()
    result, transactions, datasets, parts = _written(scan, tmp_path, ["blobs/a", "blobs/b", "blobs/gone", "blobs/c"])
    assert parts == 3
    _, lines = read_here(scan, ["blobs/a", "blobs/b", "blobs/c"])
    asked = {row["transaction"]: row for row in lines.to_pylist() if row["transaction"]}
    rows = {row["transaction"]: row for row in transactions.to_pylist()}
    assert rows.keys() == asked.keys()
    for key, row in rows.items():
        assert {name: row[name] for name in ("dataset", "closed_at", "bytes", "attributes")} == {
            name: asked[key][name] for name in ("dataset", "closed_at", "bytes", "attributes")
        }
    said = {row["dataset"]: (row["transactions"], dict(row["attributes"] or ()).get("realm")) for row in datasets.to_pylist()}
    assert said == {"blobs/a": (20, "a"), "blobs/b": (20, "b"), "blobs/c": (20, "c"), "blobs/gone": (0, None)}
    assert {one.name: one.rows for one in result.datasets} == {"blobs/a": 20, "blobs/b": 20, "blobs/c": 20}
    of_parts = [
        set(pq.read_table(part)["dataset"].to_pylist()) for part in sorted((tmp_path / "log" / "transactions").iterdir())
    ]
    assert sorted(map(sorted, of_parts)) == [["blobs/a"], ["blobs/b"], ["blobs/c"]]
    assert {part.name[:10] for part in (tmp_path / "log" / "columns").iterdir()} == {"part-00004", "part-00005", "part-00006"}


def test_of_a_large_store_the_log_has_what_may_go(tmp_path: Path) -> None:
    _, transactions, datasets, parts = _written(_scan(rows_up_to=10), tmp_path, ["blobs/a", "blobs/b", "blobs/c"])
    assert parts == 1
    assert len(transactions) == 38
    assert {dict(row)["class"] for row in transactions["attributes"].to_pylist()} == {"unreferenced"}
    assert dict(zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True)) == {
        "blobs/a": 9, "blobs/b": 10, "blobs/c": 19,
    }  # fmt: skip


def _written(scan: Scan, folder: Path, datasets: list[str]) -> tuple[ScanResult, pa.Table, pa.Table, int]:
    result = scan_in(SparkTasks(HERE), scan, ScanFolder(str(folder / "scan"), place_of), None)
    settings: ObjectsSettings = scan.settings
    parts = write_log(SparkTasks(HERE), str(folder / "scan"), result, settings, str(folder / "log"), datasets, 4)
    found = read_datasets([LogSource(str(folder / "log"))])
    assert found.schema == DATASETS
    return result, read_output(str(folder / "log"), "transactions").cast(LOG), found, parts
