"""Does another name of the catalog lead to the files of a table? Then nothing of it may be swept.

Belongs here: finding such an alias, and saying what to do about it.
Does not belong here: looking at the tables of a catalog (sql_catalog.py), and what a sweep does when there is no alias.

Aliases come from registering a table twice: its names part with their next commits, and each still reads what the other has
expired. Two tables in one folder, as renaming and making anew leaves them, are as bad: the fence around one holds the other.

Seen is what is registered before the look that precedes the deletion: all tables that this opened store has read last, which a
look has it read wherever they are not known as they are (claims.py); and in a SQL catalog, whatever was read, all tables whose
last metadata lies where this one's does or would by default. Not seen are aliases in other catalogs, and what is registered
after that look.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from pyiceberg.table import Table

from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.sweep import Unloadable


@dataclass
class TableAliases:
    """By what the datasets of one store could be told apart when it last read them."""

    _traits: dict[str, frozenset[str]] = field(default_factory=dict)
    _with_trait: dict[str, set[str]] = field(default_factory=dict)
    # Tables are read by several threads.
    _lock: Lock = field(default_factory=Lock)

    def remember(self, dataset: str, table: Table | None) -> None:
        """Take down a table that was just read, or that it is gone."""
        traits = frozenset() if table is None else _traits_of(table)
        with self._lock:
            before = self._traits.pop(dataset, frozenset())
            for trait in before - traits:
                self._with_trait[trait].discard(dataset)
            for trait in traits - before:
                self._with_trait.setdefault(trait, set()).add(dataset)
            if traits:
                self._traits[dataset] = traits

    def of(self, dataset: str, table: Table, near: Iterable[str], load: Callable[[str], Table | None]) -> str | None:
        """Why nothing of a table may be deleted, if an alias is near or remembered. `load` reads a suspect as it is now."""
        with self._lock:
            remembered = {name for trait in _traits_of(table) for name in self._with_trait.get(trait, ())}
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


def _traits_of(table: Table) -> frozenset[str]:
    return frozenset((_uuid(table), _folder_of_table(table)))


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def _folder_of_table(table: Table) -> str:
    return file_identity(table.location()).rstrip("/")
