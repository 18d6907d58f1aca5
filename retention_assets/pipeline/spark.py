"""The Spark session, from settings to a running one.

Belongs here: configuration that every session of the project needs, whatever its master, and starting it without the warnings
that come with every start. Nothing starts before it is asked for: importing this module needs no Java.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

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
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")
# What no option silences: Java's word about a module that Spark itself asks for, and Spark's about a shell that there is not.
_SILENCED = (b"WARNING: Using incubator modules: ", b"Setting default log level to ", b"To adjust logging level use sc.")


def spark_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a session; `sc://` is a Spark Connect server."""
    if master.startswith("local"):
        # Workers on this machine have to be the Python that has the packages, not the first one on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    named = {**DEFAULTS, "spark.app.name": "retention_assets", **conf}
    if master.startswith("sc://"):
        return {**named, "spark.remote": master}
    # Of two logging files Java takes the one named last: that of the settings, if they name one.
    options = f'-Dlog4j2.configurationFile="{_LOGGING}" {conf.get(_JAVA_OPTIONS, "")}'.strip()
    return {"spark.master": master, **named, _JAVA_OPTIONS: options}


def spark_session(master: str, conf: Mapping[str, str]) -> "SparkSession":
    """The session of this Python, started on the first call."""
    return session_of(spark_conf(master, conf))


def is_running() -> bool:
    """Whether this Python has a Spark."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def session_of(conf: Mapping[str, str]) -> "SparkSession":
    """The session of a whole configuration; that of this Python, if it has one."""
    from pyspark.sql import SparkSession

    if "spark.remote" not in conf and not is_running():
        _start(conf)
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _start(conf: Mapping[str, str]) -> None:
    """Start the Java side, and read along what it says while it does: all but one line goes on to stderr."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    wanted = SparkConf().setAll(list(conf.items()))
    if SparkContext._gateway is not None:
        # The session was stopped, and its Java runs on.
        SparkContext(conf=wanted)
        return
    reading, writing = os.pipe()
    reader = Thread(target=_pass_on, args=(reading,), daemon=True)
    reader.start()
    try:
        gateway: Any = launch_gateway(wanted, {"stderr": writing})  # type: ignore[no-untyped-call]  # it has no types
    except Exception:
        os.close(writing)
        # Why Java did not start stands in what it has said.
        reader.join(timeout=10)
        raise
    os.close(writing)
    SparkContext(conf=wanted, gateway=gateway)


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_SILENCED):
                os.write(2, line)
