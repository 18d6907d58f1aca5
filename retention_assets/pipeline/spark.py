"""Configures and starts the Spark session, without the warnings of every start.

Nothing starts before it is asked for: importing this module needs no Java.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import which
from subprocess import DEVNULL, PIPE, run
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import TYPE_CHECKING, Any

from retention_assets.errors import Refused
from retention_assets.settings.secrets import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# times are instants in UTC everywhere; stages send file names to tasks, one at a time, and get counts back
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}
# On this machine no row enters Java. It starts, schedules work and ends: a collector and a compiler for long programs, and code
# generated for queries over rows, cost more than they save.
_LOCAL = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_SERIAL = "-XX:+UseSerialGC"
# Java does not start with two collectors
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
# variables in which Java and Spark's scripts find more options
_OPTIONS_OF_OTHERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# folder of an environment's class archive
ARCHIVES = "spark.retention.archives"
# first Java that creates and renews an archive by itself; an older one refuses to start with these options
_ARCHIVING_JAVA = 19
_OLDEST_JAVA, _NEWEST_TESTED_JAVA = 17, 21
# in a `release` file, or in what a Java says of itself; 8 calls itself 1.8
_JAVA_VERSION = re.compile(r'(?:^JAVA_VERSION=| version )"(?:1\.)?(\d+)', re.MULTILINE)
# a file, because `.ci/java` prints it too
_JAVA_ADVICE = Path(__file__).with_name("java.txt")
_ARCHIVING = "-XX:+AutoCreateSharedArchive -XX:+VerifySharedSpaces -Xlog:cds*=off"
# Java takes one archive: options that name one, or none, win
_CHOSEN_ARCHIVE = re.compile(r"-Xshare|-XX:\S*(Shared|ArchiveClasses|AOT|LoadedClassList)")
# Java reads a `:` as two archives, and a quote ends the option
_UNFIT = re.compile(r"[:\"'\\\n]")
_PYTHON = "spark.pyspark.python"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# keys that a Spark Connect server has fixed
_OF_SERVER = {"spark.ui.enabled", "spark.ui.showConsoleProgress", "spark.python.worker.reuse", "spark.app.name"}
_OBJECT_STORE_KEYS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)  # fmt: skip
_LOGGING = Path(__file__).with_name("log4j2.properties")
# lines that no option silences: Java's about a module that Spark requests, Spark's about a missing shell
_SILENCED = (b"WARNING: Using incubator modules: ", b"Setting default log level to ", b"To adjust logging level use sc.")


@dataclass(frozen=True)
class _EarlySession:
    """A session begun before anybody asked for it, and the one thread that works on it."""

    conf: Mapping[str, str]
    pool: ThreadPoolExecutor
    session: "Future[SparkSession]"


_early: _EarlySession | None = None


def spark_conf(master: str, conf: Mapping[str, str], warehouse: str = "") -> dict[str, str]:
    """Return the configuration of a session; `sc://` is a Spark Connect server. The warehouse is for a local class archive."""
    is_local = master.startswith("local")
    if named_python := conf.get(_PYTHON):
        # Spark reads that key only where spark-submit starts the program; this Python uses its environment
        os.environ["PYSPARK_PYTHON"] = named_python
    elif is_local:
        # local workers need the Python that has the packages, not the first one on the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    named = {**DEFAULTS, **(_LOCAL if is_local else {}), "spark.app.name": "retention_assets", **conf}
    if master.startswith("sc://"):
        # a server refuses to be told what it fixed at its start
        return {**{key: value for key, value in named.items() if key in conf or key not in _OF_SERVER}, "spark.remote": master}
    if master.startswith("spark://"):
        # An executor of a standalone cluster has its worker's environment, and could not open what this program can. Elsewhere
        # everybody who sees the pods can read the executors' environment, and secrets have other ways.
        credentials = {f"spark.executorEnv.{name}": os.environ[name] for name in _OBJECT_STORE_KEYS if os.environ.get(name)}
        named = {**credentials, **named}
    if is_local and warehouse and not _UNFIT.search(warehouse):
        named = {ARCHIVES: str(Path(warehouse).absolute() / ".java"), **named}
    # Java takes the last of two contradicting options: that of the settings, if they name one
    options = [
        f'-Dlog4j2.configurationFile="{_LOGGING}"',
        *((_SHORT_LIVED, "" if _COLLECTOR.search(_all_java_options(conf)) else _SERIAL) if is_local else ()),
        conf.get(JAVA_OPTIONS, ""),
    ]
    return {"spark.master": master, **named, JAVA_OPTIONS: " ".join(filter(None, options))}


def _all_java_options(conf: Mapping[str, str]) -> str:
    options = (conf.get(JAVA_OPTIONS), conf.get("spark.driver.defaultJavaOptions"), *map(os.environ.get, _OPTIONS_OF_OTHERS))
    return " ".join(filter(None, options))


def _archive_options(conf: Mapping[str, str]) -> str:
    # Java creates and renews an archive itself, which halves its later starts; older releases can't
    if ARCHIVES not in conf or _CHOSEN_ARCHIVE.search(_all_java_options(conf)) or _java_version() < _ARCHIVING_JAVA:
        return ""
    folder = Path(conf[ARCHIVES])
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return ""
    # Java runs what is in an archive, so nobody else may be able to write it
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        return ""
    return f'{_ARCHIVING} -XX:SharedArchiveFile="{folder / "spark.jsa"}"'


def _java_version() -> int:
    # of the Java that Spark's scripts start; 0 where none starts
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else which("java")
    if program is None or not os.access(program, os.X_OK):
        return 0
    try:
        text = (Path(program).resolve().parents[1] / "release").read_text(errors="replace")
    except (IndexError, OSError):
        text = ""
    if "JAVA_VERSION" not in text:
        text = run([program, "-version"], stdin=DEVNULL, stderr=PIPE, text=True, errors="replace", check=False).stderr
    version = _JAVA_VERSION.search(text)
    return int(version[1]) if version else 0


def _refuse_unfit_java() -> None:
    version, home = _java_version(), os.environ.get("JAVA_HOME")
    if version < _OLDEST_JAVA:
        place = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise _java_refused(f"{f'Java {version}' if version else 'No Java'} was found {place}.")


def _java_refused(sentence: str) -> Refused:
    return Refused(f"{sentence}\n{_JAVA_ADVICE.read_text('utf-8').rstrip()}")


def spark_session(master: str, conf: Mapping[str, str], warehouse: str = "") -> "SparkSession":
    return session_of(spark_conf(master, conf, warehouse))


def is_running() -> bool:
    """Tell whether this Python has a Spark that somebody has asked for."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None and _early is None


def session_of(conf: Mapping[str, str]) -> "SparkSession":
    """Return this Python's session, or start one with a complete configuration."""
    if "spark.remote" not in conf and not is_running():
        _take(conf)
    return _session(conf)


def _session(conf: Mapping[str, str], early: "Future[Any] | None" = None) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if early is not None or ("spark.remote" not in conf and SparkContext._active_spark_context is None):
        gateway = early.result() if early is not None else None
        # Java outlives a stopped session
        if gateway is None and not SparkContext._gateway:
            gateway = _gateway(conf)
        SparkContext(conf=SparkConf().setAll(list(conf.items())), gateway=gateway)
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def start_early(master: str, conf: Mapping[str, str], warehouse: str = "") -> None:
    """Start Spark on this machine in the background. Later faults than a missing Java are raised to whoever asks for it."""
    global _early
    # all imports in this thread: two that import one package at a time can see halves of it
    from pyspark import SparkContext, java_gateway  # noqa: F401
    from pyspark.find_spark_home import _find_spark_home  # noqa: F401

    if not master.startswith("local") or _early is not None or SparkContext._gateway is not None:
        return
    _refuse_unfit_java()
    wanted = spark_conf(master, conf, warehouse)
    pool = ThreadPoolExecutor(1, "spark")
    gateway = pool.submit(_gateway, wanted)
    # while Java starts
    import pandas  # type: ignore[import-untyped]  # noqa: F401 - it has no types
    import pyspark.sql  # noqa: F401

    _early = _EarlySession(wanted, pool, pool.submit(_session, wanted, gateway))


def do_early(first: "Callable[[SparkSession], object]") -> None:
    """Run something with an early session once it is there. Nobody waits for it, and its faults are ignored."""
    if _early is not None:
        session = _early.session
        _early.pool.submit(lambda: first(session.result()))


def _take(conf: Mapping[str, str]) -> None:
    # an early session of another configuration is stopped
    global _early
    early, _early = _early, None
    if early is None:
        return
    early.pool.shutdown(wait=False)
    if early.conf == conf:
        early.session.result()
        return
    with suppress(Exception):
        early.session.result().stop()


def _gateway(conf: Mapping[str, str]) -> Any:
    # forwards Java's stderr while it starts, apart from some lines
    from pyspark.java_gateway import launch_gateway

    _refuse_unfit_java()
    reading, writing = os.pipe()
    reader = Thread(target=_pass_on, args=(reading,), daemon=True)
    reader.start()
    try:
        with _submitting({**conf, JAVA_OPTIONS: f"{_archive_options(conf)} {conf.get(JAVA_OPTIONS, '')}".strip()}):
            gateway = launch_gateway(None, {"stderr": writing})  # type: ignore[no-untyped-call]  # it has no types
    except Exception as fault:
        os.close(writing)
        # the output says why Java did not start
        reader.join(timeout=10)
        if (version := _java_version()) > _NEWEST_TESTED_JAVA:
            raise _java_refused(f"Java {version} did not start Spark.") from fault
        raise
    os.close(writing)
    return gateway


@contextmanager
def _submitting(conf: Mapping[str, str]) -> Iterator[None]:
    # in a file of this user alone: everybody can read a command line, which is PySpark's way, and its only other one is an
    # environment variable
    arguments = os.environ.get(_ARGUMENTS)
    with NamedTemporaryFile("w", encoding="utf-8", prefix="retention-spark-", suffix=".conf") as file:
        file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
        file.flush()
        os.environ[_ARGUMENTS] = f"--properties-file {quote(file.name)} --load-spark-defaults {arguments or 'pyspark-shell'}"
        try:
            yield
        finally:
            if arguments is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = arguments


def _escaped(text: str) -> str:
    return re.sub(r"([\\:=#! ])", r"\\\1", text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_SILENCED):
                os.write(2, masked(line.decode(errors="surrogateescape")).encode(errors="surrogateescape"))
