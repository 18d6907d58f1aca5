"""The lake of a test."""

from pathlib import Path

import pytest

from retention_assets_tests.sweep.lakes import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(params=[False, True], ids=["read again", "guards"])
def guards(request: pytest.FixtureRequest) -> bool:
    """Whether the store guards its targets, so that its log is not read again before each batch."""
    return bool(request.param)
