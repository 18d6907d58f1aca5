"""A standalone Spark of a master and two workers on this machine, from PySpark's own files.

Belongs here: starting and ending it, and finding the executors that its workers have started, to end one of them.
"""

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

from retention_assets_tests.commands.conftest import ROOT

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
# Of Java's own time nothing is measured here.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class Cluster:
    """A master and its workers, of one core each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        # Executors have the environment of their worker: a Python that has the package.
        self._environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        self._environ |= {"SPARK_DAEMON_JAVA_OPTS": QUICK_START, "SPARK_DAEMON_MEMORY": "256m"}
        master = self._start("org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self._said(master, re.compile(r"Starting Spark master at (spark://\S+)"))
        own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        self._workers = [self._start("org.apache.spark.deploy.worker.Worker", *own, self.url) for _ in range(2)]
        for worker in self._workers:
            self._said(worker, re.compile(r"Successfully registered with (master)"))

    def _start(self, name: str, *words: str) -> subprocess.Popen[str]:
        command = [str(_CLASS), name, "--host", "127.0.0.1", "--webui-port", "0", *words]
        running = subprocess.Popen(command, env=self._environ, stderr=subprocess.PIPE, text=True)
        self._stack.enter_context(running)
        self._stack.callback(_end, running)
        return running

    def _said(self, running: subprocess.Popen[str], ready: re.Pattern[str]) -> str:
        """Wait until one says that it is ready, and read on, or a full pipe would stop it."""
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

    def executors(self) -> list[int]:
        """The processes of the executors at this moment."""
        workers = {one.pid for one in self._workers}
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in workers and _EXECUTOR in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
        return sorted(found)

    def kill_executor(self) -> bool:
        """End one without a warning, if there is any."""
        for process in self.executors()[:1]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                return True
        return False


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for a while."""
    with ExitStack() as stack:
        yield Cluster(folder, stack)


def _end(running: subprocess.Popen[str]) -> None:
    if running.poll() is not None:
        return
    running.terminate()
    try:
        running.wait(20)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
