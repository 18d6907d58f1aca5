"""What tests of the Delta store share: a second reader of tables."""

import subprocess
from collections.abc import Iterator

import pytest

from retention_assets_tests.stores.delta.readers import DuckDBReader


@pytest.fixture(scope="session")
def duckdb_reader() -> Iterator[DuckDBReader]:
    """It needs a network once, so a test that asks for it is a `program`."""
    try:
        reader = DuckDBReader()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"DuckDB 1.5 and its Delta extension can't be installed here: {getattr(error, 'stderr', '') or error}")
    yield reader
    reader.close()
