"""Keys of units of work: conversion to and from text, and conditions that find texts with the column's index.

A text that no row of the column can have finds nothing. Databases differ in what they hold to be equal (case, trailing blanks,
leading zeros), but only the exact text is the unit of work: what is read is compared again, and actions find rows by `exactly`.
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
    """A column that holds the key of a unit of work."""

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
        """Equal values have equal texts, so nothing needs to be compared again."""
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
        """Convert a text to a value, None if there is none. A property, so that it is looked up once for many texts."""
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
