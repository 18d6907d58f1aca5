"""What tests share: one Spark session for the whole suite. A start costs seconds, a warm query tenths of one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The session that the package itself would start, on two cores."""
    from retention_assets.resources.spark import spark_session

    session = spark_session("local[2]", {"spark.driver.memory": "2g"})
    yield session
    session.stop()
