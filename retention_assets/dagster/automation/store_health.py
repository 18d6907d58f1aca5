"""Health of stores between runs: a store that is away, or back again, shows in the check within minutes."""

from collections.abc import Iterator

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.checks.asset_checks import check_evaluation, gone_of, standing_result
from retention_assets.dagster.checks.queries import (
    CHECKS,
    MOST_SHOWN,
    OF_PRESENT_DATASETS,
    REACHABILITY,
    Check,
    CheckResult,
    check_result,
    unreachable,
)
from retention_assets.dagster.step import Resources
from retention_assets.evaluation.changes import list_datasets
from retention_assets.render.text import visible

_ACTOR = "sensor store_health"


def store_health(context: dg.SensorEvaluationContext, resources: Resources) -> dg.SensorResult:
    """Asks every store for its datasets. A store that is away fails `stores_are_reachable` until it answers again; what was
    found wrong with datasets that are gone is over.
    """
    present, at = list_datasets(resources.retention), now()
    reached = check_result(unreachable(present))
    with resources.retention.ledger() as ledger:
        violations = ledger.violations
        away = violations.update(REACHABILITY.name, reached.by_dataset, None, at, _ACTOR)
        for asset in OF_PRESENT_DATASETS:
            for check in CHECKS[asset]:
                if check is not REACHABILITY:
                    mine = [one.dataset for one in violations.standing(check.name)]
                    violations.end(check.name, gone_of(mine, present), at)
        states = [
            (asset, check, standing_result(check, violations.standing(check.name)))
            for asset, checks in CHECKS.items()
            for check in checks
        ]
    events = list(_changes(context.instance, resources, states))
    said = [f"{one.dataset} has been away since {one.since:%Y-%m-%d %H:%M} UTC: {one.what}." for one in away]
    words = visible(" ".join(said)) or f"Each of {len(resources.retention.settings.stores):,} stores answers."
    return dg.SensorResult(asset_events=events, skip_reason=words)


def _changes(
    instance: dg.DagsterInstance, resources: Resources, states: list[tuple[str, Check, CheckResult]]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Checks whose last evaluation in Dagster differs from the ledger."""
    for asset, check, state in states:
        key = resources.names.key(asset)
        record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, check.name))
        # A run that has planned a check is going to evaluate it.
        evaluation = record.evaluation if record else None
        last = evaluation if isinstance(evaluation, dg.AssetCheckEvaluation) else None
        # A check that no run has evaluated yet is left to runs, except the one of reachability.
        is_other = not _is_same(last, state) if last else check is REACHABILITY
        if is_other:
            yield check_evaluation(key, check, state, is_blocking=False)


def _is_same(last: dg.AssetCheckEvaluation, state: CheckResult) -> bool:
    """An evaluation in a run of assets may have only warned of datasets of other runs."""
    if state.passed or last.passed:
        return state.passed == last.passed
    number, table = last.metadata.get(f"{state.noun}s"), last.metadata.get(f"offending_{state.noun}s")
    if last.severity is not dg.AssetCheckSeverity.ERROR or number is None or number.value != len(state.by_dataset):
        return False
    names = {row.data[state.noun] for row in table.records} if isinstance(table, dg.TableMetadataValue) else set()
    return len(state.by_dataset) > MOST_SHOWN or names == {one.dataset for one in state.shown}
