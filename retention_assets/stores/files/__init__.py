"""The `files` kind of store, as the registry knows it."""

from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.registry import StoreKind, opens

__all__ = ["KIND", "FilesSettings"]

KIND = StoreKind("files", FilesSettings, opens("retention_assets.stores.files.store:FilesStore"))
