"""The tables of a records store as they are: the root, its children, their keys and times, and what is wrong with them.

Belongs here: inspecting the tables, refusing what can't be what the settings say, what goes with their rows, and warnings about
indexes that are missing.
Does not belong here: rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CHAR,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Index,
    MetaData,
    Table,
    Text,
    case,
    cast,
    func,
    null,
)
from sqlalchemy.schema import CreateIndex
from sqlalchemy.types import ARRAY, Boolean, Float, Interval, LargeBinary, NullType, String, Time

from retention_assets.errors import Refused
from retention_assets.sql import reflection
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.reflection import Place, indexes_of, places_of
from retention_assets.stores.records.keys import Key
from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.settings import RealmColumn

TIMES = ("opened_at", "closed_at", "archived_at")
LOG_COLUMNS = (*TIMES, "type")
# What becomes attributes of a record, by the name of each.
ATTRIBUTE_COLUMNS = ("type", "realm")


@dataclass(frozen=True)
class TableRows:
    """A table whose rows belong to units of work, by the column that says to which."""

    table: Table
    key: Key
    # When the database expires a row by itself; none if it does not.
    expires: Column[Any] | None = None


@dataclass(frozen=True)
class RecordTables:
    """The root and its children. `log_columns` are the columns of the root that a log is made of, by what they are there."""

    dialect: str
    root: TableRows
    children: tuple[TableRows, ...]
    log_columns: Mapping[str, Column[Any]]
    # Rows of one table may keep rows of another from going: one table has to be done after the other, and all of them or none.
    one_by_one: bool = False

    @property
    def texts(self) -> list[ColumnElement[Any]]:
        """What the root says of a unit of work, each as the database writes it: for notes, which are compared."""
        kind = Text if self.dialect in ("postgresql", "sqlite") else CHAR
        return [cast(column, kind).label(name) for name, column in self.log_columns.items()]

    def time(self, name: str) -> ColumnElement[Any]:
        """A time of the root as a stream of the database gives it."""
        column = self.log_columns[name]
        if self.dialect != "sqlite":
            return cast(column, DateTime) if _is_day(column) else column
        # Seconds, milliseconds or days: a number that is taken for the wrong one is long ago, and goes. It is a fault instead.
        day = case((func.length(column) == len("2026-01-01"), column.op("||")("T00:00:00Z")), else_=column)
        return case((func.typeof(column) == "text", day), (column.is_(None), null()), else_="is a number")


def attribute_text(column: Column[Any], dialect: str) -> ColumnElement[Any]:
    """A column as the text that an attribute has in every format. Raises Refused for a type that has none in a database."""
    kind = column.type
    if dialect == "sqlite":
        # It has numbers and texts.
        return cast(column, Text)
    as_text = cast(column, Text if dialect == "postgresql" else CHAR)
    if isinstance(kind, Boolean):
        return case((column.is_(True), "true"), (column.is_(False), "false"))
    if isinstance(kind, DateTime) and kind.timezone:
        found = func.to_char(func.timezone("UTC", column), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        return func.replace(found, ".000000Z", "Z")
    if isinstance(kind, Float | DateTime | Time | Interval | ARRAY | LargeBinary):
        raise Refused(
            f"The column {column.name} of the table {column.table} is of the type {kind}, and an attribute is a text, a whole"
            " number, a truth, a day or an instant: name another column as type, realm or kind in the settings."
        )
    return column if isinstance(kind, String) and dialect != "postgresql" else as_text


def _is_day(column: Column[Any]) -> bool:
    return isinstance(column.type, Date) and not isinstance(column.type, DateTime)


def tables_of(database: ForeignDatabase, settings: RecordsSettings) -> RecordTables:
    """The tables as they are now. Raises Refused if one of them, or a column, is not there or can't be what is said of it."""
    inspection = _Inspection(database, settings)
    keys = [(settings.root.table, settings.root.key), *((child.table, child.key) for child in settings.children)]
    found = reflection.tables_of(database, [name for name, _ in keys])
    root, *children = (inspection.rows(table, key) for table, (_, key) in zip(found, keys, strict=True))
    columns = {name: getattr(settings.root, name) for name in LOG_COLUMNS}
    if isinstance(settings.realm, RealmColumn):
        columns["realm"] = settings.realm.column
    log_columns = {name: inspection.column(root.table, column) for name, column in columns.items() if column is not None}
    for name in TIMES:
        if name in log_columns:
            inspection.check_time(root.table, log_columns[name])
    inspection.check_children(root, children)
    return RecordTables(database.dialect, root, tuple(children), log_columns)


@dataclass(frozen=True)
class _Inspection:
    """The tables as they are now, and the store to name in a refusal."""

    database: ForeignDatabase
    settings: RecordsSettings

    def rows(self, table: Table, key: str) -> TableRows:
        """A table by its key."""
        expires = None
        if self.settings.ttl:
            expires = self.column(table, self.settings.ttl.column)
            self.check_time(table, expires)
            if _is_day(expires):
                raise self._refusal(table, expires, "is a day, and what expires does so at an instant", "a timestamp")
            if not expires.nullable:
                # A time could be given and never taken back; MariaDB may even make the present out of nothing.
                raise Refused(
                    f"The column {expires.name} of the table {table.fullname} of the store {self.settings.name} cannot be"
                    " empty, and empty means never: make it nullable."
                )
        owner = self.column(table, key)
        if self.database.dialect != "sqlite" and isinstance(owner.type, NullType):
            raise self._refusal(table, owner, "is of a type that is not known here", "a text, a number or a UUID as the key")
        return TableRows(table, Key(owner, self.database.dialect), expires)

    def column(self, table: Table, name: str) -> Column[Any]:
        """A column of a table."""
        if name not in table.columns:
            raise Refused(
                f"The table {table.fullname} of the store {self.settings.name} has no column {name}. It has"
                f" {', '.join(table.columns.keys())}. Name one of them in the settings, or add it to the table."
            )
        return table.columns[name]

    def check_children(self, root: TableRows, children: Sequence[TableRows]) -> None:
        """Refuse the root among its own children, and a child twice, however the settings spell them.

        Rows of a root that is its own child would be deleted for another root's sake, and nobody would ask what they say.
        """
        mine, *places = places_of(self.database, [root.table, *(rows.table for rows in children)])
        seen = set[tuple[Place, str]]()
        for place, rows in zip(places, children, strict=True):
            key = rows.key.column.name
            if place == mine:
                raise Refused(
                    f"The table {rows.table.fullname} among the children of the store {self.settings.name} is the root's table"
                    f" {root.table.fullname} itself, and rows of other units of work would be deleted from it. Name tables"
                    " other than the root's under `children`."
                )
            if (place, key) in seen:
                raise Refused(
                    f"The table {rows.table.fullname} is twice among the children of the store {self.settings.name} by its key"
                    f" {key}, once under another name. Name each table and key once under `children`."
                )
            seen.add((place, key))

    def check_time(self, table: Table, column: Column[Any]) -> None:
        """Refuse a column that holds no times. What SQLite holds shows only when it is read."""
        if self.database.dialect != "sqlite" and not isinstance(column.type, DateTime | Date):
            raise self._refusal(table, column, f"is of the type {column.type}", "a timestamp")

    def _refusal(self, table: Table, column: Column[Any], what: str, expected: str) -> Refused:
        return Refused(
            f"The column {column.name} of the table {table.fullname} of the store {self.settings.name} {what}; expected"
            f" {expected}. Name another column in the settings."
        )


def missing_indexes(database: ForeignDatabase, tables: RecordTables) -> Iterator[str]:
    """A sentence about each column by which rows are searched for and that no index begins with."""
    root = tables.root
    searched = [(rows, rows.key.column, "each batch of a sweep reads the whole table") for rows in (root, *tables.children)]
    searched += [(root, root.expires, "housekeeping reads the whole table")] if root.expires is not None else []
    for rows, column, cost in searched:
        first = [columns[0] for columns in indexes_of(database, rows.table.fullname) if columns]
        if column.name not in first:
            yield (
                f"The table {rows.table.fullname} has no index that begins with {column.name}, so that {cost}. Make one:"
                f" {_create(database, rows.table, column)};"
            )


def _create(database: ForeignDatabase, table: Table, column: Column[Any]) -> str:
    """The statement for an index, which on PostgreSQL stops no writer while it is made."""
    named = Column(column.name, column.type, quote=True)
    copy = Table(table.name, MetaData(), named, schema=table.schema, quote=True)
    index = Index(f"ix_{table.name}_{column.name}"[:63], copy.columns[column.name], postgresql_concurrently=True)
    return " ".join(str(CreateIndex(index).compile(dialect=database.engine.dialect)).split())
