"""Evaluate a `where` condition on rows: each operator, function and cast of policy/where/tree.py, nulls included.

Nothing here raises because of a value: what has no answer (x / 0, a sum beyond 64 bits, a text that is no number) is null,
and only a row for which the condition is true is selected.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, flags
from retention_assets.frames.log import INSTANT, attribute_of
from retention_assets.policy.durations import micros, parse_instant
from retention_assets.policy.where.tree import Apply, Attribute, Column, Condition, Kind, Literal, Term

# rows per batch: enough to make Python's share vanish, few enough for the cache and for 32-bit text offsets
_TOGETHER = 1 << 18

_STORED = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.DECIMAL: pa.float64(),
    Kind.INSTANT: pa.int64(),  # microseconds: one type for all that is compared and subtracted
    Kind.TRUTH: pa.bool_(),
}
# Not made of None: Arrow imports pandas to find the type of that.
_UNKNOWN = pa.NA.cast(pa.bool_())


def evaluate(condition: Condition, rows: pa.Table) -> Bools:
    """Tell for each row if the condition is true; unknown counts as false."""
    selected = np.zeros(rows.num_rows, dtype=np.bool_)
    for start in range(0, rows.num_rows, _TOGETHER):
        batch = rows.slice(start, _TOGETHER)
        selected[start : start + batch.num_rows] = flags(_Rows(batch).value(condition.tree))
    return selected


class _Rows:
    """Rows, and the columns and attributes already taken from them."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._taken: dict[Term, pa.Array] = {}

    def value(self, term: Term) -> pa.Array:
        match term:
            case Literal():
                return pa.repeat(_scalar(term), self._table.num_rows)
            case Column() | Attribute():
                if term not in self._taken:
                    self._taken[term] = self._column(term) if isinstance(term, Column) else attribute_of(self._table, term.key)
                return self._taken[term]
            case Apply("cast", (inner,), kind):
                return _CASTS[inner.kind, kind](self.value(inner))
            case Apply(op, terms):
                first, *rest = terms
                return _OPERATORS[op](self.value(first), *map(self._operand, rest))

    def _operand(self, term: Term) -> Any:
        # A literal need not be spread over the rows where the operand before it is.
        return _scalar(term) if isinstance(term, Literal) else self.value(term)

    def _column(self, column: Column) -> pa.Array:
        array = self._table[column.name].combine_chunks()
        if column.kind is Kind.INSTANT:
            array = array.cast(INSTANT, safe=False)
        return array.cast(_STORED[column.kind])


def _scalar(literal: Literal) -> pa.Scalar:
    return pa.scalar(literal.value, _STORED[literal.kind])


# --- Numbers: NumPy, because Arrow either wraps or raises ------------------------------------------------------------


def _numbers(operand: Any) -> tuple[Any, Any]:
    # Values, and where they are valid; what is null has any value.
    if isinstance(operand, pa.Scalar):
        return np.asarray(operand.as_py(), dtype=operand.type.to_pandas_dtype()), np.True_
    values = operand.fill_null(pa.scalar(0, operand.type)).to_numpy(zero_copy_only=False)
    return values, operand.is_valid().to_numpy(zero_copy_only=False)


def _array(values: Any, known: Any) -> pa.Array:
    # Infinity and not-a-number become null, -0.0 becomes 0.0.
    if values.dtype.kind == "f":
        known = known & np.isfinite(values)
        values = values + 0.0
    return pa.array(values, mask=~np.broadcast_to(known, values.shape))


def _add(a: Any, b: Any) -> tuple[Any, Any]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) >= 0


def _subtract(a: Any, b: Any) -> tuple[Any, Any]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) >= 0


def _multiply(a: Any, b: Any) -> tuple[Any, Any]:
    product = a * b
    divisor = np.where((b == 0) | (b == -1), 1, b)
    exact = product // divisor == a
    # The smallest integer has no negative; everything else does.
    return product, np.where(b == 0, True, np.where(b == -1, a != np.iinfo(np.int64).min, exact))


def _remain(a: Any, b: Any) -> tuple[Any, Any]:  # with the sign of what is divided
    return np.where(b == -1, 0, np.fmod(a, np.where((b == 0) | (b == -1), 1, b))), b != 0


_INTEGERS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {"+": _add, "-": _subtract, "*": _multiply, "%": _remain}
_DECIMALS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod,
}  # fmt: skip


def _arithmetic(op: str) -> Callable[[pa.Array, Any], pa.Array]:
    def apply(left: pa.Array, right: Any) -> pa.Array:
        (a, a_known), (b, b_known) = _numbers(left), _numbers(right)
        with np.errstate(all="ignore"):
            if a.dtype.kind == "f":
                return _array(_DECIMALS[op](a, b), a_known & b_known)
            values, fits = _INTEGERS[op](a, b)
        return _array(values, a_known & b_known & fits)

    return apply


def _unsigned(change: Callable[[Any], Any]) -> Callable[[pa.Array], pa.Array]:
    # A change of sign, which the smallest integer alone does not survive.

    def apply(array: pa.Array) -> pa.Array:
        values, known = _numbers(array)
        if values.dtype.kind == "i":
            known = known & (values != np.iinfo(np.int64).min)
        with np.errstate(all="ignore"):
            return _array(change(values), known)

    return apply


# --- Truths ----------------------------------------------------------------------------------------------------------


def _folded(join: Callable[[Any, Any], Any]) -> Callable[..., pa.Array]:
    def apply(first: pa.Array, *others: Any) -> pa.Array:
        for other in others:
            first = join(first, other)
        return first

    return apply


def _among(array: pa.Array, *options: pa.Scalar) -> pa.Array:
    values = pa.array([option.as_py() for option in options], array.type)
    return pc.if_else(array.is_valid(), pc.is_in(array, value_set=values), _UNKNOWN)


def _between(array: pa.Array, low: Any, high: Any) -> pa.Array:
    return pc.and_kleene(pc.greater_equal(array, low), pc.less_equal(array, high))


def _like(array: pa.Array, pattern: pa.Scalar) -> pa.Array:
    # Not Arrow's match_like: where a pattern only begins with %, that takes an escaped backslash for two.
    regex, rest = "(?s)^", iter(pattern.as_py())
    for char in rest:
        if char in "%_":
            regex += ".*" if char == "%" else "."
        else:
            char = next(rest) if char == "\\" else char
            regex += char if char.isalnum() or not char.isascii() else "\\" + char
    return pc.match_substring_regex(array, regex + "$")


_OPERATORS: dict[str, Callable[..., pa.Array]] = {
    "or": _folded(pc.or_kleene),
    "and": _folded(pc.and_kleene),
    "not": pc.invert,
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "is null": pc.is_null,
    "in": _among,
    "between": _between,
    "like": _like,
    **{op: _arithmetic(op) for op in _DECIMALS},
    "negate": _unsigned(np.negative),
    "abs": _unsigned(np.abs),
    "length": lambda array: pc.utf8_length(array).cast(pa.int64()),
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "trim": lambda array: pc.utf8_trim(array, " "),
    "coalesce": pc.coalesce,
}


# --- Casts: a text is looked at first, because a cast that meets one bad row would fail all --------------------------

_INTEGER = r"^[+-]?0*[0-9]{1,19}$"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_HOUR = r"(?:[01][0-9]|2[0-3])"
_INSTANT = rf"^{_DAY}(?:[T ]{_HOUR}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?(?:Z|[+-]{_HOUR}(?::?[0-5][0-9])?))?$"
_FIRST, _LAST = (micros(parse_instant(text)) for text in ("0001-01-01", "9999-12-31T23:59:59.999999Z"))
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def _of_form(array: pa.Array, pattern: str) -> pa.Array:
    # The texts of this form, without the space around them; null for the others.
    array = pc.ascii_trim_whitespace(array)
    return pc.if_else(pc.match_substring_regex(array, pattern), array, pa.scalar(None, pa.string()))


def _text_to_integer(array: pa.Array) -> pa.Array:
    array = _of_form(array, _INTEGER)
    digits = pc.utf8_ltrim(array, "+-0")
    magnitude, known = _numbers(pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.uint64()))
    negative = flags(pc.starts_with(array, "-"))
    known = known & (magnitude <= np.uint64(2**63 - 1) + negative.astype(np.uint64))
    return _array(np.where(negative, ~magnitude + np.uint64(1), magnitude).view(np.int64), known)


def _text_to_truth(array: pa.Array) -> pa.Array:
    words = pc.ascii_lower(pc.ascii_trim_whitespace(array))
    true, false = (pc.is_in(words, value_set=pa.array(texts)) for texts in (_TRUE, _FALSE))
    return pc.if_else(pc.or_(true, false), true, _UNKNOWN)


def _text_to_instant(array: pa.Array) -> pa.Array:
    # Read instants as `parse_instant` does: with a zone, or a plain date, which is its midnight in UTC; cut to microseconds.
    array = _of_form(array, _INSTANT)
    array = pc.replace_substring_regex(array, r"(\.[0-9]{6})[0-9]+", r"\1")
    midnight = pc.binary_join_element_wise(array, "T00:00Z", "")
    instants = pc.if_else(pc.equal(pc.utf8_length(array), 10), midnight, array).cast(INSTANT).cast(pa.int64())
    return pc.if_else(_between(instants, _FIRST, _LAST), instants, pa.scalar(None, pa.int64()))


def instants_with_zone(texts: pa.Array) -> pa.Array:
    """Read instants that name their zone. Anything else is null, also a plain date."""
    parts = [pa.array([], pa.int64())]
    for start in range(0, len(texts), _TOGETHER):
        part = pc.ascii_trim_whitespace(texts.slice(start, _TOGETHER))
        has_zone = pc.greater(pc.utf8_length(part), 10)
        parts.append(_text_to_instant(pc.if_else(has_zone, part, pa.scalar(None, pa.string()))))
    return pa.concat_arrays(parts).view(INSTANT)


def _decimal_to_integer(array: pa.Array) -> pa.Array:
    values, known = _numbers(array)
    whole = np.trunc(values)
    known = known & (whole >= -(2.0**63)) & (whole < 2.0**63)
    return _array(np.where(known, whole, 0.0).astype(np.int64), known)


def _instant_to_integer(array: pa.Array) -> pa.Array:
    values, known = _numbers(array)
    return _array(values // 1_000_000, known)


_CASTS: dict[tuple[Kind, Kind], Callable[[pa.Array], pa.Array]] = {
    **{(kind, kind): lambda array: array for kind in Kind},
    (Kind.TEXT, Kind.INTEGER): _text_to_integer,
    (Kind.TEXT, Kind.DECIMAL): lambda array: _array(*_numbers(_of_form(array, _DECIMAL).cast(pa.float64()))),
    (Kind.TEXT, Kind.INSTANT): _text_to_instant,
    (Kind.TEXT, Kind.TRUTH): _text_to_truth,
    (Kind.INTEGER, Kind.DECIMAL): lambda array: array.cast(pa.float64(), safe=False),
    (Kind.INTEGER, Kind.TEXT): lambda array: array.cast(pa.string()),
    (Kind.DECIMAL, Kind.INTEGER): _decimal_to_integer,
    (Kind.INSTANT, Kind.INTEGER): _instant_to_integer,
}
