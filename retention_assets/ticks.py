"""Ticks: what the daemon's looks have in common.

Belongs here: how a run is told apart that a tick launched, whether one like it is on its way already, and lists in sentences.
Does not belong here: what a tick looks for (sensors.py, evaluation_loop.py).
"""

from collections.abc import Iterable, Sequence

import dagster as dg

KIND = "retention/kind"
_NAMED = 5
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def on_its_way(instance: dg.DagsterInstance, jobs: Iterable[str]) -> dg.DagsterRun | None:
    """A run of some jobs that is queued or at work, if there is one."""
    for job in jobs:
        for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=_GOING_ON), limit=1):
            return run
    return None


def making(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.DagsterRun | None:
    """A run that materializes an asset and is queued or at work, if there is one."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_GOING_ON)):
        if asset in (run.asset_selection or ()):
            return run
    return None


def some(names: Sequence[str]) -> str:
    """The first of some names, and how many there are besides."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
