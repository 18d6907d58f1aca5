"""The `iceberg` kind of store, as the registry knows it."""

from typing import TYPE_CHECKING

from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: IcebergSettings) -> "Store":
    from retention_assets.stores.iceberg.store import IcebergStore

    return IcebergStore(settings)


KIND = StoreKind("iceberg", IcebergSettings, _open)
