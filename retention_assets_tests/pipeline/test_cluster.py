"""The whole cycle on a cluster of several processes, over all kinds of stores, with the warehouse on S3; executors and whoever
started the run are killed. And the same cycle, without kills, on a Spark Connect server.

Two kills in the suite, as many times that as wanted by RETENTION_ROUNDS:

RETENTION_ROUNDS=50 python -m pytest -o log_cli=true retention_assets_tests/pipeline/test_cluster.py
"""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.schema import LEASES, MARKS, REPORTS
from retention_assets.policy import parse_instant
from retention_assets.settings import load_settings
from retention_assets_tests.cluster import ON_EXECUTORS, Cluster, cluster, connect_server
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.files.environments import S3, LocalFiles
from retention_assets_tests.stores.iceberg.tables import Warehouse
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.objects.environments import S3Objects
from retention_assets_tests.stores.records.environments import Records

LOG = logging.getLogger(__name__)
KILLS = rounds(2)
SEED = int(os.environ.get("RETENTION_SEED", "7"))
# More of them where there are many kills.
TRANSACTIONS = 5 if KILLS <= 2 else 12
SWEEP = "grace: 0s, confirm: no-grace, sweep: {every: 0s, batch: 1, parallelism: 1}"
# Of the objects of a dataset so many are referred to.
REFERRED = 2
POLICIES = f"""policies:
  - {{name: views, datasets: {{include: ['lake/*', 'ice/*', 'meta/*']}}, select: {{beyond: {{views: 1}}}}, {SWEEP}}}
  - {{name: old, datasets: {{include: ['ods/*']}}, select: {{older_than: 1d}}, {SWEEP}}}
  - {{name: unreferenced, datasets: {{include: ['blobs/*']}}, select: {{unreferenced: true, older_than: 1d}}, {SWEEP}}}
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@dataclass
class Game:
    """A store of each kind with marks that are due at once, and the runs that sweep it."""

    folder: Path
    # Where tasks run, and what is said of it besides.
    master: str
    server: str
    s3: S3
    conf: Mapping[str, str] = field(default_factory=lambda: ON_EXECUTORS)
    transactions: int = TRANSACTIONS
    going: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.s3.empty()
        for name in ("store", "tables", "policies", "blobs"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "policies" / "p.yaml").write_text(POLICIES)
        files, tables = LocalFiles(self.folder / "store"), Warehouse(self.folder / "tables")
        aspects, records = Aspects(new_schema(self.server)), Records(new_schema(self.server))
        blobs = S3Objects(self.folder / "blobs", self.s3)
        self.environments: dict[str, Environment] = {
            "lake": files, "ice": IcebergTables(tables), "meta": aspects, "ods": records, "blobs": blobs,
        }  # fmt: skip
        self.ledger_url = new_schema(self.server)
        root = str(self.folder / "store")
        stores = [
            {"name": "lake", "kind": "files", "log": f"{root}/log", "data": f"{root}/data/{{dataset}}/{{transaction}}"},
            {"name": "ice", "kind": "iceberg", "catalog": tables.properties},
            {"name": "meta", "kind": "aspects", "url": aspects.table.url, "table": aspects.table.name},
            records.units.settings,
            blobs.settings(),
        ]
        settings = {
            "ledger": self.ledger_url,
            # The histories are older than that by far.
            "clock": {"max_ahead": "36500d"},
            "warehouse": f"s3://{self.s3.bucket}/warehouse",
            "stores": stores,
            "spark": {"master": self.master, "shared_disk": True, "conf": dict(self.conf)},
        }
        self.file = self.folder / "retention.yaml"
        self.file.write_text(json.dumps(settings).replace("$", "$$"))
        drawing = "main: " + " - ".join(f"T{number}:SNAPSHOT@{90 - number}d" for number in range(self.transactions))
        for environment in self.environments.values():
            for dataset in environment.datasets:
                names = list(environment.write(dataset, drawing).values())
                gone = names if environment.independent else names[:-1]
                if environment is blobs:
                    gone = names[:-REFERRED]
                    blobs.refers(*names[-REFERRED:], name=dataset.partition("/")[2])
                self.going[dataset] = {one: environment.owned(dataset, one) for one in gone}
        # An empty table may be another one: what was begun there stays begun until it has a row again.
        records.units.has("unfinished", closed=None)
        self.before = {name: environment.data() for name, environment in self.environments.items()}

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", ENTRY, "run", "--yes", "-c", str(self.file), "--format", "json"]
        environ = {**ENVIRONMENT, **self.s3.environment}
        return subprocess.Popen(
            command, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ledger(self) -> Ledger:
        return open_ledger(load_settings(self.file).ledger, simulated=False)

    def swept(self, ledger: Ledger) -> int:
        """How many transactions are said to be gone. Whoever waits for a run asks ten times a second."""
        with ledger.database.reading() as connection:
            said: int = connection.scalar(select(func.count()).where(MARKS.c.status == "SWEPT")) or 0
        return said

    def leases_end(self, ledger: Ledger) -> None:
        change_leases(ledger, LEASES.update().values(expires_at=parse_instant("2020-01-01T00:00:00Z")))

    def check(self, ledger: Ledger) -> None:
        """At any moment: what is to stay is there as it was, and what is said to be swept is gone."""
        there = {name: environment.data() for name, environment in self.environments.items()}
        rows = ledger.marks.table(list(self.going), ["SWEPT"]).to_pylist()
        for name, before in self.before.items():
            mine = {
                place
                for dataset, going in self.going.items()
                if dataset.startswith(f"{name}/")
                for place in set().union(*going.values())
            }
            lost = {place for place in before if place not in there[name]}
            # What several share goes with the last of them, in Iceberg alone.
            assert lost <= mine or name == "ice", lost - mine
            assert all(before[place] == content for place, content in there[name].items() if place in before)
        # Nobody needs anything of what is to go, however often it was begun: it would never go then.
        spared = ledger.marks.table(list(self.going), ["SPARED", "UNMARKED"]).to_pylist()
        assert not spared, [(row["dataset"], row["transaction"], row["last_error"]) for row in spared]
        for row in rows:
            store, owned = row["dataset"].partition("/")[0], self.going[row["dataset"]][row["transaction"]]
            assert not owned & there[store].keys()
        for dataset in self.environments["ice"].datasets:
            # It reads back whole.
            self.environments["ice"].store().read([dataset])

    def check_end(self, ledger: Ledger) -> None:
        self.check(ledger)
        assert self.swept(ledger) == sum(map(len, self.going.values()))
        reports = [row for dataset in self.going for row in _reports(ledger, dataset)]
        for count in ("failed", "spared", "unmarked"):
            assert sum(row[count] for row in reports) == 0, count
        assert sum(row["deleted"] + row["already_gone"] for row in reports) == self.swept(ledger)
        gone = {
            place: content for place, content in self.before["lake"].items() if place not in self.environments["lake"].data()
        }
        freed = sum(row["bytes_freed"] for row in reports if row["dataset"].startswith("lake/"))
        assert freed == sum(map(len, gone.values()))
        assert ledger.verify().faults == ()


def _reports(ledger: Ledger, dataset: str) -> list[dict[str, Any]]:
    with ledger.database.reading() as connection:
        return [dict(row) for row in connection.execute(REPORTS.select().where(REPORTS.c.dataset == dataset)).mappings()]


@pytest.mark.spark
@pytest.mark.cluster
def test_whoever_is_killed_on_a_cluster_nothing_wrong_goes_and_the_next_run_completes(
    spark_cluster: Cluster, server: str, s3_server: S3, tmp_path: Path
) -> None:
    dice, tally, number = random.Random(SEED), Counter[str](), 0
    while tally["kills"] < KILLS:
        game = Game(tmp_path / str(number), spark_cluster.url, server, s3_server)
        number += 1
        with game.ledger() as ledger:
            last = sum(map(len, game.going.values()))
            while game.swept(ledger) < last:
                _play(game, spark_cluster, ledger, dice, tally, last)
            game.check_end(ledger)
    LOG.warning("%s", dict(tally))


def _play(game: Game, cluster: Cluster, ledger: Ledger, dice: random.Random, tally: Counter[str], last: int) -> None:
    """One run: an executor is killed while it deletes, and a little later whoever started it; or it comes to its end."""
    running, before = game.start(), game.swept(ledger)
    points = sorted(dice.randint(before + 1, last) for _ in range(2)) if tally["kills"] < KILLS else []
    for what, point in zip(("executor", "driver"), points, strict=False):
        while running.poll() is None and game.swept(ledger) < point:
            threading.Event().wait(0.1)
        if running.poll() is None:
            if what == "driver":
                running.send_signal(signal.SIGKILL)
                tally["kills"] += 1
                tally[what] += 1
            elif cluster.kill_executor():
                tally["kills"] += 1
                tally[what] += 1
    out, err = running.communicate()
    tally["came to an end"] += running.returncode != -signal.SIGKILL
    game.check(ledger)
    # Who lost an executor leaves what it had in hand to the next run, and says so.
    assert running.returncode == 0 or (points and game.swept(ledger) > before), f"{running.returncode}\n{out}\n{err}"
    while cluster.executors():
        threading.Event().wait(0.05)
    game.leases_end(ledger)


@pytest.mark.spark
@pytest.mark.cluster
def test_the_whole_cycle_runs_on_a_spark_connect_server(server: str, s3_server: S3, tmp_path: Path) -> None:
    with connect_server(**s3_server.environment) as master:
        game = Game(tmp_path / "game", master, server, s3_server, conf={}, transactions=3)
        running = game.start()
        out, err = running.communicate()
    assert running.returncode == 0, f"{out}\n{err}"
    with game.ledger() as ledger:
        game.check_end(ledger)
