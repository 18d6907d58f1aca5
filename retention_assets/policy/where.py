"""The `where` line of a policy: a boolean over log columns and attributes, read into a small typed tree.

Belongs here: the grammar, the kinds of value, every refusal, and which columns a condition reads.
Does not belong here: what a condition says about rows (frames/condition.py), other lines of a policy (model.py).

The reader is written out, not borrowed from a general SQL parser: such a parser accepts far more than this language,
rewrites what it accepts, and needs the whole stack for fifty parentheses. Here whatever is not named does not exist, so
that a selector of deletions cannot mean something its author has not seen. Where SQL dialects disagree about a text
(double quotes, a backslash, `==`), it is refused, or means what it means in Spark.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NoReturn, TypeAlias

from retention_assets.policy.instants import EXPECTED_INSTANT, micros, parse_instant
from retention_assets.problems import Expected, nearest, shown

MOST_CHARACTERS = 10_000
MOST_NODES = 500
DEEPEST = 50
LONGEST_PATTERN = 1_000  # a pattern is tried on every row

_INT64 = range(-(2**63), 2**63)


# --- The tree --------------------------------------------------------------------------------------------------------


class Kind(Enum):
    """What a term yields; the value is how a message says it."""

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
    """The log columns that a condition reads."""
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


def parse_condition(text: str) -> Condition:
    """Read a condition, or raise Expected with the piece that is wrong and what to write instead."""
    text = text.strip()
    if not text:
        raise Expected("is empty", "a condition, such as bytes > 0", "Leave `where` out to select by the other lines.")
    if len(text) > MOST_CHARACTERS:
        raise Expected(f"is {len(text)} characters long", f"at most {MOST_CHARACTERS}")
    _need_visible(text)
    condition = Condition(text, _Reader(text).whole())
    if not columns_of(condition):
        remedy = "For every transaction write `select: all`."
        raise Expected("reads no column", "a condition that depends on the transaction", remedy)
    return condition


# --- Pieces: what the text is cut into -------------------------------------------------------------------------------


class _Sort(Enum):
    WORD = "word"  # a keyword, a column or a function, in lower case
    NAME = "name"  # a column in backquotes, in lower case
    NUMBER = "number"
    TEXT = "text"  # without its quotes
    SIGN = "sign"
    END = "end"


class _Piece(NamedTuple):
    sort: _Sort
    value: str
    start: int
    stop: int

    def among(self, *values: str) -> bool:
        """Whether it is one of these words or signs; a text never is, whatever it says."""
        return self.sort in (_Sort.WORD, _Sort.SIGN) and self.value in values


_SPACE = " \t\r\n"
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_SIGNS = ("<=", ">=", "<>", "!=", "<", ">", "=", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%")
_COMMENT = "Write comments in the file, after #; between two minus signs put a space."
_REMEDIES = {  # signs of SQL that are not of this language, among them all that would else be read as two that are
    "<=>": "Write IS NULL beside the comparison.",
    "--": _COMMENT,
    "/*": _COMMENT,
    "*/": _COMMENT,
    "==": "Write =.",
    "->": "Write attributes['k'] for an attribute.",
    "||": "Compare the parts one by one.",
    "::": "Write CAST(… AS …).",
    "!": "Write NOT, or <>.",
    '"': "Write 'x' for a text, and a column without quotes.",
    ";": "Write one condition; join several with AND or OR.",
    ".": "Write attributes['k'] for an attribute.",
}


def _need_visible(text: str) -> None:
    """Refuse characters that make a condition look different from what it is, or that no ledger can store."""
    for char in text:
        hidden = unicodedata.category(char) in ("Cc", "Cs") and char not in _SPACE
        if hidden or unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"):
            raise Expected(f"holds the invisible character {shown(char)}", "characters that one can see")


def _pieces(text: str) -> Iterator[_Piece]:
    at = _run(text, 0, _SPACE)
    while at < len(text):
        piece = _piece(text, at)
        yield piece
        at = _run(text, piece.stop, _SPACE)
    yield _Piece(_Sort.END, "", at, at)


def _piece(text: str, start: int) -> _Piece:
    char = text[start]
    if char in _LETTERS:
        stop = _run(text, start, _LETTERS + _DIGITS)
        return _Piece(_Sort.WORD, text[start:stop].lower(), start, stop)
    if char in _DIGITS or (char == "." and _run(text, start + 1, _DIGITS) > start + 1):
        return _number(text, start)
    if char == "'":
        return _quoted(text, start)
    if char == "`":
        return _backquoted(text, start)
    return _sign(text, start)


def _run(text: str, start: int, allowed: str) -> int:
    """Where a run of allowed characters ends."""
    while start < len(text) and text[start] in allowed:
        start += 1
    return start


def _number(text: str, start: int) -> _Piece:
    stop = _run(text, start, _DIGITS)
    if text.startswith(".", stop):
        stop = _run(text, stop + 1, _DIGITS)
    if text[stop : stop + 1] in ("e", "E"):
        digits = stop + (2 if text[stop + 1 : stop + 2] in ("+", "-") else 1)
        exponent = _run(text, digits, _DIGITS)
        stop = exponent if exponent > digits else stop
    whole = _run(text, stop, _LETTERS + _DIGITS + ".")
    if whole > stop:
        raise Expected(f"{shown(text[start:whole])} is not a number", "a number without a unit, such as 1024 or 0.5")
    return _Piece(_Sort.NUMBER, text[start:stop], start, stop)


def _quoted(text: str, start: int) -> _Piece:
    """A text in single quotes. A quote in it is doubled, or escaped as in Spark; no other escape is the same everywhere."""
    value, at = "", start + 1
    while at < len(text):
        char, pair = text[at], text[at : at + 2]
        if pair in ("''", "\\'", "\\\\"):
            value, at = value + pair[1], at + 2
        elif char == "'":
            return _Piece(_Sort.TEXT, value, start, at + 1)
        elif char == "\\":
            raise Expected(f"{shown(pair)} has no one meaning in a text", "\\\\ for a backslash, '' for a quote")
        else:
            value, at = value + char, at + 1
    raise Expected(f"the text {shown(text[start:])} has no end", "a closing quote", "Double a quote inside a text: 'it''s'.")


def _backquoted(text: str, start: int) -> _Piece:
    stop = text.find("`", start + 1)
    if stop < 0:
        raise Expected(f"the name {shown(text[start:])} has no end", "a closing backquote")
    return _Piece(_Sort.NAME, text[start + 1 : stop].lower(), start, stop + 1)


def _sign(text: str, start: int) -> _Piece:
    for sign, remedy in _REMEDIES.items():
        if text.startswith(sign, start) and not text.startswith("!=", start):
            raise Expected(f"{shown(sign)} has no meaning here", "words, values and signs of a condition", remedy)
    for sign in _SIGNS:
        if text.startswith(sign, start):
            return _Piece(_Sort.SIGN, sign, start, start + len(sign))
    raise Expected(f"{shown(text[start])} has no meaning here", "words, values and signs of a condition")


# --- Phrases: terms with their words, and whether their kinds fit ----------------------------------------------------

_NUMERIC = (Kind.INTEGER, Kind.DECIMAL)
TARGETS = {
    "bigint": Kind.INTEGER,
    "double": Kind.DECIMAL,
    "string": Kind.TEXT,
    "timestamp": Kind.INSTANT,
    "boolean": Kind.TRUTH,
}
_CASTS = {
    Kind.TEXT: tuple(Kind),
    Kind.INTEGER: (Kind.INTEGER, Kind.DECIMAL, Kind.TEXT),
    Kind.DECIMAL: _NUMERIC,  # not to text: engines write decimals differently
    Kind.INSTANT: (Kind.INSTANT, Kind.INTEGER),  # whole seconds since 1970
    Kind.TRUTH: (Kind.TRUTH,),
}
# Function of one argument: what it takes, and what it yields; none is the kind that it was given.
_PLAIN: dict[str, tuple[tuple[Kind, ...], Kind | None]] = {
    "lower": ((Kind.TEXT,), Kind.TEXT),
    "upper": ((Kind.TEXT,), Kind.TEXT),
    "trim": ((Kind.TEXT,), Kind.TEXT),
    "length": ((Kind.TEXT,), Kind.INTEGER),
    "abs": (_NUMERIC, None),
}
# LIKE for a text without wildcards: what the pattern has before and after it.
_AFFIXES = {"startswith": ("", "%"), "endswith": ("%", ""), "contains": ("%", "%")}
FUNCTIONS = (*_PLAIN, *_AFFIXES, "coalesce", "cast")


class _Phrase(NamedTuple):
    """A term with the words that it was written in, for messages, and how deep it is."""

    term: Term
    words: str
    depth: int = 1

    @property
    def kind(self) -> Kind:
        return self.term.kind

    def remedy(self, wanted: Kind) -> str | None:
        """How to get the wanted kind from it."""
        if isinstance(self.term, Literal):
            return "Write a number without quotes." if self.kind is Kind.TEXT and wanted in _NUMERIC else None
        if len(self.words) > 60 or wanted not in _CASTS[self.kind]:
            return None
        target = next(name for name, kind in TARGETS.items() if kind is wanted)
        return f"Write CAST({self.words} AS {target.upper()})."


def _need_kind(phrase: _Phrase, kinds: Sequence[Kind], where: str) -> None:
    if phrase.kind not in kinds:
        remedy = phrase.remedy(kinds[0])
        if Kind.TRUTH in kinds and phrase.kind is not Kind.TEXT:
            remedy = "Compare it with a value."
        wanted = " or ".join(kind.value for kind in kinds)
        raise Expected(f"{shown(phrase.words)} is {phrase.kind.value}", f"{wanted} {where}", remedy)


def _alike(phrases: Sequence[_Phrase]) -> list[_Phrase]:
    """The same phrases, brought to one kind where that loses nothing."""
    kinds = {phrase.kind for phrase in phrases}
    if Kind.INSTANT in kinds:
        phrases = [_as_instant(phrase) for phrase in phrases]
    elif kinds == set(_NUMERIC):
        phrases = [_as_decimal(phrase) for phrase in phrases]
    for other in phrases[1:]:
        if other.kind is not phrases[0].kind:
            _mismatch(phrases[0], other)
    return list(phrases)


def _mismatch(one: _Phrase, other: _Phrase) -> NoReturn:
    remedy = one.remedy(other.kind) if one.kind is Kind.TEXT else other.remedy(one.kind)
    if Kind.TEXT not in (one.kind, other.kind) and Kind.INSTANT in (one.kind, other.kind):
        remedy = "Write an instant in quotes: '2026-01-01T00:00:00Z'."
    what = f"{shown(one.words)} is {one.kind.value} and {shown(other.words)} is {other.kind.value}"
    raise Expected(what, "values of one kind", remedy)


def _as_instant(phrase: _Phrase) -> _Phrase:
    """A bare text beside an instant is read as one."""
    if isinstance(phrase.term, Literal) and phrase.kind is Kind.TEXT:
        return phrase._replace(term=_instant(str(phrase.term.value)))
    return phrase


def _instant(words: str) -> Literal:
    try:
        return Literal(Kind.INSTANT, micros(parse_instant(words)))
    except (ValueError, OverflowError):
        raise Expected(f"{shown(words)} is not an instant", EXPECTED_INSTANT) from None


def _date(words: str) -> Literal:
    if len(words) != len("2026-01-01"):
        raise Expected(f"{shown(words)} is not a date", "a date such as 2026-01-01", "Write TIMESTAMP '…' for an instant.")
    return _instant(words)


def _as_decimal(phrase: _Phrase) -> _Phrase:
    """An integer beside a decimal becomes one in the tree itself, so that nobody evaluates a mixture."""
    if phrase.kind is Kind.DECIMAL:
        return phrase
    if isinstance(phrase.term, Literal):
        return phrase._replace(term=Literal(Kind.DECIMAL, float(phrase.term.value)))
    return phrase._replace(term=Apply("cast", (phrase.term,), Kind.DECIMAL), depth=phrase.depth + 1)


def _need_known(phrases: Sequence[_Phrase]) -> None:
    """Refuse a type or a status that does not exist: it is a typo."""
    terms = [phrase.term for phrase in phrases]
    for column in terms:
        known = VALUES.get(column.name, ()) if isinstance(column, Column) else ()
        for term in terms if known else ():
            if isinstance(term, Literal) and term.value not in known:
                meant = _meant(nearest(str(term.value).upper(), known))
                raise Expected(f"{shown(term.value)} is not a value of the column", " or ".join(known), meant)


def _need_order(phrase: _Phrase) -> None:
    if phrase.kind is Kind.TRUTH:
        raise Expected(f"{shown(phrase.words)} is true or false, which have no order", "numbers, texts or instants")


def _meant(word: str | None) -> str | None:
    return f"Did you mean {word}?" if word else None


def _pattern(pattern: str, escape: str) -> str:
    """The pattern with a backslash as its escape, whichever the person chose."""
    if len(pattern) > LONGEST_PATTERN:
        raise Expected(f"a pattern of {len(pattern)} characters", f"at most {LONGEST_PATTERN}")
    made, rest = "", iter(pattern)
    for char in rest:
        if char != escape:
            made += "\\\\" if char == "\\" else char
            continue
        char = next(rest, "")
        if char not in ("%", "_", escape):
            what = f"{shown(escape + char)} in the pattern escapes nothing"
            raise Expected(what, f"%, _ or {escape} after {escape}", f"Write {escape}{escape} for a plain {escape}.")
        made += _verbatim(char)
    return made


def _verbatim(text: str) -> str:
    """A text as a pattern that matches just itself."""
    return "".join("\\" + char if char in "%_\\" else char for char in text)


# --- The reader ------------------------------------------------------------------------------------------------------

_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _MINUS = range(1, 8)
_BINDING = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(("=", "<>", "!=", "<", "<=", ">", ">=", "is", "in", "like", "between"), _TEST),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}
# Words of SQL that people may try; "is not a column" would send them looking for the wrong thing.
_FOREIGN = {
    *("all", "any", "array", "case", "distinct", "end", "except", "exists", "from", "having", "ilike", "intersect"),
    *("interval", "join", "lambda", "limit", "map", "over", "regexp", "rlike", "select", "similar", "some", "struct"),
    *("table", "union", "values", "when", "where", "with", "drop", "insert", "delete", "update", "create", "alter"),
}


class _Reader:
    """Precedence climbing over the pieces; a term is checked as soon as it is whole."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pieces = list(_pieces(text))
        self._at = self._nodes = self._open = self._levels = 0

    def whole(self) -> Term:
        phrase = self._expression(0)
        if self._here.sort is not _Sort.END:
            self._unexpected("AND, OR or the end")
        _need_kind(phrase, (Kind.TRUTH,), "as a whole")
        return phrase.term

    # Moving along the pieces.

    @property
    def _here(self) -> _Piece:
        return self._pieces[self._at]

    @property
    def _next(self) -> _Piece:
        return self._pieces[min(self._at + 1, len(self._pieces) - 1)]

    def _take(self) -> _Piece:
        piece = self._here
        self._at += piece.sort is not _Sort.END
        return piece

    def _took(self, value: str) -> bool:
        found = self._here.among(value)
        self._at += found
        return found

    def _need(self, value: str, what: str) -> None:
        if not self._took(value):
            self._unexpected(f"{value.upper()} {what}")

    def _need_text(self, what: str) -> str:
        if self._here.sort is not _Sort.TEXT:
            self._unexpected(f"a text in single quotes {what}")
        return self._take().value

    def _words(self, start: int) -> str:
        """What was written from a place up to here."""
        return self._text[start : self._pieces[self._at - 1].stop]

    def _unexpected(self, expected: str) -> NoReturn:
        if self._here.sort is _Sort.END:
            raise Expected("the condition ends too early", expected)
        raise Expected(f"{shown(self._text[self._here.start : self._here.stop])} stands where it cannot", expected)

    # Building phrases, within limits.

    def _leaf(self, term: Term, start: int) -> _Phrase:
        self._count(1)
        return _Phrase(term, self._words(start))

    def _apply(self, op: str, kind: Kind, phrases: Sequence[_Phrase], start: int) -> _Phrase:
        self._count(1)
        depth = 1 + max(phrase.depth for phrase in phrases)
        if depth > DEEPEST:
            self._too_deep()
        return _Phrase(Apply(op, tuple(phrase.term for phrase in phrases), kind), self._words(start), depth)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise Expected("has too many parts", f"at most {MOST_NODES}", "Write several policies, or set an attribute.")

    def _too_deep(self) -> NoReturn:
        raise Expected("is nested too deep", f"at most {DEEPEST} levels")

    # Terms from left to right.

    def _inside(self, binding: int = 0) -> _Phrase:
        """What stands within parentheses, after NOT, or after a minus."""
        self._open += 1
        if self._open > DEEPEST:
            self._too_deep()
        phrase = self._expression(binding)
        self._open -= 1
        return phrase

    def _inside_list(self, name: str) -> list[_Phrase]:
        self._need("(", f"after {name}")
        phrases = [self._inside()]
        while self._took(","):
            phrases.append(self._inside())
        self._need(")", f"after the values of {name}")
        return phrases

    def _expression(self, binding: int) -> _Phrase:
        # No text within the limits on depth gets here deeper than this; the stack is spared the others.
        self._levels += 1
        if self._levels > 2 * DEEPEST + 1:
            self._too_deep()
        start, tested = self._here.start, False
        left = self._prefix(binding)
        while (found := self._binding()) > binding:
            if found == _TEST and tested:
                raise Expected(f"{shown(self._words(start))} is compared again", "one comparison", "Join them with AND.")
            tested = found == _TEST
            left = self._infix(left, found, start)
        self._levels -= 1
        return left

    def _binding(self) -> int:
        if self._here.among("not"):
            return _TEST if self._next.among("in", "like", "between") else 0
        return _BINDING[self._here.value] if self._here.among(*_BINDING) else 0

    # What may begin a term.

    def _prefix(self, binding: int) -> _Phrase:
        piece = self._here
        if piece.sort is _Sort.NUMBER:
            return self._numeral("", piece.start)
        if piece.sort is _Sort.TEXT:
            return self._leaf(Literal(Kind.TEXT, self._take().value), piece.start)
        if piece.sort is _Sort.WORD:
            return self._word(binding)
        if piece.sort is _Sort.NAME:
            return self._column()
        if self._took("("):
            phrase = self._inside()
            self._need(")", f"after {shown(phrase.words)}")
            return phrase._replace(words=self._words(piece.start))
        if not self._took("-"):
            self._unexpected("a column, attributes['k'] or a value")
        if self._here.sort is _Sort.NUMBER:
            return self._numeral("-", piece.start)
        phrase = self._inside(_MINUS)
        _need_kind(phrase, _NUMERIC, "after -")
        return self._apply("negate", phrase.kind, [phrase], piece.start)

    def _numeral(self, sign: str, start: int) -> _Phrase:
        digits = self._take().value
        if not digits.isdecimal():
            number = float(sign + digits) + 0.0  # which makes one zero of the two
            if not math.isfinite(number):
                raise Expected(f"{shown(digits)} is too large", "a decimal number below 1.8e308")
            return self._leaf(Literal(Kind.DECIMAL, number), start)
        digits = digits.lstrip("0") or "0"
        if len(digits) > 19 or int(sign + digits) not in _INT64:
            raise Expected(f"{shown(sign + digits)} is too large", "an integer of 64 bits")
        return self._leaf(Literal(Kind.INTEGER, int(sign + digits)), start)

    def _word(self, binding: int) -> _Phrase:
        piece = self._here
        match piece.value:
            case "not":
                return self._not(binding)
            case "true" | "false":
                return self._leaf(Literal(Kind.TRUTH, self._take().value == "true"), piece.start)
            case "null":
                raise Expected("NULL equals nothing, not even NULL", "IS NULL or IS NOT NULL", "Write IS NULL.")
            case "date" | "timestamp" if self._next.sort is _Sort.TEXT:
                read = _date if self._take().value == "date" else _instant
                return self._leaf(read(self._take().value), piece.start)
        if self._next.among("(") and piece.value not in (*COLUMNS, "attributes", *_FOREIGN, *_BINDING):
            return self._function()
        return self._column()

    def _not(self, binding: int) -> _Phrase:
        if binding >= _NOT:
            self._unexpected("a value; put NOT … in parentheses")
        start = self._take().start
        phrase = self._inside(_NOT - 1)
        _need_kind(phrase, (Kind.TRUTH,), "after NOT")
        return self._apply("not", Kind.TRUTH, [phrase], start)

    def _column(self) -> _Phrase:
        piece = self._here
        if piece.value == "attributes":
            return self._attribute()
        if piece.value not in COLUMNS:
            self._unknown_column()
        self._take()
        return self._leaf(Column(piece.value), piece.start)

    def _unknown_column(self) -> NoReturn:
        word = self._here.value
        if word in _FOREIGN:
            raise Expected(f"{shown(word.upper())} has no place in a condition", "columns, values, comparisons, AND, OR, NOT")
        if word in (*_BINDING, "as", "escape"):
            self._unexpected("a column, attributes['k'] or a value")
        meant = _meant(nearest(word, (*COLUMNS, "attributes")))
        remedy = meant or "Write attributes['k'] for an attribute, 'x' for a text."
        raise Expected(f"{shown(word)} is not a column", f"{', '.join(COLUMNS)} or attributes['k']", remedy)

    def _attribute(self) -> _Phrase:
        start = self._take().start
        self._need("[", "and a key, as in attributes['k']")
        key = self._need_text("as the key of attributes")
        self._need("]", "after the key")
        return self._leaf(Attribute(key), start)

    def _function(self) -> _Phrase:
        piece = self._take()
        name = piece.value
        if name not in FUNCTIONS:
            raise Expected(f"{shown(name)} is not a function here", ", ".join(FUNCTIONS), _meant(nearest(name, FUNCTIONS)))
        if name == "cast":
            return self._cast(piece.start)
        phrases = self._inside_list(name)
        wanted = len(phrases) if name == "coalesce" else 2 if name in _AFFIXES else 1
        if len(phrases) != wanted:
            raise Expected(f"{name} has {len(phrases)} arguments", f"{wanted}")
        if name == "coalesce":
            phrases = _alike(phrases)
            return self._apply(name, phrases[0].kind, phrases, piece.start)
        if name in _AFFIXES:
            return self._affix(name, phrases, piece.start)
        takes, yields = _PLAIN[name]
        _need_kind(phrases[0], takes, f"in {name}")
        return self._apply(name, yields or phrases[0].kind, phrases, piece.start)

    def _cast(self, start: int) -> _Phrase:
        self._need("(", "after CAST")
        phrase = self._inside()
        self._need("as", "and a type, as in CAST(x AS BIGINT)")
        if not self._here.among(*TARGETS):
            self._unexpected(", ".join(TARGETS).upper())
        target = TARGETS[self._take().value]
        self._need(")", "after the type")
        if target not in _CASTS[phrase.kind]:
            raise Expected(f"{shown(phrase.words)} is {phrase.kind.value}", f"something that can become {target.value}")
        return self._apply("cast", target, [phrase], start)

    def _affix(self, name: str, phrases: Sequence[_Phrase], start: int) -> _Phrase:
        phrase, sought = phrases
        _need_kind(phrase, (Kind.TEXT,), f"in {name}")
        if not (isinstance(sought.term, Literal) and isinstance(sought.term.value, str)):
            raise Expected(f"{shown(sought.words)} is not a text in quotes", f"{name}(…, 'x')")
        before, after = _AFFIXES[name]
        pattern = _pattern(before + _verbatim(sought.term.value) + after, "\\")
        return self._apply("like", Kind.TRUTH, [phrase, sought._replace(term=Literal(Kind.TEXT, pattern))], start)

    # What may follow a term.

    def _infix(self, left: _Phrase, binding: int, start: int) -> _Phrase:
        negated = self._took("not")
        word = self._take().value
        match word:
            case "is":
                negated = self._took("not")
                self._need("null", "after IS")
                phrase = self._apply("is null", Kind.TRUTH, [left], start)
            case "in":
                phrase = self._in(left, start)
            case "between":
                phrase = self._between(left, start)
            case "like":
                phrase = self._like(left, start)
            case _:
                right = self._expression(binding)
                joins = {_SUM: self._calculated, _PRODUCT: self._calculated, _TEST: self._compared}
                phrase = joins.get(binding, self._joined)(word, left, right, start)
        return self._apply("not", Kind.TRUTH, [phrase], start) if negated else phrase

    def _joined(self, word: str, left: _Phrase, right: _Phrase, start: int) -> _Phrase:
        parts: list[_Phrase] = []
        for phrase in (left, right):
            _need_kind(phrase, (Kind.TRUTH,), f"beside {word.upper()}")
            if isinstance(phrase.term, Apply) and phrase.term.op == word:
                self._count(-1)
                parts += [phrase._replace(term=term, depth=phrase.depth - 1) for term in phrase.term.terms]
            else:
                parts.append(phrase)
        return self._apply(word, Kind.TRUTH, parts, start)

    def _calculated(self, op: str, left: _Phrase, right: _Phrase, start: int) -> _Phrase:
        for phrase in (left, right):
            _need_kind(phrase, _NUMERIC, f"beside {op}")
        phrases = [_as_decimal(left), _as_decimal(right)] if op == "/" else _alike([left, right])
        return self._apply(op, phrases[0].kind, phrases, start)

    def _compared(self, op: str, left: _Phrase, right: _Phrase, start: int) -> _Phrase:
        op = "<>" if op == "!=" else op
        phrases = _alike([left, right])
        if op in ("=", "<>"):
            _need_known(phrases)
        else:
            _need_order(phrases[0])
        return self._apply(op, Kind.TRUTH, phrases, start)

    def _in(self, left: _Phrase, start: int) -> _Phrase:
        values = self._inside_list("IN")
        for phrase in values:
            if not isinstance(phrase.term, Literal):
                raise Expected(f"{shown(phrase.words)} is not a plain value", "numbers or texts in IN (…)")
        phrases = _alike([left, *values])
        _need_known(phrases)
        return self._apply("in", Kind.TRUTH, phrases, start)

    def _between(self, left: _Phrase, start: int) -> _Phrase:
        low = self._expression(_TEST)
        self._need("and", "and the upper bound of BETWEEN")
        phrases = _alike([left, low, self._expression(_TEST)])
        _need_order(phrases[0])
        return self._apply("between", Kind.TRUTH, phrases, start)

    def _like(self, left: _Phrase, start: int) -> _Phrase:
        _need_kind(left, (Kind.TEXT,), "before LIKE")
        pattern = self._need_text("as the pattern of LIKE")
        escape = "\\"  # as in Spark
        if self._took("escape"):
            escape = self._need_text("after ESCAPE")
            if len(escape) != 1 or escape in "%_":
                raise Expected(f"{shown(escape)} cannot escape", "one character other than % and _")
        right = self._leaf(Literal(Kind.TEXT, _pattern(pattern, escape)), start)
        return self._apply("like", Kind.TRUTH, [left, right], start)
