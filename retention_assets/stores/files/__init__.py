"""The `files` kind of store, as the registry knows it."""

from typing import TYPE_CHECKING

from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: FilesSettings) -> "Store":
    from retention_assets.stores.files.store import FilesStore

    return FilesStore(settings)


KIND = StoreKind("files", FilesSettings, _open)
