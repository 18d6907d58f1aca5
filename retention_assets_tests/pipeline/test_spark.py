"""Starting Spark: nothing is said that nobody can mend, and everything is said of what went wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from retention_assets.pipeline.spark import spark_conf
from retention_assets_tests.commands.conftest import ENVIRONMENT

CODE = """
import sys
from retention_assets.pipeline.spark import is_running, spark_session
conf = dict(one.split("=", 1) for one in sys.argv[1:])
assert not is_running()
for _ in range(2):
    session = spark_session("local[1]", conf)
    assert spark_session("local[1]", conf) is session
    print(session.range(5).count(), session.conf.get("spark.sql.session.timeZone"))
    session.sparkContext._jvm.java.lang.System.err.println("said by Java")
    session.stop()
"""


def start(*conf: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *conf], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.mark.spark
def test_a_start_says_nothing_and_what_java_says_later_is_read(tmp_path: Path) -> None:
    done = start(folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "5 UTC\n5 UTC\n"), done.stderr
    assert done.stderr.splitlines() == ["said by Java"] * 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("spark.driver.memory=lots", "Invalid maximum heap size: -Xmxlots"),
        ("spark.executor.memory=lots", "Executor memory must be a positive number"),
    ],
)
def test_a_spark_that_does_not_start_says_why(conf: str, words: str, tmp_path: Path) -> None:
    done = start(conf, folder=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr


def test_java_options_of_the_settings_come_after_ours() -> None:
    options = spark_conf("local[1]", {"spark.driver.extraJavaOptions": "-Dmine=1"})["spark.driver.extraJavaOptions"]
    ours, _, theirs = options.partition(" -Dmine")
    assert "log4j2.properties" in ours
    assert theirs == "=1"


def test_a_spark_connect_server_is_given_no_options_of_a_java_of_ours() -> None:
    conf = spark_conf("sc://host:15002", {})
    assert conf["spark.remote"] == "sc://host:15002"
    assert not {"spark.master", "spark.driver.extraJavaOptions"} & conf.keys()
