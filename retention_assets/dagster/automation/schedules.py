"""Schedules: the daily report, housekeeping, and verification of the record."""

from datetime import timedelta
from typing import Any

import dagster as dg

from retention_assets.dagster.automation.active_runs import KIND
from retention_assets.dagster.naming import Names
from retention_assets.policy.durations import text_of
from retention_assets.settings.model import AutomationSettings

_REPORT = "Writes the report of the day that has just ended, in UTC."
_HOUSEKEEPING = "Where a store expires rows by itself, puts off what must not go yet, and tells what expires on the next day."
_VERIFICATION = "Computes the whole record of the ledger again. A run that fails names what was changed past the ledger."


def schedules(automation: AutomationSettings, names: Names) -> list[dg.ScheduleDefinition]:
    """The schedules; they run from the start if the settings ask for it, or else wait for a person to start them."""
    return [
        dg.ScheduleDefinition(
            name=names.of(name),
            cron_schedule=cron,
            job_name=names.of(job),
            run_config_fn=_ended_day if job == "report" else None,
            tags={KIND: job},
            execution_timezone="UTC",
            description=description,
            default_status=dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED,
        )
        for name, cron, job, is_on, description in (
            ("daily_report", "0 0 * * *", "report", automation.report, _REPORT),
            ("daily_housekeeping", "10 0 * * *", "housekeeping", automation.housekeeping, _HOUSEKEEPING),
            ("daily_verification", "20 0 * * *", "audit_verify", automation.verify, _VERIFICATION),
        )
    ]


def _ended_day(context: dg.ScheduleEvaluationContext) -> dict[str, Any]:
    return {"as_of": text_of(context.scheduled_execution_time - timedelta(microseconds=1))}
