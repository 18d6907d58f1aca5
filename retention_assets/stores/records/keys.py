"""The keys of units of work: any type that a database has for them, and the one text by which everybody else knows them.

Belongs here: a key as text, and the conditions that find rows by such texts with the index of the column.
Does not belong here: tables (tables.py).

A text that no row of the column can have finds nothing. Databases differ in what they hold to be equal (case, blanks at the
end, zeros at the front), and only the very text is the unit of work that is meant: what is read is compared with it again, and
what is acted on is found by `exactly`.
"""

import re
from collections.abc import Callable, Sequence
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
    Column,
    ColumnElement,
    Enum,
    Integer,
    Numeric,
    String,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    collate,
    false,
    func,
    null,
)
from sqlalchemy import (
    UUID as SQL_UUID,
)
from sqlalchemy.types import TypeEngine, UserDefinedType

_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)


class _AnyLength(UserDefinedType[str]):
    """PostgreSQL's char of any length: what is called CHAR without one is a single letter."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BPCHAR"


def _integer(text: str) -> int:
    if not (_INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63):
        raise ValueError(text)
    return int(text)


# Types that databases have for keys: how a text becomes such a value, and the type as that of a list's elements, without a
# length to which texts would be cut. Each stands after the narrower ones. Any other type gets the text as it is.
_TYPES: tuple[tuple[type[TypeEngine[Any]], Callable[[str], Any], TypeEngine[Any] | None], ...] = (
    (Enum, str, None),
    (Integer, _integer, BigInteger()),
    (Uuid, UUID, Uuid()),
    (Numeric, Decimal, Numeric()),
    (CHAR, str, _AnyLength()),
    (String, str, Text()),
)

# Types of PostgreSQL in which, by their own collation, two values are equal if and only if their texts are; not citext, which
# is a kind of text, nor char, which takes no notice of blanks at the end.
_ONE_TEXT = (BIGINT, INTEGER, SMALLINT, SQL_UUID, TEXT, VARCHAR)


@dataclass(frozen=True)
class Key:
    """A column that holds the key of a unit of work."""

    column: Column[Any]
    dialect: str

    @property
    def text(self) -> ColumnElement[Any]:
        """The key as text: bytes as hexadecimal digits. Null where it has none."""
        if self.dialect == "sqlite":
            # Any column of SQLite may hold anything; bytes in it have no text that leads back to them.
            return case((func.typeof(self.column) == "blob", null()), else_=cast(self.column, Text))
        if self._is_binary:
            return func.encode(self.column, "hex") if self.dialect == "postgresql" else func.lower(func.hex(self.column))
        return cast(self.column, Text if self.dialect == "postgresql" else CHAR)

    def among(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """The rows whose key is one of some texts, and perhaps others that the database takes for the same."""
        if self.dialect == "sqlite":
            # A column without a type keeps numbers as numbers, and to those no text is equal.
            both = [value for one in ids for value in (one, _as_number(one)) if value is not None]
            return self.column.in_(both)
        read = self._read
        values = [value for one in ids if (value := read(one)) is not None]
        if not values:
            return false()
        if self.dialect != "postgresql":
            return self.column.in_(values)
        # One parameter, however many there are: one statement for the server to prepare.
        kind = self._element
        as_texts = isinstance(kind, _AnyLength) or (kind is self.column.type and not self._is_binary)
        given: ColumnElement[Any] = bindparam(None, values, ARRAY(Text if as_texts else kind))
        found: ColumnElement[bool] = self.column == any_(cast(given, ARRAY(kind)) if as_texts else given)
        return found

    def exactly(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """The rows whose key as text is one of some texts to the byte. What the index of the column finds is compared again."""
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
        """The rows after the one with that text, in the order of the column. `as_number` is SQLite's to know."""
        if self.dialect == "sqlite":
            return self.column > (_as_number(last) if as_number else last)
        later: ColumnElement[bool] = self.column > self._read(last)
        return later

    @property
    def _tells_all_apart(self) -> bool:
        """Whether what the column holds to be equal is the same text, so that nothing needs to be compared again."""
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
        found = next((element for known, _, element in _TYPES if isinstance(self.column.type, known)), None)
        return found if found is not None else self.column.type

    @property
    def _read(self) -> Callable[[str], Any]:
        """The value of a text in the column, or none if it has none. Asked for once, and not for each of many texts."""
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
