"""Finds aliases: other names of the catalog that lead to a table's files. A table with an alias is not swept.

Registering a table twice makes an alias: the names diverge with their next commits, and each still reads what the other has
expired. Two tables in one folder, as renaming and creating anew leaves them, are as bad: the fence of one contains the other.

Found is what is registered before the look that precedes the deletion: among all tables that this opened store read last, which
a look re-reads wherever they may have changed (claims.py), and in a SQL catalog among all tables whose newest metadata lies
where this one's does or would by default. Not found are aliases in other catalogs, and what is registered after that look.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from pyiceberg.table import Table

from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.sweep import Unloadable


@dataclass
class TableAliases:
    """Identities by which the datasets of one store could be told apart when it last read them."""

    _traits: dict[str, frozenset[str]] = field(default_factory=dict)
    _with_trait: dict[str, set[str]] = field(default_factory=dict)
    # tables are read by several threads
    _lock: Lock = field(default_factory=Lock)

    def remember(self, dataset: str, table: Table | None) -> None:
        """Note a table that was just read, or that it is gone."""
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
        """Say why nothing of a table may be deleted if it has an alias, near or remembered. `load` re-reads a suspect."""
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
