"""Alerts: telling somebody that a run failed, or that it succeeded and left something which a person has to look at.

Belongs here: what counts as trouble, the words for it, and the two sensors that watch the runs of this code location.
Does not belong here: how people are reached. `build_defs(settings, notify=…)` takes whatever does that; it is called once for
each run. One that raises fails the tick, where the UI shows it; the run is what it was.
"""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dagster as dg

from retention_assets.places import masked
from retention_assets.sensors import running_if

_LOG = logging.getLogger("retention_assets.alerts")
_FAILED = "Tells that a run failed, and at which step."
_LEFT_SOMETHING = "Tells that a run succeeded with checks that failed, or with something that could not be swept."
_MOST = 20
_WORD = re.compile(r"\S+")
# What a sweep leaves behind, by the name of the number in its metadata.
_LEFT = {
    "refused": "datasets were refused",
    "failed": "transactions could not be deleted, which the next sweep tries again",
}


@dataclass(frozen=True)
class Notice:
    """What somebody is told of a run. It holds no link: only who sends it knows where the UI is."""

    title: str
    text: str
    run_id: str


Notify = Callable[[Notice], object]


def log_notice(notice: Notice) -> None:
    """The notifier where nobody has given another one."""
    _LOG.warning("%s\n%s", notice.title, notice.text)


def alerts(notify: Notify, is_on: bool) -> list[dg.SensorDefinition]:
    """The sensors, telling by a notifier."""

    @dg.run_failure_sensor(name="alert_on_failure", description=_FAILED, default_status=running_if(is_on))
    def on_failure(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        troubles = [*_failures(context), *_troubles(context.instance, run.run_id)]
        notify(_notice(f"{run.job_name} failed", troubles, run.run_id))

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name="alert_on_trouble",
        description=_LEFT_SOMETHING,
        default_status=running_if(is_on),
    )
    def on_trouble(context: dg.RunStatusSensorContext) -> None:
        run = context.dagster_run
        if troubles := list(_troubles(context.instance, run.run_id)):
            notify(_notice(f"{run.job_name} succeeded, with something to look at", troubles, run.run_id))

    return [on_failure, on_trouble]


def _notice(title: str, troubles: list[str], run_id: str) -> Notice:
    more = [f"… and {len(troubles) - _MOST} more."] if len(troubles) > _MOST else []
    # What a store or a database raised may quote the address that it was given. Word by word, for a text is no URL.
    text = _WORD.sub(lambda word: masked(word[0]), "\n".join([*troubles[:_MOST], *more]))
    return Notice(title, text, run_id)


def _failures(context: dg.RunFailureSensorContext) -> Iterator[str]:
    """The steps that failed, each with the error at the bottom of it; or why no step even began."""
    events = context.get_step_failure_events()
    for event in events:
        failed = event.step_failure_data
        error = failed.error
        while error is not None and error.cause is not None:
            error = error.cause
        # A step that refused says why in one sentence; of anything else there is the error.
        words = failed.user_failure_data.description if failed.user_failure_data else None
        yield f"{event.step_key}: {words or (error.message.strip() if error else 'no error was given')}"
    if not events:
        yield context.failure_event.message or "No step failed; the run itself did."


def _troubles(instance: dg.DagsterInstance, run_id: str) -> Iterator[str]:
    """Checks that failed, and what the sweep says that it refused or could not delete."""
    wanted = {dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.DagsterEventType.ASSET_MATERIALIZATION}
    swept: dict[str, str | None] = {}
    for entry in instance.all_logs(run_id, of_type=wanted):
        check, made = entry.asset_check_evaluation, entry.asset_materialization
        if check is not None and not check.passed:
            yield f"The check {check.check_name} of {check.asset_key.to_user_string()} failed."
        if made is not None and made.asset_key.path[-1] == "swept_transactions":
            # A run over many partitions says the same for each of them.
            swept[made.asset_key.to_user_string()] = _swept(made)
    yield from filter(None, swept.values())


def _swept(made: dg.AssetMaterialization) -> str | None:
    said = [
        f"{made.metadata[name].value} {words}"
        for name, words in _LEFT.items()
        if name in made.metadata and made.metadata[name].value
    ]
    return f"The sweep: {'; '.join(said)}." if said else None
