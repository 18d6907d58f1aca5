"""The evaluation loop: judge again the datasets that may have changed since they were last judged.

There is no cursor: everything that a tick needs is in the ledger, so a loop that was stopped, moved or restored continues
from the verdicts.
"""

from collections import Counter

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.automation.active_runs import KIND, active_run_of_asset, active_run_of_jobs, explain_wait
from retention_assets.dagster.automation.run_requests import run_requests
from retention_assets.dagster.naming import over_partitions
from retention_assets.dagster.step import Resources
from retention_assets.dagster.store_assets import changed_stores
from retention_assets.evaluation.changes import as_globs, datasets_to_evaluate, list_datasets
from retention_assets.evaluation.rules_in_force import foreseen_rulebook, rules_digests

EVALUATION_JOBS = ("evaluate", "cycle", over_partitions("evaluate"))


def active_evaluation(instance: dg.DagsterInstance, resources: Resources) -> dg.RunRecord | None:
    """A run that judges and is queued or at work, if there is one."""
    names = resources.names
    return active_run_of_jobs(instance, map(names.of, EVALUATION_JOBS)) or active_run_of_asset(
        instance, names.key("candidate_marks")
    )


def evaluation_loop(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Judges the datasets anew whose log, refs, policies or holds are others than when they were last judged, in which time
    alone changes a verdict, or that nobody has looked at for long. A tick that finds none launches nothing.

    Broken policy files fail the tick, each tick until they are mended; the policies in force stay.
    """
    settings, at = resources.retention.settings, now()
    if run := active_evaluation(context.instance, resources):
        return dg.SensorResult(skip_reason=explain_wait(context, run, at))
    present = list_datasets(resources.retention, with_tokens=True)
    # Reported whatever follows: the stores were asked, and lineage begins with their changes.
    news = changed_stores(context.instance, resources, present)
    for name, fault in sorted(present.away.items()):
        context.log.warning(f"The store {name} can't be asked, its datasets wait: {fault}.")
    with resources.retention.ledger() as ledger:
        rules = foreseen_rulebook(ledger, settings, at).rules(present.names, at)
        looks = ledger.evaluations.all()
    what = settings.automation
    skew = settings.clock.max_skew.after(at) - at
    found = datasets_to_evaluate(present, rules_digests(rules, present.names, at), looks, at, what, skew)
    waiting = f"; {len(present.away):,} stores away" if present.away else ""
    if not found:
        quiet = f"Nothing can have changed among {len(present.names):,} datasets{waiting}."
        return dg.SensorResult(skip_reason=quiet, asset_events=news)
    reasons = (f"{number:,} {why}" for why, number in Counter(found.values()).most_common())
    context.log.info(f"{', '.join(reasons)}{waiting}.")
    chosen = list(found)[: what.datasets_per_run]
    globs, tags = as_globs(chosen, present), {KIND: "evaluate"}
    requests = run_requests("evaluate", resources.names, settings, context.instance, chosen, globs, tags)
    return dg.SensorResult(run_requests=requests, asset_events=news)
