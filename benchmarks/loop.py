"""The evaluation loop, turned for real: ticks in this Python, as the code server's; each run in a Python and a Spark of its own.

Belongs here: an environment of many small histories, the turns, and where their time goes. Not whether verdicts are right.
A persistent Dagster instance on SQLite, as `dagster dev` has it; what the daemon adds to that (a queue that it looks into every
five seconds) is not in the figures.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import dagster as dg

from benchmarks.measures import Times, worked
from retention_assets.clock import now
from retention_assets.definitions import build_defs
from retention_assets.policy import text_of
from retention_assets.settings import load_settings

if TYPE_CHECKING:
    from benchmarks.sections import Bench

# Of a hundred datasets, how many change.
_SHARE = 100
_TRANSACTIONS = 10
_POLICIES = """
policies:
  - {name: old, datasets: {include: ["lake/*"]}, select: {older_than: 30d, beyond: {views: 2}}}
  - {name: failed, datasets: {include: ["lake/*"]}, select: {older_than: 3d, status: [ABORTED]}}
"""
# What a run says of itself: seconds until its modules are loaded, until Spark is there, and of the job.
_RUN = """
import json, sys
from time import perf_counter
begin = perf_counter()
from pathlib import Path
from retention_assets.clock import now
from retention_assets.dagster.headless import run_job
from retention_assets.pipeline.spark import spark_session
from retention_assets.settings.model import load_settings
settings = load_settings(Path(sys.argv[1]))
loaded = perf_counter()
spark = spark_session(settings.spark.master, settings.spark.conf)
spark.range(1).count()
started = perf_counter()
ran = run_job(settings, "evaluate", now(), json.loads(sys.stdin.read()), "critical")
assert not ran.troubles, ran.troubles
done = perf_counter()
print(json.dumps({"load": loaded - begin, "spark": started - loaded, "job": done - started}))
"""


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn of the loop."""

    tick: float
    datasets: int
    whole: float = 0.0
    load: float = 0.0
    spark: float = 0.0
    job: float = 0.0

    @property
    def all(self) -> float:
        """From the beginning of the tick to the end of the run."""
        return self.tick + self.whole

    def words(self) -> str:
        """Where the time went."""
        parts = {"tick": self.tick, "run": self.whole, "of it loading": self.load, "Spark's start": self.spark, "job": self.job}
        return f"({self.datasets:,} datasets; " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items()) + ")"


class Loop:
    """An environment below a folder, and its turns."""

    def __init__(
        self, folder: Path, datasets: int, *, per_file: int = 1, partition_by: str = "dataset", cores: int = 2
    ) -> None:
        self.folder, self.datasets, self.per_file = folder, datasets, per_file
        (folder / "log").mkdir(parents=True)
        (folder / "policies").mkdir()
        (folder / "policies" / "p.yaml").write_text(_POLICIES)
        store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
        settings = {
            "ledger": f"sqlite:///{folder}/ledger.db",
            "warehouse": "warehouse",
            "partition_by": partition_by,
            "spark": {"master": f"local[{cores}]", "conf": {"spark.driver.memory": "2g"}},
            "stores": [store],
        }
        # JSON is YAML.
        self.file = folder / "retention.yaml"
        self.file.write_text(json.dumps(settings))
        for first in range(0, datasets, per_file):
            names = [self.name(number) for number in range(first, min(first + per_file, datasets))]
            self._log(first // per_file).write_text("".join(line for name in names for line in _lines(name)))

    def name(self, number: int) -> str:
        """The name of a dataset."""
        return f"lake/team{number % 50:02}.table{number:06}"

    def _log(self, number: int) -> Path:
        return self.folder / "log" / f"{number:06}.jsonl"

    def change(self, numbers: Sequence[int]) -> None:
        """Something is written to some datasets."""
        for number in numbers:
            line = {"dataset": self.name(number), "transaction": "T-open", "type": "APPEND", "status": "OPEN"}
            with self._log(number // self.per_file).open("a") as log:
                log.write(json.dumps({**line, "opened_at": text_of(now())}) + "\n")

    def turn(self, instance: dg.DagsterInstance) -> Turn:
        """A tick, and its run if it asks for one."""
        settings = load_settings(self.file)
        defs = build_defs(settings)
        begin = perf_counter()
        with dg.build_sensor_context(instance=instance, definitions=defs, resources=dict(defs.resources or {})) as context:
            found = defs.get_repository_def().get_sensor_def("evaluation_loop").evaluate_tick(context)
        tick = perf_counter() - begin
        if not found.run_requests:
            return Turn(tick, 0)
        (request,) = found.run_requests
        globs: list[str] = request.run_config["ops"]["retention"]["config"]["datasets"]
        begin = perf_counter()
        said = _ran(self.file, globs)
        return Turn(tick, self.datasets if globs == ["*"] else len(globs), perf_counter() - begin, **said)


def turning(bench: "Bench") -> None:
    """A first round over everything, a tick with nothing to do, and a round over the one in a hundred that changed."""
    datasets = bench.sizes.datasets
    for partition_by, per_file in (("dataset", 1), ("store", 1_000)):
        folder = bench.folder / "loop" / partition_by
        loop = Loop(folder / "environment", datasets, per_file=per_file, partition_by=partition_by, cores=bench.sizes.cores)
        with instance_at(folder / "home") as instance:

            def measure(case: str, loop: Loop = loop, instance: dg.DagsterInstance = instance, by: str = partition_by) -> None:
                bench.say(f"loop: by {by}: {case}")
                before = worked()
                turn = loop.turn(instance)
                times = {"loop": Times((turn.all,), (1.0,), (worked() - before,))}
                rows = _TRANSACTIONS * (turn.datasets or datasets)
                bench.report.add("loop", f"by {by}: {case}", times, rows, notes={"loop": turn.words()})

            measure("everything for the first time")
            measure("nothing to do")
            loop.change(range(0, datasets, _SHARE))
            measure("one dataset in a hundred changed" if per_file == 1 else "every log file changed")
            measure("nothing to do again")
    bench.clear("loop")


@contextmanager
def instance_at(folder: Path) -> Iterator[dg.DagsterInstance]:
    """A persistent instance, which runs in other programs find too."""
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(folder)
    try:
        with dg.DagsterInstance.get() as instance:
            yield instance
    finally:
        os.environ.pop("DAGSTER_HOME")
        if before is not None:
            os.environ["DAGSTER_HOME"] = before


def _ran(file: Path, globs: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(file)], input=json.dumps(globs), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def _lines(name: str) -> Iterator[str]:
    """A small history: a SNAPSHOT each four days, and what was appended in between."""
    newest = now().replace(microsecond=0)
    for number in range(_TRANSACTIONS):
        closed = newest - timedelta(days=4 * (_TRANSACTIONS - number), hours=sum(map(ord, name)) % 24)
        line: dict[str, Any] = {
            "dataset": name, "transaction": f"T{number}", "type": "APPEND" if number % 4 else "SNAPSHOT",
            "status": "ABORTED" if number == 5 else "COMMITTED", "opened_at": text_of(closed), "closed_at": text_of(closed),
            "bytes": 1000,
        }  # fmt: skip
        yield json.dumps(line) + "\n"
    yield json.dumps({"dataset": name, "branch": "main", "head": f"T{_TRANSACTIONS - 1}"}) + "\n"
