"""Pages: the root table read along its key, each page a query of its own that begins after the last key of the page before.

Belongs here: how a page continues another. No OFFSET, which would read again what was read.
Does not belong here: what is asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, func, select

from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.stores.records.tables import RecordTables


@dataclass(frozen=True)
class KeyPaging:
    """How one goes on from a key. Without a size everything is one page: keys that are numbers and texts have no one order."""

    tables: RecordTables
    size: float
    as_number: bool

    def query(self, query: Select[Any], after: str | None) -> Select[Any]:
        """The page after a key, of a query that is in the order of keys."""
        if self.size != float("inf"):
            query = query.limit(int(self.size))
        return query if after is None else query.where(self.tables.root.key.beyond(after, self.as_number))


def paging_of(database: ForeignDatabase, tables: RecordTables, size: int) -> KeyPaging:
    """As the keys are now. Only SQLite can keep several kinds of them in one column."""
    if tables.dialect != "sqlite":
        return KeyPaging(tables, size, as_number=False)
    key = tables.root.key.column
    with database.reading() as connection:
        ends = set(connection.execute(select(func.typeof(func.min(key)), func.typeof(func.max(key)))).one())
    return KeyPaging(tables, size if ends in ({"integer"}, {"text"}) else float("inf"), as_number=ends == {"integer"})


def read_pages(database: ForeignDatabase, tables: RecordTables, query: Select[Any], size: int) -> Iterator[Sequence[Row[Any]]]:
    """The rows of a query in the order of keys, whose first column is the key as text."""
    paging, after = paging_of(database, tables, size), None
    while True:
        with database.reading() as connection:
            rows = connection.execute(paging.query(query, after)).all()
        if rows:
            yield rows
        if len(rows) < paging.size:
            return
        after = rows[-1][0]
