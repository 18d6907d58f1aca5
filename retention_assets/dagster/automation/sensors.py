"""Sensors: find datasets, changed policy files and due marks, and launch runs for them.

A tick that finds nothing launches nothing: a run costs seconds to start and storage to keep.
"""

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import dagster as dg
import pyarrow as pa

from retention_assets.clock import now
from retention_assets.dagster.automation.active_runs import KIND, active_run_of_jobs, explain_wait, shorten
from retention_assets.dagster.automation.evaluation_sensor import active_evaluation, evaluation_loop
from retention_assets.dagster.automation.freshness import is_sweep_due
from retention_assets.dagster.automation.run_requests import run_requests
from retention_assets.dagster.automation.store_health import store_health
from retention_assets.dagster.naming import BY_STORE, Names, over_partitions
from retention_assets.dagster.partition_events import is_valid_key
from retention_assets.dagster.step import Resources, masking_faults, resources_in, show_unseen
from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.evaluation.rules_in_force import RulesInForce, files_of, foreseen_rulebook, rules_digests
from retention_assets.policy.book import LoadOutcome, datasets_touched
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import Duration
from retention_assets.policy.globs import is_literal
from retention_assets.policy.model import Datasets
from retention_assets.policy.scope import rules_reaching
from retention_assets.settings.model import Settings

# Interval of ticks for datasets and policy files, and for evaluations and sweeps where only a person has started the sensor.
_DISCOVERY_SECONDS = 60
_EVALUATE = Duration(seconds=5 * 60)
_SWEEP = Duration(seconds=15 * 60)
# interval at which every store is checked
_HEALTH_SECONDS = 5 * 60
# interval at which a sweep is repeated that left things as they were
_RETRY_AFTER = Duration(seconds=60 * 60)
# most requests to load the same policy files, if every run dies before it is done
_LOADS = 3
_ASKED = "retention/policy_files"
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


def dataset_discovery(context: dg.SensorEvaluationContext, resources: dg.ResourceParam[Resources]) -> dg.SensorResult:
    """Gives every dataset that a store lists its partition. None is ever taken away: its runs would be hard to find again."""
    retention = resources.retention
    found = _keys(retention)
    # Added at once: keys that a tick only requests cost the daemon a query each.
    partitions = resources.names.datasets
    have = set(context.instance.get_dynamic_partitions(partitions))
    unfit = [key for key in found.names if not is_valid_key(key)]
    have_or_unfit = have.union(unfit)
    new = [key for key in found.names if key not in have_or_unfit]
    for at in range(0, len(new), _KEYS):
        context.instance.add_dynamic_partitions(partitions, new[at : at + _KEYS])
    vanished = sorted(key for key in have.difference(found.names) if store_of(key) not in found.away)
    news = [f"{len(new):,} new: {shorten(new)}."] if new else []
    state = _digest_of([vanished, unfit, sorted(found.away)])
    if state != (context.cursor or _digest_of([[], [], []])):
        news += _state(vanished, unfit, found.away)
        for words in news:
            context.log.info(words)
    quiet = f"Nothing new among {len(found.names):,}; {len(vanished):,} that no store lists; {len(found.away):,} stores away."
    return dg.SensorResult(skip_reason=" ".join(news) or quiet, cursor=state)


def _keys(retention: Environment) -> Listing:
    """Names of datasets, or of the stores of the settings."""
    if retention.settings.partition_by == BY_STORE:
        return Listing(tuple(store.name for store in retention.settings.stores), {})
    return list_datasets(retention)


def _state(vanished: Sequence[str], unfit: Sequence[str], away: dict[str, str]) -> list[str]:
    """Faults, or a line that all is well again."""
    words = [f"The store {name} can't be listed, its partitions stay: {fault}." for name, fault in sorted(away.items())]
    if vanished:
        words.append(f"{len(vanished):,} that no store lists any more keep their partitions: {shorten(vanished)}.")
    if unfit:
        words.append(f"{len(unfit):,} can't be partitions by their names, jobs work on them all the same: {shorten(unfit)}.")
    return words or ["Every partition is a dataset that some store lists, and every store can be asked."]


@dataclass(frozen=True)
class _FilesCursor:
    """Digest of the files that were read last, a number unique to each change, and the requested run: its key, until a run
    with it is known to have succeeded, and the number of requests.
    """

    digest: str = ""
    change: int = 0
    asked: str = ""
    times: int = 0
    runs: int = 1

    @property
    def key(self) -> str:
        """Dagster launches no two runs under one key."""
        return f"policies-{self.change}-{self.digest[:12]}" + (f"-{self.times}" if self.times else "")

    def next(self, digest: str) -> "_FilesCursor":
        """Numbers begin with the time, so that a cursor that somebody has reset repeats none."""
        return _FilesCursor(digest, self.change + 1 if self.change else int(now().timestamp()))


def policy_files(context: dg.SensorEvaluationContext, resources: dg.ResourceParam[Resources]) -> dg.SensorResult:
    """When policy files change, has those datasets judged anew that the change can reach.

    Broken files fail the tick, each tick until they are mended; the policies in force stay.
    """
    retention = resources.retention
    seen = _FilesCursor(**json.loads(context.cursor)) if context.cursor else _FilesCursor()
    digest = _digest_of([[str(file), file.read_text("utf-8", "replace")] for file in files_of(retention.settings)])
    if digest == seen.digest and (not seen.asked or _have_succeeded(context.instance, seen.asked, seen.runs)):
        cursor = json.dumps(asdict(replace(seen, asked="")))
        return dg.SensorResult(skip_reason="The policy files are as they were.", cursor=cursor)
    if run := active_evaluation(context.instance, resources):
        # It may have loaded the files already; once it is over, the book says what is left to do.
        return dg.SensorResult(skip_reason=f"The policy files changed; {explain_wait(context, run, now())}")
    at, found = now(), list_datasets(retention)
    with retention.ledger() as ledger:
        book, looks = foreseen_rulebook(ledger, retention.settings, at), ledger.evaluations.all()
    decisions = book.decisions
    for decision in decisions:
        if decision.warning:
            context.log.warning(decision.warning)
    seen = seen.next(digest) if digest != seen.digest else seen
    cursor = json.dumps(asdict(replace(seen, asked="")))
    written = [decision.name for decision in decisions if decision.outcome is LoadOutcome.WRITTEN]
    names, away = _reached(
        datasets_touched(decisions) if written else [], found, _with_other_rules(book.rules(found.names, at), looks, found, at)
    )
    datasets = [escape_glob(name) for name in names] + [f"{escape_glob(store)}/*" for store in away]
    if not datasets:
        words = (
            f"{shorten(written)}: no dataset is touched, the next run loads it." if written else "They say what the book says."
        )
        return dg.SensorResult(skip_reason=f"The policy files changed. {words}", cursor=cursor)
    if seen.times >= _LOADS:
        words = (
            f"The policy files changed, and {seen.times} runs died before they had judged by them. No more are launched: find"
            " out why they died, then launch `evaluate`."
        )
        context.log.warning(words)
        return dg.SensorResult(skip_reason=words)
    known, tags = None if away else names, {KIND: "evaluate", _ASKED: seen.key}
    requests = run_requests("evaluate", resources.names, retention.settings, context.instance, known, datasets, tags, seen.key)
    asked = replace(seen, asked=seen.key, times=seen.times + 1, runs=len(requests))
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(asdict(asked)))


def _have_succeeded(instance: dg.DagsterInstance, key: str, runs: int) -> bool:
    """Counts runs that repeat the requested ones, too."""
    done = dg.RunsFilter(tags={_ASKED: key}, statuses=[dg.DagsterRunStatus.SUCCESS])
    return len(instance.get_run_records(done, limit=runs)) >= runs


def _with_other_rules(rules: RulesInForce, looks: pa.Table, found: Listing, at: datetime) -> set[str]:
    """Compares holds and the order of rules, too."""
    before = dict(zip(looks["dataset"].to_pylist(), looks["rules"].to_pylist(), strict=True))
    return {
        name
        for name, digest in zip(found.names, rules_digests(rules, found.names, at), strict=True)
        if before.get(name, digest) != digest
    }


def _reached(scopes: Sequence[Datasets], found: Listing, others: Collection[str]) -> tuple[list[str], list[str]]:
    """Datasets that some scope can reach, and `others`; and stores of which any dataset may be meant.

    Attributes are known only once a log is read, so a scope that asks for them counts by its globs: rather one dataset too
    many is judged again than one too few. For the same reason all of a store is named that could not be listed.
    """
    chosen = {name for scope in scopes for name in rules_reaching(found.names, scope)} | set(others)
    away = [store for store in found.away if any(_may_reach(glob, store) for scope in scopes for glob in scope.include)]
    return sorted(chosen), sorted(away)


def _may_reach(glob: str, store: str) -> bool:
    begin, slash, _ = glob.partition("/")
    return not slash or not is_literal(begin) or begin == store


@dataclass(frozen=True)
class _SweepCursor:
    """Digest of the work of the last requested sweep, and the time of the request."""

    digest: str
    at: str

    def is_fresh(self, digest: str, at: datetime) -> bool:
        """True if the same was requested a moment ago. A time ahead of now is from a fast clock and does not count."""
        return digest == self.digest and _RETRY_AFTER.before(at) < datetime.fromisoformat(self.at) <= at


def sweep_tick(context: dg.SensorEvaluationContext, resources: dg.ResourceParam[Resources]) -> dg.SensorResult:
    """Sweeps the datasets that have marks whose grace is over, unless a sweep is on its way; and looks at least once a day.

    What a sweep has left just as it was, because its store is to expire it by itself or somebody has to mend something first,
    is tried again once an hour. The cursor is what was there to do at the last time.
    """
    at = now()
    with resources.retention.ledger() as ledger:
        found = ledger.marks.to_sweep(at)
    if not found and not is_sweep_due(context.instance, resources.names.key("swept_transactions"), at):
        return dg.SensorResult(skip_reason="No mark is due.")
    # A courtesy: the lease in the ledger keeps two sweeps from one dataset.
    if run := active_run_of_jobs(context.instance, map(resources.names.of, _SWEEPING)):
        return dg.SensorResult(skip_reason=f"{len(found):,} datasets have marks that are due; {explain_wait(context, run, at)}")
    if not found:
        # An empty sweep puts on record that somebody looked and nothing was due.
        requests = run_requests(
            "sweep", resources.names, resources.retention.settings, context.instance, None, ["*"], {KIND: "sweep"}
        )
        return dg.SensorResult(run_requests=requests)
    digest = _digest_of(found)
    if context.cursor and _SweepCursor(**json.loads(context.cursor)).is_fresh(digest, at):
        words = f"The last sweep has changed nothing on {shorten([one.dataset for one in found])}: tried again once an hour."
        return dg.SensorResult(skip_reason=words)
    datasets = [one.dataset for one in found]
    settings, globs = resources.retention.settings, [escape_glob(name) for name in datasets]
    requests = run_requests("sweep", resources.names, settings, context.instance, datasets, globs, {KIND: "sweep"})
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(asdict(_SweepCursor(digest, at.isoformat()))))


def _digest_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
