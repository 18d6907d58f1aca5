"""The `files` store: histories in the exchange format, the data of each transaction in a folder of its own.

Belongs here: what the registry has to know of this kind.
"""

from typing import TYPE_CHECKING

from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.registry import StoreKind

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store


def _open(settings: FilesSettings) -> "Store":
    from retention_assets.stores.files.store import FilesStore

    return FilesStore(settings)


KIND = StoreKind("files", FilesSettings, _open)
