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

# Times are instants in UTC everywhere; tasks are few and long, so their start is what has to be cheap.
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.log.level": "ERROR",
}


def spark_session(master: str, conf: Mapping[str, str], name: str = "retention_assets") -> "SparkSession":
    """The session of this Python, started on the first call. `sc://` is a Spark Connect server."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    if master.startswith("local"):
        # Workers on this machine have to be the Python that has the packages, not the first one on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in {**DEFAULTS, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
