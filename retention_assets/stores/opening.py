"""Opening stores: from settings to values that speak the protocol.

Belongs here: one function. What a kind needs is imported when a store of that kind is opened, not before.
"""

from retention_assets.stores.kinds import StoreSettings
from retention_assets.stores.plugins import kind_named
from retention_assets.stores.protocol import Store


def open_store(settings: StoreSettings) -> Store:
    """The store of some settings."""
    return kind_named(settings.kind).opened(settings)
