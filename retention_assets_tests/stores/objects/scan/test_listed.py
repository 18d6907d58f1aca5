"""Lists that were finished before a scan: they are judged as everything else that is listed, and read once."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.scan.folder import read_classes
from retention_assets.stores.objects.scan.scan import Scan, read_here, scan_here
from retention_assets.stores.objects.scan_result import ScanFailed
from retention_assets_tests.stores.objects.scan.environments import (
    AS_OF,
    Source,
    finished,
    judge,
    listed,
    named,
    scan_of,
    source,
    stored,
)

ROWS = [
    stored("gone", "beta", "m", size=5), stored("kept", "beta", "m"), stored("new", "beta", "m", at=AS_OF),
    stored("odd", "beta", "x"), stored("alone", "gamma", "m"), stored("purged", "acme", "m", at=AS_OF), stored("own", "::own", "m"),
    stored("kept"), *(stored(f"k{number}", "beta", "m") for number in range(20)),
]  # fmt: skip
DATASETS = ["blobs/beta", "blobs/gamma", "blobs/acme", "blobs/::own", "blobs/blobs"]


def _scan(folder: Path, references: Source | None = None, **keys: Any) -> tuple[Scan, Scan]:
    """A scan of the list, and the same of objects that are listed and written."""
    kept = source(named("kept", "beta"), *(named(f"k{number}", "beta") for number in range(0, 20, 3)))
    about: dict[str, Any] = {"purging": ["acme"], "known_kinds": ["m"], "dataset": "{realm}", **keys}
    other = scan_of(listed(*ROWS), references or kept, **about)
    return finished(other, ROWS, folder), other


@pytest.mark.parametrize("rows_up_to", [3, len(ROWS) - 1, 1_000])
def test_a_finished_list_is_judged_and_logged_as_everything_that_is_listed(tmp_path: Path, rows_up_to: int) -> None:
    here, other = _scan(tmp_path, rows_up_to=rows_up_to)
    (result, lines), (expected, expected_lines) = read_here(here, DATASETS), read_here(other, DATASETS)
    assert (result.classes, result.datasets) == (expected.classes, expected.datasets)
    assert (result.scanned, result.scanned_bytes) == (expected.scanned, expected.scanned_bytes)
    by = [("dataset", "ascending"), ("transaction", "ascending")]
    assert lines.sort_by(by).equals(expected_lines.sort_by(by))


def test_every_class_is_kept_of_a_large_list_and_when_the_list_is_another_one(tmp_path: Path) -> None:
    scan, other = _scan(tmp_path, rows_up_to=3)
    with scan_here(scan) as (_, folder):
        finished(scan, ROWS[::-1], tmp_path)
        rows = [row for table in read_classes(folder, ("key", "realm")) for row in table.to_pylist()]
    assert len(rows) == len(ROWS)
    assert {(row["realm"], row["key"]): row["class"] for row in rows} == judge(other).classes


@dataclass(frozen=True)
class Meddling(Source):
    """References during whose reading the list is written anew."""

    folder: str = ""

    def read(self, share: int) -> Generator[pa.RecordBatch, None, ShareEnd]:
        there = pq.read_table(f"{self.folder}/list.parquet")
        pq.write_table(there.take(pa.array(range(len(there))[::-1])), f"{self.folder}/list.parquet", row_group_size=4)
        return (yield from super().read(share))


def test_a_list_that_changes_while_references_are_read_is_judged_as_it_was(tmp_path: Path) -> None:
    references = Meddling(source(named("kept", "beta")).rows, folder=str(tmp_path))
    here, _ = _scan(tmp_path, references)
    found = judge(here)
    assert pq.read_table(tmp_path / "list.parquet")["key"].to_pylist() != [row["key"] for row in ROWS]
    assert found.classes == judge(_scan(tmp_path, source(named("kept", "beta")))[1]).classes


@pytest.mark.parametrize("rows", [[], [stored("own", "::own", "m")]], ids=["empty", "empty but for what is reserved"])
def test_a_list_of_nothing_is_not_believed_where_there_was_something(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    scan, other = _scan(tmp_path)
    with pytest.raises(ScanFailed, match="nothing is listed, and the last scan had 27 objects"):
        judge(finished(scan, rows, tmp_path), judge(other).result)
