"""The job `forecast`: what its run shows, and that it changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets_tests.dagster.launch import run
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import OLD, Lake

SOME = "main: S1:SNAPSHOT@90d=1000 - S2:SNAPSHOT@80d=200 - S3:SNAPSHOT@1d=30"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def shown(lake: Lake, instance: dg.DagsterInstance, **config: Any) -> dict[str, Any]:
    ran = run(lake.settings, instance, "forecast", {"as_of": AS_OF.isoformat(), **config})
    assert ran.success
    (event,) = [event for event in ran.all_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def test_a_forecast_shows_a_summary_a_plot_and_the_days(lake: Lake, instance: dg.DagsterInstance) -> None:
    before = {str(file): file.read_bytes() for file in (lake.folder / "data").rglob("*") if file.is_file()}
    found = shown(lake, instance, days=30)
    assert next(iter(found)) == "answer"
    assert found["answer"].startswith("**With the policies in force, 2.4 KiB become 60 B in 30 days:")
    assert (found["bytes_now"], found["bytes_then"], found["marked"], found["deleted"], found["left_out"]) == (
        2460,
        60,
        4,
        4,
        0,
    )
    assert found["plot"].startswith("![2.4 KiB become 60 B in 30 days](data:image/svg+xml;base64,")
    # Small enough for Dagster to show it without a click.
    assert len(found["stored_by_day"]) < 1_000
    rows = [record.data for record in found["days"].records]
    assert [(row["policies"], row["until"], row["deleted"], row["bytes"]) for row in rows][:2] == [
        ("today", "2026-04-06", 0, 2460), ("today", "2026-04-13", 4, 60),
    ]  # fmt: skip
    assert len(json.loads(Path(found["file"]).read_text())["days"]) == 30
    assert {str(file): file.read_bytes() for file in (lake.folder / "data").rglob("*") if file.is_file()} == before
    assert not (lake.folder / "ledger.db").exists()


def test_others_stand_beside_and_datasets_are_chosen(lake: Lake, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"policies: [{OLD.replace('30d', '900d')}]\n")
    found = shown(lake, instance, days=10, policies=[str(other)], datasets=["lake/b"])
    assert f"\n\nWith {other}, 1.2 KiB become 1.2 KiB in 10 days:" in found["answer"].replace("\\", "")
    assert {record.data["policies"] for record in found["days"].records} == {"today", str(other)}
    assert found["deleted"] == 2


def test_what_is_left_out_is_said_and_what_cannot_be_meant_is_refused(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake._log("lake/bad", ['{"dataset":"lake/bad","transaction":"X","parent":"X","type":"APPEND","status":"ABORTED"}'])
    found = shown(lake, instance, days=3)
    assert found["left_out"] == 1
    assert "lake/bad is left out, because its log is not sound: cycle" in found["answer"]
    assert not run(lake.settings, instance, "forecast", {"days": 0}).success
