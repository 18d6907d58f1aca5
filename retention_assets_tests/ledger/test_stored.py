"""The stored ledger of release 0.2.0 opens, and a later release brings it up to date: all of it, or nothing."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Connection, create_engine

from retention_assets.errors import Refused
from retention_assets.ledger import ChainHead, Ledger, TransactionLife, Violation, life_of, open_ledger, verify
from retention_assets.ledger.schema import METADATA, REVISION
from retention_assets.policy import Hold
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import (
    FIRST_LIFE,
    RELEASE,
    candidates,
    statuses,
    store,
    swept,
    take_lease,
    write_past_ledger,
)
from retention_assets_tests.ledger.test_invariants import INVARIANTS, SWEPT_CHECKS, ask
from retention_assets_tests.sweep.lakes import DUE

STEP = """BEFORE, REVISION = "00{}", "00{}"
def upgrade(connection):
    for statement in {}:
        connection.exec_driver_sql(statement)
"""
MORE = "ALTER TABLE {} ADD COLUMN more BIGINT"
HELD = Hold.model_validate({"name": "more", "datasets": ["*"], "reason": "r"})
# What 0.2.0 kept readable.
KEPT = {"lake/d": ("S2",), "lake/k": ("V1", "V3", "V4"), "lake/l": ("V2",), "lake/a": ("V1",)}


@pytest.fixture
def stored(url: str, tmp_path: Path) -> str:
    return store(url, tmp_path)


def test_the_ledger_of_the_first_release_is_read_and_verified(stored: str) -> None:
    with open_ledger(stored, simulated=True) as ledger:
        assert ledger.verify().faults == ()
        assert statuses(ledger) == {**dict.fromkeys(("S1", "S3", "S5"), "SWEPT"), "S2": "SPARED", "S4": "MARKED"}
        assert statuses(ledger, "lake/m") == {**dict.fromkeys(("S1", "S4", "S5"), "MARKED"), "S2": "UNMARKED", "S3": "SWEEPING"}
        states = {name: marks[-1].state for name, marks in ledger.histories.of("lake/u", ["U1", "U2", "U3", "U5"]).items()}
        assert states == {"U1": "SET_ASIDE", "U2": "RESTORED", "U3": "SWEPT", "U5": "SPARED"}
        assert (
            ledger.histories.of("lake/d", ["S2"])["S2"][-1].why
            == "version S2 can still be read: version S6 needs all of its files"
        )
        report = ledger.reports.of(DUE.date(), "lake/d")[0]
        counters = ("to_delete", "deleted", "already_gone", "hidden", "spared", "failed")
        assert [report[name] for name in counters] == [5, 1, 1, 1, 1, 1]
        assert {hold.name for hold in ledger.holds.recorded(DUE).placed} == {"legal", "back"}


@contextmanager
def unopened(url: str) -> Iterator[Connection]:
    """A connection to a ledger that no release brings up to date, but for columns that are read by now."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        if not url.startswith("sqlite"):
            connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        connection.exec_driver_sql("ALTER TABLE reports ADD COLUMN replayed BIGINT")
        connection.commit()
        yield connection
        connection.rollback()
        connection.exec_driver_sql("ALTER TABLE reports DROP COLUMN replayed")
        connection.commit()
    engine.dispose()


def chain(ledger: Ledger) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.audit_lines()]


def violations(ledger: Ledger, at: int) -> list[Violation]:
    """What the invariants of everything find, and those of what moved since a row of the audit."""
    of_all = [one for invariant in INVARIANTS.values() for one in ask(ledger, invariant)]
    with ledger.database.reading() as connection:
        return of_all + [one for invariant in SWEPT_CHECKS.values() for one in invariant(connection, None, at)]


def test_what_was_kept_readable_is_spared_by_one_recorded_act(stored: str) -> None:
    with unopened(stored) as connection:
        assert verify(connection).faults == ()
    with open_ledger(stored, simulated=True) as ledger:
        *before, act = chain(ledger)
        head = ChainHead(before[-1]["position"], before[-1]["hash"])
        assert (act["deed"], act["actor"], act["members"], act["dataset"]) == ("SPARE", "::system", 6, None)
        assert act["reason"] == "The ledger was upgraded: what lost nothing in its sweep is spared, and judged again."
        assert ledger.verify(head).faults == ledger.verify_and_record("ann", head, only_new=True).faults == ()
        assert violations(ledger, head.position) == []
        for dataset, names in KEPT.items():
            for name in names:
                mark = ledger.histories.of(dataset, [name])[name][-1]
                was, end = mark.events[-2:]
                assert (mark.status, mark.outcome, end.status, end.by) == ("SPARED", None, "SPARED", "::system")
                assert (was.status, was.outcome, was.by in ("test", "sweeper")) == ("SWEPT", "KEPT_READABLE", True)
                assert "can still be read: version" in str(mark.why)
                assert was.why == end.why == mark.why
        assert ledger.histories.of("lake/k", ["V3"])["V3"][-1].attempts == 1
    with open_ledger(stored) as ledger:
        assert len(chain(ledger)) == len(before) + 2, "it is brought up to date once"


def test_all_else_stays_as_it_was(stored: str) -> None:
    tables, changed = METADATA.tables.keys() - {"ledger_revision"}, {"audit", "audit_head", "marks", "steps", "looks"}
    with unopened(stored) as connection:
        rows = {name: connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in tables}
        before = {name: {repr(tuple(row)) for row in rows[name]} for name in tables}
    with open_ledger(stored) as ledger:
        after = {name: set(map(repr, rows)) for name, rows in rows_of(ledger).items()}
        assert {name for name in tables if after[name] != before[name]} <= changed
        assert {name: len(before[name] - after[name]) for name in changed} == {
            "audit": 0, "audit_head": 1, "marks": 6, "steps": 0, "looks": len(before["looks"] - after["looks"]),
        }  # fmt: skip
        (report,) = ledger.reports.of((DUE + timedelta(days=8)).date(), "lake/k")
        assert [report[name] for name in ("to_delete", "deleted", "kept_readable", "spared", "failed")] == [5, 2, 3, 3, 1]


def test_what_was_kept_readable_is_marked_anew_and_may_go(stored: str) -> None:
    with open_ledger(stored) as ledger:
        present = DUE + timedelta(days=9)
        for dataset, new in (("lake/k", 3), ("lake/a", 1)):
            policy, last = ("old", 5) if dataset == "lake/k" else ("undo", 3)
            rows = candidates([f"V{number}" for number in range(1, last + 1)], dataset, policy, life=FIRST_LIFE)
            assert ledger.marks.mark(rows, present, "evaluation").new == new
        swept(ledger, "lake/k", as_of=present + timedelta(days=7))
        assert ledger.histories.of("lake/k", ["V3"])["V3"][-1].is_deleted
        assert ledger.verify_and_record("ann", only_new=True).faults == ledger.verify().faults == ()
        assert violations(ledger, 1) == []
        assert ledger.unmark.transactions("lake/a", ["V1"], "ann", "needed").unmarked == 1


def test_a_history_says_what_was_the_reason_then(stored: str) -> None:
    with open_ledger(stored) as ledger:
        marks = ledger.histories.of("lake/k", ["V1"])["V1"]
    words = life_of("lake/k", TransactionLife("V1", True, marks=marks), (), DUE).words
    assert words.startswith("spared at ")
    assert " by ::system, because the sweep at 2026-" in words
    assert words.endswith(
        "had deleted nothing of it; the reason then: version 1 can still be read: version 9 needs all of its files"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE steps SET why = 'x' WHERE outcome = 'KEPT_READABLE'",
        "UPDATE steps SET bytes = 7 WHERE outcome = 'KEPT_READABLE'",
        "UPDATE steps SET outcome = 'SET_ASIDE' WHERE outcome = 'KEPT_READABLE'",
        "UPDATE steps SET outcome = 'KEPT_READABLE' WHERE outcome = 'FAILED'",
        "DELETE FROM steps WHERE outcome = 'KEPT_READABLE'",
        "UPDATE marks SET why = 'x' WHERE \"transaction\" = 'V2' AND dataset = 'lake/l'",
        "UPDATE marks SET status = 'SWEPT' WHERE \"transaction\" = 'V2' AND dataset = 'lake/l'",
    ],
)
def test_an_edit_of_what_the_upgrade_wrote_is_named(stored: str, statement: str) -> None:
    with open_ledger(stored) as ledger:
        assert write_past_ledger(ledger, statement)
        assert ledger.verify().faults


def test_without_any_that_was_kept_readable_the_upgrade_is_no_act(ledger: Ledger, url: str) -> None:
    ledger.marks.mark(candidates(["T1"]), DUE, "evaluation")
    before = chain(ledger)
    write_past_ledger(ledger, f"UPDATE ledger_revision SET revision = '{RELEASE}'")
    write_past_ledger(ledger, "ALTER TABLE reports DROP COLUMN replayed")
    with open_ledger(url) as opened:
        assert chain(opened) == before
        assert opened.rows(METADATA.tables["ledger_revision"].select()) == [(REVISION,)]


def rows_of(ledger: Ledger) -> Mapping[str, list[tuple[Any, ...]]]:
    names = sorted(METADATA.tables.keys() - {"ledger_revision"})
    with ledger.database.reading() as connection:
        return {name: sorted(map(tuple, connection.exec_driver_sql(f"SELECT * FROM {name}")), key=repr) for name in names}


def brought_up(url: str, folder: Path) -> None:
    """What a later release, with two migrations, does with a ledger that a program of this one has open."""
    patch, program = pytest.MonkeyPatch(), open_ledger(url)
    before, lease = rows_of(program), take_lease(program)
    for number, statements in ((27, [MORE.format("reports"), MORE.format("leases")]), (28, ["no SQL"])):
        (folder / f"r00{number}.py").write_text(STEP.format(number - 1, number, statements))
    patch.setattr("retention_assets.ledger.migrations.__path__", [str(folder)])
    patch.setattr("retention_assets.ledger.ledger.REVISION", "0028")
    with pytest.raises(Refused, match="A command that only looks does not upgrade a ledger"):
        open_ledger(url, upgrades=False)
    with pytest.raises(Refused, match="to be upgraded to 0028, but sweeper is at work on lake/d until at least 20"):
        open_ledger(url)
    program.leases.give_up([lease])
    changed = {"audit", "audit_head", "leases", "row_counts"}
    with pytest.raises(Refused, match="cannot be opened"):
        open_ledger(url)
    assert {name for name, rows in rows_of(program).items() if rows != before[name]} <= changed, "all or nothing"
    before = rows_of(program)

    sys.modules["retention_assets.ledger.migrations.r0028"].upgrade = lambda _: None  # type: ignore[attr-defined]
    for name in ("reports", "leases"):
        METADATA.tables[name].append_column(Column("more", BigInteger))
        before = {**before, name: [(*row, None) for row in before[name]]}
    patch.setattr("retention_assets.ledger.database.REVISION", "0028")
    with open_ledger(url) as ledger:
        assert rows_of(ledger) == before
        assert ledger.verify_and_record("ann").faults == ()
        ledger.holds.place(HELD, "ann")
        take_lease(ledger)
        assert ledger.verify().faults == ()
    patch.setattr("retention_assets.ledger.database.REVISION", "0026")
    with pytest.raises(Refused, match="The ledger was upgraded to revision 0028 while this program ran"):
        program.holds.release("more", "ann", "over")


def test_a_later_release_brings_it_up_to_date_whole_and_alone(stored: str, tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    program = forking().Process(target=brought_up, args=(stored, tmp_path / "migrations"))
    program.start()
    program.join()
    assert program.exitcode == 0
