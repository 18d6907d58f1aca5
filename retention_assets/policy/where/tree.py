"""Typed tree of the `where` line: a boolean over log columns and attributes, with its columns and limits.

The language is our own and small: a general SQL parser accepts far more and rewrites what it accepts. Here whatever the
grammar does not name does not exist, so that a selector of deletions cannot mean something its author has not seen. Where
SQL dialects disagree about a text (double quotes, a backslash, `==`), it is refused, or means what it means in Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

MOST_CHARACTERS = 10_000
MOST_NODES = 500
DEEPEST = 50
LONGEST_PATTERN = 1_000  # a pattern is tried on every row


class Kind(Enum):
    """Type of a term; the value is its name in messages."""

    TEXT = "text"
    INTEGER = "an integer"
    DECIMAL = "a decimal number"
    INSTANT = "an instant"
    TRUTH = "true or false"


COLUMNS = {
    "dataset": Kind.TEXT,
    "transaction": Kind.TEXT,
    "parent": Kind.TEXT,
    "type": Kind.TEXT,
    "status": Kind.TEXT,
    "ordinal": Kind.INTEGER,
    "parent_ordinal": Kind.INTEGER,
    "bytes": Kind.INTEGER,
    "files": Kind.INTEGER,
    "opened_at": Kind.INSTANT,
    "closed_at": Kind.INSTANT,
    "archived_at": Kind.INSTANT,
}

# Columns of few values. Compared with anything else one is unequal in every row, and `<>` would select them all.
VALUES = {
    "type": ("SNAPSHOT", "APPEND", "UPDATE", "DELETE", "RECORD", "OBJECT"),
    "status": ("OPEN", "COMMITTED", "ABORTED"),
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as written. An instant is in microseconds since 1970, as in the log."""

    kind: Kind
    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the log."""

    name: str

    @property
    def kind(self) -> Kind:
        return COLUMNS[self.name]


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of one key of the attributes; null where the key is absent."""

    key: str

    @property
    def kind(self) -> Kind:
        return Kind.TEXT


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or a function over terms whose kinds fit it.

    Operands that are compared, chosen from or calculated with are of one kind; `and` and `or` are flat; the pattern of
    `like` escapes with a backslash.
    """

    op: str
    terms: tuple["Term", ...]
    kind: Kind


Term: TypeAlias = Literal | Column | Attribute | Apply


@dataclass(frozen=True)
class Condition:
    """A condition, and the text that a person wrote for it. Two are equal if they say the same."""

    text: str = field(compare=False)
    tree: Term


def columns_of(condition: Condition) -> frozenset[str]:
    return frozenset(_columns(condition.tree))


def _columns(term: Term) -> Iterator[str]:
    match term:
        case Column(name):
            yield name
        case Attribute():
            yield "attributes"
        case Apply(_, terms):
            for part in terms:
                yield from _columns(part)
