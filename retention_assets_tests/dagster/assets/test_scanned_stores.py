"""Runs over a store that is scanned, beside one that is read: what they publish, show, refuse and end with.

Belongs here: Dagster's side of scans. What becomes of a scan in every case is in pipeline/test_scans.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from retention_assets.dagster.assets import transaction_log
from retention_assets.dagster.headless import JobResult, run_job
from retention_assets.errors import Refused
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import Capabilities
from retention_assets_tests.stores.objects.scanner import Found, FoundScanner
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

USED, UNUSED = ObjectClass.REFERENCED, ObjectClass.UNREFERENCED
USUAL = Found({USED: ["a/1", "b/1"], UNUSED: ["a/2"]})
ODD = Found({USED: ["a/1"], UNUSED: ["b/1"]}, 10, unresolved=9)
BLOBS = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}],
    "dataset": "{0}", "realm": "{0}",
}  # fmt: skip
GARBAGE = "{name: garbage, datasets: {include: ['blobs/*']}, select: {unreferenced: true}, grace: 7d}"


@pytest.fixture
def lake(tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with two marks to come, and a store of objects that a test says everything about."""
    made = Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10", "lake/a")
    (made.folder / "objects").mkdir()
    made.says(f"{OLD}, {GARBAGE}")
    said = json.loads(made.settings_file.read_text())
    made.settings_file.write_text(json.dumps({**said, "stores": [*said["stores"], BLOBS]}))

    def tokens(_: ObjectsStore, names: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "today")

    answers: dict[str, Any] = {"capabilities": Capabilities(log_is_complete=True), "tokens": tokens, "warnings": lambda _: []}
    for name, answer in answers.items():
        monkeypatch.setattr(ObjectsStore, name, answer, raising=False)
    return made


def scanned(lake: Lake, monkeypatch: pytest.MonkeyPatch, *finds: Found, datasets: Sequence[str] = ("*",)) -> JobResult:
    """A run that judges and marks, whose scans find some things."""
    monkeypatch.setattr(transaction_log, "SparkScanner", lambda _: FoundScanner([*finds]))
    return run_job(lake.settings, "evaluate", MARKED, datasets, log_level="critical")


@pytest.mark.spark
def test_a_run_marks_what_nothing_refers_to_and_shows_the_numbers_of_the_scan(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = scanned(lake, monkeypatch, USUAL)
    assert ran.troubles == ()
    log = ran.said["transaction_log"]
    shown = {name: value for name, value in log.items() if name.startswith("scans/blobs/")}
    numbers = {
        "scan": 1, "status": "kept", "scanned": 3, "referenced": 2, "unreferenced": 1, "unreferenced_bytes": 10, "young": 0,
        "references": 10, "unresolved_references": 0, "effective_fpp": 1e-12, "sources/lines refs/rows": 10,
        "sources/lines refs/distinct": 10, "sources/lines refs/seconds": 0.5,
    }  # fmt: skip
    assert {name: shown[f"scans/blobs/{name}"] for name in numbers} == numbers
    assert (log["datasets"], log["dagster/row_count"]) == (3, 6)
    assert lake.statuses("blobs/a") == {"a/2": "MARKED"}
    assert lake.statuses("blobs/b") == {}
    assert lake.statuses("lake/a") == {"S1": "MARKED", "S2": "MARKED"}


@pytest.mark.spark
def test_a_scan_that_fails_is_a_store_that_is_away_and_others_go_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = scanned(lake, monkeypatch, Found(fault=Refused("refs/a.jsonl has no last line")))
    assert ran.failed == ("blobs/* was not read: scan 1 failed: refs/a.jsonl has no last line",)
    assert (ran.said["transaction_log"]["stores_away"], ran.refused) == (1, ())
    assert lake.statuses("lake/a") == {"S1": "MARKED", "S2": "MARKED"}
    alone = scanned(lake, monkeypatch, Found(fault=Refused("again")), datasets=["blobs/*"])
    assert "blobs: scan 2 failed: again." in " ".join(alone.failed)


@pytest.mark.spark
def test_a_braked_scan_marks_nothing_until_it_is_accepted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = scanned(lake, monkeypatch, ODD)
    assert [words.partition(":")[0] for words in ran.refused] == ["blobs/a was refused", "blobs/b was refused"]
    assert all("`retention scans blobs accept 1 --reason …` lets it mark" in words for words in ran.refused)
    assert ran.failed == ()
    assert ran.said["transaction_log"]["scans/blobs/status"] == "braked"
    assert lake.statuses("blobs/b") == {}
    with lake.opened() as ledger:
        ledger.scans.accept("blobs", 1, "ann", "the prefix moved")
    again = scanned(lake, monkeypatch)
    assert again.troubles == ()
    assert lake.statuses("blobs/b") == {"b/1": "MARKED"}
    assert lake.verified() == ()


@pytest.mark.spark
def test_a_run_about_other_datasets_scans_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = scanned(lake, monkeypatch, datasets=["lake/*"])
    assert ran.troubles == ()
    assert not [name for name in ran.said["transaction_log"] if name.startswith("scans/")]
