"""Games of the campaign against the sweep: a few in the suite, as many as wanted by RETENTION_ROUNDS (five kills each) and a seed.

RETENTION_ROUNDS=200 python -m pytest -o log_cli=true retention_assets_tests/sweep/test_campaign.py
"""

import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from retention_assets_tests.databases import new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.delta.environments import SharedTables
from retention_assets_tests.stores.files.environments import S3, LocalFiles
from retention_assets_tests.stores.iceberg.tables import Warehouse
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.objects.environments import LocalObjects, Objects, S3Objects, SqlObjects
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.campaign import Game
from retention_assets_tests.sweep.cycle import Cycle
from retention_assets_tests.sweep.object_games import ObjectGame, Runs

LOG = logging.getLogger(__name__)
KILLS = rounds(5)
MANY = KILLS >= 50
SEED = int(os.environ.get("RETENTION_SEED", "7"))
LEDGERS = ("sqlite", "postgresql")
# The stores with a database have one of PostgreSQL: with a ledger on SQLite they are as different as can be.
ENVIRONMENTS: dict[str, Callable[[Path, str], Environment]] = {
    "files": lambda folder, _: LocalFiles(folder),
    "iceberg": lambda folder, _: IcebergTables(Warehouse(folder)),
    "aspects": lambda _, server: Aspects(new_schema(server)),
    "records": lambda _, server: Records(new_schema(server)),
    "delta": lambda folder, _: SharedTables(folder),
}
# Every store with every ledger where more than a few kills are asked for; in the suite each of them once.
SWEEPS = [
    (kind, ledger) for number, kind in enumerate(ENVIRONMENTS) for ledger in LEDGERS if MANY or ledger == LEDGERS[number % 2]
]
# A game over objects is a dozen whole runs: one in the suite, and all pairs where more than a few kills are asked for.
PAIRS = [(kind, ledger) for ledger in LEDGERS for kind in ("local", "sql", "s3")]
OBJECTS = PAIRS if MANY else PAIRS[:1]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "ledger"), SWEEPS)
def test_whatever_happens_to_sweepers_nothing_held_goes_and_everything_else_does(
    kind: str, ledger: str, server: str, tmp_path: Path
) -> None:
    forking()
    dice, tally = random.Random(f"{SEED} {kind} {ledger}"), Counter[str]()
    for number in range(10_000):
        if tally["killed"] + tally["stopped"] >= KILLS / 8:
            break
        folder = tmp_path / str(number)
        (folder / "store").mkdir(parents=True)
        url = f"sqlite:///{folder}/ledger.db" if ledger == "sqlite" else new_schema(server)
        Game(Cycle(ENVIRONMENTS[kind](folder / "store", server), url, folder / "settings", 10), dice, tally).play()
    LOG.warning("%s %s %s", kind, ledger, dict(tally))


def open_objects(kind: str, folder: Path, server: str, s3: S3) -> Objects:
    if kind == "s3":
        s3.empty()
        return S3Objects(folder, s3)
    return LocalObjects(folder) if kind == "local" else SqlObjects(folder, new_schema(server))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "ledger"), OBJECTS)
def test_whatever_happens_to_runs_over_objects_nothing_needed_goes_and_all_garbage_does(
    kind: str, ledger: str, server: str, s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    forking()
    dice, tally = random.Random(f"{SEED} {kind} {ledger}"), Counter[str]()
    with Runs(tmp_path) as runs:
        for number in range(10_000):
            if tally["killed"] >= KILLS / len(PAIRS):
                break
            folder = tmp_path / str(number)
            (folder / "store").mkdir(parents=True)
            url = f"sqlite:///{folder}/ledger.db" if ledger == "sqlite" else new_schema(server)
            database = f"sqlite:///{folder}/needs.db" if kind == "local" else new_schema(server)
            environ = s3_server.environment if kind == "s3" else {}
            objects = open_objects(kind, folder / "store", server, s3_server)
            ObjectGame(objects, url, folder, dice, database, runs, tally, environ).play()
    LOG.warning("objects in %s, %s %s", kind, ledger, dict(sorted(tally.items())))
