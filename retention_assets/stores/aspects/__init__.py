"""The `aspects` kind of store, as the registry knows it."""

from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "AspectsSettings"]

KIND = StoreKind("aspects", AspectsSettings, opens("retention_assets.stores.aspects.store:AspectsStore"))
