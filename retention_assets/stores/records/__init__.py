"""The `records` kind of store, as the registry knows it."""

from typing import TYPE_CHECKING

from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: RecordsSettings) -> "Store":
    from retention_assets.stores.records.store import RecordsStore

    return RecordsStore(settings)


KIND = StoreKind("records", RecordsSettings, _open)
