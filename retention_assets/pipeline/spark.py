"""The Spark session, from settings to a running one.

Belongs here: configuration that every session of the project needs, whatever its master. Nothing starts before it is asked
for: importing this module needs no Java.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Times are instants in UTC everywhere. Stages send names of files to tasks, one at a time, and get counts back.
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.log.level": "ERROR",
}


def spark_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a session; `sc://` is a Spark Connect server."""
    if master.startswith("local"):
        # Workers on this machine have to be the Python that has the packages, not the first one on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = "spark.remote" if master.startswith("sc://") else "spark.master"
    return {**DEFAULTS, "spark.app.name": "retention_assets", where: master, **conf}


def spark_session(master: str, conf: Mapping[str, str]) -> "SparkSession":
    """The session of this Python, started on the first call."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in spark_conf(master, conf).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
