"""Scans that nobody records: who scans and where, whom they give way to, and that nothing of them is left.

Belongs here: the scan. That a plan says by it what a run does is people/test_plan_of_objects.py's.
"""

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.evaluation import Keepers
from retention_assets.frames import sound_log
from retention_assets.ledger import Ledger, ScanClosing, ScanEnd, ScanStatus, open_ledger, scan_lease
from retention_assets.pipeline import unrecorded_scans
from retention_assets.pipeline.unrecorded_scans import ScannedObjects, UnrecordedScans
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.local_spark import Session
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects, write_lines

KEYS = ("a/1", "a/2", "b/1")


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalObjects:
    made = LocalObjects(tmp_path)
    for key in KEYS:
        made.put(key, b"...")
    made.refers("a/1")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as made:
        yield made


def scans_in(objects: LocalObjects, ledger: Ledger | None = None) -> UnrecordedScans:
    return UnrecordedScans(ledger, Warehouse(str(objects.folder / "warehouse")), "local", {}, Keepers(ledger).in_force)


def left(folder: Path) -> list[str]:
    """Everything in the warehouse and among temporary files."""
    return sorted(str(one) for name in ("temporary", "warehouse") for one in (folder / name).rglob("*") if one.is_file())


def published(ledger: Ledger, result: str) -> None:
    lease = take_lease(ledger, scan_lease("blobs"), "run 1")
    ledger.scans.publish(
        [ScanClosing(lease, ledger.scans.begin(lease), ScanEnd(ScanStatus.KEPT, None, {}, result))], (), "run 1"
    )
    ledger.leases.give_up([lease])


@pytest.mark.parametrize(
    ("master", "worth", "in_tasks"),
    [("local[2]", 5, False), ("local[2]", 4, True), ("spark://elsewhere", 5, True)],
    ids=("small", "large", "a cluster"),
)
def test_tasks_scan_what_is_large_or_what_others_reach_and_find_the_same(
    master: str, worth: int, in_tasks: bool, objects: LocalObjects, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last scan had three objects and one reference, from which an edge leads to another one."""
    edges = write_lines(objects.folder / "edges.jsonl", {"from": "a/1", "to": "b/1"})
    warehouse, store = Warehouse(str(objects.folder / "warehouse")), objects.store(edges=[{"lines": str(edges)}])
    with UnrecordedScans(None, warehouse, "local", {}, Keepers(None).in_force).scan(store.settings) as found:
        published(ledger, found.result.as_json())
    sessions: list[str] = []

    def session(of: str, conf: Any, warehouse: str) -> Any:
        sessions.append(of)
        return Session()

    monkeypatch.setattr(unrecorded_scans, "spark_session", session)
    monkeypatch.setattr(unrecorded_scans, "_WORTH_TASKS", worth)
    with UnrecordedScans(ledger, warehouse, master, {}, Keepers(ledger).in_force).scan(store.settings) as found:
        scanned = ScannedObjects(store.settings, found)
        assert (scanned.datasets(), found.fault) == (["blobs/a", "blobs/b"], None)
        assert scanned.read(["blobs/a", "blobs/b"]).equals(store.read(["blobs/a", "blobs/b"]))
        assert found.result.total(ObjectClass.REFERENCED)[0] == 2
        assert [name for share in scanned.shares(["blobs/b", "blobs/a"]) for name in share] == ["blobs/a", "blobs/b"]
        assert found.folder.startswith(str(objects.folder / ("warehouse" if master.startswith("spark") else "temporary")))
    assert (sessions, left(objects.folder)) == ([master] if in_tasks else [], [])
    # What was young on that day is.
    with UnrecordedScans(ledger, warehouse, master, {}, Keepers(ledger).in_force, OLD + timedelta(hours=1)).scan(
        store.settings
    ) as found:
        assert found.result.total(ObjectClass.YOUNG)[0] == 3


def test_a_braked_scan_refuses_each_of_its_datasets_with_the_numbers(objects: LocalObjects) -> None:
    store = objects.store(brakes={"unreferenced_fraction": 0.5})
    scans = scans_in(objects)
    with scans.scan(store.settings) as found:
        scanned = ScannedObjects(store.settings, found)
        log = sound_log(cast("pa.Table", scanned.read(["blobs/a", "blobs/b", "blobs/gone"])))
    assert log.datasets["dataset"].to_pylist() == ["blobs/a", "blobs/b"]
    assert all("nothing refers to 2 of 3 judged objects, 66.67 %" in fault for fault in log.datasets["fault"].to_pylist())


def test_while_another_scans_it_gives_way_as_a_run_does(objects: LocalObjects, ledger: Ledger) -> None:
    scans = scans_in(objects, ledger)
    settings = objects.store().settings
    lease = take_lease(ledger, scan_lease("blobs"), "run 1")
    with pytest.raises(Refused, match="it is being scanned by run 1"), scans.scan(settings):
        pass
    ledger.scans.begin(lease)
    with pytest.raises(Refused, match="scan 1 is running, by run 1 since 20"), scans.scan(settings):
        pass
    ledger.leases.give_up([lease])
    before = ledger.verify().head
    with scans.scan(settings) as found:
        assert found.result.scanned == 3
    assert ledger.verify().head == before


def test_nothing_is_left_of_a_scan_that_fails(objects: LocalObjects) -> None:
    (objects.folder / "refs" / "b.jsonl").write_text('{"object": "a/1"}\n')
    scans = scans_in(objects)
    with pytest.raises(Refused, match=r"its scan would fail: .*b\.jsonl"), scans.scan(objects.store().settings):
        pass
    assert left(objects.folder) == []


def test_what_a_killed_plan_left_in_the_warehouse_goes_after_a_day(objects: LocalObjects, ledger: Ledger) -> None:
    warehouse = Warehouse(str(objects.folder / "warehouse"))
    old, new, mine = (
        objects.folder / "warehouse" / "scans" / "blobs" / name
        for name in (f"plan-{'0' * 32}", f"plan-{'1' * 32}", "plan-mine")
    )
    for folder in (old, new, mine):
        folder.mkdir(parents=True)
        (folder / "x").touch()
    for folder in (old, mine):
        os.utime(folder, 2 * ((now() - timedelta(hours=25)).timestamp(),))
    warehouse.clean_scans(ledger, "blobs", ())
    assert (old.exists(), new.exists(), mine.exists()) == (False, True, True)
