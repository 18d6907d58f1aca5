"""The asset `retention_policies`: the policy files, loaded into the policy book."""

import dagster as dg

from retention_assets.policy.book import Outcome
from retention_assets.resources.running import Materials, Metadata, Running
from retention_assets.rulebook import load_rulebook

_MOST_SHOWN = 1000


def materialize(run: Running) -> Metadata:
    """Load the files into the book, and say what became of each entry."""
    with run.retention.ledger() as ledger:
        decisions = load_rulebook(ledger, run.retention.settings, run.actor).decisions
        orphaned = ledger.book.orphaned()
    for decision in decisions:
        if decision.warning:
            run.log.warning(decision.warning)
    counts = {outcome.value.lower(): sum(one.outcome is outcome for one in decisions) for outcome in Outcome}
    records = [
        dg.TableRecord({"policy": one.name, "outcome": one.outcome.value.lower(), "reason": one.reason})
        for one in decisions[:_MOST_SHOWN]
    ]
    columns = [dg.TableColumn(name) for name in ("policy", "outcome", "reason")]
    return {
        **counts,
        "orphaned_marks": sum(one.marks for one in orphaned),
        "policies": dg.MetadataValue.table(records, dg.TableSchema(columns)),
    }


@dg.asset(group_name="retention", kinds={"yaml"})
def retention_policies(context: dg.AssetExecutionContext, materials: dg.ResourceParam[Materials]) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """What the files say, compared with the policies in force: written, skipped, drifted, or in no file any more.

    A broken file stops the run here: a rule that is skipped could be one that keeps. A policy that a person changed in the book
    stays as that person left it, and the difference is reported.
    """
    return dg.MaterializeResult(metadata=materialize(materials.of_asset(context)))
