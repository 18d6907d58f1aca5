"""Random terms of every kind for Hypothesis, and how each is written in the language.

Values are few, so that they meet each other: in the literals of a term and in the rows that it is asked of.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from retention_assets.policy import micros, parse_instant
from retention_assets.policy.where.tree import CASTS as KIND_CASTS
from retention_assets.policy.where.tree import COLUMNS, TARGETS, Apply, Attribute, Column, Kind, Literal, Term

KEYS = ("a", "n", "d", "b", "it's")
TEXTS = (
    "", "a", "A", "b", "ab", "aab", " a ", "%", "_", "a%b", "a_b", "\\", "a\\b", "it's", "é", "Ää", "🤦", "a\nb", "SNAPSHOT",
    "lake/d",
)  # fmt: skip
NUMBERS = (
    "0", "7", "-7", "+7", " 12 ", "007", "1.5", "-.5", "5.", "1e3", "1e400", "9223372036854775807", "9223372036854775808",
    "x7", "7x", "--7",
)  # fmt: skip
DATES = (
    "2026-01-01", "2024-02-29", "2023-02-29", "2026-01-01T10:11:12Z", "2026-01-01 10:11+02:00", "2026-01-01T00:00:00.25-0130",
    "2026-01-01T10:11:12",
)  # fmt: skip
TRUTHS = ("true", "FALSE", " y", "no", "1", "0", "2")
INTEGERS = (
    0, 1, -1, 2, 3, 5, -7, 10, 1000, 2**31, 2**53 + 1, 3037000500, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1,
)  # fmt: skip
DECIMALS = (0.0, 0.5, -0.5, 1.0, 1.5, 3.0, 10.0, 1e3, 1e18, 9.3e18, 1e300, -1e300, 1e-300)
MOMENTS = ("1969-12-31T23:59:58.5Z", "1970-01-01", "2024-02-29", "2026-01-01", "2026-01-01T10:11:12Z")
INSTANTS = tuple(micros(parse_instant(text)) for text in MOMENTS)
PATTERNS = (
    "%", "", "a%", "%b", "%a%", "_", "__", "a_b", "a\\_b", "a\\%b", "%\\\\%", "\\%", "\\_", "\\\\", "%\\\\b", "_\\%_", "%a%b%",
    "%%a", "é_", "a%b%_", "L%", "%/d",
)  # fmt: skip


LITERALS: dict[Kind, tuple[Any, ...]] = {
    Kind.TEXT: TEXTS, Kind.INTEGER: INTEGERS, Kind.DECIMAL: DECIMALS, Kind.INSTANT: INSTANTS, Kind.TRUTH: (True, False),
}  # fmt: skip


@cache
def literals(kind: Kind) -> st.SearchStrategy[Term]:
    return st.sampled_from([Literal(kind, value) for value in LITERALS[kind]])


@cache
def leaves(kind: Kind) -> st.SearchStrategy[Term]:
    """What is not applied to anything; an attribute counts with the cast that makes it of the kind."""
    columns = [Column(name) for name, its in COLUMNS.items() if its is kind]
    attributes = [Attribute(key) for key in KEYS]
    cast = [attribute if kind is Kind.TEXT else Apply("cast", (attribute,), kind) for attribute in attributes]
    # Literals seldom: a condition over constants finds little.
    return st.one_of(st.sampled_from([*columns, *cast]), st.sampled_from([*columns, *cast]), literals(kind))


def applied(op: str, kind: Kind, *parts: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    return st.tuples(*parts).map(lambda terms: Apply(op, terms, kind))


@st.composite
def terms(draw: st.DrawFn, kind: Kind, depth: int) -> Term:
    """A well-kinded term, in the form in which the reader would leave it."""
    ways = grown(kind, depth)
    return draw(ways[draw(st.integers(0, len(ways) - 1))])


@cache
def grown(kind: Kind, depth: int) -> list[st.SearchStrategy[Term]]:
    """The ways to make one; what stands there several times is drawn more often, which one_of would undo."""
    return [*_grown(kind, depth - 1), *[leaves(kind)] * 3] if depth else [leaves(kind)]


def _grown(kind: Kind, depth: int) -> Iterator[st.SearchStrategy[Term]]:
    same = terms(kind, depth)
    if kind is Kind.TRUTH:
        yield from _tests(depth)
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        yield from (applied(op, kind, same, same) for op in "+-*%")
        yield applied("abs", kind, same)
        # A minus before a literal is part of it.
        yield applied("negate", kind, same.filter(lambda term: not isinstance(term, Literal)))
    if kind is Kind.DECIMAL:
        yield applied("/", kind, same, same)
    if kind is Kind.INTEGER:
        yield applied("length", kind, terms(Kind.TEXT, depth))
    if kind is Kind.TEXT:
        yield from (applied(op, kind, same) for op in ("lower", "upper", "trim"))
    yield from (applied("cast", kind, terms(given, depth)) for given, wanted in KIND_CASTS.items() if kind in wanted)
    yield applied("coalesce", kind, same, same)


def _tests(depth: int) -> Iterator[st.SearchStrategy[Term]]:
    for kind in Kind:
        # Values stay shallow: from three operations upwards nearly everything is null.
        part = terms(kind, depth if kind is Kind.TRUTH else min(depth, 2))
        yield from (applied(op, Kind.TRUTH, part, part) for op in ("=", "<>"))
        yield from (applied("in", Kind.TRUTH, part, *[literals(kind)] * count) for count in (1, 3))
        yield applied("is null", Kind.TRUTH, part)
        if kind is not Kind.TRUTH:
            yield from (applied(op, Kind.TRUTH, part, part) for op in ("<", "<=", ">", ">="))
            yield applied("between", Kind.TRUTH, part, part, part)
    patterns = st.sampled_from([Literal(Kind.TEXT, pattern) for pattern in PATTERNS])
    yield from [applied("like", Kind.TRUTH, terms(Kind.TEXT, min(depth, 1)), patterns)] * 6
    truth = terms(Kind.TRUTH, depth)
    yield from [applied("not", Kind.TRUTH, truth)] * 3
    for op in ("and", "or"):
        flat = truth.filter(partial(_is_not, op))
        yield from [applied(op, Kind.TRUTH, *[flat] * count) for count in (2, 3)] * 6


def _is_not(op: str, term: Term) -> bool:
    return not (isinstance(term, Apply) and term.op == op)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def as_condition(term: Term) -> str:
    match term:
        case Literal(Kind.TEXT, value):
            return quoted(str(value).replace("\\", "\\\\"))
        case Literal(Kind.INSTANT, value):
            return f"TIMESTAMP '{datetime.fromtimestamp(int(value) / 1e6, UTC).isoformat()}'"
        case Literal(_, value):
            return str(value)
        case Column(name):
            return name
        case Attribute(key):
            return f"attributes[{quoted(key)}]"
        case Apply(op, parts):
            return operation(op, [f"({as_condition(part)})" for part in parts], term)


def operation(op: str, parts: list[str], term: Apply) -> str:
    first, *others = parts
    match op:
        case "not":
            return f"NOT {first}"
        case "negate":
            return f"- {first}"
        case "is null":
            return f"{first} IS NULL"
        case "in":
            return f"{first} IN ({', '.join(others)})"
        case "between":
            return f"{first} BETWEEN {others[0]} AND {others[1]}"
        case "like":
            return f"{first} LIKE {as_condition(term.terms[1])}"
        case "cast":
            return f"CAST({first} AS {next(name for name, kind in TARGETS.items() if kind is term.kind)})"
        case "lower" | "upper" | "length" | "abs" | "coalesce":
            return f"{op}({', '.join(parts)})"
        case "trim":
            return f"trim({first})"
    return f" {op} ".join(parts)
