"""Stores as Dagster's observable source assets, where lineage begins, and the sensor that checks their health.

The data version of a store changes whenever a log or its refs may have changed.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator

import dagster as dg

from retention_assets.clock import now
from retention_assets.dagster.check_queries import CHECKS, OF_PRESENT_DATASETS, REACHABILITY, Check, unreachable
from retention_assets.dagster.checks import check_evaluation, vanished_names, with_standing
from retention_assets.dagster.naming import Names
from retention_assets.dagster.step import Resources, resources_in
from retention_assets.dagster.sweeping import state_events
from retention_assets.datasets import by_store
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.ledger.invariants import CheckResult, check_result
from retention_assets.render.page import MOST_SHOWN
from retention_assets.render.text import visible
from retention_assets.settings.model import Settings
from retention_assets.settings.sections import DagsterSettings
from retention_assets.stores.settings import StoreSettings

# Dagster's tag for the data version of an event
_VERSION = "dagster/data_version"


def store_assets(settings: Settings, names: Names) -> list[dg.AssetsDefinition]:
    keys = names.stores(store.name for store in settings.stores)
    with warnings.catch_warnings():
        # Dagster warns that observing is in beta. pyproject.toml pins its release.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return [_store_asset(store, keys[store.name], settings.dagster, names) for store in settings.stores]


def changed_stores(instance: dg.DagsterInstance, resources: Resources, present: Listing) -> list[dg.AssetObservation]:
    """Observe each store that is not what it was at the last observation. A store that is away has none."""
    observations: list[dg.AssetObservation] = []
    for store, key in resources.names.stores(store.name for store in resources.retention.settings.stores).items():
        version, metadata = _observation(present, store)
        records = instance.fetch_observations(key, limit=1).records
        last = records[0].asset_observation if records else None
        if store not in present.away and (last is None or last.tags.get(_VERSION) != version):
            observations.append(dg.AssetObservation(asset_key=key, metadata=metadata, tags={_VERSION: version}))
    return observations


def _observation(present: Listing, store: str) -> tuple[str, dict[str, int]]:
    # a dataset without a token counts by its name alone
    names = sorted(by_store(present.names).get(store, ()))
    return digest_of([(name, present.tokens.get(name)) for name in names]), {"datasets": len(names)}


def digest_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _store_asset(store: StoreSettings, key: dg.AssetKey, catalog: DagsterSettings, names: Names) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        key,
        description=f"The store {store.name} of kind {store.kind}, with all its datasets.",
        group_name=catalog.group,
        owners=list(catalog.owners),
        tags=dict(catalog.tags),
        kinds={store.kind},
    )

    def observe(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        present = list_datasets(resources_in(context.resources, names).retention, [store.name], with_tokens=True)
        for fault in present.away.values():
            raise dg.Failure(f"The store {store.name} can't be read: {fault.rstrip('.')}.")
        version, metadata = _observation(present, store.name)
        return dg.ObserveResult(data_version=dg.DataVersion(version), metadata=metadata)

    name, needed = key.to_python_identifier(), names.resources
    asset: dg.AssetsDefinition = dg.multi_observable_source_asset(name=name, specs=[spec], required_resource_keys=needed)(
        observe
    )
    return asset


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
                    datasets = [row.dataset for row in violations.standing(check.name)]
                    violations.end(check.name, vanished_names(datasets, present), at)
        states = [
            (asset, check, with_standing(check_result((), check.expected, check.noun), violations.standing(check.name)))
            for asset, checks in CHECKS.items()
            for check in checks
        ]
        changes = list(_changes(context.instance, resources, states))
    sentences = [f"{row.dataset} is away since {row.since:%Y-%m-%d %H:%M} UTC: {row.what.rstrip('.')}." for row in away]
    reason = visible(" ".join(sentences)) or f"Each of {len(resources.retention.settings.stores):,} stores answers."
    return dg.SensorResult(asset_events=[*state_events(context.instance, resources), *changes], skip_reason=reason)


def _changes(
    instance: dg.DagsterInstance, resources: Resources, states: list[tuple[str, Check, CheckResult]]
) -> Iterator[dg.AssetCheckEvaluation]:
    for asset, check, state in states:
        key = resources.names.key(asset)
        record = instance.get_latest_asset_check_evaluation_record(check.key(key))
        # A run that has planned a check is going to evaluate it.
        evaluation = record.evaluation if record else None
        last = evaluation if isinstance(evaluation, dg.AssetCheckEvaluation) else None
        # A check that no run has evaluated yet is left to runs, except the one of reachability.
        if not _is_same(last, state) if last else check is REACHABILITY:
            yield check_evaluation(key, check, state, is_blocking=False)


def _is_same(last: dg.AssetCheckEvaluation, state: CheckResult) -> bool:
    # an evaluation in a run of assets may have only warned of datasets of other runs
    if state.passed or last.passed:
        return state.passed == last.passed
    number, table = last.metadata.get(f"{state.noun}s"), last.metadata.get(f"offending_{state.noun}s")
    if last.severity is not dg.AssetCheckSeverity.ERROR or number is None or number.value != len(state.by_dataset):
        return False
    names = {row.data[state.noun] for row in table.records} if isinstance(table, dg.TableMetadataValue) else set()
    return len(state.by_dataset) > MOST_SHOWN or names == {violation.dataset for violation in state.shown}
