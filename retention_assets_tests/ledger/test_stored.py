"""The stored ledger of release 0.2.0 opens, and a later release brings it up to date: all of it, or nothing."""

import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.schema import METADATA
from retention_assets.policy import Hold
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import T0, candidates, statuses, swept, take_lease
from retention_assets_tests.ledger.stored import FILE
from retention_assets_tests.sweep.lakes import DUE
from retention_assets_tests.sweep.sharing import kept

STEP = """BEFORE, REVISION = "00{}", "00{}"
def upgrade(connection):
    for statement in {}:
        connection.exec_driver_sql(statement)
"""
MORE = "ALTER TABLE {} ADD COLUMN more BIGINT"
HELD = Hold.model_validate({"name": "more", "datasets": ["*"], "reason": "r"})


@pytest.fixture
def stored(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "stored.db")) as database:
        database.executescript(FILE.read_text())
    return f"sqlite:///{tmp_path}/stored.db"


def test_the_ledger_of_the_first_release_is_read_and_verified(stored: str) -> None:
    with open_ledger(stored, simulated=True) as ledger:
        assert ledger.verify().faults == ()
        assert statuses(ledger) == {**dict.fromkeys(("S1", "S2", "S3", "S5"), "SWEPT"), "S4": "MARKED"}
        assert statuses(ledger, "lake/m") == {**dict.fromkeys(("S1", "S4", "S5"), "MARKED"), "S2": "UNMARKED", "S3": "SWEEPING"}
        states = {name: marks[-1].state for name, marks in ledger.histories.of("lake/u", ["U1", "U2", "U3", "U5"]).items()}
        assert states == {"U1": "SET_ASIDE", "U2": "RESTORED", "U3": "SWEPT", "U5": "SPARED"}
        assert ledger.histories.of("lake/d", ["S2"])["S2"][-1].why == kept("S2").error
        report = ledger.reports.of(DUE.date(), "lake/d")[0]
        counters = ("to_delete", "deleted", "already_gone", "hidden", "kept_readable", "failed")
        assert [report[name] for name in counters] == [5, 1, 1, 1, 1, 1]
        assert {hold.name for hold in ledger.holds.in_force(DUE)} == {"legal", "back"}


def rows_of(ledger: Ledger) -> Mapping[str, list[tuple[Any, ...]]]:
    names = sorted(METADATA.tables.keys() - {"ledger_revision"})
    with ledger.database.reading() as connection:
        return {name: sorted(map(tuple, connection.exec_driver_sql(f"SELECT * FROM {name}")), key=repr) for name in names}


def brought_up(url: str, folder: Path) -> None:
    """What a later release, with two migrations, does with a ledger that a program of this one has open."""
    patch, program = pytest.MonkeyPatch(), open_ledger(url)
    before, lease = rows_of(program), take_lease(program)
    for number, statements in ((25, [MORE.format("reports"), MORE.format("leases")]), (26, ["no SQL"])):
        (folder / f"r00{number}.py").write_text(STEP.format(number - 1, number, statements))
    patch.setattr("retention_assets.ledger.migrations.__path__", [str(folder)])
    patch.setattr("retention_assets.ledger.ledger.REVISION", "0026")
    with pytest.raises(Refused, match="A command that only looks does not upgrade a ledger"):
        open_ledger(url, upgrades=False)
    with pytest.raises(Refused, match="to be upgraded to 0026, but sweeper is at work on lake/d until at least 20"):
        open_ledger(url)
    program.leases.give_up([lease])
    changed = {"audit", "audit_head", "leases", "row_counts"}
    with pytest.raises(Refused, match="cannot be opened"):
        open_ledger(url)
    assert {name for name, rows in rows_of(program).items() if rows != before[name]} <= changed, "all or nothing"
    before = rows_of(program)

    sys.modules["retention_assets.ledger.migrations.r0026"].upgrade = lambda _: None  # type: ignore[attr-defined]
    for name in ("reports", "leases"):
        METADATA.tables[name].append_column(Column("more", BigInteger))
        before = {**before, name: [(*row, None) for row in before[name]]}
    patch.setattr("retention_assets.ledger.database.REVISION", "0026")
    with open_ledger(url) as ledger:
        assert rows_of(ledger) == before
        assert ledger.verify_and_record("ann").faults == ()
        ledger.holds.place(HELD, "ann")
        take_lease(ledger)
        assert ledger.verify().faults == ()
    patch.setattr("retention_assets.ledger.database.REVISION", "0024")
    with pytest.raises(Refused, match="The ledger was upgraded to revision 0026 while this program ran"):
        program.holds.release("more", "ann", "over")


def test_a_later_release_brings_it_up_to_date_whole_and_alone(url: str, stored: str, tmp_path: Path) -> None:
    if not url.startswith("sqlite"):
        with open_ledger(url) as ledger:
            ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
            ledger.leases.give_up([swept(ledger)])
    (tmp_path / "migrations").mkdir()
    program = forking().Process(target=brought_up, args=(stored if url.startswith("sqlite") else url, tmp_path / "migrations"))
    program.start()
    program.join()
    assert program.exitcode == 0
