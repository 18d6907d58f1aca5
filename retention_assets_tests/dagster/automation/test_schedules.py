"""What is done once a day: the report of which day, launched how, and what its job writes; and housekeeping."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from retention_assets.dagster.headless import plain_metadata
from retention_assets.definitions import build_defs
from retention_assets.settings import Settings
from retention_assets.settings.sections import AutomationSettings
from retention_assets_tests.dagster.automation.conftest import SOME
from retention_assets_tests.dagster.launch import run, typed
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.sweep.lakes import DUE, Lake

DEFINED = build_defs(Settings(automation=AutomationSettings(housekeeping=True, verify=True))).get_repository_def()
SCHEDULE = DEFINED.get_schedule_def("daily_report")
VERIFYING = DEFINED.get_schedule_def("daily_verification")
KEEPING = DEFINED.get_schedule_def("daily_housekeeping")


def requested(at: datetime, schedule: dg.ScheduleDefinition = SCHEDULE) -> dg.RunRequest:
    """What a schedule asks for at a time."""
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_schedule_context(instance=instance, scheduled_execution_time=at) as context,
    ):
        found = schedule.evaluate_tick(context).run_requests
    assert found is not None
    (request,) = found
    return request


@pytest.mark.parametrize(
    ("at", "day"), [("2026-03-02", "2026-03-01"), ("2026-01-01", "2025-12-31"), ("2024-03-01", "2024-02-29")]
)
def test_the_report_is_of_the_day_that_has_just_ended_in_utc(at: str, day: str) -> None:
    assert (SCHEDULE.cron_schedule, SCHEDULE.execution_timezone, SCHEDULE.job_name) == ("0 0 * * *", "UTC", "act_report")
    assert typed(requested(datetime.fromisoformat(f"{at}T00:00Z"))) == {"as_of": f"{day}T23:59:59.999999Z"}


def test_the_job_writes_the_page_of_that_day_and_nothing_else(tmp_path: Path) -> None:
    """The very configuration that the schedule asks for, on a lake that was swept that day."""
    lake = Lake(tmp_path / "lake").has(SOME)
    assert lake.marks() == 2
    lake.sweeps()
    left = lake.left()
    request = requested(datetime(DUE.year, DUE.month, DUE.day + 1, tzinfo=UTC))
    with dg.DagsterInstance.ephemeral() as instance:
        ran = run(lake.settings, instance, "act_report", typed(request))
    assert ran.success
    (event,) = ran.get_asset_materialization_events()
    assert event.asset_key == dg.AssetKey("purge_report")
    said = plain_metadata(event.materialization.metadata)
    assert (said["execution_date"], said["deleted"]) == (DUE.date().isoformat(), 2)
    assert (lake.folder / "warehouse" / str(said["page"])).read_text().startswith("<!DOCTYPE html>")
    assert lake.left() == left


def test_housekeeping_and_verification_ask_for_nothing_but_their_usual_work_and_a_fault_fails_the_run(tmp_path: Path) -> None:
    night = datetime(2026, 3, 2, 0, 20, tzinfo=UTC)
    request = requested(night, VERIFYING)
    assert (request.run_config, VERIFYING.job_name) == ({}, "act_audit_verify")
    assert (requested(night, KEEPING).run_config, KEEPING.job_name) == ({}, "act_housekeeping")
    lake = Lake(tmp_path / "lake").has(SOME).configures(automation={"verify": True})
    lake.marks()
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(lake.settings, instance, "act_audit_verify", request.run_config).success
        with lake.opened() as ledger:
            write_past_ledger(ledger, "UPDATE policy_versions SET written_by = 'x'")
        assert not run(lake.settings, instance, "act_audit_verify", request.run_config).success
