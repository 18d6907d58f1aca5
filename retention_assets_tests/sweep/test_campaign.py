"""Games of the campaign against the sweep: a few in the suite, as many as wanted by RETENTION_CAMPAIGN (kills) and a seed.

RETENTION_CAMPAIGN=1000 python -m pytest -o log_cli=true retention_assets_tests/sweep/test_campaign.py
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
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.iceberg.tables import Warehouse
from retention_assets_tests.stores.iceberg.test_contract import IcebergTables
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.campaign import Game

LOG = logging.getLogger(__name__)
KILLS = int(os.environ.get("RETENTION_CAMPAIGN", "8"))
SEED = int(os.environ.get("RETENTION_SEED", "7"))
# The stores with a database have one of PostgreSQL: with a ledger on SQLite they are as different as can be.
ENVIRONMENTS: dict[str, Callable[[Path, str], Environment]] = {
    "files": lambda folder, _: LocalFiles(folder),
    "iceberg": lambda folder, _: IcebergTables(Warehouse(folder)),
    "aspects": lambda _, server: Aspects(new_schema(server)),
    "records": lambda _, server: Records(new_schema(server)),
}


@pytest.mark.long
@pytest.mark.parametrize("ledger", ["sqlite", "postgresql"])
@pytest.mark.parametrize("kind", ENVIRONMENTS)
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
        Game(ENVIRONMENTS[kind](folder / "store", server), url, folder / "settings", dice, tally).play()
    LOG.warning("%s %s %s", kind, ledger, dict(tally))
