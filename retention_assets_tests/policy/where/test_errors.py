"""What a `where` line may not say: each refusal names the place and the way out, whatever was written."""

import pytest

from retention_assets.errors import Problem, quote
from retention_assets.policy import Selection
from retention_assets.policy.where.grammar import FOREIGN, SIGNS
from retention_assets.policy.where.tree import DEEPEST, MOST_CHARACTERS, MOST_NODES
from retention_assets_tests.policy.where.conditions import refusal, short_id

# Each with a piece of the message, so that a person finds the place, and a piece of the remedy where there is one.
REFUSED = [
    # Kinds that do not fit.
    ("bytes > 'x'", "'x'", "number without quotes"),
    ("attributes['n'] > 5", "attributes['n']", "CAST(attributes['n'] AS BIGINT)"),
    ("attributes['d'] = TRUE", "attributes['d']", "CAST(attributes['d'] AS BOOLEAN)"),
    ("attributes['d']", "attributes['d']", "CAST(attributes['d'] AS BOOLEAN)"),
    ("attributes['a'] < closed_at", "attributes['a']", "CAST(attributes['a'] AS TIMESTAMP)"),
    ("attributes['a'] + 1 = 2", "attributes['a']", "CAST(attributes['a'] AS BIGINT)"),
    ("bytes", "bytes", "Compare it"),  # not true or false
    ("closed_at > 20260101", "closed_at", "in quotes"),
    ("closed_at - opened_at > 5", "closed_at", "CAST(closed_at AS BIGINT)"),
    ("closed_at > 'yesterday'", "yesterday", ""),
    ("closed_at > '2026-01-01T00:00:00'", "2026-01-01T00:00:00", ""),  # no zone
    ("closed_at > TIMESTAMP '2026-02-30T00:00:00Z'", "2026-02-30", ""),
    ("closed_at > DATE '2026-01-01T00:00:00Z'", "2026-01-01T00", "TIMESTAMP"),
    ("closed_at > '0001-01-01T00:00:00+23:00'", "0001-01-01", ""),  # before there were instants
    ("type LIKE 5", "5", ""),
    ("bytes LIKE '5%'", "bytes", "CAST(bytes AS STRING)"),
    ("lower(bytes) = 'x'", "bytes", "CAST(bytes AS STRING)"),
    ("abs(type) = 1", "type", "CAST(type AS BIGINT)"),
    ("coalesce(bytes, 'x') = 1", "'x'", "without quotes"),
    ("CAST(closed_at AS STRING) = ''", "closed_at", ""),
    ("CAST(bytes AS TIMESTAMP) > closed_at", "bytes", ""),
    ("CAST(bytes / 2 AS STRING) = '1'", "bytes / 2", ""),
    ("(bytes = 1) < (files = 1)", "bytes = 1", ""),
    # Values that a column cannot have: with <> these would select everything.
    ("type <> 'snapshot'", "snapshot", "SNAPSHOT"),
    ("status NOT IN ('COMMITED')", "COMMITED", "COMMITTED"),
    ("'CLOSED' <> status", "CLOSED", ""),
    # Names that do not exist.
    ("byte > 5", "byte", "bytes"),
    ("attribute['k'] = ''", "attribute", "attributes"),
    ("tier = 'bronze'", "tier", "attributes['k']"),
    ("lowr(type) = 'x'", "lowr", "lower"),
    ("starts_with(type, 'S')", "starts_with", "startswith"),
    ("now() > closed_at", "now", ""),  # the clock is an input
    ("CAST(bytes AS INT) = 1", "INT", ""),
    # Things of SQL that are not of this language.
    ("log.bytes = 1", "log", ""),
    ("bytes = ?", "'?'", ""),
    ("bytes & 1 = 1", "'&'", ""),
    ("regexp_like(type, '(a+)+$')", "regexp_like", ""),
    ("bytes IS TRUE", "TRUE", ""),
    ("X'41' = type", "'x'", ""),
    ("bytes > 1 b", "'b'", ""),
    # Attributes by anything but a text.
    ("attributes", "ends too early", ""),
    ("attributes = 'x'", "'='", ""),
    ("attributes[type] = 'x'", "type", ""),
    ("attributes[lower('K')] = 'x'", "lower", ""),
    ("attributes['a']['b'] = 'x'", "'['", ""),
    # Forms that end wrong, or say nothing.
    ("", "empty", ""),
    ("TRUE", "no column", "select: all"),
    ("1 = 1", "no column", "select: all"),
    ("bytes >", "too early", ""),
    ("> 5", "'>'", ""),
    ("(bytes > 5", "too early", ""),
    ("bytes > 5)", "')'", ""),
    ("bytes > 5 ANDfiles > 1", "ANDfiles", ""),  # words end where letters do, whatever could follow
    ("()", "')'", ""),
    ("bytes > 5 files > 1", "files", ""),
    ("bytes > 5 AND", "too early", ""),
    ("bytes = files = 1", "compared again", "AND"),
    ("1 < bytes < 5", "compared again", "AND"),
    ("bytes IS NULL IS NULL", "compared again", "AND"),
    ("bytes = NOT TRUE", "NOT", ""),
    ("(bytes = 1) = NOT (files = 1)", "NOT", ""),  # of the right kind, and still no operand
    ("bytes NOT = 5", "'='", "LIKE after 'NOT'"),
    ("bytes NOT NULL", "'NULL'", "LIKE after 'NOT'"),
    ("bytes IS 5", "'5'", ""),
    ("bytes = NULL", "NULL", "IS NULL"),
    ("bytes IN (1, NULL)", "NULL", "IS NULL"),
    ("NULL", "NULL", ""),
    ("bytes IN 1", "'1'", ""),
    ("bytes IN (1 + 1)", "1 + 1", ""),
    ("bytes BETWEEN 1 OR 2", "OR", ""),
    ("type LIKE parent", "parent", ""),
    ("type LIKE 'a!' ESCAPE '!'", "'!'", "!!"),
    ("type LIKE 'a!b' ESCAPE '!'", "'!b'", "!!"),
    ("type LIKE 'a' ESCAPE ''", "''", ""),
    ("type LIKE 'a' ESCAPE '%'", "'%'", ""),
    ("type LIKE 'a' ESCAPE 5", "'5'", ""),
    ("dataset = 'a' ESCAPE '!'", "ESCAPE", ""),
    ("type LIKE 'a\\b'", "\\", "for a backslash"),
    ("dataset = 'a\\nb'", "\\n", ""),
    ("type LIKE 'a\\\\b'", "escapes nothing", ""),
    ("startswith(type, parent)", "parent", ""),
    ("lower() = ''", "')'", ""),
    ("lower(type, type) = ''", "','", ")"),
    ("lower type = ''", "type", "( after 'lower'"),
    ("CAST(bytes BIGINT) = 1", "BIGINT", ""),
    ("CAST(bytes AS BIGINT FORMAT 'x') = 1", "FORMAT", ""),
    ("CAST bytes = 1", "bytes", "( after 'cast'"),
    ("'a' 'b' = type", "'b'", ""),
    ("type = 'a", "no end", ""),
    ("`type = 'a'", "no end", ""),
    ("`` = 'a'", "''", ""),
    # Numbers.
    ("bytes > 9223372036854775808", "9223372036854775808", ""),
    ("bytes > -9223372036854775809", "-9223372036854775809", ""),
    (f"bytes > {'9' * 9000}", "too large", ""),  # Python itself refuses to read that many digits
    ("bytes > 1e999", "1e999", ""),
    ("bytes > -1e999", "1e999", ""),
    ("bytes > 5GB", "5GB", "without a unit"),
    ("bytes > 0x1F", "0x1F", ""),
    ("bytes > 1_000", "1_000", ""),
    ("bytes > 1e", "1e", ""),
    ("bytes > +5", "'+'", ""),
    ("bytes > ٣", "٣", ""),
    # Characters that deceive.
    ("dataset = 'a\x00'", "invisible", ""),
    ("dataset = '\ud800'", "\\ud800", ""),  # cannot be written to any table
    ("dataset <> 'a\u202e'", "\\u202e", ""),  # turns the line around
    ("dataset = 'a\x1b[2J'", "\\x1b", ""),  # clears a terminal
    ("bytes\u200b > 5", "\\u200b", ""),
    ("\uff42ytes > 5", "\uff42", ""),
    ("b\u0443tes > 5", "\u0443", ""),  # a Cyrillic letter that looks like y
    ("\u017ftatus = 'OPEN'", "\u017f", ""),  # a letter whose capital is S
    # More than anybody writes.
    ("bytes > 1" + " " * MOST_CHARACTERS + "AND files > 1", "characters long", str(MOST_CHARACTERS)),
    (" AND ".join(["bytes > 1"] * 200), "too many parts", str(MOST_NODES)),
    (f"bytes IN ({', '.join(map(str, range(MOST_NODES)))})", "too many parts", ""),
    ("(" * (DEEPEST + 1) + "bytes > 1" + ")" * (DEEPEST + 1), "too deep", str(DEEPEST)),
    ("(" * 9_000, "too early", ""),
    ("NOT " * 2_400 + "TRUE", "too deep", ""),
    ("- " * 4_900 + "1", "too deep", ""),
    ("lower(" * 1_600, "too early", ""),
    ("coalesce(bytes," * 600, "too early", ""),
    ("bytes + (" * 1_000, "too early", ""),
    ("bytes > 1 AND (files > 1 OR (" * 300, "too early", ""),
    ("1" + " + 1" * 200 + " = bytes", "too deep", ""),  # a chain is a deep tree
    ("bytes" + " - 1" * 2_400 + " = 0", "too deep", ""),
    ("a" * 9_999, "is not a column", ""),
    ("'" * 9_999, "", ""),
    ("type LIKE '" + "%a" * 3_000 + "'", "pattern", "1000"),
    ("contains(type, '" + "%" * 999 + "')", "pattern", "1000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "piece", "advice"), REFUSED, ids=short_id)
def test_refuses_and_says_why(text: str, piece: str, advice: str) -> None:
    fault = refusal(text)
    assert piece.lower() in fault.what.lower()
    assert advice.lower() in f"{fault.remedy} {fault.expected}".lower()
    # One readable line: a hostile text floods no terminal and sends it no orders.
    line = str(Problem(fault.what, expected=fault.expected, remedy=fault.remedy))
    assert len(line) < 500
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes >", "a column, attributes['k'] or a value after '>'"),
        ("(bytes > 5", "AND, OR or ) after 'bytes > 5'"),
        ("bytes /  2 b", "a comparison, AND, OR or the end after '2'"),
        ("bytes > 5 b", "AND, OR or the end after '5'"),
        ("bytes IS 5", "NULL after 'IS'"),
        ("attributes = 'x'", "[ after 'attributes'"),
        ("CAST(bytes) = 1", "AND, OR or AS and a type after 'bytes'"),
        ("> 5", "a column, attributes['k'] or a value"),
    ],
)
def test_names_what_could_have_stood_there(text: str, expected: str) -> None:
    assert refusal(text).expected == expected


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_of_sql_is_refused_with_what_to_write_instead(sign: str) -> None:
    fault = refusal(f"bytes {sign} 1")
    assert (fault.what, fault.remedy) == (f"{quote(sign)} has no meaning here", SIGNS[sign])


@pytest.mark.parametrize("word", sorted(FOREIGN))
def test_a_word_of_sql_is_no_column(word: str) -> None:
    assert refusal(f"{word} > 1").what == f"{quote(word.upper())} has no place in a condition"


def test_the_words_of_a_part_are_those_of_its_author() -> None:
    assert refusal("lower( (bytes\n  +1)) = 'x'").what == "'(bytes +1)' is an integer"


def test_there_is_no_chain_of_reasons_behind_a_refusal() -> None:
    # A traceback that shows the inner fault would put our code before the person's mistake.
    assert refusal("closed_at > 'x'").__suppress_context__


def test_a_policy_refuses_with_the_words_of_the_language() -> None:
    with pytest.raises(ValueError, match="'byte' is not a column"):
        Selection.model_validate({"where": "byte > 5"})
