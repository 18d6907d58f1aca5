"""What tests share: one Spark session for the whole suite. A start costs seconds, a warm query tenths of one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from retention_assets_tests.databases import server, url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["server", "url"]

# Whole folders and modules that take their time; single tests of other modules carry the mark themselves.
_LONG = {
    "commands", "ledger", "stores", "sweep", "test_acts.py", "test_alerts.py", "test_checks.py", "test_laws.py", "test_sensors.py",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long by where it stands."""
    for item in items:
        if _LONG & set(item.path.parts):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The session that the package itself would start, on two cores."""
    from retention_assets.resources.spark import spark_session

    session = spark_session("local[2]", {"spark.driver.memory": "2g"})
    yield session
    session.stop()
