"""Runs that are queued or at work: a sensor waits for these before it launches another."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

# tag with the reason why a sensor or schedule launched a run; its job's tags tell what it does (retention/kind)
KIND = "retention/automation"
_NAMED = 5
# The machine of a run that is silent for so long may be gone, so that nothing will ever end it.
_SILENT = timedelta(hours=6)
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def active_run_of_jobs(instance: dg.DagsterInstance, jobs: Iterable[str]) -> dg.RunRecord | None:
    """A run of some jobs that is queued or at work, if there is one."""
    for job in jobs:
        for run in instance.get_run_records(dg.RunsFilter(job_name=job, statuses=_GOING_ON), limit=1):
            return run
    return None


def active_run_of_asset(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.RunRecord | None:
    """A run that materializes an asset and is queued or at work, if there is one."""
    for run in instance.get_run_records(dg.RunsFilter(statuses=_GOING_ON)):
        if asset in (run.dagster_run.asset_selection or ()):
            return run
    return None


def explain_wait(context: dg.SensorEvaluationContext, run: dg.RunRecord, at: datetime) -> str:
    """The sentence for a run that a tick waits for, and what to do about one that has said nothing for long.

    Nothing is launched beside it all the same: a run that is silent may be deep in its work.
    """
    words = f"{run.dagster_run.job_name} {run.dagster_run.run_id} is at work."
    newest = _newest_word(context.instance, run)
    if newest > at - _SILENT:
        return words
    silent = (
        f"{words} It has said nothing since {newest:%Y-%m-%d %H:%M} UTC, and until it ends nothing is launched beside it. If"
        " its machine is gone, terminate the run in Dagster; with run monitoring turned on, Dagster ends such runs by itself."
    )
    context.log.warning(silent)
    return silent


def _newest_word(instance: dg.DagsterInstance, run: dg.RunRecord) -> datetime:
    """Last change of state, or last line of the log."""
    seconds = [run.create_timestamp.timestamp(), run.update_timestamp.timestamp(), run.start_time or 0]
    events = instance.get_records_for_run(run.dagster_run.run_id, limit=1, ascending=False).records
    return datetime.fromtimestamp(max(*seconds, *(event.timestamp for event in events)), UTC)


def shorten(names: Sequence[str]) -> str:
    """The first of some names, and how many there are besides."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
