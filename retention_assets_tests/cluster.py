"""A standalone Spark of a master and two workers on this machine, and a Spark Connect server, from PySpark's own files."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pyspark

from retention_assets_tests.people.conftest import ROOT

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
# The archive of the classes of a session, which `make test` names: most of them are those of other programs, too.
QUICK_START = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {os.environ.get('SPARK_SUBMIT_OPTS', '')}"
# What settings say of Spark for a program of this machine that has its tasks on such a cluster.
ON_EXECUTORS = {
    "spark.pyspark.python": sys.executable,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.extraJavaOptions": QUICK_START,
}
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class _Programs:
    """Java programs of Spark that end with their test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        # Executors have the environment of who starts them: a Python that has the package.
        self._environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        self._environ |= {"SPARK_DAEMON_JAVA_OPTS": QUICK_START, "SPARK_DAEMON_MEMORY": "256m"}

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        running = subprocess.Popen([str(_CLASS), *words], env={**self._environ, **environ}, stderr=subprocess.PIPE, text=True)
        self._stack.enter_context(running)
        self._stack.callback(_end, running)
        return running

    def said(self, running: subprocess.Popen[str], ready: re.Pattern[str]) -> str:
        said = []
        assert running.stderr
        for line in running.stderr:
            said.append(line)
            if found := ready.search(line):
                reader = Thread(target=running.stderr.read, daemon=True)
                reader.start()
                self._stack.callback(reader.join)
                self._stack.callback(_end, running)
                return found[1]
        raise AssertionError(f"{running.args!r} did not start: {''.join(said)}")


class Cluster:
    """A master and its workers, of one core each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, programs = folder, _Programs(stack)
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        master = programs.start("org.apache.spark.deploy.master.Master", *here, "--port", "0")
        self.url = programs.said(master, re.compile(r"Starting Spark master at (spark://\S+)"))
        own = (*here, "--cores", "1", "--memory", "1g", "--work-dir", str(folder), self.url)
        self._workers = [programs.start("org.apache.spark.deploy.worker.Worker", *own) for _ in range(2)]
        for worker in self._workers:
            programs.said(worker, re.compile(r"Successfully registered with (master)"))

    def executors(self) -> list[int]:
        workers = {one.pid for one in self._workers}
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in workers and _EXECUTOR in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
        return sorted(found)

    def kill_executor(self) -> bool:
        for process in self.executors()[:1]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                return True
        return False


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(folder, stack)


@contextmanager
def connect_server(**environ: str) -> Iterator[str]:
    """A Spark Connect server that runs tasks by itself; its URL. Its tasks have these words in their environment."""
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": QUICK_START,
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    with ExitStack() as stack:
        programs = _Programs(stack)
        submit = ("org.apache.spark.deploy.SparkSubmit", "--class", _CONNECT, *words, "spark-internal")
        # What other programs take as their driver's memory.
        running = programs.start(*submit, SPARK_DAEMON_MEMORY="600m", **environ)
        port = programs.said(running, re.compile(r"Spark Connect server started at: \S*:(\d+)"))
        yield f"sc://127.0.0.1:{port}"


def _end(running: subprocess.Popen[str]) -> None:
    if running.poll() is not None:
        return
    running.terminate()
    try:
        running.wait(20)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
