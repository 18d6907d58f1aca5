"""Schedules: what Dagster's daemon does at a time of the day.

Belongs here: the daily report. What happens when there is something to do is sensors.py's; the work is the jobs'.
"""

from datetime import timedelta

import dagster as dg

from retention_assets.policy.instants import text_of
from retention_assets.sensors import KIND
from retention_assets.settings import Settings


def schedules(settings: Settings) -> list[dg.ScheduleDefinition]:
    """The schedules; they run from the start if the settings ask for it, or else wait for a person to start them."""
    is_on = settings.automation.report
    status = dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED
    every_midnight = dg.schedule(
        "0 0 * * *",
        job_name="report",
        execution_timezone="UTC",
        description=daily_report.__doc__,
        default_status=status,
    )
    return [every_midnight(daily_report)]


def daily_report(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Writes the report of the day that has just ended, in UTC."""
    ended = context.scheduled_execution_time - timedelta(microseconds=1)
    return dg.RunRequest(run_key=ended.date().isoformat(), run_config={"as_of": text_of(ended)}, tags={KIND: "report"})
