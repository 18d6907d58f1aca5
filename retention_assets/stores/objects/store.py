"""The `objects` store: the answers to the protocol of stores.

Belongs here: datasets, the log as a scan in this process makes it, plans, and the order to delete.
Does not belong here: listing, references, classes, and the deletion itself (delete.py).
"""

from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.settings import LazyStore


class ObjectsStore(LazyStore[ObjectsSettings]):
    """A store of kind `objects`."""
