"""Runs over a store that is scanned, beside one that is read: what they publish, show, refuse and mark.

Belongs here: a scan as it is, through Dagster and Spark. What becomes of one in every case is in pipeline/test_scans.py and
people/test_plan_of_objects.py.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.dagster.headless import run_job
from retention_assets.people.operation import JobResult
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

OBJECTS = {"a/x-1": 1, "a/x-2": 2, "b/x-1": 3, "b/y-1": 4}
BLOBS = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}],
    "dataset": "{0}",
}  # fmt: skip
GARBAGE = "{name: garbage, datasets: {include: ['blobs/*']}, select: {unreferenced: true}, grace: 7d}"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a mark to come, and a store of old objects beside it."""
    made = Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@1d=10", "lake/a")
    made.says(f"{OLD}, {GARBAGE}")
    made.configures(BLOBS)
    before = (MARKED - timedelta(days=9)).timestamp()
    for name, size in OBJECTS.items():
        file = made.folder / "objects" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"." * size)
        os.utime(file, (before, before))
    return made


def refer(lake: Lake, names: Sequence[str]) -> None:
    """What is referred to."""
    write_lines(lake.folder / "refs" / "a.jsonl", *({"object": name} for name in names))


def evaluated(lake: Lake, datasets: str = "*") -> JobResult:
    """A run that judges and marks."""
    return run_job(lake.settings, "evaluate", MARKED, [datasets], log_level="critical")


@pytest.mark.spark
def test_a_run_marks_what_nothing_refers_to_and_shows_the_numbers_of_the_scan(lake: Lake, spark: object) -> None:
    refer(lake, ["a/x-1", "b/y-1"])
    ran = evaluated(lake)
    assert ran.troubles == ()
    log = ran.said["transaction_log"]
    numbers = {
        "scan": 1, "status": "kept", "scanned": 4, "referenced": 2, "unreferenced": 2, "unreferenced_bytes": 5, "young": 0,
        "references": 2, "unresolved_references": 0,
    }  # fmt: skip
    assert {name: log[f"scans/blobs/{name}"] for name in numbers} == numbers
    assert 0 < log["scans/blobs/effective_fpp"] < 1e-15
    (rows,) = [value for name, value in log.items() if name.startswith("scans/blobs/sources/") and name.endswith("/rows")]
    assert (rows, log["datasets"], log["dagster/row_count"]) == (2, 3, 6)
    assert (lake.statuses("blobs/a"), lake.statuses("blobs/b")) == ({"a/x-2": "MARKED"}, {"b/x-1": "MARKED"})
    assert lake.statuses("lake/a") == {"S1": "MARKED"}
    other = evaluated(lake, "lake/*").said["transaction_log"]
    assert not [name for name in other if name.startswith("scans/")]
    # A store that cannot be scanned is away.
    (lake.folder / "refs" / "b.jsonl").write_text('{"object": "a/x-2"}\n')
    ran = evaluated(lake)
    (failed,) = ran.failed
    assert failed.startswith("blobs/* was not read: scan 2 failed: ")
    assert (ran.said["transaction_log"]["stores_away"], ran.refused, "b.jsonl" in failed) == (1, (), True)
    assert "No store has a dataset of blobs/*. blobs: scan 3 failed: " in " ".join(evaluated(lake, "blobs/*").failed)
