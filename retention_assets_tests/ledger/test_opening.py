"""Opening a ledger: made, migrated or refused, by one or by many at once, and nobody learns a password by it."""

import multiprocessing
import shutil
from datetime import date
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, update
from sqlalchemy.exc import DBAPIError

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, ledger_is_there, open_ledger
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.seals import digest_of
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.migrations import FOLDER
from retention_assets.ledger.reports import OpenedReport
from retention_assets.ledger.schema import CLOCK, MARKS, METADATA, REVISION
from retention_assets.settings.urls import Url
from retention_assets_tests.ledger.states import FIRST_LIFE, LATER, T0, candidates, ids, swept, write_past_ledger

LATER_RELEASE = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{before}"


def upgrade() -> None:
    with op.batch_alter_table("leases") as leases:
        leases.add_column(sa.Column("host", sa.Text))
"""

# As it stood before reports knew the set that they are about.
FIRST_REPORT = """
    INSERT INTO reports (execution_date, dataset, policies, bounds, archived_types, to_delete, bytes_to_free, deleted, classes,
                         started_at, act)
    SELECT '2026-01-08', 'lake/d', '{"p": 1}', '{}', '[]', 3, 30, 2, '{}', marked_at, 1 FROM marks WHERE id = 1
"""

# As it stood before plans knew where the data was.
FIRST_PLAN = """
    INSERT INTO plans (id, dataset, token, as_of, marks, bytes, planned_at, act)
    SELECT 7, 'lake/d', 1, marked_at, 2, 60, marked_at, 1 FROM marks WHERE "transaction" = 'T1'
"""


# The seals of marks 1, 2 and 3 of T1, T2 and T3, as they were before marks knew when these had been opened and closed.
FIRST_SEALS = ("8ae9d0268de4925f47dd741d148becef", "1073917c5afabcb8a4cf1594703e6a21", "09f9a7cb95789328a7a299fc82f4b6a8")


def write_first_marks(older: Ledger) -> None:
    """What an evaluation of the first release wrote."""
    common = {"dataset": "lake/d", "policy": "p", "policy_version": 1, "reason": "SELECTED", "bytes": 10, "grace": "7d"}
    act = Act(ActType.MARK, "evaluation", members=3, digest=digest_of(FIRST_SEALS), detail={"first": 1, "last": 3})

    def work(tx: WriteTransaction) -> None:
        for number, seal in enumerate(FIRST_SEALS, 1):
            row = {**common, "id": number, "transaction": f"T{number}", "seal": seal, "act": act.id, "status": "MARKED"}
            tx.connection.execute(insert(MARKS).values(**row, marked_at=T0, due_at=LATER))
        tx.connection.execute(update(CLOCK).values(next_mark=4, newest_mark_at=T0))
        tx.record(act)

    older.database.write(work)


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The migrations of a later release."""
    folder = tmp_path / "50% later"
    shutil.copytree(FOLDER, folder)
    (folder / "versions" / "v9999_hosts.py").write_text(LATER_RELEASE.format(before=REVISION))
    return folder


def test_the_tables_are_what_the_migrations_make(ledger: Ledger) -> None:
    with ledger.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA) == []


def test_the_newest_migration_is_the_one_that_the_tables_name() -> None:
    assert ScriptDirectory(str(FOLDER)).get_heads() == [REVISION]


def test_an_older_ledger_is_migrated_and_keeps_what_it_says(url: str, later: Path) -> None:
    with open_ledger(url) as older:
        older.marks.mark(candidates(["T1"]), T0, "evaluation")
        head = older.verify().head
    with open_ledger(url, later) as newer, newer.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(host) FROM leases").scalar() == 0
        assert newer.marks.table().num_rows == 1
        assert newer.verify(head).faults == ()


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The migrations of the first release."""
    shutil.copytree(FOLDER, tmp_path / "first")
    for script in (tmp_path / "first" / "versions").glob("v*.py"):
        if not script.name.startswith("v0001"):
            script.unlink()
    return tmp_path / "first"


def test_a_report_of_the_first_schema_keeps_its_numbers(url: str, first: Path) -> None:
    with open_ledger(url, first) as older:
        write_first_marks(older)
        write_past_ledger(older, FIRST_REPORT)
    with open_ledger(url) as ledger:
        (report,) = ledger.reports.of(date(2026, 1, 8))
        assert (report["to_delete"], report["deleted"], report["policies"]) == (3, 2, {"p": 1})
        assert report["due_by"] == report["started_at"]
        assert not ledger.reports.open(date(2026, 1, 8), "lake/d", OpenedReport(), LATER, "sweeper")


def test_a_plan_of_before_places_were_noted_keeps_its_numbers_and_has_none(url: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "before")
    for file in (tmp_path / "before" / "versions").glob("v*.py"):
        if file.name >= "v0004":
            file.unlink()
    with open_ledger(url, tmp_path / "before") as before:
        write_first_marks(before)
        write_past_ledger(before, FIRST_PLAN)
        write_past_ledger(before, "INSERT INTO planned (plan, mark, bytes, note) SELECT 7, id, 30, 'a note' FROM marks")
        write_past_ledger(before, "UPDATE marks SET status = 'SWEEPING'")
    with open_ledger(url) as ledger:
        left = ledger.sweeps.left("lake/d").select(["transaction", "note", "place"]).to_pylist()
        assert left == [{"transaction": name, "note": "a note", "place": None} for name in ("T1", "T2", "T3")]
        with ledger.database.reading() as connection:
            assert connection.exec_driver_sql("SELECT id, marks, bytes, place FROM plans").one() == (7, 2, 60, None)


def test_marks_of_an_older_release_are_of_whatever_the_log_has_and_verify_as_they_did(url: str, first: Path) -> None:
    with open_ledger(url, first) as older:
        write_first_marks(older)
    with open_ledger(url) as ledger:
        rows = ledger.marks.table().to_pylist()
        assert {(row["opened_at"], row["closed_at"]) for row in rows} == {(None, None)}
        assert ledger.verify().faults == ()
        swept(ledger)
        assert ledger.marks.mark(candidates(["T1", "T2", "T3"], life=FIRST_LIFE), LATER, "evaluation").new == 0
        assert ledger.marks.mark(candidates(["T4"], life=FIRST_LIFE), LATER, "evaluation").new == 1
        assert ledger.verify().faults == ()
        # A time that somebody puts into one of them is found, as is one that is taken out of a newer one.
        write_past_ledger(ledger, update(MARKS).where(MARKS.c.id == 2).values(closed_at=T0))
        write_past_ledger(ledger, update(MARKS).where(MARKS.c.transaction == "T4").values(opened_at=None, closed_at=None))
        assert [fault.partition(" was")[0] for fault in ledger.verify().faults] == [
            "Mark 2 (T2 of lake/d)", f"Mark {ids(ledger, 'T4')[0]} (T4 of lake/d)",
        ]  # fmt: skip


def test_a_newer_ledger_is_refused_and_left_alone(url: str, later: Path) -> None:
    open_ledger(url, later).close()
    with pytest.raises(
        Refused, match=rf"has schema 9999, and this release knows schemas up to {REVISION}.*nothing was changed"
    ):
        open_ledger(url)
    with open_ledger(url, later) as newer:
        assert newer.verify().faults == ()


def test_looking_for_a_ledger_makes_none(url: str, tmp_path: Path) -> None:
    assert not ledger_is_there(url)
    assert list(tmp_path.iterdir()) == []
    open_ledger(url).close()
    assert ledger_is_there(url)


def opened(url: str) -> None:
    open_ledger(url).close()


def test_programs_that_open_a_new_ledger_at_once_make_it_once(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=opened, args=(url,)) for _ in range(4)]
    for program in programs:
        program.start()
    for program in programs:
        program.join()
    assert [program.exitcode for program in programs] == [0] * 4
    with open_ledger(url) as ledger:
        assert ledger.marks.mark(candidates(["T1"]), T0, "evaluation").new == 1


def test_a_sqlite_ledger_keeps_its_own_rules(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/new/folder/ledger.db") as ledger, ledger.database.engine.connect() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")}
        assert found == {"journal_mode": "wal", "foreign_keys": 1}


def test_who_reads_the_ledger_cannot_write(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    with pytest.raises(DBAPIError, match=r"read-?only"), ledger.database.reading() as connection:
        connection.exec_driver_sql("UPDATE marks SET status = 'SWEPT'")
    assert write_past_ledger(ledger, "UPDATE marks SET status = status") == 1


def test_a_ledger_that_cannot_be_reached_is_refused_without_its_password() -> None:
    with pytest.raises(Refused, match="cannot be opened") as refusal:
        open_ledger(Url("postgresql://me:secret@localhost:1/none"))
    assert "secret" not in str(refusal.value)
    assert "postgresql" in str(refusal.value)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("Not a database at all. " * 50)
    with pytest.raises(Refused, match="file is not a database"):
        open_ledger(f"sqlite:///{tmp_path}/notes.db")
