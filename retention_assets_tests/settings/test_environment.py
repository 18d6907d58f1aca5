"""Values from the environment: where `${NAME}` is expanded, and what is refused."""

from pathlib import Path

import pytest

from retention_assets.errors import InvalidValue, Problem
from retention_assets.settings.yaml import expand_text
from retention_assets_tests.settings.settings_files import problems, read


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("${A}", "one", id="the whole value"),
        pytest.param("x-${A}-y-${B}", "x-one-y-two", id="parts of it"),
        pytest.param("${NO:-other}", "other", id="a default for what is unset"),
        pytest.param("${EMPTY:-other}", "other", id="a default for what is empty, as in a shell"),
        pytest.param("${A:-other}", "one", id="no default needed"),
        pytest.param("${NO:-}", "", id="an empty default"),
        pytest.param("${NO:-a:-b}", "a:-b", id="a default may hold its own mark"),
        pytest.param("$$", "$", id="a dollar"),
        pytest.param("$${A}", "${A}", id="a dollar, then braces that are text"),
        pytest.param("${NO:-pa$$word}", "pa$word", id="a dollar in a default"),
        pytest.param("${NESTED}", "${A} $$ $x", id="what is put in is not expanded again"),
        pytest.param("{dataset}", "{dataset}", id="braces alone are text"),
    ],
)
def test_a_value_is_expanded(text: str, answer: str) -> None:
    assert expand_text(text, {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A} $$ $x"}) == answer


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("$A", id="a shell's short form would silently stay text"),
        pytest.param("${A", id="never closed"),
        pytest.param("${1A}", id="no such name is possible"),
        pytest.param("${A-x}", id="a form that only shells know"),
        pytest.param("${NO:-${A}}", id="a variable in a default"),
    ],
)
def test_a_dollar_that_begins_no_variable_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"begins no variable"):
        expand_text(text, {"A": "one"})


def test_what_the_environment_puts_in_stays_text_and_keys_are_not_expanded(tmp_path: Path) -> None:
    """A value that looks like YAML, or like a variable, is a value; only so can a password hold any character."""
    odd = "a: [1, 2] # ${OTHER} $$"
    settings = read(
        tmp_path, "spark: {conf: {spark.x: '${ODD}', spark.y: '${YES}', '${KEY}': x}}", ODD=odd, YES="true", KEY="k"
    )
    assert settings.spark.conf == {"spark.x": odd, "spark.y": "true", "${KEY}": "x"}


def test_a_missing_variable_is_named_with_its_key_and_a_remedy_and_is_reported_once(tmp_path: Path) -> None:
    """The unexpanded text is no database URL either; a second complaint about it would only confuse."""
    text = "\nledger: ${LEDGER}\nstores:\n- {name: m, kind: aspects,\n   url: 'postgresql://u:${PW}@h/d'}"
    problem, deep = problems(tmp_path, text)
    assert (deep.key, deep.line, "PW" in deep.what) == ("stores[0].url", 5, True)
    assert problem == Problem(
        "the environment variable LEDGER is not set", file=f"{tmp_path}/retention.yaml", line=2, key="ledger",
        value="'${LEDGER}'", expected="a variable that is set",
        remedy="Set LEDGER, or write a default into the file: ${LEDGER:-…}.",
    )  # fmt: skip


def test_an_expanded_value_that_is_wrong_in_another_way_keeps_its_own_remedy(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "ledger: ${URL}", URL="postgres://h/d")
    assert (problem.value, problem.remedy) == ("'${URL}'", "Write postgresql:// instead of postgres://.")


def test_a_boolean_cannot_come_from_the_environment_and_the_message_says_why(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "overwrite_user_policies: ${YES}", YES="true")
    assert (problem.key, problem.value, problem.expected) == ("overwrite_user_policies", "'${YES}'", "true or false")
    assert problem.remedy == "A value from the environment is text; write this one into the file."
