"""What a run works on: the settings, and from them the ledger, the stores and the rules.

Belongs here: opening them, for the while that a step needs them. The values travel nowhere: Dagster shows what resources are
configured with to everybody, and settings hold passwords.
Does not belong here: what is done with any of them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from retention_assets.ledger import Ledger, open_ledger
from retention_assets.settings.model import Settings
from retention_assets.stores.protocol import Store
from retention_assets.stores.registry import open_store


@dataclass(frozen=True)
class Environment:
    """An environment: what retention.yaml says, openable."""

    settings: Settings

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, open."""
        with open_ledger(self.settings.ledger) as ledger:
            yield ledger

    def stores(self, names: Iterable[str] | None = None) -> dict[str, Store]:
        """The stores of some names, or all, opened."""
        wanted = None if names is None else set(names)
        return {one.name: open_store(one) for one in self.settings.stores if wanted is None or one.name in wanted}
