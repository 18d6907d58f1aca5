"""Opening a ledger: made or refused, by one or by many at once, and nobody learns a password by it."""

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, ledger_is_there, open_ledger
from retention_assets.ledger import ledger as opening
from retention_assets.ledger.ledger import create_tables
from retention_assets.ledger.schema import METADATA, REVISION
from retention_assets.policy import Hold
from retention_assets.settings.places import Url
from retention_assets.sql.engines import CACHE, ledger_engine
from retention_assets.sql.transactions import reading
from retention_assets_tests.databases import give_back, new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import T0, candidates, swept, write_past_ledger
from retention_assets_tests.ledger.templates import create_again

pytestmark = [pytest.mark.usefixtures("created"), pytest.mark.dialect]

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
EARLIER = (
    "DROP TABLE ledger_revision; CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('0019')"
)


def test_tables_that_change_have_another_revision() -> None:
    """Whoever changes a table changes REVISION too, and both here, and writes a migration."""
    tables = METADATA.sorted_tables
    creations: list[DDLElement] = [
        *map(CreateTable, tables),
        *(CreateIndex(index) for table in tables for index in table.indexes),
    ]
    dialects = [make_url(url).get_dialect()() for url in ("sqlite://", "postgresql+psycopg://")]
    statements = [str(statement.compile(dialect=dialect)) for dialect in dialects for statement in creations]
    digest = hashlib.sha256(" ".join(" ".join(sorted(statements)).split()).encode()).hexdigest()[:16]
    assert (REVISION, digest) == ("0026", "14b6fb1d6104d182")


def test_a_new_ledger_begins_with_what_its_first_user_does_and_says_which_it_is(ledger: Ledger) -> None:
    ledger.holds.place(Hold.model_validate({"name": "h", "datasets": ["a/b"], "reason": "r"}), "ann")
    (line,) = [json.loads(line) for line in ledger.audit_lines()]
    with ledger.database.engine.connect() as connection:
        assert line["detail"]["ledger"] == connection.exec_driver_sql("SELECT ledger FROM audit_head").scalar_one()
    assert len(line["detail"]["ledger"]) == 32


def contents(url: str) -> list[tuple[Any, ...]]:
    engine = ledger_engine(url)
    with reading(engine) as connection:
        tables = sorted(inspect(connection).get_table_names())
        statements = [*DESCRIBED[connection.dialect.name], *(f'SELECT * FROM "{name}"' for name in tables)]
        rows = [tuple(row) for statement in statements for row in connection.exec_driver_sql(statement)]
    engine.dispose()
    return rows


@pytest.mark.parametrize(
    ("revision", "statements"), [("0019", EARLIER), ("9999", "UPDATE ledger_revision SET revision = '9999'")]
)
def test_a_ledger_of_another_revision_is_refused_and_left_alone(url: str, revision: str, statements: str) -> None:
    with open_ledger(url) as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
        for statement in statements.split("; "):
            write_past_ledger(ledger, statement)
    before = contents(url)
    sentence = f"has revision {revision}, but this version of retention-assets needs revision {REVISION}. Nothing was changed"
    with pytest.raises(Refused, match=sentence) as refusal:
        open_ledger(url, simulated=True)
    assert "Start a new ledger under another URL" in str(refusal.value)
    assert ledger_is_there(url)
    assert contents(url) == before


def test_a_database_with_a_table_of_another_program_by_the_same_name_is_refused(url: str) -> None:
    engine = ledger_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE plans (id int)")
    with pytest.raises(Refused, match=r"plans.* already exists"):
        open_ledger(url)
    with reading(engine) as connection:
        assert inspect(connection).get_table_names() == ["plans"]
    engine.dispose()


def test_a_ledger_stands_beside_the_tables_of_a_program_that_uses_alembic(url: str) -> None:
    engine = ledger_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
    engine.dispose()
    for _ in range(2):
        open_ledger(url).close()


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


ROWS = ["SELECT revision FROM ledger_revision", "SELECT id, position, hash FROM audit_head", "SELECT * FROM clock"]


def test_what_other_tests_begin_with_is_what_creating_makes(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    found, names = [], set()
    server = "" if url.startswith("sqlite") else request.getfixturevalue("server")
    for number, way in enumerate((create_tables, create_again, create_again, create_again)):
        place = new_schema(server) if server else f"sqlite:///{tmp_path}/{number}.db"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "create_tables", way)
            with open_ledger(place) as ledger, ledger.database.engine.connect() as connection:
                assert ledger.verify().faults == ()
                names.add(ledger.id)
                statements = [*DESCRIBED[connection.dialect.name], *ROWS]
                rows = [row for statement in statements for row in connection.exec_driver_sql(statement).all()]
                found.append(rows)
            with open_ledger(place) as ledger:
                ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
                swept(ledger)
                ledger.holds.place(Hold.model_validate({"name": "h", "datasets": ["*"], "reason": "r"}), "ann")
        # On a server what another test has used comes next.
        assert not server or give_back(server, place) is (way is create_again)
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]) > 40
    assert len(names) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE leases ADD COLUMN more int",
        "ALTER TABLE marks ALTER COLUMN bytes SET DEFAULT 1",
        "CREATE INDEX more ON marks (bytes)",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON marks TO public",
    ],
)
def test_no_test_gets_tables_that_are_not_what_they_were(server: str, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    monkeypatch.setattr(opening, "create_tables", create_again)
    # What the very first ledger of a server has recorded may be there already or not.
    changed, untouched = new_schema(server), new_schema(server)
    open_ledger(untouched).close()
    with open_ledger(changed) as ledger:
        write_past_ledger(ledger, statement)
    assert not give_back(server, changed)
    assert give_back(server, untouched)


@pytest.fixture
def generous() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(place: Path) -> str:
    return f"{stat.S_IMODE(place.stat().st_mode):o}"


@pytest.mark.usefixtures("generous")
def test_a_new_ledger_is_its_owners_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "deep" / "new" / "ledger.db"
    with caplog.at_level(logging.WARNING), open_ledger(f"sqlite:///{file}") as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "run")
        rights = {one.name: mode(one) for one in file.parent.iterdir()}
        assert rights == {"ledger.db": "600", "ledger.db-wal": "600", "ledger.db-shm": "600"}
    assert (mode(file.parent), caplog.text) == ("700", "")


@pytest.mark.usefixtures("generous")
@pytest.mark.parametrize("wide", ["ledger.db", "ledger.db-wal", "ledger.db-shm", "."])
def test_whatever_others_may_read_or_write_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, wide: str) -> None:
    file = tmp_path / wide.replace(".", "x") / "ledger.db"
    with open_ledger(f"sqlite:///{file}") as first:
        first.marks.mark(candidates(["T1"]), T0, "run")
        place = file.parent / wide
        place.chmod(0o750 if wide == "." else 0o640)
        with caplog.at_level(logging.WARNING), open_ledger(f"sqlite:///{file}"):
            assert f"{file.parent if wide == '.' else place} has the mode {'750' if wide == '.' else '640'}" in caplog.text
            assert f"chmod {'700' if wide == '.' else '600'}" in caplog.text
            assert caplog.text.count("has the mode") == 1
        # Once is enough.
        caplog.clear()
        with open_ledger(f"sqlite:///{file}"):
            assert caplog.text == ""


@pytest.mark.usefixtures("generous")
def test_a_folder_that_was_there_before_keeps_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    open_ledger(f"sqlite:///{folder / 'ledger.db'}").close()
    assert (mode(folder), mode(folder / "ledger.db")) == ("755", "600")
