"""Grammar of the `where` language, the methods that build terms by its rules, and its error messages.

Lark keeps a stack of its own and builds each rule as soon as its parts are read, so that ten thousand parentheses do not
overflow Python's.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from retention_assets.errors import InvalidValue, quote, suggest
from retention_assets.policy.where import tree
from retention_assets.policy.where.tree import AFFIXES, COLUMNS, NUMERIC, PLAIN, TARGETS, Kind, Literal, Phrase, Term

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


_GRAMMAR = "\n".join(
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
    try:
        phrase = _lark().parse(text)
    except UnexpectedInput as fault:
        raise refusal(text, fault) from None
    assert isinstance(phrase, Phrase)
    tree.need_kind(phrase, (Kind.TRUTH,), "as a whole")
    return phrase.term


@cache
def _lark() -> Lark:
    # Built once, when the first condition is read. ASCII, or else a long s would be an S and a Kelvin sign a K.
    flags = re.ASCII | re.IGNORECASE
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="contextual",
        start="either",
        transformer=_Phrases(),
        keep_all_tokens=True,  # messages quote a phrase whole
        g_regex_flags=flags,
    )


def _in_words(build: Callable[..., Phrase], _rule: str, pieces: Sequence[_Piece | None], _meta: Any) -> Phrase:
    present = [piece for piece in pieces if piece is not None]
    words, end = "", present[0].start_pos
    for piece in present:
        words += f"{'' if piece.start_pos == end else ' '}{piece}"
        end = piece.end_pos
    return build(*pieces)._replace(words=words, start_pos=present[0].start_pos or 0, end_pos=end or 0)


def _phrases(pieces: Sequence[_Piece]) -> list[Phrase]:
    return [piece for piece in pieces if isinstance(piece, Phrase)]


def _tested(phrase: Phrase, negation: Token | None) -> Phrase:
    return tree.applied("not", Kind.TRUTH, [phrase]) if negation else phrase


@v_args(wrapper=_in_words)
class _Phrases(Transformer[Token, Phrase]):
    """One method for each rule of its name; the arguments are the symbols of the rule, in order."""

    # Truths.

    def joined(self, left: Phrase, op: Token, right: Phrase) -> Phrase:
        return tree.joined(op.lower(), [left, right])

    def negated(self, _not: Token, phrase: Phrase) -> Phrase:
        tree.need_kind(phrase, (Kind.TRUTH,), "after NOT")
        return tree.applied("not", Kind.TRUTH, [tree.enclosed(phrase)])

    def compared(self, left: Phrase, sign: Token, right: Phrase) -> Phrase:
        op = "<>" if sign == "!=" else sign.value
        phrases = tree.alike([left, right])
        if op in ("=", "<>"):
            tree.need_known(phrases)
        else:
            tree.need_order(phrases[0])
        return tree.applied(op, Kind.TRUTH, phrases)

    def absent(self, left: Phrase, _is: Token, negation: Token | None, _null: Token) -> Phrase:
        return _tested(tree.applied("is null", Kind.TRUTH, [left]), negation)

    def among(self, left: Phrase, negation: Token | None, _in: Token, *rest: _Piece) -> Phrase:
        listed = [tree.enclosed(phrase) for phrase in _phrases(rest)]
        for phrase in listed:
            # A column in a list would hide a comparison of two columns.
            if not isinstance(phrase.term, Literal):
                raise InvalidValue(f"{quote(phrase.words)} is not a plain value", "numbers or texts in IN (…)")
        phrases = tree.alike([left, *listed])
        tree.need_known(phrases)
        return _tested(tree.applied("in", Kind.TRUTH, phrases), negation)

    def between(self, left: Phrase, negation: Token | None, _between: Token, *rest: _Piece) -> Phrase:
        phrases = tree.alike([left, *_phrases(rest)])
        tree.need_order(phrases[0])
        return _tested(tree.applied("between", Kind.TRUTH, phrases), negation)

    def like(
        self, left: Phrase, negation: Token | None, _like: Token, text: Token, _escape: Token | None, escape: Token | None
    ) -> Phrase:
        tree.need_kind(left, (Kind.TEXT,), "before LIKE")
        escaping = tree.escaping(tree.unquoted(escape)) if escape else tree.BACKSLASH
        pattern = Phrase(tree.pattern(tree.unquoted(text), escaping))
        return _tested(tree.applied("like", Kind.TRUTH, [left, pattern]), negation)

    # Numbers.

    def calculated(self, left: Phrase, sign: Token, right: Phrase) -> Phrase:
        for phrase in (left, right):
            tree.need_kind(phrase, NUMERIC, f"beside {sign}")
        phrases = [tree.as_decimal(left), tree.as_decimal(right)] if sign == "/" else tree.alike([left, right])
        return tree.applied(sign.value, phrases[0].kind, phrases)

    def opposed(self, _minus: Token, phrase: Phrase) -> Phrase:
        tree.need_kind(phrase, NUMERIC, "after -")
        return tree.applied("negate", phrase.kind, [tree.enclosed(phrase)])

    # Values.

    def bracketed(self, _open: Token, phrase: Phrase, _close: Token) -> Phrase:
        return tree.enclosed(phrase)

    def number(self, *signed: Token) -> Phrase:
        return Phrase(tree.number("".join(signed[:-1]), signed[-1].value))

    def text(self, token: Token) -> Phrase:
        return Phrase(Literal(Kind.TEXT, tree.unquoted(token)))

    def truth(self, word: Token) -> Phrase:
        return Phrase(Literal(Kind.TRUTH, word.type == "TRUE"))

    def date(self, _date: Token, text: Token) -> Phrase:
        return Phrase(tree.date(tree.unquoted(text)))

    def timestamp(self, _timestamp: Token, text: Token) -> Phrase:
        return Phrase(tree.instant(tree.unquoted(text)))

    def column(self, name: Token) -> Phrase:
        return Phrase(tree.Column(name.strip("`").lower()))

    def attribute(self, _attributes: Token, _open: Token, key: Token, _close: Token) -> Phrase:
        return Phrase(tree.Attribute(tree.unquoted(key)))

    # Functions.

    def plain(self, name: Token, _open: Token, phrase: Phrase, _close: Token) -> Phrase:
        takes, yields = PLAIN[name.lower()]
        tree.need_kind(phrase, takes, f"in {name.lower()}")
        return tree.applied(name.lower(), yields or phrase.kind, [tree.enclosed(phrase)])

    def affix(self, name: Token, *rest: _Piece) -> Phrase:
        phrase, sought = (tree.enclosed(phrase) for phrase in _phrases(rest))
        tree.need_kind(phrase, (Kind.TEXT,), f"in {name.lower()}")
        if not (isinstance(sought.term, Literal) and isinstance(sought.term.value, str)):
            raise InvalidValue(f"{quote(sought.words)} is not a text in quotes", f"{name.lower()}(…, 'x')")
        before, after = AFFIXES[name.lower()]
        pattern = tree.pattern(before + tree.verbatim(sought.term.value) + after, tree.BACKSLASH)
        return tree.applied("like", Kind.TRUTH, [phrase, sought._replace(term=pattern)])

    def coalesce(self, _coalesce: Token, *rest: _Piece) -> Phrase:
        phrases = tree.alike([tree.enclosed(phrase) for phrase in _phrases(rest)])
        return tree.applied("coalesce", phrases[0].kind, phrases)

    def cast(self, _cast: Token, _open: Token, phrase: Phrase, _as: Token, name: Token, _close: Token) -> Phrase:
        target = TARGETS[name.lower()]
        if target not in tree.CASTS[phrase.kind]:
            raise InvalidValue(f"{quote(phrase.words)} is {phrase.kind.value}", f"something that can become {target.value}")
        return tree.applied("cast", target, [tree.enclosed(phrase)])


# --- Refusals --------------------------------------------------------------------------------------------------------


_COMMENT = "Write comments in the file, after #; between two minus signs put a space."
SIGNS = {  # signs of SQL that this language lacks, and what to write instead
    "<=>": "Write IS NULL beside the comparison.",
    "--": _COMMENT,
    "/*": _COMMENT,
    "*/": _COMMENT,
    "==": "Write =.",
    "->": "Write attributes['k'] for an attribute.",
    "||": "Compare each part by itself.",
    "::": "Write CAST(… AS …).",
    "!": "Write NOT, or <>.",
    '"': "Write 'x' for a text, and a column without quotes.",
    ";": "Write one condition; join several with AND or OR.",
    ".": "Write attributes['k'] for an attribute.",
}
# Words of SQL that people may try; "is not a column" would send them looking for the wrong thing.
FOREIGN = {
    *("all", "any", "array", "case", "distinct", "end", "except", "exists", "from", "having", "ilike", "intersect"),
    *("interval", "join", "lambda", "limit", "map", "over", "regexp", "rlike", "select", "similar", "some", "struct"),
    *("table", "union", "values", "when", "where", "with", "drop", "insert", "delete", "update", "create", "alter"),
}
# expected input by terminal; signs of arithmetic are left out, because they could always follow
_WANTED = {
    "TEXT": "a text in single quotes",
    "TARGET": ", ".join(TARGETS).upper(),
    "LPAR": "(",
    "LSQB": "[",
    "RSQB": "]",
    "NULL": "NULL",
    "AND": "AND",
    "OR": "OR",
    "COMMA": "a comma",
    "AS": "AS and a type",
    "RPAR": ")",
    "$END": "the end",
}
_TESTS = {"COMPARISON", "IN", "BETWEEN", "LIKE", "IS"}
_NO_MEANING = "words, values and signs of a condition"

# the piece of a text at which the grammar stopped
_PIECE = re.compile(
    rf"""
      (?P<number> \.?[0-9][\w.]* )
    | (?P<word>   [^\W\d]\w* )
    | `(?P<name>  [^`]* )`
    | (?P<text>   '(?:[^'\\]++|''|\\['\\])*+ (?P<escape> \\.? )? )
    | (?P<sign>   {"|".join(map(re.escape, SIGNS))} )
    | (?P<other>  . )
    """,
    re.VERBOSE | re.DOTALL,
)


def refusal(text: str, fault: UnexpectedInput) -> InvalidValue:
    wanted: set[str] = fault.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    read = fault.interactive_parser.parser_state.value_stack
    last = str(read[-1]) if read and isinstance(read[-1], Phrase | Token) else ""
    if isinstance(fault, UnexpectedToken):
        return _misplaced(fault.token, wanted, last)
    piece = _PIECE.match(text, fault.pos_in_stream or 0)
    assert piece
    return _unknown(piece, wanted, last)


def _misplaced(token: Token, wanted: set[str], last: str) -> InvalidValue:
    if token.type == "$END":
        return InvalidValue("the condition ends too early", _listed(wanted, last))
    if token.type in _TESTS and "OR" in wanted:
        return InvalidValue(f"{quote(last)} is compared again", "one comparison", "Join them with AND.")
    if token.type == "NULL" and "COLUMN" in wanted:
        return InvalidValue("NULL equals nothing, not even NULL", "IS NULL or IS NOT NULL", "Write IS NULL.")
    if token.type == "NOT" and "COLUMN" in wanted:
        return _astray(token, f"{_listed(wanted, last)}; put NOT … in parentheses")
    return _astray(token, _listed(wanted, last))


def _unknown(piece: re.Match[str], wanted: set[str], last: str) -> InvalidValue:
    spelling = piece.group()
    match piece.lastgroup:
        case "number":
            return InvalidValue(f"{quote(spelling)} is not a number", "a number without a unit, such as 1024 or 0.5")
        case "word":
            return _refused_word(spelling, piece, wanted, last)
        case "name":
            return _no_column(piece["name"].lower()) if "COLUMN" in wanted else _astray(spelling, _listed(wanted, last))
        case "text" if escape := piece["escape"]:
            return InvalidValue(f"{quote(escape)} is ambiguous in a text", "\\\\ for a backslash, '' for a quote")
        case "text":
            remedy = "Double a quote inside a text: 'it''s'."
            return InvalidValue(f"the text {quote(spelling)} has no end", "a closing quote", remedy)
        case "sign":
            return InvalidValue(f"{quote(spelling)} has no meaning here", _NO_MEANING, SIGNS[spelling])
    if spelling == "`":
        return InvalidValue(f"the name {quote(piece.string[piece.start() :])} has no end", "a closing backquote")
    return InvalidValue(f"{quote(spelling)} has no meaning here", _NO_MEANING)


def _refused_word(word: str, piece: re.Match[str], wanted: set[str], last: str) -> InvalidValue:
    if not word.isascii():
        odd = next(char for char in word if not char.isascii())
        return InvalidValue(f"{quote(odd)} has no meaning here", "names of the letters a to z, and texts in single quotes")
    if word.lower() in FOREIGN:
        return InvalidValue(f"{quote(word.upper())} has no place in a condition", "columns, values, comparisons, AND, OR, NOT")
    if "COLUMN" not in wanted:
        return _astray(word, _listed(wanted, last))
    if piece.string[piece.end() :].lstrip().startswith("("):
        remedy = suggest(word.lower(), tree.FUNCTIONS)
        return InvalidValue(f"{quote(word.lower())} is not a function here", ", ".join(tree.FUNCTIONS), remedy)
    return _no_column(word.lower())


def _no_column(word: str) -> InvalidValue:
    remedy = suggest(word, (*COLUMNS, "attributes")) or "Write attributes['k'] for an attribute, 'x' for a text."
    return InvalidValue(f"{quote(word)} is not a column", f"{', '.join(COLUMNS)} or attributes['k']", remedy)


def _astray(piece: str, wanted: str) -> InvalidValue:
    return InvalidValue(f"{quote(str(piece))} stands where it cannot", wanted)


def _listed(wanted: set[str], last: str) -> str:
    if "OR" in wanted:  # seen from after a whole condition, AND has been passed over already
        wanted = wanted | {"AND"}
    names = [words for name, words in _WANTED.items() if name in wanted]
    if wanted.issuperset(_TESTS):
        names.insert(0, "a comparison")
    elif "LIKE" in wanted:
        names = ["IN", "BETWEEN", "LIKE"]
    if "COLUMN" in wanted:
        names = ["a column, attributes['k'] or a value"]
    *others, final = names
    either = f"{', '.join(others)} or {final}" if others else final
    return f"{either} after {quote(last)}" if last else either
