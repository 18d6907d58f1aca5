"""The `aspects` kind of store, as the registry knows it."""

from typing import TYPE_CHECKING

from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: AspectsSettings) -> "Store":
    from retention_assets.stores.aspects.store import AspectsStore

    return AspectsStore(settings)


KIND = StoreKind("aspects", AspectsSettings, _open)
