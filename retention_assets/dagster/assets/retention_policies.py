"""The asset `retention_policies`: the policy files, loaded into the policy book."""

from retention_assets.dagster.retention_asset import retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.evaluation.datahub_policies import load_rules
from retention_assets.ledger import Ledger
from retention_assets.policy.book import LoadOutcome
from retention_assets.render.dagster import grouped, policy_metadata
from retention_assets.render.summaries import policies_summary


@retention_asset(kinds={"yaml"}, partitioned=False)
def retention_policies(run: Step, ledger: Ledger) -> Metadata:
    """What the files say, compared with the policies in force: written, skipped, drifted, or in no file any more.

    A broken file stops the run here: a rule that is skipped could be one that keeps. A policy that a person changed in the book
    stays as that person left it, and the difference is reported.
    """
    loaded = load_rules(ledger, run.retention, run.actor, run.given_as_of)
    decisions = loaded.rulebook.decisions
    orphaned, in_force = ledger.policy_book.orphaned(), ledger.policy_book.in_force()
    for warning in (*loaded.unreadable.values(), *loaded.rulebook.drifted):
        run.log.warning(warning)
    counts = {outcome.value.lower(): sum(one.outcome is outcome for one in decisions) for outcome in LoadOutcome}
    marks = sum(one.marks for one in orphaned)
    return grouped(
        policies_summary(len(in_force), counts, marks, [one.warning for one in decisions if one.warning]),
        {"in_force": len(in_force), "orphaned_marks": marks},
        {"policies": policy_metadata(decisions, in_force), **counts},
    )
