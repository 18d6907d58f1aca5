"""Typed terms of the `where` line: literals, columns and operators, with the kinds that fit each and the limits on size.

The language is our own and small: a general SQL parser accepts far more and rewrites what it accepts. Here whatever the
grammar does not name does not exist, so that a selector of deletions cannot mean something its author has not seen. Where
SQL dialects disagree about a text (double quotes, a backslash, `==`), it is refused, or means what it means in Spark.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple, NoReturn, TypeAlias

from retention_assets.errors import InvalidValue, quote, suggest
from retention_assets.policy.durations import EXPECTED_INSTANT, micros, parse_instant

MOST_CHARACTERS = 10_000
MOST_NODES = 500
DEEPEST = 50
_LONGEST_PATTERN = 1_000  # a pattern is tried on every row


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

# Columns with a fixed set of values. Any other value equals no row, and `<>` would select them all.
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
    name: str

    @property
    def kind(self) -> Kind:
        return COLUMNS[self.name]


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of one key of the attributes; null where the key is absent."""

    key: str
    kind: ClassVar[Kind] = Kind.TEXT


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


BACKSLASH = "\\"  # escapes in a pattern unless ESCAPE says otherwise, as in Spark

_INT64 = range(-(2**63), 2**63)
_ESCAPED = re.compile(r"['\\](['\\])")  # the grammar lets both of them stand in a text only in pairs


def number(sign: str, digits: str) -> Literal:
    if not digits.isdecimal():
        decimal = float(sign + digits) + 0.0  # turns -0.0 into 0.0
        if not math.isfinite(decimal):
            raise InvalidValue(f"{quote(digits)} is too large", "a decimal number below 1.8e308")
        return Literal(Kind.DECIMAL, decimal)
    digits = digits.lstrip("0") or "0"
    # The length first: Python itself refuses to read thousands of digits.
    if len(digits) > 19 or int(sign + digits) not in _INT64:
        raise InvalidValue(f"{quote(sign + digits)} is too large", "an integer of 64 bits")
    return Literal(Kind.INTEGER, int(sign + digits))


def unquoted(token: str) -> str:
    return _ESCAPED.sub(r"\1", token[1:-1])


def instant(words: str) -> Literal:
    try:
        return Literal(Kind.INSTANT, micros(parse_instant(words)))
    except (ValueError, OverflowError):
        raise InvalidValue(f"{quote(words)} is not an instant", EXPECTED_INSTANT) from None


def date(words: str) -> Literal:
    if len(words) != len("2026-01-01"):
        raise InvalidValue(f"{quote(words)} is not a date", "a date such as 2026-01-01", "Write TIMESTAMP '…' for an instant.")
    return instant(words)


def escaping(text: str) -> str:
    if len(text) != 1 or text in "%_":
        raise InvalidValue(f"{quote(text)} cannot escape", "one character other than % and _")
    return text


def pattern(text: str, escape: str) -> Literal:
    """Rewrite a pattern to escape with a backslash, whichever character the person chose."""
    if len(text) > _LONGEST_PATTERN:
        raise InvalidValue(f"a pattern of {len(text)} characters", f"at most {_LONGEST_PATTERN}")
    escaped, rest = "", iter(text)
    for char in rest:
        if char != escape:
            escaped += BACKSLASH * 2 if char == BACKSLASH else char
            continue
        char = next(rest, "")
        if char not in ("%", "_", escape):
            what = f"{quote(escape + char)} in the pattern escapes nothing"
            raise InvalidValue(what, f"%, _ or {escape} after {escape}", f"Write {escape}{escape} for a plain {escape}.")
        escaped += verbatim(char)
    return Literal(Kind.TEXT, escaped)


def verbatim(text: str) -> str:
    """Escape a text to a pattern that matches just this text."""
    return "".join(BACKSLASH + char if char in "%_\\" else char for char in text)


NUMERIC = (Kind.INTEGER, Kind.DECIMAL)
TARGETS = {
    "bigint": Kind.INTEGER,
    "double": Kind.DECIMAL,
    "string": Kind.TEXT,
    "timestamp": Kind.INSTANT,
    "boolean": Kind.TRUTH,
}
CASTS = {
    Kind.TEXT: tuple(Kind),
    Kind.INTEGER: (Kind.INTEGER, Kind.DECIMAL, Kind.TEXT),
    Kind.DECIMAL: NUMERIC,  # not to text: engines write decimals differently
    Kind.INSTANT: (Kind.INSTANT, Kind.INTEGER),  # whole seconds since 1970
    Kind.TRUTH: (Kind.TRUTH,),
}
# function of one argument: the kinds it takes, and the kind it returns (None: that of its argument)
PLAIN: dict[str, tuple[tuple[Kind, ...], Kind | None]] = {
    "lower": ((Kind.TEXT,), Kind.TEXT),
    "upper": ((Kind.TEXT,), Kind.TEXT),
    "trim": ((Kind.TEXT,), Kind.TEXT),
    "length": ((Kind.TEXT,), Kind.INTEGER),
    "abs": (NUMERIC, None),
}
# LIKE for a text without wildcards: what the pattern has before and after it.
AFFIXES = {"startswith": ("", "%"), "endswith": ("%", ""), "contains": ("%", "%")}
# No attribute is one of these texts, which Python writes.
_NO_ATTRIBUTES = ("True", "False", "None", "nan")
FUNCTIONS = (*PLAIN, *AFFIXES, "coalesce", "cast")


# --- Phrases ---------------------------------------------------------------------------------------------------------


class Phrase(NamedTuple):
    """A term, how large it is, and the words that it was written in, for messages; the positions are as in Lark's tokens."""

    term: Term
    depth: int = 1
    nodes: int = 1
    inside: int = 0  # deepest nesting of parentheses, NOTs and minuses
    words: str = ""
    start_pos: int = 0
    end_pos: int = 0

    def __str__(self) -> str:
        return self.words

    @property
    def kind(self) -> Kind:
        return self.term.kind

    def remedy(self, wanted: Kind) -> str | None:
        """How to get the wanted kind from it."""
        if isinstance(self.term, Literal):
            return "Write a number without quotes." if self.kind is Kind.TEXT and wanted in NUMERIC else None
        if len(self.words) > 60 or wanted not in CASTS[self.kind]:
            return None
        target = next(name for name, kind in TARGETS.items() if kind is wanted)
        return f"Write CAST({self.words} AS {target.upper()})."


def enclosed(phrase: Phrase) -> Phrase:
    """Phrase within parentheses, after NOT, or after a minus."""
    if phrase.inside == DEEPEST:
        _too_deep()
    return phrase._replace(inside=phrase.inside + 1)


def applied(op: str, kind: Kind, phrases: Sequence[Phrase]) -> Phrase:
    """An operator or a function over phrases that fit it, within the limits."""
    return _sized(Apply(op, tuple(phrase.term for phrase in phrases), kind), phrases)


def joined(op: str, phrases: Sequence[Phrase]) -> Phrase:
    """Join conditions by `and` or `or` into one flat term, however they were bracketed."""
    terms: list[Term] = []
    parts: list[Phrase] = []
    for phrase in phrases:
        need_kind(phrase, (Kind.TRUTH,), f"beside {op.upper()}")
        if isinstance(phrase.term, Apply) and phrase.term.op == op:
            terms += phrase.term.terms
            parts.append(phrase._replace(depth=phrase.depth - 1, nodes=phrase.nodes - 1))
        else:
            terms.append(phrase.term)
            parts.append(phrase)
    return _sized(Apply(op, tuple(terms), Kind.TRUTH), parts)


def _sized(term: Apply, phrases: Sequence[Phrase]) -> Phrase:
    depth = 1 + max(phrase.depth for phrase in phrases)
    nodes = 1 + sum(phrase.nodes for phrase in phrases)
    if nodes > MOST_NODES:
        raise InvalidValue("has too many parts", f"at most {MOST_NODES}", "Write several policies, or set an attribute.")
    if depth > DEEPEST:
        _too_deep()
    return Phrase(term, depth, nodes, max(phrase.inside for phrase in phrases))


def _too_deep() -> NoReturn:
    raise InvalidValue("is nested too deep", f"at most {DEEPEST} levels")


# --- Kinds -----------------------------------------------------------------------------------------------------------


def need_kind(phrase: Phrase, kinds: Sequence[Kind], where: str) -> None:
    if phrase.kind not in kinds:
        remedy = phrase.remedy(kinds[0])
        if Kind.TRUTH in kinds and phrase.kind is not Kind.TEXT:
            remedy = "Compare it with a value."
        wanted = " or ".join(kind.value for kind in kinds)
        raise InvalidValue(f"{quote(phrase.words)} is {phrase.kind.value}", f"{wanted} {where}", remedy)


def need_known(phrases: Sequence[Phrase]) -> None:
    """Refuse a type, a status or a text of an attribute that cannot occur: it is a typo."""
    terms = [phrase.term for phrase in phrases]
    if any(isinstance(term, Attribute) for term in terms):
        for text in (term.value for term in terms if isinstance(term, Literal) and term.value in _NO_ATTRIBUTES):
            what = f"{quote(text)} is the text of no attribute"
            raise InvalidValue(what, "a text as logs have it: 'true', 'false'", "Write IS NULL for what is absent.")
    for column in terms:
        known = VALUES.get(column.name, ()) if isinstance(column, Column) else ()
        for term in terms if known else ():
            if isinstance(term, Literal) and term.value not in known:
                remedy = suggest(str(term.value).upper(), known)
                raise InvalidValue(f"{quote(term.value)} is not a value of the column", " or ".join(known), remedy)


def need_order(phrase: Phrase) -> None:
    if phrase.kind is Kind.TRUTH:
        raise InvalidValue(f"{quote(phrase.words)} is true or false, which have no order", "numbers, texts or instants")


def alike(phrases: Sequence[Phrase]) -> list[Phrase]:
    """Bring phrases to one kind where that loses nothing."""
    kinds = {phrase.kind for phrase in phrases}
    if Kind.INSTANT in kinds:
        phrases = [_as_instant(phrase) for phrase in phrases]
    elif kinds == set(NUMERIC):
        phrases = [as_decimal(phrase) for phrase in phrases]
    for other in phrases[1:]:
        if other.kind is not (first := phrases[0]).kind:
            remedy = first.remedy(other.kind) if first.kind is Kind.TEXT else other.remedy(first.kind)
            if Kind.TEXT not in (first.kind, other.kind) and Kind.INSTANT in (first.kind, other.kind):
                remedy = "Write an instant in quotes: '2026-01-01T00:00:00Z'."
            what = f"{quote(first.words)} is {first.kind.value} and {quote(other.words)} is {other.kind.value}"
            raise InvalidValue(what, "values of one kind", remedy)
    return list(phrases)


def _as_instant(phrase: Phrase) -> Phrase:
    if isinstance(phrase.term, Literal) and phrase.kind is Kind.TEXT:
        return phrase._replace(term=instant(str(phrase.term.value)))
    return phrase


def as_decimal(phrase: Phrase) -> Phrase:
    """Cast an integer in the tree itself, so that no evaluator meets mixed numbers."""
    if phrase.kind is Kind.DECIMAL:
        return phrase
    if isinstance(phrase.term, Literal):
        return phrase._replace(term=Literal(Kind.DECIMAL, float(phrase.term.value)))
    return phrase._replace(term=Apply("cast", (phrase.term,), Kind.DECIMAL), depth=phrase.depth + 1)
