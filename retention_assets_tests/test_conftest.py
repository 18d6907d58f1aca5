"""What conftest.py does for all tests: marks of further databases and cases, and the signal that ends pytest."""

import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from retention_assets_tests.conftest import LEFT_OUT, mark_by_list
from retention_assets_tests.selection import name_of, read_list, without_case

DATABASES = pytest.mark.parametrize("database", ["postgresql", "sqlite"])


@DATABASES
@pytest.mark.parametrize("case", ["a", "b"])
def test_a_further_database_of_a_case_is_of_the_matrix(request: pytest.FixtureRequest, database: str, case: str) -> None:
    assert (request.node.get_closest_marker("matrix") is None) == (database == "sqlite")


@pytest.mark.parametrize(("database", "case"), [("sqlite", "a"), ("postgresql", "b")])
def test_a_case_on_one_database_is_tried_there(request: pytest.FixtureRequest, database: str, case: str) -> None:
    assert request.node.get_closest_marker("matrix") is None


@DATABASES
@pytest.mark.dialect
def test_what_is_about_the_dialect_is_tried_on_each(request: pytest.FixtureRequest, database: str) -> None:
    assert request.node.get_closest_marker("matrix") is None


@pytest.mark.parametrize("case", range(7))
def test_of_a_listed_test_so_many_cases_are_tried(request: pytest.FixtureRequest, case: int) -> None:
    own = without_case(name_of(request.node.nodeid))
    here = [item for item in request.session.items if without_case(name_of(item.nodeid)) == own]
    mark_by_list({own: 3}, here)
    tried = [item.name[-2] for item in here if item.get_closest_marker("again") is None]
    assert len(tried) == 3
    assert (str(case) in tried) == (request.node.get_closest_marker("again") is None)


def test_what_the_list_names_is_tried_no_more_often(request: pytest.FixtureRequest) -> None:
    tried = [item for item in request.session.items if LEFT_OUT.isdisjoint(mark.name for mark in item.iter_markers())]
    cases, listed = Counter(without_case(name_of(item.nodeid)) for item in tried), read_list()
    assert {name: cases[name] for name in listed if cases[name] > listed[name]} == {}


def test_what_is_left_out_is_what_make_leaves_out() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    (marks,) = re.findall(r"^MORE := (.+)$", makefile, re.MULTILINE)
    assert set(marks.split(" or ")) == LEFT_OUT


def test_a_test_may_take_the_signal_that_ends_programs() -> None:
    """As a run of Dagster does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_and_the_next_one_has_it_again() -> None:
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
