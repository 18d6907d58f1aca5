"""What tests of Dagster's side share: an instance, and the jobs in their definitions."""

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture(scope="session", autouse=True)
def _jobs_of_all(shared_jobs: None) -> None:
    """Each test has definitions of its own, and jobs that are made once."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In memory: one on disk, which other programs find as well, takes longer to make than most tests."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made
