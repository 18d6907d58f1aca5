"""Sensors and jobs of the definitions in this process, without a daemon.

Belongs here: evaluating a sensor, running a job, and creating a run that nobody executes. Not what should come of any.
"""

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration

from retention_assets.dagster import build
from retention_assets.definitions import build_defs
from retention_assets.settings import Settings

# The definitions that were made last, and of what: a test asks for the same ones at each tick and run.
_made: list[tuple[Settings, Callable[..., object], dg.Definitions]] = []


def _definitions(settings: Settings) -> dg.Definitions:
    """Definitions have no state: those of equal settings with the same resources are the same."""
    # A test may have put others in the place of these.
    resources = vars(build)["resources"]
    for of, given, defs in _made:
        if of == settings and given is resources:
            return defs
    made = build_defs(settings)
    _made[:] = [(settings, resources, made), *_made[:3]]
    return made


def tick(settings: Settings, instance: dg.DagsterInstance, name: str, cursor: str | None = None) -> Any:
    """What a sensor asks for: `run_requests`, `skip_message`, `cursor`."""
    return tick_of(_definitions(settings), instance, name, cursor)


def tick_of(defs: dg.Definitions, instance: dg.DagsterInstance, name: str, cursor: str | None = None) -> Any:
    resources: Mapping[str, object] = dict(defs.resources or {})
    with dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs, resources=resources) as context:
        return defs.get_repository_def().get_sensor_def(name).evaluate_tick(context)


def resource(defs: dg.Definitions, name: str) -> Any:
    """What a run of the definitions is given under a name."""
    made = dict(defs.resources or {})[name]
    return made.resource_fn(dg.build_init_resource_context())


def run(settings: Settings, instance: dg.DagsterInstance, job: str, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
    """A job of the definitions, with what a person types into its form; one of assets over a list of datasets."""
    definition = _definitions(settings).resolve_job_def(job)
    typed = dict(config) if definition.config_mapping else step_config(**config)
    return definition.execute_in_process(run_config=typed, instance=instance, raise_on_error=False)


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Metadata of the one output of a job that succeeded."""
    assert result.success
    (event,) = [event for event in result.all_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The sentence with which the one step that failed did."""
    (event,) = result.get_step_failure_events()
    failed = event.step_failure_data.user_failure_data
    assert failed is not None, event.step_failure_data.error
    return str(failed.description)


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """Results of the checks of a run, by name."""
    events = [event.event_specific_data for event in result.all_events if event.event_type_value == "ASSET_CHECK_EVALUATION"]
    return {one.check_name: one for one in events if isinstance(one, dg.AssetCheckEvaluation)}


def step_config(**fields: Any) -> dict[str, Any]:
    """The configuration of a run of assets, whose console stays empty."""
    return {"ops": {"retention": {"config": fields}}, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize(
    settings: Settings,
    instance: dg.DagsterInstance,
    assets: Sequence[str],
    as_of: datetime | None = None,
    datasets: Sequence[str] = ("*",),
    **how: Any,
) -> dg.ExecuteInProcessResult:
    """Assets in one run, as Dagster's pages launch it."""
    config = step_config(as_of=as_of.isoformat() if as_of else "", datasets=list(datasets))
    job = _definitions(settings).resolve_implicit_global_asset_job_def()
    keys = [dg.AssetKey(name) for name in assets]
    return job.execute_in_process(run_config=config, instance=instance, asset_selection=keys, raise_on_error=False, **how)


def typed(request: Any) -> dict[str, Any]:
    """The fields of the step's form, as a request of a sensor or schedule fills them in."""
    return {name: value for step in request.run_config["ops"].values() for name, value in step["config"].items()}


# Settings of an instance whose runs are executed by whoever launches them.
LAUNCHED_HERE = {
    "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"},
    "run_launcher": {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"},
}


@contextmanager
def workspace_of(instance: dg.DagsterInstance) -> Iterator[WorkspaceProcessContext]:
    """Definitions as Dagster's daemon finds them. Only for a program that ends soon: Dagster leaves event loops open."""
    # Dagster's own backfill calls what it deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    target = ModuleTarget("retention_assets.definitions", "defs", working_directory=None, location_name="retention_assets")
    with create_test_daemon_workspace_context(target, instance) as workspace:
        yield workspace


def run_backfills(workspace: WorkspaceProcessContext) -> None:
    """Do as Dagster's daemon does with backfills, until those that run here have ended."""
    for _ in range(5):
        assert not any(execute_backfill_iteration(workspace, logging.getLogger("backfill")))


def without_run(value: Any) -> Any:
    """A text without the run of Dagster that stands behind the name of whoever acts; anything else as it is."""
    return re.sub(r" \(run [0-9a-f-]{8,36}\)", "", value) if isinstance(value, str) else value


def create_run(
    instance: dg.DagsterInstance, job: dg.JobDefinition, status: dg.DagsterRunStatus, assets: Sequence[str] = ()
) -> dg.DagsterRun:
    """A run of a job, perhaps of some assets by their paths, that nobody executes: its status is what it stands at."""
    # One in the queue has to say where its code is.
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__"), job.name)
    keys = frozenset(dg.AssetKey(path.split("/")) for path in assets) or None
    return instance.create_run_for_job(job, status=status, asset_selection=keys, remote_job_origin=origin)
