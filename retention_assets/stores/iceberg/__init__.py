"""The `iceberg` kind of store, as the registry knows it."""

from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "IcebergSettings"]

KIND = StoreKind("iceberg", IcebergSettings, opens("retention_assets.stores.iceberg.store:IcebergStore"))
