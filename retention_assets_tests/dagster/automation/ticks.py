"""Ticks without a daemon: a sensor of the definitions, evaluated as the daemon would evaluate it.

Belongs here: the shortest way to a tick and to a job of an environment. Not what should come of either.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from retention_assets.dagster.automation.alerts import Notify, log_notice
from retention_assets.definitions import build_defs
from retention_assets.settings.model import Settings


def tick(
    settings: Settings, instance: dg.DagsterInstance, name: str, cursor: str | None = None, notify: Notify = log_notice
) -> Any:
    """What a sensor asks for: `run_requests`, `skip_message`, `cursor`."""
    defs = build_defs(settings, notify)
    resources: Mapping[str, object] = dict(defs.resources or {})
    with dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs, resources=resources) as context:
        return defs.get_repository_def().get_sensor_def(name).evaluate_tick(context)


def run(settings: Settings, instance: dg.DagsterInstance, job: str, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
    """A job of the definitions, with the configuration that a launchpad or a request has."""
    definition = build_defs(settings).resolve_job_def(job)
    return definition.execute_in_process(run_config=dict(config), instance=instance, raise_on_error=False)
