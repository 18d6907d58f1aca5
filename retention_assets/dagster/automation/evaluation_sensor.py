"""Sensors that have datasets judged again: those that may have changed, and those that changed policy files can reach.

The loop has no cursor: everything that a tick needs is in the ledger, so a loop that was stopped, moved or restored continues
from the verdicts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import dagster as dg
import pyarrow as pa

from retention_assets.clock import now
from retention_assets.dagster.automation.active_runs import KIND, active_run, explain_wait
from retention_assets.dagster.automation.run_requests import digest_of, run_requests, shorten
from retention_assets.dagster.naming import over_partitions
from retention_assets.dagster.step import Resources
from retention_assets.dagster.store_assets import changed_stores
from retention_assets.evaluation.changes import Listing, as_globs, datasets_to_evaluate, list_datasets
from retention_assets.evaluation.rules_in_force import files_of, foreseen_rulebook, rules_digests
from retention_assets.policy.book import LoadOutcome, datasets_touched
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.globs import is_literal
from retention_assets.policy.language import rules_reaching
from retention_assets.policy.model import Datasets

_JOBS = ("evaluate", "cycle", over_partitions("evaluate"))
# a run that dies is launched again so often, where the instance has run retries turned on
_RETRIES = {"dagster/max_retries": "2"}


def _active_evaluation(instance: dg.DagsterInstance, resources: Resources) -> dg.RunRecord | None:
    return active_run(instance, map(resources.names.of, _JOBS), resources.names.key("candidate_marks"))


def evaluation_loop(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Judges the datasets anew whose log, refs, policies or holds are others than when they were last judged, in which time
    alone changes a verdict, or that nobody has looked at for long. A tick that finds none launches nothing.

    Broken policy files fail the tick, each tick until they are mended; the policies in force stay.
    """
    settings, at = resources.retention.settings, now()
    if run := _active_evaluation(context.instance, resources):
        return dg.SensorResult(skip_reason=explain_wait(run))
    present = list_datasets(resources.retention, with_tokens=True)
    # Reported whatever follows: the stores were asked, and lineage begins with their changes.
    news = changed_stores(context.instance, resources, present)
    for name, fault in sorted(present.away.items()):
        context.log.warning(f"The store {name} can't be asked, its datasets wait: {fault}.")
    with resources.retention.ledger() as ledger:
        rules = foreseen_rulebook(ledger, settings, at).rules(present.names, at)
        looks = ledger.evaluations.all()
    automation, skew = settings.automation, settings.clock.max_skew.after(at) - at
    reasons = datasets_to_evaluate(present, rules_digests(rules, present.names, at), looks, at, automation, skew)
    waiting = f"; {len(present.away):,} stores away" if present.away else ""
    if not reasons:
        quiet = f"Nothing can have changed among {len(present.names):,} datasets{waiting}."
        return dg.SensorResult(skip_reason=quiet, asset_events=news)
    counts = (f"{number:,} {reason}" for reason, number in Counter(reasons.values()).most_common())
    context.log.info(f"{', '.join(counts)}{waiting}.")
    datasets = list(reasons)[: automation.datasets_per_run]
    requests = run_requests("evaluate", resources, context.instance, datasets, as_globs(datasets, present), {KIND: "evaluate"})
    return dg.SensorResult(run_requests=requests, asset_events=news)


def policy_files(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """When policy files change, has those datasets judged anew that the change can reach.

    Broken files fail the tick, each tick until they are mended; the policies in force stay.
    """
    retention = resources.retention
    digest = digest_of([[str(file), file.read_text("utf-8", "replace")] for file in files_of(retention.settings)])
    if digest == context.cursor:
        return dg.SensorResult(skip_reason="The policy files are as they were.", cursor=digest)
    if run := _active_evaluation(context.instance, resources):
        # It may have loaded the files already; once it is over, the book says what is left to do.
        return dg.SensorResult(skip_reason=f"The policy files changed; {explain_wait(run)}")
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
    names.update(_with_other_rules(rules_digests(book.rules(present.names, at), present.names, at), looks, present))
    away = sorted(store for store in present.away if any(_may_reach(scope, store) for scope in scopes))
    globs = [escape_glob(name) for name in sorted(names)] + [f"{escape_glob(store)}/*" for store in away]
    if globs:
        tags = {KIND: "evaluate", **_RETRIES}
        requests = run_requests("evaluate", resources, context.instance, None if away else sorted(names), globs, tags)
        return dg.SensorResult(run_requests=requests, cursor=digest)
    news = f"{shorten(written)}: no dataset is touched, the next run loads it." if written else "They say what the book says."
    return dg.SensorResult(skip_reason=f"The policy files changed. {news}", cursor=digest)


def _with_other_rules(digests: Sequence[str], looks: pa.Table, present: Listing) -> Iterator[str]:
    """Datasets that were judged by other policies, holds or another order of rules."""
    before = dict(zip(looks["dataset"].to_pylist(), looks["rules"].to_pylist(), strict=True))
    return (name for name, digest in zip(present.names, digests, strict=True) if before.get(name, digest) != digest)


def _may_reach(scope: Datasets, store: str) -> bool:
    parts = (glob.partition("/") for glob in scope.include)
    return any(not slash or not is_literal(begin) or begin == store for begin, slash, _ in parts)
