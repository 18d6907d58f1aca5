"""What tests of Dagster's side share: the jobs in their definitions."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _jobs_of_all(shared_jobs: None) -> None:
    """Each test has definitions of its own, and jobs that are made once."""
