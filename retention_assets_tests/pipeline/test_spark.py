"""Starting Spark: nothing is said that nobody can mend, and everything is said of what went wrong."""

import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

from retention_assets.errors import Refused
from retention_assets.pipeline import spark
from retention_assets.pipeline.spark import spark_conf
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT

ADVICE = Path(spark.__file__).with_name("java.txt")

CODE = """
import os, sys
from pathlib import Path
from retention_assets.pipeline.spark import is_running, spark_session
conf = dict(one.split("=", 1) for one in sys.argv[1:])
assert not is_running()
for _ in range(2):
    session = spark_session("local[1]", conf)
    assert spark_session("local[1]", conf) is session
    print(session.range(5).count(), session.conf.get("spark.sql.session.timeZone"))
    session.sparkContext._jvm.java.lang.System.err.println("said by Java")
    session.stop()
children = Path("/proc/self/task", str(os.getpid()), "children")
print(len(children.read_text().split()) if children.exists() else 1, "Java")
"""


def start(*conf: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *conf],
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.program
@pytest.mark.spark
def test_a_start_says_nothing_and_what_java_says_later_is_read(tmp_path: Path) -> None:
    """Also where its class archive is none: Java goes on without."""
    (tmp_path / "spark.jsa").write_bytes(b"no archive" * 10_000)
    done = start(folder=tmp_path, SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=spark.jsa -Xlog:cds*=off")
    assert (done.returncode, done.stdout) == (0, "5 UTC\n5 UTC\n1 Java\n"), done.stderr
    assert done.stderr.splitlines() == ["said by Java"] * 2


@pytest.mark.program
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


SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.mark.parametrize(
    ("master", "theirs", "expected"),
    [
        ("local[2]", {}, SHORT),
        ("local", {"spark.driver.extraJavaOptions": "-Dmine=1"}, f"{SHORT} -Dmine=1"),
        # Two collectors refuse to start; of two levels the last counts.
        ("local[*]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, "-XX:TieredStopAtLevel=1 -XX:+UseG1GC"),
        ("local[2]", {"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}, "-XX:TieredStopAtLevel=1"),
        ("local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseGCOverheadLimit"}, f"{SHORT} -XX:+UseGCOverheadLimit"),
        ("local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}, f"{SHORT} -XX:TieredStopAtLevel=4"),
        # On a cluster the driver may be a long program, whose owner has chosen.
        ("spark://host:7077", {"spark.driver.extraJavaOptions": "-Dmine=1"}, "-Dmine=1"),
        ("yarn", {}, ""),
    ],
)
def test_java_options_of_the_settings_come_after_ours(
    master: str, theirs: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(word, raising=False)
    conf = spark_conf(master, theirs)
    logging, _, options = conf["spark.driver.extraJavaOptions"].partition('log4j2.properties"')
    assert logging.startswith("-Dlog4j2.configurationFile=")
    assert options.strip() == expected
    assert ("spark.sql.codegen.wholeStage" in conf) == master.startswith("local")


def test_a_collector_of_the_environment_and_what_the_settings_say_of_sql_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseParallelGC")
    conf = spark_conf("local[2]", {"spark.sql.codegen.wholeStage": "true"})
    assert "UseSerialGC" not in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.sql.codegen.wholeStage"] == "true"


def java(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch, names_it: bool = True) -> None:
    """Make a Java of this version the one that Spark starts, in an environment that chooses no archive."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}"' >&2; exit 1\n""")
    program.chmod(0o755)
    if names_it:
        (folder / "release").write_text(f'IMPLEMENTOR="Some"\nJAVA_RUNTIME_VERSION="{version}+7"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(folder))
    for name in spark._OPTIONS_OF_OTHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("version", "creates"), [("17.0.15", False), ("18.0.2", False), ("19", True), ("21.0.3", True), ("25-ea", True)]
)
def test_java_19_and_newer_create_an_archive_in_the_warehouse(
    version: str, creates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, version, monkeypatch)
    options = spark._archive_options(spark_conf("local[2]", {}, str(tmp_path / "warehouse")))
    folder = tmp_path / "warehouse" / ".java"
    expected = ["-XX:+AutoCreateSharedArchive", f'-XX:SharedArchiveFile="{folder / "spark.jsa"}"'] if creates else []
    assert [option for option in options.split() if "Archive" in option] == expected
    assert folder.exists() == creates


@pytest.mark.parametrize(
    ("master", "conf", "warehouse"),
    [
        ("spark://host:7077", {}, "warehouse"),
        ("sc://host", {}, "warehouse"),
        ("local[2]", {}, "s3://bucket/warehouse"),
        ("local[2]", {}, 'ware"house'),
        ("local[2]", {}, ""),
        ("local[2]", {spark.JAVA_OPTIONS: "-XX:SharedArchiveFile=mine.jsa"}, "warehouse"),
        ("local[2]", {spark.JAVA_OPTIONS: "-Dx=1 -XX:ArchiveClassesAtExit=mine.jsa"}, "warehouse"),
        ("local[2]", {spark.JAVA_OPTIONS: "-Xshare:off"}, "warehouse"),
    ],
)
def test_clusters_remote_warehouses_and_chosen_archives_get_none(
    master: str, conf: dict[str, str], warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, "21.0.3", monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert spark._archive_options(spark_conf(master, conf, warehouse)) == ""


def test_no_archive_is_run_that_somebody_else_could_have_written_nor_one_of_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, "21.0.3", monkeypatch)
    conf = spark_conf("local[2]", {}, str(tmp_path))
    assert spark._archive_options(conf)
    (tmp_path / ".java").chmod(0o770)
    assert spark._archive_options(conf) == ""
    (tmp_path / ".java").chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    assert spark._archive_options(conf) == ""


@pytest.mark.parametrize("names_it", [True, False])
@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("1.8.0_392", "Java 8 was found in JAVA_HOME ({0})."),
        ("11.0.2", "Java 11 was found in JAVA_HOME ({0})."),
        ("0", "No Java was found in JAVA_HOME ({0})."),
        ("27-ea", "Java 27 did not start Spark."),
    ],
)
def test_a_java_that_will_not_do_is_named_with_what_to_install(
    version: str, sentence: str, names_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise RuntimeError("Java gateway process exited")

    java(tmp_path, version, monkeypatch, names_it)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", ends)
    with pytest.raises(Refused) as refused:
        spark._gateway(spark_conf("local[2]", {}))
    first, _, advice = str(refused.value).partition("\n")
    assert (first, advice) == (sentence.format(tmp_path), ADVICE.read_text().strip())


@pytest.mark.program
def test_without_any_java_a_command_says_so_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text("{}")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "none.yaml").write_text("policies: []")
    bare = {name: text for name, text in ENVIRONMENT.items() if name != "JAVA_HOME"} | {"PATH": "/not/there"}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "run"], cwd=tmp_path, env=bare, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[:2] == ["No Java was found on the PATH.", f"  {ADVICE.read_text().splitlines()[0]}"]
    assert not (tmp_path / ".retention").exists()


def test_a_spark_connect_server_is_given_no_options_of_a_java_of_ours() -> None:
    conf = spark_conf("sc://host:15002", {})
    assert conf["spark.remote"] == "sc://host:15002"
    assert not {"spark.master", "spark.driver.extraJavaOptions", "spark.ui.enabled", "spark.app.name"} & conf.keys()


@dataclass
class FakeSession:
    """What stands for a session, and whether it was ended."""

    master: str
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[FakeSession]:
    """No Java is started; the sessions that would have been."""
    from pyspark import SparkContext

    sessions: list[FakeSession] = []

    def begin(conf: dict[str, str], early: Future[str]) -> FakeSession:
        sessions.append(FakeSession(f"{conf['spark.master']} on {early.result()}"))
        return sessions[-1]

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(spark, "_gateway", lambda _: "Java")
    monkeypatch.setattr(spark, "_refuse_unfit_java", lambda: None)
    monkeypatch.setattr(spark, "_session", begin)
    return sessions


def test_a_session_that_is_on_its_way_is_taken_once_and_has_begun_its_work(begun: list[FakeSession]) -> None:
    done = list[object]()
    for master in ("local[2]", "local[3]", "spark://host:7077"):
        spark.start_early(master, {})
    spark.do_early(done.append)
    early = spark._early
    assert early is not None
    spark._take(spark_conf("local[2]", {}))
    early.pool.shutdown()
    assert (begun, done) == ([FakeSession("local[2] on Java")], begun)
    assert spark._early is None
    # There is none any more that could do anything.
    spark.do_early(done.append)
    spark._take(spark_conf("local[2]", {}))
    assert len(done) == 1


def test_a_session_of_another_configuration_is_ended(begun: list[FakeSession]) -> None:
    spark.start_early("local[3]", {})
    spark._take(spark_conf("local[2]", {}))
    assert begun == [FakeSession("local[3] on Java", stopped=True)]


def test_nothing_is_begun_where_java_runs_already(begun: list[FakeSession], monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", object())
    spark.start_early("local[4]", {})
    assert spark._early is None
    assert not begun


def test_what_kept_spark_from_starting_is_said_to_who_asks_for_the_session(
    begun: list[FakeSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("no Java")

    monkeypatch.setattr(spark, "_gateway", fails)
    spark.start_early("local[2]", {})
    # Nor does it keep anybody else from going on.
    spark.do_early(lambda _: begun.clear())
    with pytest.raises(RuntimeError, match="no Java"):
        spark._take(spark_conf("local[2]", {}))


def test_the_python_of_the_settings_is_that_of_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark by itself reads that key only where spark-submit starts a program."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    spark_conf("spark://host:7077", {"spark.pyspark.python": "/opt/retention/bin/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/retention/bin/python"


def test_executors_of_a_standalone_cluster_alone_are_given_the_keys_of_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, f"my {name}")
    given = {"spark.executorEnv.AWS_REGION": "said in the settings"}
    conf = spark_conf("spark://host:7077", given)
    assert conf["spark.executorEnv.AWS_SECRET_ACCESS_KEY"] == "my AWS_SECRET_ACCESS_KEY"
    assert conf["spark.executorEnv.AWS_REGION"] == "said in the settings"
    for master in ("local[2]", "yarn", "k8s://https://host", "sc://host"):
        assert not [key for key in spark_conf(master, {}) if "AWS_" in key]
