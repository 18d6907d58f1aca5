"""The `delta` store: tables of Delta Lake. It deletes the files that no kept version needs."""

from retention_assets.stores.delta.settings import DeltaSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "DeltaSettings"]

KIND = StoreKind("delta", DeltaSettings, opens("retention_assets.stores.delta.store:DeltaStore"))
