"""Finished lists, which a scan reads where they are: what it leaves of them, and lists that change meanwhile."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.listings.parquet import ParquetObjects
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.scan import match
from retention_assets.stores.objects.scan import scan as scans
from retention_assets.stores.objects.scan.folder import KEPT, LISTED, OBJECTS, ScanFolder, read_classes
from retention_assets.stores.objects.scan.here import read_here, scan_here
from retention_assets.stores.objects.scan.listed import can_be_read_again, read_every_class
from retention_assets.stores.objects.scan.scan import Scan
from retention_assets.stores.objects.scan_result import ScanFailed, ScanResult
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


# The store had so many objects when it was scanned last, if it was: whether there are few is known once all are counted.
BEFORE = [None, 1, 10**9]


def _last(scan: Scan, before: int | None) -> ScanResult | None:
    return None if before is None else replace(judge(scan).result, scanned=before)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("rows_up_to", [3, len(ROWS) - 1, 1_000])
def test_a_finished_list_is_judged_and_logged_as_if_it_had_been_written(
    tmp_path: Path, rows_up_to: int, before: int | None
) -> None:
    here, other = _scan(tmp_path, rows_up_to=rows_up_to)
    assert can_be_read_again(here.settings, here.listing)
    last = _last(other, before)
    (result, lines), (expected, expected_lines) = read_here(here, DATASETS, last), read_here(other, DATASETS, last)
    assert (result.classes, result.datasets) == (expected.classes, expected.datasets)
    assert (result.scanned, result.scanned_bytes) == (expected.scanned, expected.scanned_bytes)
    by = [("dataset", "ascending"), ("transaction", "ascending")]
    assert lines.sort_by(by).equals(expected_lines.sort_by(by))


@pytest.mark.parametrize("before", BEFORE)
def test_of_a_large_list_nothing_is_kept_but_what_has_lines(tmp_path: Path, before: int | None) -> None:
    here, other = _scan(tmp_path, rows_up_to=3)
    with scan_here(here, _last(other, before)) as (result, folder):
        kept = [row["key"] for table in read_classes(folder) for row in table.to_pylist()]
        assert sorted(kept) == sorted(["gone", "purged", *(f"k{number}" for number in range(20) if number % 3)])
        assert result.scanned == len(ROWS) - 1
        with folder.reader(f"{OBJECTS}/part-00000.parquet") as part:
            assert tuple(part.schema_arrow.names) == KEPT


def _every_class(folder: ScanFolder, scan: Scan) -> dict[tuple[str | None, str], str]:
    rows = [row for table in read_every_class(folder, scan.settings, ("key", "realm")) for row in table.to_pylist()]
    return {(row["realm"], row["key"]): row["class"] for row in rows}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("rows_up_to", [3, 1_000])
def test_every_class_is_known_as_long_as_the_list_is_the_same(tmp_path: Path, rows_up_to: int, before: int | None) -> None:
    scan, other = _scan(tmp_path, rows_up_to=rows_up_to)
    with scan_here(scan, _last(other, before)) as (_, folder):
        found = _every_class(folder, scan)
        with scan_here(other) as (_, written):
            assert found == _every_class(written, other) == judge(other).classes
        assert len(found) == len(ROWS)
        finished(scan, ROWS[::-1], tmp_path)
        if rows_up_to == 3:
            with pytest.raises(Refused, match="The list that the store blobs was scanned by is not the same any more"):
                list(read_every_class(folder, scan.settings, ("key", "realm")))
        else:
            assert sum(map(len, read_every_class(folder, scan.settings, ("key",)))) == len(ROWS)


def test_a_list_that_is_empty_where_the_last_scan_had_objects_fails_the_scan(tmp_path: Path) -> None:
    _, other = _scan(tmp_path)
    with pytest.raises(ScanFailed, match="nothing is listed, and the last scan had 27 objects"):
        judge(finished(other, [], tmp_path), judge(other).result)


@dataclass(frozen=True)
class Meddling(Source):
    """References during whose reading the list is written anew."""

    folder: str = ""

    def read(self, share: int) -> Generator[pa.RecordBatch, None, ShareEnd]:
        there = pq.read_table(f"{self.folder}/list.parquet")
        pq.write_table(there.take(pa.array(range(len(there))[::-1])), f"{self.folder}/list.parquet", row_group_size=4)
        return (yield from super().read(share))


def test_a_list_that_changes_while_references_are_read_fails_the_scan(tmp_path: Path) -> None:
    references = Meddling(source(named("kept", "beta")).rows, folder=str(tmp_path))
    with pytest.raises(ScanFailed, match=r"list\.parquet is not the file any more that it was when the listing began"):
        judge(_scan(tmp_path, references)[0])


@pytest.mark.parametrize("rows", [[], [stored("own", "::own", "m")]], ids=["empty", "empty but for what is reserved"])
def test_a_list_of_nothing_is_not_believed_where_there_was_something(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    scan, other = _scan(tmp_path)
    with pytest.raises(ScanFailed, match="nothing is listed, and the last scan had 27 objects"):
        judge(finished(scan, rows, tmp_path), judge(other).result)


@pytest.mark.parametrize("kind", ["fingerprints", "bloom"])
@pytest.mark.parametrize("rows", [ROWS[::-1], ROWS[:-1]], ids=["order", "fewer"])
def test_no_object_is_taken_for_another_where_a_change_can_not_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], kind: str
) -> None:
    scan, _ = _scan(tmp_path, filter={"kind": kind})
    # With more references than a task can hold a list is read twice.
    monkeypatch.setattr(scans, "_AT_ONCE", 0)
    monkeypatch.setattr(ParquetObjects, "_check", lambda *_: None)
    real = match.MatchObjects.__call__

    def meddling(self: match.MatchObjects, number: int) -> match.MatchedRanges:
        finished(scan, rows, tmp_path)
        return real(self, number)

    monkeypatch.setattr(match.MatchObjects, "__call__", meddling)
    with pytest.raises(ScanFailed, match="What lists the objects changed while it was read"):
        judge(scan)


@pytest.mark.parametrize(
    "keys",
    [{"realm": "{0}"}, {"kind_of": {"pattern": "^([a-z])"}}, {"dataset": "{0}"}, {"rates": {"scan": 1_000_000}}],
    ids=lambda one: next(iter(one)),
)
def test_what_has_to_be_worked_out_of_keys_is_listed_once_and_written(tmp_path: Path, keys: dict[str, Any]) -> None:
    scan = finished(scan_of(listed(), source(named("a/x"))), [stored(f"a/{name}") for name in "xyz"], tmp_path, {}, **keys)
    assert not can_be_read_again(scan.settings, scan.listing)
    with scan_here(scan) as (result, folder):
        assert [(one.name, one.objects) for one in result.classes] == [("referenced", 1), ("unreferenced", 2)]
        with folder.reader(f"{OBJECTS}/part-00000.parquet") as part:
            assert part.schema_arrow.names == LISTED.names
