"""What conftest.py does for all tests: marks of further databases, and the signal that ends pytest."""

import signal

import pytest

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


def test_a_test_may_take_the_signal_that_ends_programs() -> None:
    """As a run of Dagster does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_and_the_next_one_has_it_again() -> None:
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
