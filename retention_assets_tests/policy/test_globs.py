"""The one meaning of a glob, for one name and for many."""

import fnmatch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.frames import DATASETS, selects_dataset
from retention_assets.frames.log import bounds_of, datasets_chosen_by
from retention_assets.policy import Datasets, matches
from retention_assets.policy.globs import is_literal, matching
from retention_assets.policy.language import rules_reaching

CASES = [
    ("lake/raw.orders", "lake/raw.order", False),
    ("lake/raw.*", "lake/raw.", True),
    ("lake/raw.*", "lake/rawXorders", False),
    ("*", "lake/a/b", True),
    ("lake/?", "lake/", False),
    # A name that is equal to the text is meant, whatever else the text means.
    ("lake/[ab]", "lake/[ab]", True),
    ("lake/[z-a]", "lake/[z-a]", True),
    ("lake/[z-a]", "lake/z", False),
    ("lake/[!a-c]", "lake/a", False),
    ("lake/[^a]", "lake/b", False),
    ("lake/[]x]", "lake/]", True),
    ("LAKE/d", "lake/d", False),
    # Signs of regular expressions are letters like any other.
    ("lake/a+", "lake/aa", False),
    ("a.c*", "abc", False),
    # A name of two lines is one name, and a glob is about the whole of it.
    ("a?b", "a\nb", True),
    ("a", "a\n", False),
]


@pytest.mark.parametrize(("glob", "name", "expected"), CASES)
def test_a_glob_is_about_the_whole_name(glob: str, name: str, expected: bool) -> None:
    assert matches(name, (glob,)) is expected
    assert matching([name], (glob,)) == [expected]


def test_any_one_of_several_matches_and_none_of_none() -> None:
    assert matches("b", ("a", "b"))
    assert not matches("b", ())
    assert matching(["a", "bb", "c"], ("a", "b*")) == [True, True, False]
    assert matching(["a", "b"], ()) == [False, False]
    assert matching([], ("*",)) == []


@pytest.mark.parametrize(
    ("glob", "literal"), [("lake/d", True), ("lake/*", False), ("a?", False), ("a[b]", False), ("a]b", True)]
)
def test_a_literal_glob_can_match_only_itself(glob: str, literal: bool) -> None:
    assert is_literal(glob) is literal


LETTERS = st.text("ab*?[]!-\n/", max_size=6)
IDS = st.text() | LETTERS | st.builds("{0}[{1}]{2}".format, LETTERS, LETTERS, LETTERS)


@given(st.lists(LETTERS, max_size=6), st.lists(LETTERS, max_size=4))
def test_many_names_are_matched_as_one_is(names: list[str], globs: list[str]) -> None:
    assert matching(names, globs) == [matches(name, globs) for name in names]


def chosen(names: list[str], scope: Datasets) -> list[bool]:
    log = pa.table({"dataset": pa.array(names, pa.string()).dictionary_encode()})
    found = datasets_chosen_by(log, bounds_of(log), DATASETS.empty_table(), [scope])
    return [bool(is_chosen) for is_chosen in found[:, 0]]


@given(IDS, LETTERS)
def test_a_name_is_meant_by_its_own_text_wherever_names_are_chosen(name: str, other: str) -> None:
    assert matches(name, (name,))
    assert matching([other, name], (name, other)) == [True, True]
    include = Datasets.model_construct(include=(name,), exclude=(), with_={})
    exclude = Datasets.model_construct(include=("*",), exclude=(name,), with_={})
    assert (selects_dataset(include, name, {}), selects_dataset(exclude, name, {})) == (True, False)
    assert (chosen([name], include), chosen([name], exclude)) == ([True], [False])
    assert (rules_reaching([name], include), rules_reaching([name], exclude)) == ([name], [])


@given(IDS, IDS)
def test_nothing_but_the_name_itself_is_meant_that_the_pattern_does_not_mean(name: str, glob: str) -> None:
    expected = name == glob or fnmatch.fnmatchcase(name, glob)
    include = Datasets.model_construct(include=(glob,), exclude=(), with_={})
    assert matches(name, (glob,)) == matching([name], (glob,))[0] == expected
    assert (
        selects_dataset(include, name, {})
        == chosen([name], include)[0]
        == (rules_reaching([name], include) == [name])
        == expected
    )


def test_a_long_glob_of_stars_is_decided_at_once() -> None:
    # fnmatch writes atomic groups since Python 3.9; without them this would take longer than a life.
    assert not matches("a" * 3000 + "c", ("*a" * 50 + "*b",))
