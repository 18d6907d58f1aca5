"""Errors of the `where` language: the wrong piece, what could stand there and what to write instead."""

import re

from lark import Token, UnexpectedInput, UnexpectedToken

from retention_assets.errors import InvalidValue, quote, suggest
from retention_assets.policy.where.kinds import FUNCTIONS, TARGETS, Phrase
from retention_assets.policy.where.tree import COLUMNS

_COMMENT = "Write comments in the file, after #; between two minus signs put a space."
SIGNS = {  # of SQL that are not of this language, and what to write instead
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
# Words of SQL that people may try; "is not a column" would send them looking for the wrong thing.
FOREIGN = {
    *("all", "any", "array", "case", "distinct", "end", "except", "exists", "from", "having", "ilike", "intersect"),
    *("interval", "join", "lambda", "limit", "map", "over", "regexp", "rlike", "select", "similar", "some", "struct"),
    *("table", "union", "values", "when", "where", "with", "drop", "insert", "delete", "update", "create", "alter"),
}
# What could have stood there, by the names of the grammar. The signs of arithmetic are left out: they always could.
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

# Any text falls into such pieces; only that one is cut out at which the grammar stopped.
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
    """The refusal of a text at the place where the grammar stopped."""
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
    found = piece.group()
    match piece.lastgroup:
        case "number":
            return InvalidValue(f"{quote(found)} is not a number", "a number without a unit, such as 1024 or 0.5")
        case "word":
            return _word(found, piece, wanted, last)
        case "name":
            return _no_column(piece["name"].lower()) if "COLUMN" in wanted else _astray(found, _listed(wanted, last))
        case "text" if escape := piece["escape"]:
            return InvalidValue(f"{quote(escape)} has no one meaning in a text", "\\\\ for a backslash, '' for a quote")
        case "text":
            remedy = "Double a quote inside a text: 'it''s'."
            return InvalidValue(f"the text {quote(found)} has no end", "a closing quote", remedy)
        case "sign":
            return InvalidValue(f"{quote(found)} has no meaning here", _NO_MEANING, SIGNS[found])
    if found == "`":
        return InvalidValue(f"the name {quote(piece.string[piece.start() :])} has no end", "a closing backquote")
    return InvalidValue(f"{quote(found)} has no meaning here", _NO_MEANING)


def _word(word: str, piece: re.Match[str], wanted: set[str], last: str) -> InvalidValue:
    if not word.isascii():
        odd = next(char for char in word if not char.isascii())
        return InvalidValue(f"{quote(odd)} has no meaning here", "names of the letters a to z, and texts in single quotes")
    if word.lower() in FOREIGN:
        return InvalidValue(f"{quote(word.upper())} has no place in a condition", "columns, values, comparisons, AND, OR, NOT")
    if "COLUMN" not in wanted:
        return _astray(word, _listed(wanted, last))
    if piece.string[piece.end() :].lstrip().startswith("("):
        remedy = suggest(word.lower(), FUNCTIONS)
        return InvalidValue(f"{quote(word.lower())} is not a function here", ", ".join(FUNCTIONS), remedy)
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
