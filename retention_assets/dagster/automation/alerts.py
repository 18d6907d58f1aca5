"""Alerts: a notice when a run failed, when it left something that a person has to see to, and when anything else begins to be
wrong or is well again.

Belongs here: the words of notices, and the sensors that watch the runs of an environment's jobs and assets, and its state.
Other runs of the code location are other people's.
How people are reached is for `build_defs(settings, notify=…)` to say; the notifier is called once for each run, and once for
each change. One that raises fails the tick, where the UI shows it; the run stays what it was.
Does not belong here: finding what is wrong with the environment (troubles.py).
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg

from retention_assets.dagster.automation.active_runs import shorten
from retention_assets.dagster.automation.sensors import status_if
from retention_assets.dagster.automation.troubles import Trouble, Troubles, find_troubles
from retention_assets.dagster.checks.queries import CHECKS
from retention_assets.dagster.naming import Names
from retention_assets.dagster.step import resources_in, show_unseen
from retention_assets.render.text import visible
from retention_assets.settings.urls import mask_text

_LOG = logging.getLogger("retention_assets.dagster.automation.alerts")
_FAILED = "Tells that a run failed, and at which step."
_LEFT_SOMETHING = (
    "Tells that a run succeeded with something that could not be swept, or with checks of other people that failed."
)
_CHANGED = (
    "Tells once when a tick fails, a store is away, a check finds something wrong, a policy differs from its file, or nobody"
    " judges or sweeps any more; and once more when that is over."
)
_SECONDS = 60
_MOST = 20
# Dagster keeps the cursor with each tick. Of a trouble with more names it has a checksum for each share of them instead.
_MOST_KNOWN = 200
_SHARES = 1024
_SUMS = "checksums"
_OWN_CHECKS = frozenset(check.name for checks in CHECKS.values() for check in checks)
# What a sweep leaves behind, by the name of the number in its metadata. What it refused a failed run of its own tells.
_LEFT = "run/failed"


@dataclass(frozen=True)
class Notice:
    """What somebody is told of a run, or of the environment: then the run is "". No link: only who sends it knows the UI."""

    title: str
    text: str
    run_id: str


Notify = Callable[[Notice], object]
# What has been told, by where it was looked for and what is at fault: the title, and the names that were told; of many
# names the checksums.
Known = list[str] | dict[str, str]
Told = dict[str, dict[str, tuple[str, Known]]]


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


def alerts(notify: Notify, is_on: bool, own: OwnRuns, watched: Collection[str]) -> list[dg.SensorDefinition]:
    """The sensors, telling by a notifier; also of ticks of those sensors and schedules that are `watched`, by their names."""

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
        # No need to ask whose the run is: whatever there is to tell is about an asset.
        if troubles := list(_troubles(context.instance, run.run_id, own)):
            notify(_notice(f"{run.job_name} succeeded, with something to look at", troubles, run.run_id))

    @dg.sensor(
        name=own.names.of("alert_on_change"),
        description=_CHANGED,
        minimum_interval_seconds=_SECONDS,
        default_status=status_if(is_on),
        required_resource_keys=own.names.resources,
    )
    def on_change(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        context.log.addFilter(show_unseen)
        resources = resources_in(context.resources, own.names)
        others = {*watched, on_failure.name, on_trouble.name}
        told: Told = json.loads(context.cursor) if context.cursor else {}
        notices = list(_changes(told, find_troubles(context, resources, others)))
        for number, (notice, known) in enumerate(notices):
            try:
                notify(notice)
            except Exception as fault:
                if not number:
                    raise
                # What was told is not told again; the next tick begins with this one, and fails if it can't be told then.
                context.log.warning(f"{notice.title} could not be told: {fault}")
                break
            told = known
        return dg.SensorResult(skip_reason=f"{len(notices):,} changes.", cursor=json.dumps(told))

    return [on_failure, on_trouble, on_change]


def _changes(told: Told, found: Mapping[str, Troubles | None]) -> Iterator[tuple[Notice, Told]]:
    """What is to be told: one notice for each thing of which something is new or over, with what has been told by then."""
    for place, troubles in found.items():
        if troubles is None:
            continue
        for what in sorted({*told.get(place, {}), *troubles}):
            title, known = told.get(place, {}).get(what, ("", []))
            trouble = troubles.get(what, Trouble(title, {}))
            change = _change(trouble, known)
            if change is None:
                continue
            rest = {name: one for name, one in told.get(place, {}).items() if name != what}
            mine: dict[str, tuple[str, Known]] = {what: (trouble.title, _known(trouble.about))} if trouble.about else {}
            told = {**told, place: {**rest, **mine}}
            yield change, told


def _known(names: Collection[str]) -> Known:
    return sorted(names) if len(names) <= _MOST_KNOWN else {_SUMS: _checksums(names)}


def _checksums(names: Collection[str]) -> str:
    """One for each share of some names, in whatever order they come: eight digits each."""
    sums = [0] * _SHARES
    for name in names:
        share, value = _hash_of(name)
        sums[share] ^= value
    return "".join(f"{one:08x}" for one in sums)


def _hash_of(name: str) -> tuple[int, int]:
    """The share that a name belongs to, and what it adds to the checksum."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest[:4]) % _SHARES, int.from_bytes(digest[4:])


def _change(trouble: Trouble, known: Known) -> Notice | None:
    """What is new of a trouble, or over; None if nothing is.

    Where only checksums were kept, all names of a share that changed are told: rather one of them twice than one never.
    """
    if isinstance(known, list):
        before = set(known)
        new, over = (
            [name for name in trouble.about if name not in before],
            [name for name in known if name not in trouble.about],
        )
    else:
        was, now = known[_SUMS], _checksums(trouble.about)
        changed = {at // 8 for at in range(0, len(now), 8) if was[at : at + 8] != now[at : at + 8]}
        new = [name for name in trouble.about if _hash_of(name)[0] in changed]
        over = [""] if changed else []
    if not new and not over:
        return None
    lines = [f"{name}: {trouble.about[name]}" if name else trouble.about[name] for name in new]
    if over:
        names = f" of {shorten(over)}" if any(over) else ""
        left = f"; {len(trouble.about):,} remain" if trouble.about else ""
        said = "Some of what was said may be" if isinstance(known, dict) and left else f"What was said{names} is"
        lines.append(f"{said} over{left}.")
    title = trouble.title if new else f"No longer: {trouble.title[0].lower()}{trouble.title[1:]}"
    about = shorten([name for name in new or over if name])
    return _notice(f"{title}: {about}" if about else title, lines, "")


def _notice(title: str, troubles: list[str], run_id: str) -> Notice:
    more = [f"… and {len(troubles) - _MOST} more."] if len(troubles) > _MOST else []
    # What a store or a database raised may quote the address that it was given.
    text = mask_text("\n".join([*troubles[:_MOST], *more]))
    return Notice(visible(title), visible(text), run_id)


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


def _about(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Collection[dg.AssetKey]:
    """The assets that a run was to make or to check, as it was launched, or else as its events have it."""
    checks = run.asset_check_selection or ()
    if run.asset_selection or checks:
        return {*(run.asset_selection or ()), *(key.asset_key for key in checks)}
    wanted = {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION}
    planned = (entry.dagster_event and entry.dagster_event.asset_key for entry in instance.all_logs(run.run_id, of_type=wanted))
    return {key for key in planned if key}


def _troubles(instance: dg.DagsterInstance, run_id: str, own: OwnRuns) -> Iterator[str]:
    """Checks of other people that failed, and what the sweep says that it refused or could not delete."""
    wanted = {dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.DagsterEventType.ASSET_MATERIALIZATION}
    swept: dict[str, str | None] = {}
    for entry in instance.all_logs(run_id, of_type=wanted):
        check, made = entry.asset_check_evaluation, entry.asset_materialization
        # What our own checks find stands until it is mended: it is told once, not after each run.
        is_foreign = check is not None and check.asset_key in own.assets and check.check_name not in _OWN_CHECKS
        if check is not None and is_foreign and not check.passed:
            yield f"The check {check.check_name} of {check.asset_key.to_user_string()} failed."
        if made is not None and made.asset_key == own.names.key("swept_transactions"):
            # A run over many partitions says the same for each of them.
            swept[made.asset_key.to_user_string()] = _sweep_troubles(made)
    yield from filter(None, swept.values())


def _sweep_troubles(made: dg.AssetMaterialization) -> str | None:
    left = made.metadata.get(_LEFT)
    if left is None or not left.value:
        return None
    return f"The sweep: {left.value} transactions could not be deleted, which the next sweep tries again."
