"""The lake of a test."""

from pathlib import Path

import pytest

from retention_assets_tests.sweep.lakes import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake on a SQLite ledger."""
    return Lake(tmp_path / "lake")
