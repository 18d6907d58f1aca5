"""A store that is no more than its settings until somebody asks it something.

Belongs here: how such a store is named and how it travels. What it has opened stays where it was opened; whoever receives it
opens anew.
Does not belong here: any answer of a store.
"""

from typing import Generic, TypeVar

from retention_assets.stores.kinds import StoreSettings

Own = TypeVar("Own", bound=StoreSettings)


class LazyStore(Generic[Own]):
    """What stores have in common that keep something open. Their own `__init__` takes the settings alone."""

    def __init__(self, settings: Own) -> None:
        self.settings = settings

    def __getstate__(self) -> Own:
        return self.settings

    def __setstate__(self, settings: Own) -> None:
        self.__init__(settings)  # type: ignore[misc]

    @property
    def name(self) -> str:
        """What the names of its datasets begin with."""
        return self.settings.name
