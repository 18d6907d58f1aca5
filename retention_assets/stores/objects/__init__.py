"""The `objects` store: deletes stored objects that nothing refers to any more."""

from typing import TYPE_CHECKING

from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: ObjectsSettings) -> "Store":
    from retention_assets.stores.objects.store import ObjectsStore

    return ObjectsStore(settings)


KIND = StoreKind("objects", ObjectsSettings, _open)
