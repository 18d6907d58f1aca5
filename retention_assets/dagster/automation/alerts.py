"""Alerts: a notice when a run failed, and when it left something that needs a person.

The notifier of `build_defs(settings, notify=…)` is called once for each run. One that raises fails the tick, where the UI
shows it; the run stays what it was. Failed checks of ours and overdue assets cause no notice: Dagster shows them until they
are mended.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from retention_assets.dagster.automation.sensors import status_if
from retention_assets.dagster.checks.queries import CHECKS
from retention_assets.dagster.naming import Names
from retention_assets.render.text import visible
from retention_assets.settings.urls import mask_text

_LOG = logging.getLogger("retention_assets.dagster.automation.alerts")
_FAILED = "Tells that a run failed, and at which step."
_LEFT_SOMETHING = (
    "Tells that a run succeeded with something that could not be swept, or with checks of other people that failed."
)
_MOST = 20
_OWN_CHECKS = frozenset(check.name for checks in CHECKS.values() for check in checks)
# metadata of a sweep that counts what it left; refused datasets fail runs of their own
_LEFT = "run/failed"


@dataclass(frozen=True)
class Notice:
    """A message about a run. No link: only who sends it knows the UI."""

    title: str
    text: str
    run_id: str


Notify = Callable[[Notice], object]


@dataclass(frozen=True)
class OwnRuns:
    """By what the runs of an environment are told from those of others in its code location."""

    names: Names
    jobs: frozenset[str]
    assets: frozenset[dg.AssetKey]

    def has(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
        """Whether a run is one of its jobs, or makes or checks one of its assets, be it in a job of somebody else."""
        return run.job_name in self.jobs or not self.assets.isdisjoint(_about(instance, run))


def log_notice(notice: Notice) -> None:
    """The notifier where nobody has given another one."""
    _LOG.warning("%s\n%s", notice.title, notice.text)


def alerts(notify: Notify, is_on: bool, own: OwnRuns) -> list[dg.SensorDefinition]:
    @dg.run_failure_sensor(name=own.names.of("alert_on_failure"), description=_FAILED, default_status=status_if(is_on))
    def on_failure(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        if own.has(context.instance, run):
            troubles = [*_failures(context), *_troubles(context.instance, run.run_id, own)]
            notify(_notice(f"{run.job_name} failed", troubles, run.run_id))

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=own.names.of("alert_on_trouble"),
        description=_LEFT_SOMETHING,
        default_status=status_if(is_on),
    )
    def on_trouble(context: dg.RunStatusSensorContext) -> None:
        run = context.dagster_run
        # Any trouble is about an asset of ours, so the run need not be checked.
        if troubles := list(_troubles(context.instance, run.run_id, own)):
            notify(_notice(f"{run.job_name} succeeded, with something to look at", troubles, run.run_id))

    return [on_failure, on_trouble]


def _notice(title: str, troubles: list[str], run_id: str) -> Notice:
    more = [f"… and {len(troubles) - _MOST} more."] if len(troubles) > _MOST else []
    # Errors of stores and databases may quote the address with its password.
    text = mask_text("\n".join([*troubles[:_MOST], *more]))
    return Notice(visible(title), visible(text), run_id)


def _failures(context: dg.RunFailureSensorContext) -> Iterator[str]:
    """Failed steps, each with its innermost error; or the reason why no step even began."""
    events = context.get_step_failure_events()
    for event in events:
        failed = event.step_failure_data
        error = failed.error
        while error is not None and error.cause is not None:
            error = error.cause
        # A step that refused has a one-sentence reason; any other has an error.
        words = failed.user_failure_data.description if failed.user_failure_data else None
        yield f"{event.step_key}: {words or (error.message.strip() if error else 'no error was given')}"
    if not events:
        yield context.failure_event.message or "No step failed; the run itself did."


def _about(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Collection[dg.AssetKey]:
    """Assets that a run was to make or check, by its launch, or else by its events."""
    checks = run.asset_check_selection or ()
    if run.asset_selection or checks:
        return {*(run.asset_selection or ()), *(key.asset_key for key in checks)}
    wanted = {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION}
    planned = (entry.dagster_event and entry.dagster_event.asset_key for entry in instance.all_logs(run.run_id, of_type=wanted))
    return {key for key in planned if key}


def _troubles(instance: dg.DagsterInstance, run_id: str, own: OwnRuns) -> Iterator[str]:
    """Failed checks of other people, and what a sweep refused or could not delete."""
    wanted = {dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.DagsterEventType.ASSET_MATERIALIZATION}
    swept: dict[str, str | None] = {}
    for entry in instance.all_logs(run_id, of_type=wanted):
        check, made = entry.asset_check_evaluation, entry.asset_materialization
        # A failed check of ours stays red until it is mended; a notice after each run would repeat it.
        is_foreign = check is not None and check.asset_key in own.assets and check.check_name not in _OWN_CHECKS
        if check is not None and is_foreign and not check.passed:
            yield f"The check {check.check_name} of {check.asset_key.to_user_string()} failed."
        if made is not None and made.asset_key == own.names.key("swept_transactions"):
            # A run over many partitions has the same metadata for each of them.
            swept[made.asset_key.to_user_string()] = _sweep_troubles(made)
    yield from filter(None, swept.values())


def _sweep_troubles(made: dg.AssetMaterialization) -> str | None:
    left = made.metadata.get(_LEFT)
    if left is None or not left.value:
        return None
    return f"The sweep: {left.value} transactions could not be deleted, which the next sweep tries again."
