"""Stores as Dagster's observable source assets, where the lineage of everything else begins.

Their data version changes whenever a log or its refs may have changed. The evaluation loop reports new versions; a person
may have a store observed as well.
"""

import hashlib
import json
import warnings

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.step import Resources, resources_in
from retention_assets.datasets import by_store
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.settings.dagster import DagsterSettings
from retention_assets.settings.model import Settings
from retention_assets.stores.settings import StoreSettings

# Dagster's tag for the data version of an event
_VERSION = "dagster/data_version"


def store_assets(settings: Settings, names: Names) -> list[dg.AssetsDefinition]:
    """The source assets of the stores."""
    keys = names.stores(store.name for store in settings.stores)
    with warnings.catch_warnings():
        # Dagster warns that observing is in beta. pyproject.toml pins its release.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return [_store_asset(store, keys[store.name], settings.dagster, names) for store in settings.stores]


def changed_stores(instance: dg.DagsterInstance, resources: Resources, present: Listing) -> list[dg.AssetObservation]:
    """An observation of each store that is not what it was at the last one. A store that is away has none."""
    found: list[dg.AssetObservation] = []
    for store, key in resources.names.stores(one.name for one in resources.retention.settings.stores).items():
        version, metadata = _observation(present, store)
        if store not in present.away and version != _last_version(instance, key):
            found.append(dg.AssetObservation(asset_key=key, metadata=metadata, tags={_VERSION: version}))
    return found


def _last_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    for record in instance.fetch_observations(key, limit=1).records:
        observation = record.asset_observation
        return observation.tags.get(_VERSION) if observation else None
    return None


def _observation(present: Listing, store: str) -> tuple[str, dict[str, int]]:
    """A dataset without a token counts by its name alone."""
    mine = sorted(by_store(present.names).get(store, ()))
    tokens = json.dumps([(name, present.tokens.get(name)) for name in mine])
    return hashlib.sha256(tokens.encode()).hexdigest(), {"datasets": len(mine)}


def _store_asset(store: StoreSettings, key: dg.AssetKey, catalog: DagsterSettings, names: Names) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        key,
        description=f"The store {store.name}, of the kind {store.kind}, and all datasets in it.",
        group_name=catalog.group,
        owners=list(catalog.owners),
        tags=dict(catalog.tags),
        kinds={store.kind},
    )

    def observe(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        present = list_datasets(resources_in(context.resources, names).retention, [store.name], with_tokens=True)
        for fault in present.away.values():
            raise dg.Failure(f"The store {store.name} can't be asked: {fault}.")
        version, metadata = _observation(present, store.name)
        return dg.ObserveResult(data_version=dg.DataVersion(version), metadata=metadata)

    name = key.to_python_identifier()
    made: dg.AssetsDefinition = dg.multi_observable_source_asset(
        name=name, specs=[spec], required_resource_keys=names.resources
    )(observe)
    return made
