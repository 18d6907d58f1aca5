"""Runs that are queued or at work: a sensor waits for these before it launches another."""

from collections.abc import Iterable

import dagster as dg

# tag with the reason why a sensor or schedule launched a run; its job's tags tell what it does (retention/kind)
KIND = "retention/automation"
_ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def active_run(instance: dg.DagsterInstance, jobs: Iterable[str], asset: dg.AssetKey) -> dg.RunRecord | None:
    """A run of some jobs, or one that materializes an asset, that is queued or at work."""
    names = set(jobs)
    for record in instance.get_run_records(dg.RunsFilter(statuses=_ACTIVE)):
        if record.dagster_run.job_name in names or asset in (record.dagster_run.asset_selection or ()):
            return record
    return None


def explain_wait(record: dg.RunRecord) -> str:
    """The sentence for a run that a tick waits for. Nothing is launched beside it: a silent run may be deep in its work."""
    run = record.dagster_run
    return (
        f"{run.job_name} {run.run_id} is at work, since {record.create_timestamp:%Y-%m-%d %H:%M} UTC. If its machine is gone,"
        " terminate the run in Dagster; with run monitoring turned on, Dagster ends such runs by itself."
    )
