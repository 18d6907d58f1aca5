"""Sensors: find datasets and due marks, and launch runs for them. Those that have datasets judged are in evaluation_sensor.py.

A tick that finds nothing launches nothing: a run costs seconds to start and storage to keep.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.automation.active_runs import KIND, active_run, explain_wait
from retention_assets.dagster.automation.evaluation_sensor import evaluation_loop, policy_files
from retention_assets.dagster.automation.run_requests import digest_of, run_requests, shorten
from retention_assets.dagster.automation.store_health import store_health
from retention_assets.dagster.naming import BY_STORE, Names, over_partitions
from retention_assets.dagster.partition_events import is_valid_key
from retention_assets.dagster.step import Resources, masking_faults, resources_in, show_unseen
from retention_assets.datasets import store_of
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import Duration
from retention_assets.settings.model import Settings

# Interval of ticks for datasets and policy files, and for evaluations and sweeps where only a person has started the sensor.
_DISCOVERY_SECONDS = 60
_EVALUATE = Duration(seconds=5 * 60)
_SWEEP = Duration(seconds=15 * 60)
# interval at which every store is checked
_HEALTH_SECONDS = 5 * 60
# interval at which a sweep is repeated that left things as they were
_RETRY_AFTER = timedelta(hours=1)
# early enough for the daily run to be over within a day, also where the tick comes late
_LOOK_AGAIN = timedelta(hours=20)
# some builds of SQLite take no more in one statement
_KEYS = 10_000
_SWEEPING = ("sweep", "cycle", over_partitions("sweep"))

# Dagster warns of its own parameter for every sensor that has jobs; whoever loads definitions can do nothing about it.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", dg.BetaWarning)

SensorFunction = Callable[[dg.SensorEvaluationContext, Resources], dg.SensorResult]


def sensors(settings: Settings, names: Names, jobs: Iterable[Any]) -> list[dg.SensorDefinition]:
    """The sensors; those run from the start that the settings ask for, the others wait for a person to start them.

    `jobs` are those of the environment, of which they launch some.
    """
    what, known = settings.automation, {job.name: job for job in jobs}
    evaluate, sweep = ([known[names.of(word)] for word in (job, over_partitions(job))] for job in ("evaluate", "sweep"))
    return [
        _sensor(names, dataset_discovery, None, _DISCOVERY_SECONDS, what.discover),
        _sensor(names, policy_files, evaluate, _DISCOVERY_SECONDS, what.policies),
        _sensor(names, evaluation_loop, evaluate, _seconds(what.evaluate or _EVALUATE), what.evaluate is not None),
        _sensor(names, sweep_tick, sweep, _seconds(what.sweep or _SWEEP), what.sweep is not None),
        _sensor(names, store_health, None, _HEALTH_SECONDS, bool(what.evaluate or what.sweep)),
    ]


def _seconds(every: Duration) -> int:
    return int(every.length.total_seconds())


def _sensor(names: Names, evaluate: SensorFunction, jobs: list[Any] | None, seconds: int, is_on: bool) -> dg.SensorDefinition:
    @dg.sensor(
        jobs=jobs,
        name=names.of(evaluate.__name__),
        minimum_interval_seconds=seconds,
        description=inspect.getdoc(evaluate),
        default_status=dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys=names.resources,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        context.log.addFilter(show_unseen)
        with masking_faults():
            return evaluate(context, resources_in(context.resources, names))

    return sensor


def dataset_discovery(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Gives every dataset that a store lists its partition. None is ever taken away: its runs would be hard to find again."""
    retention = resources.retention
    if retention.settings.partition_by == BY_STORE:
        present = Listing(tuple(store.name for store in retention.settings.stores), {})
    else:
        present = list_datasets(retention)
    # Added at once: keys that a tick only requests cost the daemon a query each.
    partitions = resources.names.datasets
    have = set(context.instance.get_dynamic_partitions(partitions))
    unfit = [key for key in present.names if not is_valid_key(key)]
    have_or_unfit = have.union(unfit)
    new = [key for key in present.names if key not in have_or_unfit]
    for at in range(0, len(new), _KEYS):
        context.instance.add_dynamic_partitions(partitions, new[at : at + _KEYS])
    vanished = sorted(key for key in have.difference(present.names) if store_of(key) not in present.away)
    news = [f"{len(new):,} new: {shorten(new)}."] if new else []
    state = digest_of([vanished, unfit, sorted(present.away)])
    if state != (context.cursor or digest_of([[], [], []])):
        news += _state(vanished, unfit, present.away)
        for sentence in news:
            context.log.info(sentence)
    quiet = (
        f"Nothing new among {len(present.names):,}; {len(vanished):,} that no store lists; {len(present.away):,} stores away."
    )
    return dg.SensorResult(skip_reason=" ".join(news) or quiet, cursor=state)


def _state(vanished: Sequence[str], unfit: Sequence[str], away: dict[str, str]) -> list[str]:
    """Faults, or a line that all is well again."""
    faults = [f"The store {name} can't be listed, its partitions stay: {fault}." for name, fault in sorted(away.items())]
    if vanished:
        faults.append(f"{len(vanished):,} that no store lists any more keep their partitions: {shorten(vanished)}.")
    if unfit:
        faults.append(f"{len(unfit):,} can't be partitions by their names, jobs work on them all the same: {shorten(unfit)}.")
    return faults or ["Every partition is a dataset that some store lists, and every store can be asked."]


def sweep_tick(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Sweeps the datasets that have marks whose grace is over, unless a sweep is on its way; and looks at least once a day.

    What a sweep has left just as it was, because its store is to expire it by itself or somebody has to mend something first,
    is tried again once an hour. The cursor is what was there to do at the last time.
    """
    at, asset = now(), resources.names.key("swept_transactions")
    with resources.retention.ledger() as ledger:
        due = ledger.marks.to_sweep(at)
    last = None if due else context.instance.get_latest_materialization_event(asset)
    if not due and (last is None or datetime.fromtimestamp(last.timestamp, UTC) > at - _LOOK_AGAIN):
        return dg.SensorResult(skip_reason="No mark is due.")
    # A courtesy: the lease in the ledger keeps two sweeps from one dataset.
    if run := active_run(context.instance, map(resources.names.of, _SWEEPING), asset):
        return dg.SensorResult(skip_reason=f"{len(due):,} datasets have marks that are due; {explain_wait(run)}")
    if not due:
        # An empty sweep puts on record that somebody looked and nothing was due.
        requests = run_requests("sweep", resources, context.instance, None, ["*"], {KIND: "sweep"})
        return dg.SensorResult(run_requests=requests)
    digest, datasets = digest_of(due), [one.dataset for one in due]
    before = json.loads(context.cursor or "{}")
    # A time ahead of now is from a fast clock and does not count.
    if digest == before.get("digest") and at - _RETRY_AFTER < datetime.fromisoformat(before["at"]) <= at:
        unchanged = f"The last sweep has changed nothing on {shorten(datasets)}: tried again once an hour."
        return dg.SensorResult(skip_reason=unchanged)
    globs = [escape_glob(name) for name in datasets]
    requests = run_requests("sweep", resources, context.instance, datasets, globs, {KIND: "sweep"})
    return dg.SensorResult(run_requests=requests, cursor=json.dumps({"digest": digest, "at": at.isoformat()}))
