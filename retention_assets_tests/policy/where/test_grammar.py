"""Reading a condition: what binds how, up to which limits, and that any text is read or refused."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retention_assets.errors import InvalidValue
from retention_assets.frames import INSTANT, LOG, evaluate
from retention_assets.policy import BRANCHED, INDEPENDENT, STATUSES, parse_condition
from retention_assets.policy.where import grammar
from retention_assets.policy.where.tree import (
    COLUMNS,
    DEEPEST,
    FUNCTIONS,
    MOST_CHARACTERS,
    MOST_NODES,
    TARGETS,
    VALUES,
    Apply,
    Column,
    Condition,
    Kind,
    Literal,
    Term,
    columns_of,
)
from retention_assets_tests.policy.where.conditions import MEANINGS, ROWS, short_id, terms_of
from retention_assets_tests.policy.where.random_terms import as_condition, terms
from retention_assets_tests.policy.where.test_errors import REFUSED
from retention_assets_tests.rounds import examples


def test_the_limits_are_those_that_are_documented() -> None:
    assert (MOST_CHARACTERS, MOST_NODES, DEEPEST) == (10_000, 500, 50)


ACCEPTED = [
    "(" * DEEPEST + "bytes > 1" + ")" * DEEPEST,  # as deep as is allowed
    "NOT " * 48 + "bytes > 1",
    "bytes > 1 OR (" * DEEPEST + "files > 1 AND bytes + 1 * 2 = 3" + ")" * DEEPEST,
    "bytes" + " + 1" * 48 + " = 0",
    " OR ".join(["attributes['a'] = 'b'"] * 166),  # long, but flat
    f"bytes IN ({', '.join(map(str, range(MOST_NODES - 2)))})",
    f"attributes['{'k' * 9_900}'] = 'x'",
    "bytes>5 AND(files<1)AND NOT(files=2)",  # as few spaces as can be
    f"type LIKE '{'%' * 1_000}' OR type LIKE '{'_' * 1_000}' OR type LIKE '{'%a_' * 333}'",
    "\n bytes\t>\r\n5 \n",
    "attributes['日本'] = '語🤦\u200d♂️'",  # a joiner within an emoji is not hidden
    "attributes['it''s'] LIKE 'a''%' ESCAPE ''''",
    "attributes[''] IS NULL",
]


@pytest.mark.parametrize("text", ACCEPTED, ids=short_id)
def test_accepts_up_to_the_limits(text: str) -> None:
    condition = parse_condition(text)
    assert condition.text == text.strip()
    assert evaluate(condition, ROWS).shape == (4,)


@pytest.mark.parametrize("text", [text for text, piece, _ in REFUSED if "deep" in piece] + ACCEPTED)
def test_does_not_need_much_of_the_stack(text: str) -> None:
    # A caller may itself be deep; nothing may then depend on how deep.
    def below(levels: int) -> bool:
        if levels:
            return below(levels - 1)
        try:
            return parse_condition(text) is not None
        except InvalidValue:
            return False

    assert below(400) in (True, False)


@pytest.mark.program
def test_the_parser_is_loaded_with_the_first_condition() -> None:
    # Most commands read no condition, and Lark takes longer to build its table than they may take altogether.
    code = "import sys, retention_assets.policy.model; from retention_assets.policy.where import parse_condition; print('lark' in sys.modules, end=' ');"
    code += "parse_condition('bytes > 0'); print('lark' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == ["False", "True"]


def test_many_may_read_at_once() -> None:
    grammar._lark.cache_clear()
    texts = [text for text, _ in MEANINGS] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(parse_condition, texts)) == [parse_condition(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("files > 1 OR files > 2 AND files > 3", "files > 1 OR (files > 2 AND files > 3)"),
        ("files > 1 AND files > 2 OR files > 3", "(files > 1 AND files > 2) OR files > 3"),
        ("NOT files > 1 AND files > 2", "(NOT (files > 1)) AND files > 2"),
        ("NOT files IS NULL", "NOT (files IS NULL)"),
        ("files NOT IN (1)", "NOT (files IN (1))"),
        ("files IS NOT NULL", "NOT (files IS NULL)"),
        ("files BETWEEN 1 + 1 AND 2 * 2 AND bytes > 1", "(files BETWEEN (1 + 1) AND (2 * 2)) AND bytes > 1"),
        ("files - 1 - 2 > 0", "((files - 1) - 2) > 0"),
        ("files - 1 * 2 > 0", "(files - (1 * 2)) > 0"),
        ("files * 1 % 2 * 3 > 0", "((files * 1) % 2) * 3 > 0"),
        ("-files * 2 > 0", "(-files) * 2 > 0"),
        ("- - files > 0", "-(-files) > 0"),
        ("2 * -files - -1 > 0", "(2 * (-files)) - (-1) > 0"),
        ("startswith(dataset, '50%')", "dataset LIKE '50!%%' ESCAPE '!'"),
    ],
)
def test_binds_as_sql_does(text: str, meant: str) -> None:
    assert parse_condition(text) == parse_condition(meant)


PIECES = [
    *COLUMNS, *FUNCTIONS, *grammar._WORDS, *sorted(grammar.FOREIGN), *grammar.SIGNS, *TARGETS,
    *["<", "<=", "<>", "!=", "=", ">=", ">", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%"],
    "attributes", "['k']", "'x'", "''", "'", "`", "`type`", "not", "as", "escape", "null", "true", "false", "date", "timestamp",
    "5", "-1", "0.5", "1e9", "9223372036854775808", "'2026-01-01'", "'%_\\\\%'", "\\", "\n", "\x00", "é", "attributes['k']",
    "(", ")", "(", ")", "and", "or", "bytes > 1", "type = 'SNAPSHOT'", "closed_at is null", "?", ":x", "{{", "}}", "#", "@",
    "$1", "cast(attributes['k'] as bigint)",
]  # fmt: skip


def check_any(text: str) -> None:
    """A text is refused with InvalidValue, or is a condition that can be asked of any rows. There is no third."""
    try:
        condition = parse_condition(text)
    except InvalidValue:
        return
    assert evaluate(condition, ROWS).shape == (4,)
    assert parse_condition(condition.text) == condition


@settings(max_examples=examples(20), deadline=None)
@given(st.text(max_size=200) | st.text(alphabet=st.characters(max_codepoint=127), max_size=200))
@example("\N{COMBINING ACUTE ACCENT}")
@example("İ = 'x'")
def test_any_text_is_read_or_refused(text: str) -> None:
    check_any(text)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.just(1) | st.integers(1, 3_000), st.sampled_from([" ", "", "\n"]))
def test_any_soup_of_words_is_read_or_refused(words: list[str], times: int, between: str) -> None:
    check_any(between.join(words * times)[:MOST_CHARACTERS])


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_any_slip_of_the_pen_is_read_or_refused(data: st.DataObject) -> None:
    """A good text with a piece taken out, put in or put elsewhere is the likeliest bad one."""
    text = data.draw(st.sampled_from([text for text, _ in MEANINGS]))
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    put = data.draw(st.sampled_from(["", *PIECES]) | st.text(max_size=3))
    check_any(text[:first] + put + text[last:])


@settings(max_examples=examples(20), deadline=None)
@given(tree=terms(Kind.TRUTH, 4))
def test_what_is_written_out_is_read_back(tree: Term) -> None:
    text = as_condition(tree)
    if columns_of(Condition("", tree)) and not _names_a_value_that_is_none(tree):
        assert parse_condition(text) == Condition(text, tree)


def _names_a_value_that_is_none(tree: Term) -> bool:
    compared = [term.terms for term in terms_of(tree) if isinstance(term, Apply) and term.op in ("=", "<>", "in")]
    return any(
        isinstance(one, Column) and one.name in VALUES and isinstance(other, Literal) and other.value not in VALUES[one.name]
        for parts in compared for one in parts for other in parts
    )  # fmt: skip


def test_two_texts_that_say_the_same_are_equal() -> None:
    one = parse_condition("bytes>5 AND (type != 'APPEND' and files = 1)")
    other = parse_condition("BYTES > 5 AND `type` <> 'APPEND' AND files = 1")
    assert one == other
    assert hash(one) == hash(other)
    assert one.text != other.text


@pytest.mark.parametrize(
    ("one", "other"), [("bytes = 1", "bytes = 1.0"), ("bytes = 1", "bytes = 2"), ("type < 'a'", "type <= 'a'")]
)
def test_two_texts_that_say_something_else_are_not(one: str, other: str) -> None:
    assert parse_condition(one) != parse_condition(other)


def test_a_condition_travels_to_another_interpreter() -> None:
    condition = parse_condition("NOT (bytes > 5 AND closed_at < '2026-01-01' OR attributes['k'] LIKE 'a%')")
    copy = pickle.loads(pickle.dumps(condition))
    assert (copy, copy.text) == (condition, condition.text)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("bytes > 5", {"bytes"}),
        ("bytes > 5 AND attributes['a'] = attributes['b']", {"bytes", "attributes"}),  # keys are not columns
        ("NOT CAST(closed_at AS BIGINT) BETWEEN ordinal AND files", {"closed_at", "ordinal", "files"}),
    ],
)
def test_names_the_columns_that_it_reads(text: str, columns: set[str]) -> None:
    assert columns_of(parse_condition(text)) == columns


def test_columns_and_values_are_those_of_the_log_and_the_model() -> None:
    text = {pa.string(), LOG.field("type").type}
    kinds = {pa.int32(): Kind.INTEGER, pa.int64(): Kind.INTEGER, INSTANT: Kind.INSTANT, **dict.fromkeys(text, Kind.TEXT)}
    assert {field.name: kinds[field.type] for field in LOG if field.type in kinds} == COLUMNS
    assert {"type": (*BRANCHED, *INDEPENDENT), "status": STATUSES} == VALUES
