"""Schedules: the daily report, housekeeping, and verification of the record."""

from collections.abc import Callable
from datetime import timedelta

import dagster as dg

from retention_assets.dagster.automation.active_runs import KIND
from retention_assets.dagster.naming import Names
from retention_assets.policy.durations import text_of
from retention_assets.settings.model import Settings

Ask = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest]


def schedules(settings: Settings, names: Names) -> list[dg.ScheduleDefinition]:
    """The schedules; they run from the start if the settings ask for it, or else wait for a person to start them."""
    what = settings.automation
    return [
        _schedule("0 0 * * *", "report", daily_report, what.report, names),
        _schedule("10 0 * * *", "housekeeping", daily_housekeeping, what.housekeeping, names),
        _schedule("20 0 * * *", "audit_verify", daily_verification, what.verify, names),
    ]


def _schedule(cron: str, job: str, ask: Ask, is_on: bool, names: Names) -> dg.ScheduleDefinition:
    status = dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED
    made = dg.schedule(
        cron,
        job_name=names.of(job),
        name=names.of(ask.__name__),
        execution_timezone="UTC",
        description=ask.__doc__,
        default_status=status,
    )
    return made(ask)


def daily_report(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Writes the report of the day that has just ended, in UTC."""
    ended = context.scheduled_execution_time - timedelta(microseconds=1)
    return dg.RunRequest(run_key=ended.date().isoformat(), run_config={"as_of": text_of(ended)}, tags={KIND: "report"})


def daily_housekeeping(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Where a store expires rows by itself, puts off what must not go yet, and tells what expires on the next day."""
    day = context.scheduled_execution_time.date()
    return dg.RunRequest(run_key=day.isoformat(), tags={KIND: "housekeeping"})


def daily_verification(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Computes the whole record of the ledger again. A run that fails names what was changed past the ledger."""
    day = context.scheduled_execution_time.date()
    return dg.RunRequest(run_key=day.isoformat(), tags={KIND: "audit_verify"})
