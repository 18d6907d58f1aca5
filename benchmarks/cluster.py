"""`retention run` from the first evaluation to the last deletion: in Spark's tasks on this machine, and on a cluster of a master
and two workers.

Belongs here: an environment of files and units of work in which everything is due at once, with a ledger in PostgreSQL, and the
program that judges, marks and sweeps it. Both sides have as many cores; what a cluster costs besides is the start of its
executors. Master and workers run already.
Does not belong here: kills, and a warehouse on S3, which the tests have (pipeline/test_cluster.py).
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ledger import Places, postgresql, server_of
from benchmarks.measures import Times, timed, worked
from benchmarks.records import Depot
from benchmarks.sweep_files import fill, write_log
from retention_assets.ledger import open_ledger
from retention_assets_tests.cluster import ON_EXECUTORS, cluster
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT

if TYPE_CHECKING:
    from benchmarks.sections import Bench

# Transactions that go of each dataset of files; and of so many rows of a run one such dataset, and one unit of work.
_TRANSACTIONS, _ROWS_PER_DATASET, _ROWS_PER_UNIT = 100, 50_000, 100
_POLICY = "grace: 0s, confirm: no-grace, sweep: {every: 0s, batch: 2000}"
_POLICIES = f"""policies:
  - {{name: newest, datasets: {{include: ['lake/*']}}, select: {{beyond: {{transactions: 1}}}}, {_POLICY}}}
  - {{name: old, datasets: {{include: ['ods/*']}}, select: {{older_than: P2Y}}, {_POLICY}}}
"""


@dataclass(frozen=True)
class DueAtOnce:
    """Files and units of work of which all that may go is due as soon as it is marked."""

    folder: Path
    ledger_url: str
    marks: int

    @classmethod
    def made(cls, folder: Path, places: Places, rows: int, master: str, conf: Mapping[str, str]) -> "DueAtOnce":
        """Written below a folder and into schemas of its name, with settings that place the work at a master."""
        datasets, units = max(rows // _ROWS_PER_DATASET, 2), max(rows // _ROWS_PER_UNIT, 10)
        for name in ("log", "policies"):
            (folder / name).mkdir(parents=True)
        (folder / "policies" / "p.yaml").write_text(_POLICIES)
        for number in range(datasets):
            names = [f"T{one}" for one in range(_TRANSACTIONS + 1)]
            write_log(folder / "log" / f"{number}.jsonl", f"lake/d{number}", names)
            for name in names:
                fill(folder / "data" / f"d{number}" / name, 1)
        made = cls(folder, places(f"ledger_{folder.name}"), datasets * _TRANSACTIONS + units)
        settings = {
            "ledger": made.ledger_url,
            # The histories end long ago.
            "clock": {"max_ahead": "36500d"},
            "stores": [
                {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"},
                Depot(places(f"ods_{folder.name}"), units).settings,
            ],
            "spark": {"master": master, "shared_disk": True, "conf": dict(conf)},
        }
        # JSON is YAML.
        made.file.write_text(json.dumps(settings).replace("$", "$$"))
        return made

    @property
    def file(self) -> Path:
        """Its settings."""
        return self.folder / "retention.yaml"

    def run(self) -> None:
        """One program, as somebody starts it."""
        command = [sys.executable, "-c", ENTRY, "run", "--yes", "-c", str(self.file)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"

    def left(self) -> int:
        """Marks that are anything but swept, and transactions that have none."""
        with open_ledger(self.ledger_url, simulated=False) as ledger:
            return abs(self.marks - len(ledger.marks.table(statuses=["SWEPT"])))


def clustered(bench: "Bench") -> None:
    """The same run in local tasks and on a cluster, in turns."""
    rows, cores, rounds = bench.sizes.rows, bench.sizes.cores, range(bench.sizes.rounds)
    folder, left, marks = bench.folder / "cluster", 0, 0
    folder.mkdir(mode=0o700)
    with postgresql(folder / "server") as places, cluster(folder) as standalone:
        ways = {f"local[{cores}]": {}, standalone.url: ON_EXECUTORS}
        names = dict(zip(ways, ("local tasks", "master and two workers"), strict=True))
        seconds, cpu = {name: list[float]() for name in names.values()}, {name: list[float]() for name in names.values()}
        for number in rounds:
            for at, (master, conf) in enumerate(ways.items()):
                due = DueAtOnce.made(folder / f"due_{number}_{at}", places, rows, master, conf)
                bench.say(f"cluster: {due.marks:,} marks, {names[master]}")
                before = worked(server_of(folder / "server"))
                seconds[names[master]].append(timed(due.run))
                cpu[names[master]].append(worked(server_of(folder / "server")) - before)
                left, marks = left + due.left(), due.marks
    first = seconds["local tasks"]
    times = {
        name: Times(tuple(own), tuple(mine / other for mine, other in zip(own, first, strict=True)), tuple(cpu[name]))
        for name, own in seconds.items()
    }
    bench.report.add("cluster", "judge, mark and sweep", times, marks)
    bench.report.agree("transactions that runs on a cluster left", marks, left)
    bench.clear("cluster")
