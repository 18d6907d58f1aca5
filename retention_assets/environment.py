"""What a run works on: the settings, and from them the ledger, the stores and the rules.

Belongs here: opening them, for the while that a step needs them. The values travel nowhere: Dagster shows what resources are
configured with to everybody, and settings hold passwords. The ledger's modules are imported when one is opened, for not every
command needs one.
Does not belong here: what is done with any of them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retention_assets.errors import Refused
from retention_assets.settings.model import Settings
from retention_assets.stores.protocol import Store
from retention_assets.stores.registry import open_store

if TYPE_CHECKING:
    from retention_assets.ledger import Ledger
    from retention_assets.pipeline.head_file import HeadFile


@dataclass(frozen=True)
class Environment:
    """An environment: what retention.yaml says, openable."""

    settings: Settings

    @contextmanager
    def ledger(self) -> "Iterator[Ledger]":
        """The ledger, open; made if there is none."""
        from retention_assets.ledger import open_ledger

        with open_ledger(self.settings.ledger, tell_witness=self.head_file.note) as ledger:
            yield ledger

    @property
    def head_file(self) -> "HeadFile":
        """Where the warehouse keeps the end of the ledger's record."""
        from retention_assets.pipeline.head_file import HeadFile

        return HeadFile(str(self.settings.warehouse))

    @contextmanager
    def ledger_if_any(self) -> "Iterator[Ledger | None]":
        """The ledger, or none: who only reads makes none."""
        from retention_assets.ledger import ledger_is_there

        if not ledger_is_there(self.settings.ledger):
            yield None
            return
        with self.ledger() as ledger:
            yield ledger

    @contextmanager
    def existing_ledger(self) -> "Iterator[Ledger]":
        """The ledger that knows what is to be changed; refused where there is none."""
        with self.ledger_if_any() as ledger:
            if ledger is None:
                raise Refused(self.no_ledger)
            yield ledger

    @property
    def no_ledger(self) -> str:
        """What to say where there is no ledger."""
        return f"no ledger yet at {self.settings.ledger}; nothing is marked"

    def stores(self, names: Iterable[str] | None = None) -> dict[str, Store]:
        """The stores of some names, or all, opened."""
        wanted = None if names is None else set(names)
        return {one.name: open_store(one) for one in self.settings.stores if wanted is None or one.name in wanted}
