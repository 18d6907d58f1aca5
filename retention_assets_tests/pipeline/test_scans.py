"""What becomes of a scan in a run: kept, failed or braked, published with its log or not at all, accepted and judged once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.datasets import DatasetFilter
from retention_assets.errors import Refused
from retention_assets.evaluation import Keepers
from retention_assets.frames import DATASETS, LOG
from retention_assets.frames.log import faults_of
from retention_assets.ledger import Ledger, ScanRecord, open_ledger, scan_lease
from retention_assets.ledger.schema import LEASES
from retention_assets.pipeline import scans
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.scans import RunScans, SparkScanner
from retention_assets.pipeline.stage import Source, SparkTasks, read_datasets, read_output, read_transactions
from retention_assets.pipeline.stage import Source as LogSource
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.folder import ScanFolder, read_classes
from retention_assets.stores.objects.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import ObjectClass, ScanFailed, ScanResult
from retention_assets_tests.ledger.states import T0, change_leases
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.scan.environments import (
    Listed,
    edge,
    edges,
    judge,
    listed,
    log_of,
    named,
    scan_of,
    source,
    stored,
)
from retention_assets_tests.stores.objects.scanner import LISTED, Found, FoundScanner, NamedStore

USED, UNUSED = ObjectClass.REFERENCED, ObjectClass.UNREFERENCED
ODD = Found({USED: ["a/1"], UNUSED: ["b/1"]}, 10, unresolved=9)
USUAL = Found({USED: ["a/1", "b/1"], UNUSED: ["a/2"]})
EVERYTHING = DatasetFilter()


def settings(name: str, **more: Any) -> ObjectsSettings:
    said = {"listing": {"path": "/objects"}, "references": [{"lines": "/refs/*.jsonl"}], "dataset": "{0}", **more}
    return ObjectsSettings.model_validate({"name": name, **said})


@dataclass
class Place:
    """A ledger and a warehouse in which runs scan."""

    ledger: Ledger
    warehouse: Warehouse
    stores: Sequence[str] = ("blobs",)
    runs: int = 0

    @contextmanager
    def scanning(self, scanner: FoundScanner, wanted: DatasetFilter = EVERYTHING, **more: Any) -> Iterator[RunScans]:
        """A run up to where it has scanned."""
        self.runs += 1
        stores: Any = [(NamedStore(name), settings(name, **more)) for name in self.stores]
        with RunScans(self.ledger, self.warehouse, scanner, f"run {self.runs}", Keepers(self.ledger).in_force).scanning(
            stores, wanted
        ) as scans:
            yield scans

    def run(self, *finds: Found, wanted: DatasetFilter = EVERYTHING, **more: Any) -> RunScans:
        """A run that scans and publishes."""
        with self.scanning(FoundScanner(list(finds)), wanted, **more) as scans:
            scans.write_logs(self.folder, 0)
            published = self.warehouse.publications(
                "log", f"r{self.runs}", [name for one in scans.chosen for name in one.datasets]
            )
            scans.publish(published)
            scans.clean()
        return scans

    @property
    def folder(self) -> str:
        return self.warehouse.folder("log", f"r{self.runs}")

    def faults(self) -> dict[str, str]:
        return faults_of(read_datasets([Source(self.folder)]))

    def logged(self, *datasets: str) -> list[str]:
        """What is in the log of some datasets."""
        rows = read_transactions([Source(self.folder)], list(datasets), ["dataset", "transaction"])
        return sorted(rows["transaction"].to_pylist())

    def published(self) -> dict[str, str]:
        """By dataset the run that published it last."""
        return {one.dataset: one.run for one in self.ledger.publications.of("log")}

    def newest(self) -> ScanRecord:
        return self.ledger.scans.newest("blobs")[0]

    def left(self, store: str = "blobs") -> list[str]:
        """The scans of which the warehouse has something."""
        return sorted(one.name for one in (Path(self.warehouse.root) / "scans" / store).iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield Place(ledger, Warehouse(str(tmp_path / "warehouse")))


def test_a_whole_scan_is_kept_with_its_counts_and_published_with_its_log(place: Place) -> None:
    scans = place.run(USUAL)
    scan = place.newest()
    assert (scan.status, scan.holder, scan.reason) == ("kept", "run 1", None)
    assert (scan.totals["scanned"], scan.totals["referenced"], scan.totals["unreferenced_bytes"]) == (3, 2, 10)
    assert sum(scan.totals[one] for one in ObjectClass if one is not ObjectClass.RESERVED) == scan.totals["scanned"]
    assert place.published() == {"blobs/a": "r1", "blobs/b": "r1"}
    assert place.logged("blobs/a", "blobs/b") == ["a/1", "a/2", "b/1"]
    assert scans.tokens == {"blobs/a": "today", "blobs/b": "today"}
    assert place.ledger.verify().faults == ()


def test_what_a_scan_found_is_known_since_it_began_or_since_an_older_listing(place: Place) -> None:
    """What was deleted after that, it has not seen gone."""
    scans = place.run(USUAL)
    assert scans.begun == {"blobs": LISTED}
    assert place.newest().started_at > LISTED


def test_a_scan_is_told_of_the_last_whole_one_and_of_realms_that_are_purged(place: Place) -> None:
    place.ledger.realms.change("acme", "PURGING", "ann", "r")
    place.ledger.realms.change("beta", "INACTIVE", "ann", "r")
    scanner = FoundScanner([USUAL, Found(fault=Refused("no last line")), USUAL])
    for _ in range(3):
        with place.scanning(scanner) as scans:
            scans.publish(())
    assert scanner.purging == [frozenset({"acme"})] * 3
    assert [one and one.scanned for one in scanner.last] == [None, 3, 3]
    assert len(set(scanner.folders)) == 3


def test_a_scan_that_was_too_small_says_to_the_next_one_for_how_many_references(place: Place) -> None:
    scanner = FoundScanner([Found(fault=ScanFailed("blobs", "the filter is too small", 150_000)), USUAL, USUAL])
    for _ in range(3):
        with place.scanning(scanner) as scans:
            scans.publish(())
    assert scanner.refused == [None, 150_000, None]
    assert place.ledger.scans.of("blobs", 1).reason == "the filter is too small"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Found(fault=Refused("refs/a.jsonl has no last line")), "refs/a.jsonl has no last line"),
        (Found(fault=RuntimeError("a task\nwas lost")), "RuntimeError: a task was lost"),
        (Found({USED: ["a/1"]}, references=0), "lines refs has no reference at all"),
        (Found({USED: ["a/1"]}, references=4), "lines refs had 10 references last time and has 4, 60 % fewer"),
    ],
    ids=("not whole", "broken", "an empty source", "a source that shrank"),
)
def test_a_scan_that_failed_publishes_nothing_and_others_go_on(place: Place, found: Found, reason: str) -> None:
    place.stores = ("blobs", "more")
    place.run(USUAL, USUAL)
    scans = place.run(found, USUAL)
    failed = place.ledger.scans.newest("blobs")[0]
    assert (failed.id, failed.status) == (3, "failed")
    assert (failed.reason or "").startswith(reason)
    assert failed.totals.get("references") == (None if found.fault else found.references)
    (away,) = [one for one in scans.chosen if one.fault]
    assert (away.store.name, away.datasets) == ("blobs", ())
    assert (away.fault or "").startswith(f"scan 3 failed: {reason}")
    assert place.ledger.scans.newest("more")[0].status == "kept"
    assert place.published() == {"blobs/a": "r1", "blobs/b": "r1", "more/a": "r2", "more/b": "r2"}


def test_a_braked_scan_publishes_its_counts_and_refuses_its_datasets(place: Place) -> None:
    place.run(ODD)
    scan = place.newest()
    assert (scan.status, scan.totals["unresolved_references"]) == ("braked", 9)
    assert "9 of 10 references name no listed object" in (scan.reason or "")
    fault = place.faults()["blobs/a"]
    assert fault.startswith("scan 1 is braked: 9 of 10 references name no listed object")
    assert "`retention scans blobs accept 1 --reason …` lets it mark" in fault
    assert set(place.faults()) == set(place.published()) == {"blobs/a", "blobs/b"}
    assert place.logged("blobs/a", "blobs/b") == []


def test_a_scan_whose_sources_are_other_ones_is_held_against_the_last_one_as_a_whole(place: Place) -> None:
    place.run(USUAL)
    place.run(Found({USED: ["a/1"]}, references=4, label="lines others"))
    assert place.newest().status == "braked"
    assert (place.newest().reason or "").startswith("all sources together had 10 references last time and has 4")


def test_an_accepted_scan_is_judged_by_the_next_run_instead_of_another_and_once(place: Place) -> None:
    place.run(ODD)
    place.ledger.scans.accept("blobs", 1, "ann", "the prefix moved")
    place.run()
    assert (place.newest().id, place.newest().used_at is not None) == (1, True)
    assert (place.faults(), place.logged("blobs/a", "blobs/b")) == ({}, ["a/1", "b/1"])
    scanner = FoundScanner([USUAL])
    with place.scanning(scanner) as scans:
        scans.publish(())
    assert [one and one.unresolved_references for one in scanner.last] == [9]
    assert (place.newest().id, place.newest().status) == (2, "kept")


def test_an_accepted_scan_whose_listing_is_gone_gives_way_to_a_new_one(place: Place) -> None:
    place.run(ODD)
    place.ledger.scans.accept("blobs", 1, "ann", "r")
    Path(place.warehouse.scan_folder("blobs", 1)).rename(Path(place.warehouse.root) / "elsewhere")
    place.run(USUAL)
    assert (place.newest().id, place.newest().status) == (2, "kept")


@pytest.mark.parametrize(
    ("more", "realm", "is_used"),
    [
        ({}, "ACTIVE ACTIVE", True),
        ({"brakes": {"unreferenced_fraction": 0.1}, "rates": {"delete": 1}, "scans_kept": 3}, "ACTIVE ACTIVE", True),
        ({"realm": "{0}"}, "ACTIVE ACTIVE", False),
        ({"known_kinds": ["a"]}, "ACTIVE ACTIVE", False),
        ({"references": [{"lines": "/elsewhere/*.jsonl"}]}, "ACTIVE ACTIVE", False),
        ({}, "PURGING ACTIVE", False),
        # Nothing that the scan has found is untrue of it; it is looked for by the next one.
        ({}, "ACTIVE PURGING", True),
    ],
    ids=("the same", "how, and not what", "realms", "kinds", "references", "a realm that is purged no longer", "purged since"),
)
def test_an_accepted_scan_that_would_be_judged_otherwise_by_now_gives_way_to_a_new_one(
    place: Place, more: dict[str, Any], realm: str, is_used: bool
) -> None:
    before, since = realm.split()
    if before != "ACTIVE":
        place.ledger.realms.change("a", before, "ann", "r")
    place.run(ODD)
    place.ledger.scans.accept("blobs", 1, "ann", "the prefix moved")
    if since != before:
        place.ledger.realms.change("a", since, "ann", "r")
    place.run(USUAL, **more)
    assert (place.newest().id, place.ledger.scans.of("blobs", 1).used_at is not None) == (1 if is_used else 2, is_used)


def test_a_scan_covers_the_whole_store_whatever_datasets_a_run_is_about(place: Place) -> None:
    scans = place.run(USUAL, wanted=DatasetFilter(keys=frozenset({"blobs/b"})))
    assert place.newest().totals["scanned"] == 3
    assert [one.datasets for one in scans.chosen] == [("blobs/b",)]
    assert place.published() == {"blobs/b": "r1"}
    assert place.logged("blobs/a", "blobs/b") == ["b/1"]


@pytest.mark.parametrize(
    ("wanted", "scanned"),
    [
        (DatasetFilter(), True),
        (DatasetFilter(("blobs/*",)), True),
        (DatasetFilter(("b*",)), True),
        (DatasetFilter(("lake/*", "blobs/a")), True),
        (DatasetFilter(("lake/*", "blobs")), False),
        (DatasetFilter(("blobs2/*",)), False),
        (DatasetFilter(keys=frozenset({"lake/a"})), False),
        (DatasetFilter(keys=frozenset({"lake", "blobs"}), keys_are_stores=True), True),
        (DatasetFilter(("lake/*",), frozenset({"blobs/a"})), False),
    ],
)  # fmt: skip
def test_a_store_is_scanned_only_for_runs_that_may_be_about_it(place: Place, wanted: DatasetFilter, scanned: bool) -> None:
    scanner = FoundScanner([USUAL])
    with place.scanning(scanner, wanted) as scans:
        scans.publish(())
    assert bool(scanner.last) == bool(place.ledger.scans.newest()) == scanned


def test_one_scan_of_a_store_runs_at_a_time_and_the_other_is_told_who_and_since_when(place: Place) -> None:
    with place.scanning(FoundScanner([USUAL])) as scans:
        other = place.run()
        (away,) = other.chosen
        assert (away.fault or "").startswith("scan 1 is running, by run 1 since 20")
        scans.publish(())
    assert [one.status for one in place.ledger.scans.newest()] == ["kept"]
    place.run(USUAL)
    assert place.newest().id == 2


def test_a_run_that_fails_before_it_publishes_has_failed_its_scans(place: Place) -> None:
    with pytest.raises(OSError, match="no space"), place.scanning(FoundScanner([USUAL])):
        raise OSError("no space left on device")
    assert (place.newest().status, place.newest().reason) == ("failed", "its run failed: OSError: no space left on device")
    assert place.newest().totals["scanned"] == 3
    place.run(USUAL)
    assert place.newest().status == "kept"


def test_a_run_that_fails_leaves_an_accepted_scan_to_the_next_one(place: Place) -> None:
    place.run(ODD)
    place.ledger.scans.accept("blobs", 1, "ann", "r")
    with pytest.raises(OSError, match="no space"), place.scanning(FoundScanner([])):
        raise OSError("no space left on device")
    place.run()
    assert place.newest().used_at


def test_a_run_that_was_stopped_leaves_a_scan_that_the_next_one_closes(place: Place) -> None:
    with pytest.raises(KeyboardInterrupt), place.scanning(FoundScanner([USUAL])):
        raise KeyboardInterrupt
    assert place.newest().status == "running"
    place.run(USUAL)
    assert [one.status for one in place.ledger.scans.newest()] == ["kept", "superseded"]


def test_a_run_that_lost_its_lease_publishes_nothing(place: Place) -> None:
    def publishes() -> None:
        with place.scanning(FoundScanner([USUAL])) as scans:
            over = LEASES.update().where(LEASES.c.dataset == scan_lease("blobs")).values(expires_at=T0 - timedelta(days=9_000))
            change_leases(place.ledger, over)
            scans.publish(place.warehouse.publications("log", "r1", ["blobs/a"]))

    with pytest.raises(Refused, match="has lost the lease"):
        publishes()
    assert place.published() == {}
    assert place.newest().status == "running"


FAILED = Found(fault=Refused("no"))


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ((USUAL, USUAL), ["2"]),
        ((USUAL, FAILED, ODD), ["1", "3"]),
        ((USUAL, ODD, USUAL), ["3"]),
        ((FAILED, USUAL), ["2"]),
        ((ODD, ODD), ["2"]),
    ],
)
def test_the_warehouse_keeps_what_was_listed_last_and_what_may_be_accepted(
    place: Place, runs: Sequence[Found], left: list[str]
) -> None:
    for found in runs:
        place.run(found)
    assert place.left() == left


def test_cleaning_leaves_other_stores_and_strange_folders_alone(place: Place) -> None:
    place.stores = ("blobs", "more")
    place.run(USUAL, USUAL)
    (Path(place.warehouse.root) / "scans" / "blobs" / "mine").mkdir()
    place.stores = ("blobs",)
    place.run(USUAL)
    assert (place.left(), place.left("more")) == (["3", "mine"], ["2"])


def scanned(place: Place, references: int, **more: Any) -> str:
    """How a scan ends that finds so many references."""
    place.run(Found({USED: ["a/1", "b/1"], UNUSED: ["a/2"]}, references, **more))
    return place.newest().status.value


def test_scans_are_held_against_the_largest_kept_one(place: Place) -> None:
    assert [scanned(place, number) for number in (1000, 900, 850, 790)] == ["kept", "kept", "kept", "failed"]
    assert "had 1,000 references at " in (place.newest().reason or "") or "last time" in (place.newest().reason or "")


def test_an_accepted_scan_begins_the_memory_of_scans_anew(place: Place) -> None:
    assert (scanned(place, 1000), scanned(place, 850, unresolved=800)) == ("kept", "braked")
    place.ledger.scans.accept("blobs", 2, "ann", "the prefix moved")
    place.run()
    assert (scanned(place, 700), scanned(place, 600)) == ("kept", "failed")


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
    result = scan_in(SparkTasks(spark), scan, ScanFolder(str(tmp_path / "scan"), place_of))
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
        scan_in(SparkTasks(spark), scan, ScanFolder(str(tmp_path / "scan"), place_of))


@dataclass(frozen=True)
class Broken(Listed):
    def read(self, share: int) -> Any:
        raise OSError(f"part {share} is gone")


def test_a_listing_that_fails_in_a_task_fails_the_scan(tmp_path: Path) -> None:
    with pytest.raises(ScanFailed, match="OSError: part 0 is gone"):
        scan_in(
            SparkTasks(HERE),
            scan_of(Broken(_listed().rows), source(named("a"))),
            ScanFolder(str(tmp_path / "scan"), place_of),
        )


def _listed() -> Listed:
    return listed(*(stored(f"k{number}") for number in range(9)))


def test_the_log_of_a_scan_is_that_of_here_in_parts_of_whole_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_LOG_ROWS", 25)
    scan = _scan()
    result, transactions, datasets, parts = _written(scan, tmp_path, ["blobs/a", "blobs/b", "blobs/gone", "blobs/c"])
    assert parts == 3
    _, lines = log_of(scan, "blobs/a", "blobs/b", "blobs/c")
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
    assert {part.name[:10] for part in (tmp_path / "log" / "sums").iterdir()} == {"part-00004", "part-00005", "part-00006"}


def test_of_a_large_store_the_log_has_what_may_go(tmp_path: Path) -> None:
    _, transactions, datasets, parts = _written(_scan(rows_up_to=10), tmp_path, ["blobs/a", "blobs/b", "blobs/c"])
    assert parts == 1
    assert len(transactions) == 38
    assert {dict(row)["class"] for row in transactions["attributes"].to_pylist()} == {"unreferenced"}
    assert dict(zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True)) == {
        "blobs/a": 9, "blobs/b": 10, "blobs/c": 19,
    }  # fmt: skip


def _written(scan: Scan, folder: Path, datasets: list[str]) -> tuple[ScanResult, pa.Table, pa.Table, int]:
    result = scan_in(SparkTasks(HERE), scan, ScanFolder(str(folder / "scan"), place_of))
    settings: ObjectsSettings = scan.settings
    parts = SparkScanner(lambda: HERE).write_log(str(folder / "scan"), result, settings, str(folder / "log"), datasets, 4)
    found = read_datasets([LogSource(str(folder / "log"))])
    assert found.schema == DATASETS
    return result, read_output(str(folder / "log"), "transactions").cast(LOG), found, parts
