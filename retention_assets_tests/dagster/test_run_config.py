"""The instant in the form of a run: fixed, or counted from when the run was made, the same for each of its steps."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from retention_assets.dagster.step import AsOfConfig
from retention_assets.errors import BadInput
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.sweep.lakes import Lake

MADE = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "instant"),
    [
        ("", None),
        (" 7d ", MADE - timedelta(days=7)),
        ("in 2h", MADE + timedelta(hours=2)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_is_counted_from_when_the_run_was_made(typed: str, instant: datetime | None) -> None:
    assert AsOfConfig(as_of=typed).given(lambda: MADE) == instant


@pytest.mark.parametrize("typed", ["soon", "in 7", "1001y"])
def test_what_is_no_instant_is_refused_with_what_would_be_one(typed: str) -> None:
    with pytest.raises(BadInput, match=r"^as_of: .*in 7d$"):
        AsOfConfig(as_of=typed).given(lambda: MADE)


def test_steps_that_begin_late_count_from_when_the_run_was_made(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d=10")
    monkeypatch.setattr("retention_assets.dagster.step.now", lambda: datetime(2099, 1, 1, tzinfo=UTC))
    ran = run(lake.settings, instance, "report", {"as_of": "400d"})
    assert ran.success
    record = instance.get_run_record_by_id(ran.run_id)
    assert record is not None
    (shown,) = ran.asset_materializations_for_node("report_purge_report")
    day = (record.create_timestamp.astimezone(UTC) - timedelta(days=400)).date()
    assert shown.metadata["execution_date"].value == day.isoformat()


def test_a_run_by_what_is_no_instant_fails_with_a_sentence(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    ran = run(Lake(tmp_path / "lake").settings, instance, "report", {"as_of": "soon"})
    (failed,) = ran.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None
    assert "as_of: is not an instant (found 'soon')" in (failed.step_failure_data.user_failure_data.description or "")
