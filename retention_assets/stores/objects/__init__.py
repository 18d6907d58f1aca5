"""The `objects` store: deletes stored objects that nothing refers to any more."""

from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "ObjectsSettings"]

KIND = StoreKind("objects", ObjectsSettings, opens("retention_assets.stores.objects.store:ObjectsStore"))
