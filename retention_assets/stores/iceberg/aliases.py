"""Does another name of the catalog lead to the files of a table? Then nothing of it may be swept.

Belongs here: finding such an alias, saying what to do about it, and the one query that tells where all tables of a catalog are.
Does not belong here: loading tables, and everything that a sweep does when there is no alias.

Aliases come from registering a table twice: its names part with their next commits, and each still reads what the other has
expired. Two tables in one folder, as renaming and making anew leaves them, are as bad: the fence around one holds the other.

Seen are, in a SQL catalog, all tables whose last metadata lies where this one's does or would by default; in every catalog, the
tables that this opened store has read last, such as all of a share. Not seen are aliases in other catalogs; in a catalog that
is no SQL catalog, and in one that is if the alias writes its metadata elsewhere, aliases that this store has not read; and what
is registered while a sweep is under way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import select

from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.sweep import Unloadable

# A namespace with its parts joined by dots, as a SQL catalog keeps it, and a table, in which a dot may be as well.
Name = tuple[str, str]


def table_locations(catalog: Catalog) -> dict[Name, str] | None:
    """All metadata locations in one query, where the catalog is a database."""
    if not isinstance(catalog, SqlCatalog):
        return None
    columns: tuple[Any, ...] = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    query = select(*columns).where(IcebergTables.catalog_name == catalog.name)
    # Past SQLAlchemy, which would make a row of each: this is asked for each table, and there may be thousands.
    with catalog.engine.connect() as connection, connection.execute(query) as found:
        rows: Sequence[Any] = (found.cursor or found).fetchall()
    return {(namespace, table): location for namespace, table, location in rows if location}


def tables_beside(table: Table, found: Mapping[Name, str]) -> list[Name]:
    """The names whose metadata lies in a folder of this table's metadata, its own name among them."""
    folders = {_folder_of_file(table.metadata_location), file_identity(f"{table.location().rstrip('/')}/metadata")}
    return [name for name, location in found.items() if _folder_of_file(location) in folders]


@dataclass
class TableAliases:
    """By what the datasets of one store could be told apart when it last read them."""

    _traits: dict[str, frozenset[str]] = field(default_factory=dict)

    def remember(self, dataset: str, table: Table | None) -> None:
        """Take down a table that was just read, or that it is gone."""
        if table is None:
            self._traits.pop(dataset, None)
        else:
            self._traits[dataset] = frozenset((_uuid(table), _folder_of_table(table)))

    def of(self, dataset: str, table: Table, near: Iterable[str], load: Callable[[str], Table | None]) -> str | None:
        """Why nothing of a table may be deleted, if an alias is near or remembered. `load` reads a suspect as it is now."""
        own = {_uuid(table), _folder_of_table(table)}
        # A copy of the items: others may be read meanwhile.
        remembered = (name for name, traits in list(self._traits.items()) if traits & own)
        suspects = sorted({*near, *remembered} - {dataset})
        return next((why for name in suspects if (why := _reason(name, table, load)) is not None), None)


def _reason(name: str, table: Table, load: Callable[[str], Table | None]) -> str | None:
    try:
        other = load(name)
    except Unloadable as fault:
        text = f"whether {name} reads the files of this table as well can't be told, so nothing was deleted"
        return f"{text}; mend it or drop that name: {fault}"
    if other is None:
        return None
    if _uuid(other) == _uuid(table):
        text, copied = f"{name} is the same table under a second name and may read what would be deleted", "one of the two"
    elif _folder_of_table(other) == _folder_of_table(table):
        text, copied = f"{name} is another table in the same folder and may read what would be deleted", "one of them"
    else:
        return None
    remedy = f"copy {copied} into a folder of its own if it is still needed, then drop its name without purging"
    return f"{text}, so nothing was; {remedy}"


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def _folder_of_table(table: Table) -> str:
    return file_identity(table.location()).rstrip("/")


@lru_cache(maxsize=100_000)
def _folder_of_file(location: str) -> str:
    return file_identity(location).rpartition("/")[0]
