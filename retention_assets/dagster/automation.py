"""Sensors and schedules, which Dagster's daemon runs: find datasets and due marks, have datasets judged again, launch runs.

A tick that finds nothing launches nothing: a run costs seconds to start and storage to keep. The evaluation loop has no
cursor: everything that a tick needs is in the ledger, so a loop that was stopped, moved or restored continues from the
verdicts.
"""

import inspect
import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.jobs import EVALUATE, REPORT, SWEEP, AssetJob, job_of, step_config
from retention_assets.dagster.naming import BY_STORE, Names
from retention_assets.dagster.partitions import is_valid_key
from retention_assets.dagster.step import UNFINISHED, Resources, mask_and_escape, masking_faults, resources_in
from retention_assets.dagster.stores import changed_stores, digest_of, store_health
from retention_assets.datasets import by_store, store_of
from retention_assets.evaluation.changes import Listing, as_globs, datasets_to_evaluate, list_datasets
from retention_assets.evaluation.keepers import files_of
from retention_assets.evaluation.rules_in_force import foreseen_rulebook, rules_digests
from retention_assets.people.audit import audit_verify
from retention_assets.people.housekeeping import housekeeping
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import Duration, text_of
from retention_assets.policy.language import may_be_about, rules_reaching
from retention_assets.policy.loading import LoadOutcome, datasets_touched
from retention_assets.policy.sentences import count, first_of
from retention_assets.settings.model import Settings
from retention_assets.settings.sections import AutomationSettings

# tag with the reason why a sensor or schedule launched a run; its job's tags tell what it does (retention/kind)
KIND = "retention/automation"


def why_wait(instance: dg.DagsterInstance, names: Names, asset: str) -> str | None:
    """Name the run that makes the asset and is queued or at work; None if there is none."""
    for record in instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED)):
        run, job = record.dagster_run, job_of(record.dagster_run, names)
        if names.key(asset) in (job.keys(names) if job else run.asset_selection or ()):
            # nothing is launched beside it: a silent run may be deep in its work
            return (
                f"{run.job_name} {run.run_id} is running since {record.create_timestamp:%Y-%m-%d %H:%M} UTC. If its machine is "
                "gone, terminate the run in Dagster. With run monitoring, Dagster does that itself."
            )
    return None


_MOST_RUNS = 3  # starting more would take longer than their work
_NAMED = 5  # names in a sentence


def run_requests(
    job: AssetJob,
    resources: Resources,
    instance: dg.DagsterInstance,
    datasets: Collection[str] | None,
    globs: Sequence[str],
    tags: dict[str, str],
) -> list[dg.RunRequest]:
    """Request a job on some datasets: over their partitions if these are few and stand together, or else over a list.

    `globs` match just the `datasets`, which are None where not all are known by name.
    """
    names, settings = resources.names, resources.retention.settings
    config = step_config(names, datasets=list(globs))
    listed = dg.RunRequest(run_config=config, tags=tags, job_name=names.of(job.job))
    if datasets is None or len(datasets) > settings.automation.assets_up_to:
        return [listed]
    keys = set(by_store(datasets) if settings.partition_by == BY_STORE else datasets)
    stretches = stretches_of(keys, instance.get_dynamic_partitions(names.datasets))
    if not 0 < len(stretches) <= _MOST_RUNS:
        return [listed]
    if settings.partition_by != BY_STORE:
        # Only the partition of a store contains datasets that are not meant.
        config = {}
    requests = []
    for first, last in stretches:
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        partitions = {"dagster/partition": first} if first == last else ends
        requests.append(dg.RunRequest(None, config, {**tags, **partitions}, names.of(job.job), job.keys(names)))
    return requests


def stretches_of(keys: Collection[str], partitions: Sequence[str]) -> list[tuple[str, str]]:
    """Group keys into stretches of partitions, each given by its first and last; empty if a key is no partition (yet).

    Partitions stand in the order in which they were added, as in a range of Dagster.
    """
    wanted = set(keys)
    if not wanted <= set(partitions):
        return []
    stretches: list[tuple[str, str]] = []
    previous = None
    for key in partitions:
        if key in wanted:
            first = stretches.pop()[0] if previous in wanted else key
            stretches.append((first, key))
        previous = key
    return stretches


# times that Dagster launches a failed run again, where the instance has run retries turned on
_RETRIES = {"dagster/max_retries": "2"}


def evaluation_loop(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Judges the datasets anew whose log, refs, policies or holds are others than when they were last judged, in which time
    alone changes a verdict, or that nobody has looked at for long. A tick that finds none launches nothing.

    Broken policy files fail the tick, each tick until they are mended; the policies in force stay.
    """
    settings, at = resources.retention.settings, now()
    if wait := why_wait(context.instance, resources.names, "candidate_marks"):
        return dg.SensorResult(skip_reason=wait)
    present = list_datasets(resources.retention, with_tokens=True)
    # Reported whatever follows: the stores were asked, and lineage begins with their changes.
    news = changed_stores(context.instance, resources, present)
    for name, fault in sorted(present.away.items()):
        context.log.warning(f"The store {name} can't be read, so its datasets wait: {fault.rstrip('.')}.")
    with resources.retention.ledger() as ledger:
        rules = foreseen_rulebook(ledger, settings, at).rules(present.names, at)
        looks = ledger.evaluations.all()
    automation, skew = settings.automation, settings.clock.max_skew.after(at) - at
    reasons = datasets_to_evaluate(present, rules_digests(rules, present.names, at), looks, at, automation, skew)
    waiting = f"; {len(present.away):,} stores away" if present.away else ""
    if not reasons:
        quiet = f"Nothing has changed among {len(present.names):,} datasets{waiting}."
        return dg.SensorResult(skip_reason=quiet, asset_events=news)
    counts = (f"{number:,} {reason}" for reason, number in Counter(reasons.values()).most_common())
    context.log.info(f"{', '.join(counts)}{waiting}.")
    datasets = list(reasons)[: automation.datasets_per_run]
    requests = run_requests(EVALUATE, resources, context.instance, datasets, as_globs(datasets, present), {KIND: "evaluate"})
    return dg.SensorResult(run_requests=requests, asset_events=news)


def policy_files(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Has datasets judged anew that a change of the policy files can reach.

    Broken files fail the tick, each tick until they are mended; the policies in force stay.
    """
    retention = resources.retention
    digest = digest_of([[str(file), file.read_text("utf-8", "replace")] for file in files_of(retention.settings)])
    if digest == context.cursor:
        return dg.SensorResult(skip_reason="The policy files have not changed.", cursor=digest)
    if wait := why_wait(context.instance, resources.names, "candidate_marks"):
        # The run may have loaded the files already; once it is over, the book says what is left to do.
        return dg.SensorResult(skip_reason=f"The policy files changed. {wait}")
    at, present = now(), list_datasets(retention)
    with retention.ledger() as ledger:
        book, looks = foreseen_rulebook(ledger, retention.settings, at), ledger.evaluations.all()
    for decision in book.decisions:
        if decision.warning:
            context.log.warning(decision.warning)
    written = [decision.name for decision in book.decisions if decision.outcome is LoadOutcome.WRITTEN]
    scopes = datasets_touched(book.decisions) if written else []
    # Attributes are known only once a log is read, so a scope that asks for them counts by its globs: rather one dataset too
    # many is judged again than one too few. For the same reason all of a store is named that could not be listed.
    names = {name for scope in scopes for name in rules_reaching(present.names, scope)}
    judged_by = dict(zip(looks["dataset"].to_pylist(), looks["rules"].to_pylist(), strict=True))
    digests = zip(present.names, rules_digests(book.rules(present.names, at), present.names, at), strict=True)
    names.update(name for name, digest in digests if judged_by.get(name, digest) != digest)
    away = sorted(store for store in present.away if any(may_be_about(scope, store) for scope in scopes))
    globs = [escape_glob(name) for name in sorted(names)] + [f"{escape_glob(store)}/*" for store in away]
    if globs:
        tags = {KIND: "evaluate", **_RETRIES}
        requests = run_requests(EVALUATE, resources, context.instance, None if away else sorted(names), globs, tags)
        return dg.SensorResult(run_requests=requests, cursor=digest)
    untouched = f"{first_of(written, _NAMED)}: no dataset is affected. The next run loads it."
    news = untouched if written else "The policy book is up to date."
    return dg.SensorResult(skip_reason=f"The policy files changed. {news}", cursor=digest)


# Interval of ticks for datasets and policy files, and for evaluations and sweeps where only a person has started the sensor.
_DISCOVERY = Duration(seconds=60)
_EVALUATE = Duration(seconds=5 * 60)
_SWEEP = Duration(seconds=15 * 60)
_HEALTH = Duration(seconds=5 * 60)  # interval at which every store is checked
_RETRY_AFTER = timedelta(hours=1)  # interval at which a sweep is repeated that changed nothing
# age of the last sweep at which an empty one is run: early enough to end within a day, even after a late tick
_LOOK_AGAIN = timedelta(hours=20)
_KEYS = 10_000  # some builds of SQLite take no more in one statement

# Dagster warns of its own parameter for every sensor that has jobs; whoever loads definitions can do nothing about it.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", dg.BetaWarning)

SensorFunction = Callable[[dg.SensorEvaluationContext, Resources], dg.SensorResult]


def sensors(settings: Settings, names: Names, jobs: Mapping[str, Any]) -> list[dg.SensorDefinition]:
    """Make the sensors. Those run from the start that the settings ask for, the others wait for a person to start them."""
    wanted = settings.automation
    evaluate, sweep = jobs[names.of(EVALUATE.job)], jobs[names.of(SWEEP.job)]
    return [
        _sensor(names, dataset_discovery, None, _DISCOVERY, wanted.discover),
        _sensor(names, policy_files, evaluate, _DISCOVERY, wanted.policies),
        _sensor(names, evaluation_loop, evaluate, wanted.evaluate or _EVALUATE, wanted.evaluate is not None),
        _sensor(names, sweep_tick, sweep, wanted.sweep or _SWEEP, wanted.sweep is not None),
        _sensor(names, store_health, None, _HEALTH, bool(wanted.evaluate or wanted.sweep)),
    ]


def _sensor(names: Names, evaluate: SensorFunction, job: Any, every: Duration, is_on: bool) -> dg.SensorDefinition:
    @dg.sensor(
        job=job,
        name=names.of(evaluate.__name__),
        minimum_interval_seconds=int(every.length.total_seconds()),
        description=inspect.getdoc(evaluate),
        default_status=dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys=names.resources,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        context.log.addFilter(mask_and_escape)
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
    existing = set(context.instance.get_dynamic_partitions(partitions))
    unfit = [key for key in present.names if not is_valid_key(key)]
    existing_or_unfit = existing.union(unfit)
    new = [key for key in present.names if key not in existing_or_unfit]
    for begin in range(0, len(new), _KEYS):
        context.instance.add_dynamic_partitions(partitions, new[begin : begin + _KEYS])
    vanished = sorted(key for key in existing.difference(present.names) if store_of(key) not in present.away)
    news = [f"Added {count(len(new), 'partition')}: {first_of(new, _NAMED)}."] if new else []
    state = digest_of([vanished, unfit, sorted(present.away)])
    if state != (context.cursor or digest_of([[], [], []])):
        news += _state(vanished, unfit, present.away)
        for sentence in news:
            context.log.info(sentence)
    quiet = (
        f"No new dataset among {len(present.names):,}. Away: {count(len(present.away), 'store')}. Vanished: {len(vanished):,}."
    )
    return dg.SensorResult(skip_reason=" ".join(news) or quiet, cursor=state)


def _state(vanished: Sequence[str], unfit: Sequence[str], away: dict[str, str]) -> list[str]:
    faults = [
        f"The store {name} can't be listed; its partitions stay: {fault.rstrip('.')}." for name, fault in sorted(away.items())
    ]
    if vanished:
        faults.append(
            f"{len(vanished):,} keep their partitions although no store lists them any more: {first_of(vanished, _NAMED)}."
        )
    if unfit:
        names = first_of(unfit, _NAMED)
        faults.append(
            f"{len(unfit):,} have names that Dagster does not allow for partitions. Jobs work on them all the same: {names}."
        )
    return faults or ["Every store answers and lists the dataset of every partition."]


def sweep_tick(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Sweeps the datasets that have marks whose grace is over, unless a sweep is on its way; and looks at least once a day.

    What a sweep has left just as it was, because its store is to expire it by itself or somebody has to mend something first,
    is tried again once an hour. The cursor is what was there to do at the last time.
    """
    at, asset = now(), "swept_transactions"
    with resources.retention.ledger() as ledger:
        due = [pending for pending in ledger.marks.to_sweep(at) if pending.is_due]
    last = None if due else context.instance.get_latest_materialization_event(resources.names.key(asset))
    if not due and (last is None or datetime.fromtimestamp(last.timestamp, UTC) > at - _LOOK_AGAIN):
        return dg.SensorResult(skip_reason="No mark is due.")
    # A courtesy: the lease in the ledger keeps two sweeps from one dataset.
    if wait := why_wait(context.instance, resources.names, asset):
        return dg.SensorResult(skip_reason=f"{len(due):,} datasets have due marks. {wait}")
    if not due:
        # An empty sweep puts on record that somebody looked and nothing was due.
        requests = run_requests(SWEEP, resources, context.instance, None, ["*"], {KIND: "sweep"})
        return dg.SensorResult(run_requests=requests)
    digest, datasets = digest_of(due), [pending.dataset for pending in due]
    earlier = json.loads(context.cursor or "{}")
    # A time ahead of now is from a fast clock and does not count.
    if digest == earlier.get("digest") and at - _RETRY_AFTER < datetime.fromisoformat(earlier["at"]) <= at:
        unchanged = f"The last sweep changed nothing in {first_of(datasets, _NAMED)}. It is repeated once an hour."
        return dg.SensorResult(skip_reason=unchanged)
    globs = [escape_glob(name) for name in datasets]
    requests = run_requests(SWEEP, resources, context.instance, datasets, globs, {KIND: "sweep"})
    return dg.SensorResult(run_requests=requests, cursor=json.dumps({"digest": digest, "at": at.isoformat()}))


_REPORT = "Writes the report of the day that has just ended, in UTC."
_HOUSEKEEPING = "Postpones rows that a database would expire too early, and lists what expires tomorrow."
_VERIFICATION = "Verifies the whole record of the ledger. A failed run names the rows that something else changed."


def schedules(automation: AutomationSettings, names: Names, jobs: Mapping[str, Any]) -> list[dg.ScheduleDefinition]:
    """Make the schedules of jobs that exist. One for which the settings do not ask waits for a person to start it."""
    return [
        dg.ScheduleDefinition(
            name=names.of(name),
            cron_schedule=cron,
            job_name=names.of(job.job),
            run_config_fn=partial(_ended_day, names) if job is REPORT else None,
            tags={KIND: job.name},
            execution_timezone="UTC",
            description=description,
            default_status=dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED,
        )
        for name, cron, job, is_on, description in (
            ("daily_report", "0 0 * * *", REPORT, automation.report, _REPORT),
            ("daily_housekeeping", "10 0 * * *", housekeeping, automation.housekeeping, _HOUSEKEEPING),
            ("daily_verification", "20 0 * * *", audit_verify, automation.verify, _VERIFICATION),
        )
        if names.of(job.job) in jobs
    ]


def _ended_day(names: Names, context: dg.ScheduleEvaluationContext) -> dict[str, Any]:
    return step_config(names, as_of=text_of(context.scheduled_execution_time - timedelta(microseconds=1)))
