"""Opening a ledger: made, migrated or refused, by one or by many at once, and nobody learns a password by it."""

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, update
from sqlalchemy.exc import DBAPIError

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, ledger_is_there, migrations, open_ledger
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.seal_existing import WRITTEN_EARLIER
from retention_assets.ledger.audit.seals import digest_of
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.migrations import FOLDER, migrate
from retention_assets.ledger.schema import CLOCK, MARKS, METADATA, REVISION
from retention_assets.ledger.sweeps.reports import OpenedReport
from retention_assets.policy.model import Hold
from retention_assets.settings.urls import Url
from retention_assets.sql.engines import CACHE
from retention_assets_tests.databases import give_back, new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import (
    FIRST_LIFE,
    LATER,
    T0,
    candidates,
    ids,
    swept,
    write_past_ledger,
)
from retention_assets_tests.ledger.templates import migrate_again

pytestmark = pytest.mark.usefixtures("migrated")

LATER_RELEASE = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{before}"


def upgrade() -> None:
    with op.batch_alter_table("leases") as leases:
        leases.add_column(sa.Column("host", sa.Text))
"""

# A ledger as the first release left it, written with the statements that it had.
FIRST = """
INSERT INTO marks (id, dataset, "transaction", policy, policy_version, reason, bytes, grace, marked_at, due_at, act, seal, status)
    SELECT 1, 'lake/d', 'T1', 'p', 1, 'SELECTED', 10, '7d', {at}, {at}, 11, 'x', 'MARKED';
INSERT INTO reports (execution_date, dataset, policies, bounds, archived_types, to_delete, bytes_to_free, deleted, classes,
                     started_at, act)
    SELECT '2026-01-08', 'lake/d', '{{"p": 1}}', '{{}}', '[]', 3, 30, 2, '{{}}', {at}, 12;
INSERT INTO holds (id, name, content, reason, owner, placed_at, placed_by, act)
    SELECT 5, 'case', '{{"name":"case","datasets":{{"include":["lake/*"]}},"reason":"r","owner":"o"}}', 'r', 'o', {at}, 'ann', 13;
INSERT INTO realms (name, status, grace, changed_at, changed_by, act) SELECT 'acme', 'INACTIVE', 'P0D', {at}, 'ann', 14;
INSERT INTO plans (id, dataset, token, as_of, marks, bytes, planned_at, act) SELECT 7, 'lake/d', 1, {at}, 1, 10, {at}, 15;
INSERT INTO planned (plan, mark, bytes) SELECT 7, 1, 10;
UPDATE clock SET newest_mark_at = {at}, newest_seen_at = {at}, next_mark = 2
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
        tx.seal(act, CLOCK, CLOCK.c.id == 1)
        tx.connection.execute(update(CLOCK).values(next_mark=4, newest_mark_at=T0, act=act.id))
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


def first_release(url: str, folder: Path) -> None:
    """Write a ledger as the first release did. Its chain is written as it wrote chains: with one mark."""
    shutil.copytree(FOLDER, folder)
    for script in (folder / "versions").glob("v*.py"):
        if not script.name.startswith("v0001"):
            script.unlink()
    with open_ledger(url, folder) as first:
        at = "now()" if first.database.engine.dialect.name == "postgresql" else "1767225600000000"
        for statement in FIRST.format(at=at).split(";\n"):
            assert write_past_ledger(first, statement.replace(":", "\\:"))


@pytest.fixture
def upgraded(url: str, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger of the first release, opened by this one."""
    first_release(url, tmp_path / "first")
    with open_ledger(url) as ledger:
        yield ledger


def test_a_report_of_the_first_schema_keeps_its_numbers(upgraded: Ledger) -> None:
    (report,) = upgraded.reports.of(date(2026, 1, 8))
    assert (report["to_delete"], report["deleted"], report["policies"]) == (3, 2, {"p": 1})
    assert report["left"] == 0
    assert report["due_by"] == report["started_at"]
    assert not upgraded.reports.open(date(2026, 1, 8), "lake/d", OpenedReport(), LATER, "sweeper")


def test_a_plan_of_before_places_were_noted_keeps_its_numbers_and_has_none(upgraded: Ledger) -> None:
    with upgraded.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT id, marks, bytes, place FROM plans").one() == (7, 1, 10, None)


def test_what_an_older_release_left_is_sealed_as_it_was_found_in_one_act_that_says_so(upgraded: Ledger) -> None:
    (line,) = [json.loads(line) for line in upgraded.audit_lines()]
    assert (line["deed"], line["actor"], line["reason"]) == ("SEAL", "::system", WRITTEN_EARLIER)
    rows = {(table, *key) for table, key, _ in line["detail"]["rows"]}
    assert rows == {
        ("clock", "1"), ("holds", "5"), ("realms", "acme"), ("plans", "7"), ("reports", "2026-01-08", "lake/d"),
    }  # fmt: skip
    # The mark that this test made has neither an act nor a seal; everything else is as it was found.
    its = ("Mark 1 (T1 of lake/d) was changed", "The audit knows nothing of 1 marks")
    assert [fault for fault in upgraded.verify().faults if not fault.startswith(its)] == []


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE holds SET until = placed_at", "Row 5 of holds was changed past the ledger"),
        ("DELETE FROM realms", "Row acme of realms was removed past the ledger"),
        ("UPDATE reports SET to_delete = 0", "Row 2026-01-08, lake/d of reports was changed"),
        ("UPDATE plans SET marks = 2", "Row 7 of plans was changed"),
        ("UPDATE planned SET bytes = 9", "knows of other planned marks without seals"),
        ("UPDATE clock SET newest_seen_at = NULL", "Row 1 of clock was changed"),
    ],
)
def test_what_is_changed_after_an_upgrade_is_named(upgraded: Ledger, statement: str, sentence: str) -> None:
    assert write_past_ledger(upgraded, statement)
    assert [fault for fault in upgraded.verify().faults if sentence in fault]


def test_what_an_older_release_left_goes_on_and_stays_verified(upgraded: Ledger) -> None:
    before = upgraded.verify().faults
    upgraded.holds.release("case", "bob", "over")
    upgraded.realms.change("acme", "ACTIVE", "bob", "back")
    upgraded.clock.accept(LATER, "bob", "right")
    assert upgraded.verify().faults == before


def test_a_new_ledger_begins_with_what_its_first_user_does_and_says_which_it_is(ledger: Ledger) -> None:
    ledger.holds.place(Hold.model_validate({"name": "h", "datasets": ["a/b"], "reason": "r"}), "ann")
    (line,) = [json.loads(line) for line in ledger.audit_lines()]
    with ledger.database.engine.connect() as connection:
        assert line["detail"]["ledger"] == connection.exec_driver_sql("SELECT ledger FROM audit_head").scalar_one()
    assert len(line["detail"]["ledger"]) == 32


def migrations_before(folder: Path, first: str) -> Path:
    """The migrations of a release that did not have one of them yet."""
    shutil.copytree(FOLDER, folder)
    for script in (folder / "versions").glob("v*.py"):
        if script.name >= first:
            script.unlink()
    return folder


@pytest.fixture
def before_lives(tmp_path: Path) -> Path:
    """The migrations of a release whose marks did not know their times yet."""
    return migrations_before(tmp_path / "before", "v0007")


def test_marks_of_an_older_release_are_of_whatever_the_log_has_and_verify_as_they_did(url: str, before_lives: Path) -> None:
    with open_ledger(url, before_lives) as older:
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
    context = forking()
    programs = [context.Process(target=opened, args=(url,)) for _ in range(4)]
    for program in programs:
        program.start()
    for program in programs:
        program.join()
    assert [program.exitcode for program in programs] == [0] * 4
    with open_ledger(url) as ledger:
        assert ledger.marks.mark(candidates(["T1"]), T0, "evaluation").new == 1


def test_a_sqlite_ledger_keeps_its_own_rules(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/new/folder/ledger.db") as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
        with ledger.database.engine.connect() as connection:
            names = ("journal_mode", "foreign_keys", "cache_size")
            found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "cache_size": -CACHE}


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


# Whatever makes a ledger the one it is, but for its name; on PostgreSQL also but for the schema it is in.
DESCRIBED = {
    "sqlite": ["SELECT sql FROM sqlite_master ORDER BY sql"],
    "postgresql": [
        "SELECT table_name, column_name, ordinal_position, data_type, collation_name, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, 2",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2",
        "SELECT indexname, replace(indexdef, current_schema() || '.', '') FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1",
    ],
}
ROWS = ["SELECT version_num FROM alembic_version", "SELECT id, position, hash FROM audit_head", "SELECT * FROM clock"]


def test_what_other_tests_begin_with_is_what_the_migrations_make(
    url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found, names = [], set()
    server = "" if url.startswith("sqlite") else request.getfixturevalue("server")
    for number, way in enumerate((migrate, migrate_again, migrate_again, migrate_again)):
        place = new_schema(server) if server else f"sqlite:///{tmp_path}/{number}.db"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrations, "migrate", way)
            with open_ledger(place) as ledger, ledger.database.engine.connect() as connection:
                assert ledger.verify().faults == ()
                names.add(ledger.id)
                statements = [*DESCRIBED[connection.dialect.name], *ROWS]
                rows = [row for statement in statements for row in connection.exec_driver_sql(statement).all()]
                # SQLite keeps the text of each table, and Alembic writes the constraints of one it makes anew in any order.
                found.append([[row[1:], sorted(line.strip("\t ,") for line in str(row[0]).splitlines())] for row in rows])
            with open_ledger(place) as ledger:
                ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
                swept(ledger)
                ledger.holds.place(Hold.model_validate({"name": "h", "datasets": ["*"], "reason": "r"}), "ann")
        # On a server what another test has used comes next.
        assert not server or give_back(server, place) is (way is migrate_again)
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]) > 40
    assert len(names) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE leases ADD COLUMN more int",
        "ALTER TABLE leases DROP COLUMN token CASCADE",
        "ALTER TABLE marks ALTER COLUMN bytes SET DEFAULT 1",
        "ALTER TABLE marks ADD CHECK (id < 100)",
        "CREATE INDEX more ON marks (bytes)",
        "CREATE TABLE more (id int)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE lease_parts",
        "GRANT SELECT ON marks TO public",
    ],
)
def test_no_other_test_gets_tables_that_are_not_what_they_were(
    server: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(migrations, "migrate", migrate_again)
    # What the very first ledger of a server has recorded may be there already or not.
    changed, untouched = new_schema(server), new_schema(server)
    open_ledger(untouched).close()
    with open_ledger(changed) as ledger:
        write_past_ledger(ledger, statement)
    assert not give_back(server, changed)
    assert give_back(server, untouched)
