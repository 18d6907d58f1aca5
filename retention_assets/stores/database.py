"""The base of stores whose data is rows of a database."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime

from retention_assets.sql.foreign import ForeignDatabase, location_of
from retention_assets.sql.foreign_keys import Cascades, DeletedTable
from retention_assets.stores.protocol import Reads, Store
from retention_assets.stores.settings import DatabaseSettings


class DatabaseStore(Store):
    """A store over tables, from which rows go with others that refer to them."""

    settings: DatabaseSettings
    log_is_complete = True
    reads = Reads.BRANCHES
    guards = True

    def __init__(self, settings: DatabaseSettings) -> None:
        super().__init__(settings)
        self.database = ForeignDatabase(settings.url, settings.name, settings.row_security)

    @abstractmethod
    def deleted_tables(self) -> Sequence[DeletedTable]:
        """Tables from which rows are deleted, the root first. Raises Refused if they don't match the settings."""

    def cascades(self) -> Cascades:
        return Cascades.of(self.database, self.settings.cascades, self.deleted_tables())

    def accepted_cascades(self) -> str | None:
        return self.cascades().foreseen

    def present(self) -> datetime | None:
        return self.database.present()

    def place(self, dataset: str, claim: bool = False) -> str:  # noqa: ARG002 - a table has a place of its own
        return location_of(self.database, self.deleted_tables()[0].table)

    def store_place(self, claim: bool = False) -> str:
        return self.place("", claim)

    def close(self) -> None:
        self.database.close()
