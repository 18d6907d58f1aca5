"""Grammar of the `where` language, which lists all that is allowed, and one method for each of its rules.

Lark reads with a table and a stack of its own, and each rule is built as soon as its parts are there, so that a text of ten
thousand parentheses needs no more of Python's stack than a short one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from retention_assets.errors import InvalidValue, quote
from retention_assets.policy.where import values
from retention_assets.policy.where.errors import refusal
from retention_assets.policy.where.kinds import (
    AFFIXES,
    NUMERIC,
    PLAIN,
    TARGETS,
    Phrase,
    alike,
    applied,
    as_decimal,
    enclosed,
    joined,
    need_cast,
    need_kind,
    need_known,
    need_order,
    need_plain,
)
from retention_assets.policy.where.tree import COLUMNS, Attribute, Column, Kind, Literal, Term

_RULES = r"""
?either:   both | either OR both                     -> joined
?both:     opposite | both AND opposite              -> joined
?opposite: test | NOT opposite                       -> negated
?test:     sum
  | sum COMPARISON sum                               -> compared
  | sum IS [NOT] NULL                                -> absent
  | sum [NOT] IN "(" either ("," either)* ")"        -> among
  | sum [NOT] BETWEEN sum AND sum                    -> between
  | sum [NOT] LIKE TEXT [ESCAPE TEXT]                -> like
?sum:      product | sum (PLUS | MINUS) product      -> calculated
?product:  factor | product (STAR | SLASH | PERCENT) factor -> calculated
?factor:   value | minus | NUMBER                    -> number
?minus:    MINUS NUMBER                              -> number
  | MINUS (value | minus)                            -> opposed
?value:    "(" either ")"                            -> bracketed
  | TEXT                                             -> text
  | (TRUE | FALSE)                                   -> truth
  | DATE TEXT                                        -> date
  | TIMESTAMP TEXT                                   -> timestamp
  | COLUMN                                           -> column
  | ATTRIBUTES "[" TEXT "]"                          -> attribute
  | PLAIN "(" either ")"                             -> plain
  | AFFIX "(" either "," either ")"                  -> affix
  | COALESCE "(" either ("," either)* ")"            -> coalesce
  | CAST "(" either AS TARGET ")"                    -> cast

TEXT:       /'(?:[^'\\]++|''|\\['\\])*+'/
NUMBER:     /(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?(?![\w.])/
COMPARISON: /(?:<>|!=|<=|>=|=|<|>)(?![<=>])/
MINUS:      /-(?![->])/
SLASH:      /\/(?!\*)/
STAR:       /\*(?!\/)/
PLUS:       "+"
PERCENT:    "%"

%ignore /[ \t\r\n]+/
"""
_WORDS = (
    *("and", "or", "not", "is", "null", "in", "between", "like", "escape", "true", "false", "date", "timestamp"),
    *("coalesce", "cast", "as"),
)


def _word(name: str, words: Iterable[str], backquoted: bool = False) -> str:
    # a terminal for any of these words, whole; a column also in backquotes
    any_of = "|".join(words)
    return rf"{name}: /(?:{any_of})\b{f'|`(?:{any_of})`' if backquoted else ''}/"


GRAMMAR = "\n".join(
    [
        _RULES,
        *(_word(word.upper(), [word]) for word in _WORDS),
        _word("COLUMN", COLUMNS, backquoted=True),
        _word("ATTRIBUTES", ["attributes"], backquoted=True),
        _word("PLAIN", PLAIN),
        _word("AFFIX", AFFIXES),
        _word("TARGET", TARGETS),
    ]
)

_Piece: TypeAlias = Phrase | Token


def read(text: str) -> Term:
    """The tree of a text that is not empty, or Expected."""
    try:
        phrase = _lark().parse(text)
    except UnexpectedInput as fault:
        raise refusal(text, fault) from None
    assert isinstance(phrase, Phrase)
    need_kind(phrase, (Kind.TRUTH,), "as a whole")
    return phrase.term


@cache
def _lark() -> Lark:
    # Built once, when the first condition is read. ASCII, or else a long s would be an S and a Kelvin sign a K.
    flags = re.ASCII | re.IGNORECASE
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="contextual",
        start="either",
        transformer=_Phrases(),
        keep_all_tokens=True,  # for the words of a phrase
        g_regex_flags=flags,
    )


def _in_words(build: Callable[..., Phrase], _rule: str, pieces: Sequence[_Piece | None], _meta: Any) -> Phrase:
    there = [piece for piece in pieces if piece is not None]
    words, end = "", there[0].start_pos
    for piece in there:
        words += f"{'' if piece.start_pos == end else ' '}{piece}"
        end = piece.end_pos
    return build(*pieces)._replace(words=words, start_pos=there[0].start_pos or 0, end_pos=end or 0)


def _phrases(pieces: Sequence[_Piece]) -> list[Phrase]:
    return [piece for piece in pieces if isinstance(piece, Phrase)]


def _tested(phrase: Phrase, negation: Token | None) -> Phrase:
    return applied("not", Kind.TRUTH, [phrase]) if negation else phrase


@v_args(wrapper=_in_words)
class _Phrases(Transformer[Token, Phrase]):
    """One method for each rule, by its name; the arguments are what stands in the rule, word for word."""

    # Truths.

    def joined(self, left: Phrase, op: Token, right: Phrase) -> Phrase:
        return joined(op.lower(), [left, right])

    def negated(self, _not: Token, phrase: Phrase) -> Phrase:
        need_kind(phrase, (Kind.TRUTH,), "after NOT")
        return applied("not", Kind.TRUTH, [enclosed(phrase)])

    def compared(self, left: Phrase, sign: Token, right: Phrase) -> Phrase:
        op = "<>" if sign == "!=" else sign.value
        phrases = alike([left, right])
        if op in ("=", "<>"):
            need_known(phrases)
        else:
            need_order(phrases[0])
        return applied(op, Kind.TRUTH, phrases)

    def absent(self, left: Phrase, _is: Token, negation: Token | None, _null: Token) -> Phrase:
        return _tested(applied("is null", Kind.TRUTH, [left]), negation)

    def among(self, left: Phrase, negation: Token | None, _in: Token, *rest: _Piece) -> Phrase:
        listed = [enclosed(phrase) for phrase in _phrases(rest)]
        need_plain(listed)
        phrases = alike([left, *listed])
        need_known(phrases)
        return _tested(applied("in", Kind.TRUTH, phrases), negation)

    def between(self, left: Phrase, negation: Token | None, _between: Token, *rest: _Piece) -> Phrase:
        phrases = alike([left, *_phrases(rest)])
        need_order(phrases[0])
        return _tested(applied("between", Kind.TRUTH, phrases), negation)

    def like(
        self, left: Phrase, negation: Token | None, _like: Token, text: Token, _escape: Token | None, escape: Token | None
    ) -> Phrase:
        need_kind(left, (Kind.TEXT,), "before LIKE")
        escaping = values.escaping(values.unquoted(escape)) if escape else values.BACKSLASH
        pattern = Phrase(values.pattern(values.unquoted(text), escaping))
        return _tested(applied("like", Kind.TRUTH, [left, pattern]), negation)

    # Numbers.

    def calculated(self, left: Phrase, sign: Token, right: Phrase) -> Phrase:
        for phrase in (left, right):
            need_kind(phrase, NUMERIC, f"beside {sign}")
        phrases = [as_decimal(left), as_decimal(right)] if sign == "/" else alike([left, right])
        return applied(sign.value, phrases[0].kind, phrases)

    def opposed(self, _minus: Token, phrase: Phrase) -> Phrase:
        need_kind(phrase, NUMERIC, "after -")
        return applied("negate", phrase.kind, [enclosed(phrase)])

    # Values.

    def bracketed(self, _open: Token, phrase: Phrase, _close: Token) -> Phrase:
        return enclosed(phrase)

    def number(self, *signed: Token) -> Phrase:
        return Phrase(values.number("".join(signed[:-1]), signed[-1].value))

    def text(self, token: Token) -> Phrase:
        return Phrase(Literal(Kind.TEXT, values.unquoted(token)))

    def truth(self, word: Token) -> Phrase:
        return Phrase(Literal(Kind.TRUTH, word.type == "TRUE"))

    def date(self, _date: Token, text: Token) -> Phrase:
        return Phrase(values.date(values.unquoted(text)))

    def timestamp(self, _timestamp: Token, text: Token) -> Phrase:
        return Phrase(values.instant(values.unquoted(text)))

    def column(self, name: Token) -> Phrase:
        return Phrase(Column(name.strip("`").lower()))

    def attribute(self, _attributes: Token, _open: Token, key: Token, _close: Token) -> Phrase:
        return Phrase(Attribute(values.unquoted(key)))

    # Functions.

    def plain(self, name: Token, _open: Token, phrase: Phrase, _close: Token) -> Phrase:
        takes, yields = PLAIN[name.lower()]
        need_kind(phrase, takes, f"in {name.lower()}")
        return applied(name.lower(), yields or phrase.kind, [enclosed(phrase)])

    def affix(self, name: Token, *rest: _Piece) -> Phrase:
        phrase, sought = (enclosed(phrase) for phrase in _phrases(rest))
        need_kind(phrase, (Kind.TEXT,), f"in {name.lower()}")
        if not (isinstance(sought.term, Literal) and isinstance(sought.term.value, str)):
            raise InvalidValue(f"{quote(sought.words)} is not a text in quotes", f"{name.lower()}(…, 'x')")
        before, after = AFFIXES[name.lower()]
        pattern = values.pattern(before + values.verbatim(sought.term.value) + after, values.BACKSLASH)
        return applied("like", Kind.TRUTH, [phrase, sought._replace(term=pattern)])

    def coalesce(self, _coalesce: Token, *rest: _Piece) -> Phrase:
        phrases = alike([enclosed(phrase) for phrase in _phrases(rest)])
        return applied("coalesce", phrases[0].kind, phrases)

    def cast(self, _cast: Token, _open: Token, phrase: Phrase, _as: Token, name: Token, _close: Token) -> Phrase:
        target = TARGETS[name.lower()]
        need_cast(phrase, target)
        return applied("cast", target, [enclosed(phrase)])
