"""The `records` kind of store, as the registry knows it."""

from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "RecordsSettings"]

KIND = StoreKind("records", RecordsSettings, opens("retention_assets.stores.records.store:RecordsStore"))
