"""Tables of a records store: root, children, keys and times; unsuitable ones are refused, missing indexes reported.

A text that no row of a key's column can have finds nothing. Databases differ in what they hold to be equal (case, trailing
blanks, leading zeros), but only the exact text is the unit of work: what is read is compared again, and actions find rows by
`exactly`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BIGINT,
    BINARY,
    CHAR,
    INTEGER,
    SMALLINT,
    TEXT,
    VARCHAR,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Enum,
    Float,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    Time,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    collate,
    false,
    func,
    literal_column,
    null,
    true,
)
from sqlalchemy import UUID as SQL_UUID
from sqlalchemy.schema import CreateIndex
from sqlalchemy.types import NullType, TypeEngine, UserDefinedType

from retention_assets.errors import Refused
from retention_assets.sql import foreign
from retention_assets.sql.foreign import ForeignDatabase, Place, indexes_of, places_on
from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.settings import RealmColumn

_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
TIMES = ("opened_at", "closed_at", "archived_at")
LOG_COLUMNS = (*TIMES, "type")
# root columns that become attributes, by name
ATTRIBUTE_COLUMNS = ("type", "realm")
# what a note says of a root row
NOTED = (*TIMES, *ATTRIBUTE_COLUMNS)


class _AnyLength(UserDefinedType[str]):
    """PostgreSQL's char of any length: plain CHAR is a single letter."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BPCHAR"


def _integer(text: str) -> int:
    if not (_INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63):
        raise ValueError(text)
    return int(text)


# Key types, with the conversion from text and the type of a list's elements, without a length that would cut texts. Narrower
# types come first. Any other type gets the raw text.
_TYPES: tuple[tuple[type[TypeEngine[Any]], Callable[[str], Any], TypeEngine[Any] | None], ...] = (
    (Enum, str, None),
    (Integer, _integer, BigInteger()),
    (Uuid, UUID, Uuid()),
    (Numeric, Decimal, Numeric()),
    (CHAR, str, _AnyLength()),
    (String, str, Text()),
)

# PostgreSQL types whose values, by their own collation, are equal if and only if their texts are. Not citext, a kind of text,
# nor char, which ignores trailing blanks.
_ONE_TEXT = (BIGINT, INTEGER, SMALLINT, SQL_UUID, TEXT, VARCHAR)


@dataclass(frozen=True)
class Key:
    column: Column[Any]
    dialect: str

    @property
    def text(self) -> ColumnElement[Any]:
        """The key as text; bytes as hexadecimal digits. Null without a key."""
        if self.dialect == "sqlite":
            # any column of SQLite may hold anything; bytes in it have no text that leads back to them
            return case((func.typeof(self.column) == "blob", null()), else_=cast(self.column, Text))
        if self._is_binary:
            return func.encode(self.column, "hex") if self.dialect == "postgresql" else func.lower(func.hex(self.column))
        return cast(self.column, Text if self.dialect == "postgresql" else CHAR)

    def among(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """Match the rows whose key is one of the texts, and perhaps others that the database holds to be equal."""
        if self.dialect == "sqlite":
            # a column without a type keeps numbers as numbers, which equal no text
            both = [value for one in ids for value in (one, _as_number(one)) if value is not None]
            return self.column.in_(both)
        read = self._read
        values = [value for one in ids if (value := read(one)) is not None]
        if not values:
            return false()
        if self.dialect != "postgresql":
            return self.column.in_(values)
        # one parameter, however many ids: the server prepares one statement
        kind = self._element
        as_texts = isinstance(kind, _AnyLength) or (kind is self.column.type and not self._is_binary)
        given: ColumnElement[Any] = bindparam(None, values, ARRAY(Text if as_texts else kind))
        found: ColumnElement[bool] = self.column == any_(cast(given, ARRAY(kind)) if as_texts else given)
        return found

    def exactly(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """Match the rows whose key as text equals one of the texts byte for byte. What the index finds is compared again."""
        given: ColumnElement[bool]
        if self._tells_all_apart:
            return self.among(ids)
        if self.dialect == "postgresql":
            given = collate(self.text, "C") == any_(bindparam(None, list(ids), ARRAY(Text)))
        elif self.dialect == "sqlite":
            given = collate(self.text, "BINARY").in_(ids)
        else:
            given = cast(self.text, BINARY).in_([one.encode() for one in ids])
        return and_(self.among(ids), given)

    def beyond(self, last: str, as_number: bool) -> ColumnElement[bool]:
        """Match the rows after the one with that text, in column order. `as_number` matters on SQLite only."""
        if self.dialect == "sqlite":
            return self.column > (_as_number(last) if as_number else last)
        later: ColumnElement[bool] = self.column > self._read(last)
        return later

    @property
    def _tells_all_apart(self) -> bool:
        # equal values have equal texts, so nothing needs to be compared again
        kind = self.column.type
        return self.dialect == "postgresql" and type(kind) in _ONE_TEXT and getattr(kind, "collation", None) is None

    @property
    def _is_binary(self) -> bool:
        try:
            return self.column.type.python_type is bytes
        except NotImplementedError:
            return False

    @property
    def _element(self) -> TypeEngine[Any]:
        element_type = next((element for known, _, element in _TYPES if isinstance(self.column.type, known)), None)
        return element_type if element_type is not None else self.column.type

    @property
    def _read(self) -> Callable[[str], Any]:
        # a property, so that it is looked up once for many texts
        read: Callable[[str], Any] = next((read for known, read, _ in _TYPES if isinstance(self.column.type, known)), str)
        if self._is_binary:
            read = bytes.fromhex

        def value(text: str) -> Any:
            try:
                return read(text)
            except (ValueError, InvalidOperation):
                return None

        return value


def _as_number(text: str) -> int | None:
    try:
        return _integer(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class TableRows:
    table: Table
    key: Key
    # when the database expires a row by itself; None if it does not
    expires: Column[Any] | None = None


@dataclass(frozen=True)
class RecordTables:
    """The root and its children. `log_columns` maps the log's names to columns of the root."""

    dialect: str
    root: TableRows
    children: tuple[TableRows, ...]
    log_columns: Mapping[str, Column[Any]]
    # rows of one table may block another's deletion: tables are done one after the other, all or none
    one_by_one: bool = False

    @property
    def texts(self) -> list[ColumnElement[Any]]:
        """Columns of the root for notes, as the database writes them, because notes are compared."""
        kind = Text if self.dialect in ("postgresql", "sqlite") else CHAR
        texts: dict[str, ColumnElement[Any]] = {name: cast(column, kind) for name, column in self.log_columns.items()}
        if self.realm is not None:
            texts["realm"] = self.realm
        return [text.label(name) for name, text in texts.items()]

    @property
    def realm(self) -> ColumnElement[Any] | None:
        """Realm of a root row as text, where a column names it; an empty one is none."""
        if "realm" not in self.log_columns:
            return None
        # no parameter: PostgreSQL would not take the same text in GROUP BY for the one that is selected
        return func.nullif(attribute_text(self.log_columns["realm"], self.dialect), literal_column("''"))

    def of_realm(self, realm: str | None) -> ColumnElement[bool]:
        """Match the rows of a realm, and perhaps others that the database holds to be equal."""
        if self.realm is None:
            return true()
        return self.realm.is_(None) if realm is None else self.realm == realm

    def time(self, name: str) -> ColumnElement[Any]:
        """Return a time of the root in the form that a stream gives."""
        column = self.log_columns[name]
        if self.dialect != "sqlite":
            return cast(column, DateTime) if _is_day(column) else column
        # Seconds, milliseconds or days? A number misread is long ago, and its row goes. So a number is a fault.
        day = case((func.length(column) == len("2026-01-01"), column.op("||")("T00:00:00Z")), else_=column)
        return case((func.typeof(column) == "text", day), (column.is_(None), null()), else_="is a number")


def attribute_text(column: Column[Any], dialect: str) -> ColumnElement[Any]:
    """Cast a column to the text that an attribute has in every format. Raises Refused for a type without one."""
    kind = column.type
    if dialect == "sqlite":
        # it has numbers and texts
        return cast(column, Text)
    as_text = cast(column, Text if dialect == "postgresql" else CHAR)
    if isinstance(kind, Boolean):
        return case((column.is_(True), "true"), (column.is_(False), "false"))
    if isinstance(kind, DateTime) and kind.timezone:
        found = func.to_char(func.timezone("UTC", column), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        return func.replace(found, ".000000Z", "Z")
    if isinstance(kind, Float | DateTime | Time | Interval | ARRAY | LargeBinary):
        raise Refused(
            f"The column {column.name} of the table {column.table} is of the type {kind}, but an attribute is a text, a "
            "whole number, a boolean, a day or an instant. Name another column as type, realm or kind in the settings."
        )
    return column if isinstance(kind, String) and dialect != "postgresql" else as_text


def _is_day(column: Column[Any]) -> bool:
    return isinstance(column.type, Date) and not isinstance(column.type, DateTime)


def tables_of(database: ForeignDatabase, settings: RecordsSettings) -> RecordTables:
    """Inspect the tables. Raises Refused if a table or column is missing or unsuitable."""
    inspection = _Inspection(database, settings)
    keys = [(settings.root.table, settings.root.key), *((child.table, child.key) for child in settings.children)]
    tables = foreign.tables_of(database, [name for name, _ in keys])
    root, *children = (inspection.rows(table, key) for table, (_, key) in zip(tables, keys, strict=True))
    columns = {name: getattr(settings.root, name) for name in LOG_COLUMNS}
    if isinstance(settings.realm, RealmColumn):
        columns["realm"] = settings.realm.column
    log_columns = {name: inspection.column(root.table, column) for name, column in columns.items() if column is not None}
    for name in TIMES:
        if name in log_columns:
            inspection.check_time(log_columns[name])
    inspection.check_children(root, children)
    return RecordTables(database.dialect, root, tuple(children), log_columns)


@dataclass(frozen=True)
class _Inspection:
    """The tables as they are now, and the store to name in a refusal."""

    database: ForeignDatabase
    settings: RecordsSettings

    def rows(self, table: Table, key: str) -> TableRows:
        expires = None
        if self.settings.ttl:
            expires = self.column(table, self.settings.ttl.column)
            self.check_time(expires)
            if _is_day(expires):
                raise self.database.wrong_type(expires, "is a day, but rows expire at an instant", "a timestamp")
            if not expires.nullable:
                # a time could be set and never cleared; MariaDB may even turn null into the present
                raise Refused(
                    f"The column {expires.name} of the table {table.fullname} of the store {self.settings.name} can't be "
                    "empty, but empty means never: make it nullable."
                )
        owner = self.column(table, key)
        if self.database.dialect != "sqlite" and isinstance(owner.type, NullType):
            expected = "a text, a number or a UUID as the key"
            raise self.database.wrong_type(owner, "is of a type that is not known here", expected)
        return TableRows(table, Key(owner, self.database.dialect), expires)

    def column(self, table: Table, name: str) -> Column[Any]:
        return self.database.column(table, name, "Name one of them in the settings, or add it to the table.")

    def check_children(self, root: TableRows, children: Sequence[TableRows]) -> None:
        """Refuse the root among its own children, and a child twice, however the settings spell them.

        Rows of a root that is its own child would be deleted with another root, and nobody would check them.
        """
        with self.database.reading() as connection:
            root_place, *places = places_on(connection, [root.table, *(rows.table for rows in children)])
        seen = set[tuple[Place, str]]()
        for place, rows in zip(places, children, strict=True):
            key = rows.key.column.name
            if place == root_place:
                raise Refused(
                    f"The table {rows.table.fullname} among the children of the store {self.settings.name} is the root's "
                    f"table {root.table.fullname} itself, so rows of other units of work would be deleted from it. Name "
                    "other tables under `children`."
                )
            if (place, key) in seen:
                raise Refused(
                    f"The table {rows.table.fullname} is twice among the children of the store {self.settings.name} by its key"
                    f" {key}, once under another name. Name each table and key once under `children`."
                )
            seen.add((place, key))

    def check_time(self, column: Column[Any]) -> None:
        """Refuse a column that holds no times. On SQLite this only shows when it is read."""
        if self.database.dialect != "sqlite" and not isinstance(column.type, DateTime | Date):
            raise self.database.wrong_type(column, f"is of the type {column.type}", "a timestamp")


def missing_indexes(database: ForeignDatabase, tables: RecordTables) -> Iterator[str]:
    """Yield a sentence about each searched column without an index that begins with it."""
    root = tables.root
    searched = [(rows, rows.key.column, "each batch of a sweep reads the whole table") for rows in (root, *tables.children)]
    searched += [(root, root.expires, "housekeeping reads the whole table")] if root.expires is not None else []
    for rows, column, cost in searched:
        first = [columns[0] for columns in indexes_of(database, rows.table.fullname) if columns]
        if column.name not in first:
            yield (
                f"The table {rows.table.fullname} has no index that begins with {column.name}, so {cost}. Create one: "
                f"{_create(database, rows.table, column)};"
            )


def _create(database: ForeignDatabase, table: Table, column: Column[Any]) -> str:
    named = Column(column.name, column.type, quote=True)
    copy = Table(table.name, MetaData(), named, schema=table.schema, quote=True)
    index = Index(f"ix_{table.name}_{column.name}"[:63], copy.columns[column.name], postgresql_concurrently=True)
    return " ".join(str(CreateIndex(index).compile(dialect=database.engine.dialect)).split())
