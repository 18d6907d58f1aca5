"""The `aspects` store: the table in which DataHub keeps the versions of its metadata aspects.

Belongs here: what the registry has to know of this kind.
"""

from typing import TYPE_CHECKING

from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: AspectsSettings) -> "Store":
    from retention_assets.stores.aspects.store import AspectsStore

    return AspectsStore(settings)


KIND = StoreKind("aspects", AspectsSettings, _open)
