"""Rows of a database go while they are what was planned, one by one if need be: alike in every kind of store over SQL.

Somebody holds them, refers to them, keeps them by triggers or brings them back, or an answer to a commit is lost.
"""

import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, make_url, text
from sqlalchemy.exc import OperationalError

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.sql import engines, foreign
from retention_assets.sql.errors import RETRY_TRANSIENT
from retention_assets.sql.guarded_delete import LOCKED, GuardedDelete
from retention_assets.stores.protocol import Remains, SweptTarget, Target
from retention_assets_tests.databases import new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.stores.objects.cycle import DUE, ObjectsCycle
from retention_assets_tests.stores.objects.environments import SqlObjects
from retention_assets_tests.stores.records.environments import Units

pytestmark = pytest.mark.dialect


class Proxy:
    """Passes everything on, until it is to lose the answer to the next commit of a transaction that deletes.

    `is_down`: connections made after that are closed at once.
    """

    def __init__(self, folder: str) -> None:
        self._server = str(Path(folder) / ".s.PGSQL.5432")
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.loses = self.goes_down = self.is_down = False
        self.lost = 0
        # What the transaction has sent whose answer is to be lost.
        self.about = b"DELETE FROM"
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            Thread(target=self._talk, args=(client, server), daemon=True).start()

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        answers = Thread(target=_copy, args=(server, client), daemon=True)
        answers.start()
        deletes = False
        with suppress(OSError):
            while data := client.recv(65536):
                deletes |= self.about in data
                if self.loses and deletes and b"COMMIT" in data:
                    self.loses, self.is_down, self.lost = False, self.goes_down, self.lost + 1
                    # Nothing reaches the client any more; the server is heard to its end.
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    break
                server.sendall(data)
        answers.join()
        client.close()
        server.close()


def _copy(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            with suppress(OSError):
                client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    parsed = make_url(url)
    proxy = Proxy(str(parsed.query["host"]))
    query = {name: value for name, value in parsed.query.items() if name != "host"}
    through = parsed.set(host="127.0.0.1", port=proxy.port, query={**query, "sslmode": "disable", "gssencmode": "disable"})
    try:
        yield proxy, through.render_as_string(hide_password=False)
    finally:
        proxy.close()


DELETED, FAILED, GONE = Outcome.DELETED, Outcome.FAILED, Outcome.ALREADY_GONE


@dataclass
class Rows:
    """Five rows that may go, in a store of one kind."""

    url: str
    dataset: str
    names: list[str]
    # bytes of each
    size: int
    engine: Engine
    table: str
    # columns of the key, and the key of a name
    columns: Mapping[str, str]
    key: Callable[[str], Mapping[str, object]]
    # opens the store with more settings
    store: Callable[..., Any]
    there: Callable[[], set[str]]

    def targets(self, *names: str) -> list[Target]:
        prepared = self.store().prepare(self.dataset, names or self.names)
        return [Target(one.transaction, one.note, place_known=True) for one in prepared]

    def swept(self, targets: list[Target], **settings: Any) -> dict[str, SweptTarget]:
        store = self.store(**settings)
        found = {one.transaction: one for one in store.sweep(self.dataset, targets, 1)}
        if "url" in settings:
            store.close()
        return found

    def do(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", "%%"))

    def where(self, name: str, prefix: str = "") -> str:
        return " AND ".join(f"{prefix}{column} = {value!r}" for column, value in self.key(name).items())


def units(url: str, _: Path) -> Rows:
    made = Units(url).has(*(names := [f"u{number}" for number in range(5)]))
    columns, key = {"id": "varchar(60)"}, lambda name: {"id": name}
    return Rows(url, made.dataset, names, 0, made.engine, made.root, columns, key, made.store, lambda: {*made.there()})


def versions(url: str, _: Path) -> Rows:
    table = Table(url)
    names = [f"urn:li:dataset:{number}@1" for number in range(5)]
    for name in names:
        table.chain(name[:-2], "status", {0: 1, 1: 5})
    columns = {"urn": "varchar(500)", "aspect": "varchar(200)", "version": "bigint"}

    def key(name: str) -> Mapping[str, object]:
        return {"urn": name[:-2], "aspect": "status", "version": 1}

    def there() -> set[str]:
        return {f"{urn}@1" for urn, _, version in table.rows() if version}

    size, engine = len(f"{names[0][:-2]} 1"), table.database.engine
    return Rows(url, "meta/dataset.status", names, size, engine, table.name, columns, key, table.store, there)


def blobs(url: str, folder: Path) -> Rows:
    made = SqlObjects(folder, url)
    names = [f"a/{number}" for number in range(5)]
    for name in names:
        made.put(name, b"xx")

    def store(**settings: Any) -> Any:
        return made.store(listing={"sql": {**made.listing["sql"], **settings}})

    columns = {"id": "varchar(60)"}
    return Rows(
        url, "blobs/a", names, 2, made.engine, "objs", columns, lambda name: {"id": name}, store, lambda: {*made.data()}
    )


KINDS: dict[str, Callable[[str, Path], Rows]] = {"records": units, "aspects": versions, "objects": blobs}


@pytest.fixture(params=KINDS)
def rows(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Iterator[Rows]:
    (tmp_path / "store").mkdir()
    made = KINDS[request.param](store_url, tmp_path / "store")
    yield made
    made.store().close()
    made.engine.dispose()


def outcomes(found: dict[str, SweptTarget]) -> list[Outcome]:
    return [one.outcome for _, one in sorted(found.items())]


ONE_FAILS = [DELETED, DELETED, FAILED, DELETED, DELETED]


# --- what others do ---


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
def test_a_row_that_somebody_holds_fails_alone_and_goes_with_the_next_sweep(rows: Rows) -> None:
    targets, name = rows.targets(), rows.names[2]
    with rows.engine.connect() as writer, writer.begin() as writing:
        column = next(iter(rows.columns))
        writer.exec_driver_sql(f"UPDATE {rows.table} SET {column} = {column} WHERE {rows.where(name)}")
        found = rows.swept(targets)
        writing.rollback()
    assert outcomes(found) == ONE_FAILS
    assert (found[name].error, found[name].bytes) == (LOCKED, 0)
    assert rows.swept(targets)[name].outcome is DELETED
    assert rows.there() == set()


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
def test_nobody_changes_a_row_between_its_comparison_and_the_commit(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = rows.targets()
    refused, look = list[str](), GuardedDelete.surely_gone

    def meanwhile(deletion: GuardedDelete[Any, Any], connection: Connection, *others: Any) -> list[str]:
        column = next(iter(rows.columns))
        with deletion.database.engine.connect() as writer:
            is_postgresql = connection.dialect.name == "postgresql"
            writer.exec_driver_sql(f"SET {'lock_timeout = 100' if is_postgresql else 'innodb_lock_wait_timeout = 0'}")
            with pytest.raises(OperationalError) as fault:
                writer.exec_driver_sql(f"UPDATE {rows.table} SET {column} = {column} WHERE {rows.where(rows.names[2])}")
            refused.append(str(fault.value).lower())
            writer.invalidate()
        return look(deletion, connection, *others)

    monkeypatch.setattr(GuardedDelete, "surely_gone", meanwhile)
    assert set(outcomes(rows.swept(targets))) == {DELETED}
    assert ["lock" in one for one in refused] == [True]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_file_under_a_writer_is_not_waited_for_by_row(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=1))
    monkeypatch.setattr(engines, "LOCK_SECONDS", 0.01)
    targets, begun, write = rows.targets(), list[object](), foreign.ForeignDatabase.write

    def counted(database: foreign.ForeignDatabase, work: Any, *permit: Any) -> Any:
        begun.append(work)
        return write(database, work, *permit)

    monkeypatch.setattr(foreign.ForeignDatabase, "write", counted)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        found = rows.swept(targets)
    assert {(one.outcome, one.error) for one in found.values()} == {(FAILED, "database is locked")}
    assert len(begun) == 1
    assert set(outcomes(rows.swept(targets))) == {DELETED}


def test_in_a_table_without_a_row_nothing_is_taken_for_gone(rows: Rows) -> None:
    targets = rows.targets()
    rows.do(f"DELETE FROM {rows.table}")
    found = rows.swept([replace(one, place_known=False) for one in targets])
    assert {(one.outcome, "no row at all" in (one.error or "")) for one in found.values()} == {(FAILED, True)}
    # Aspects always have current rows; of other tables the last row may go, and the plan may know the very table.
    is_never_empty = rows.table.startswith("metadata")
    assert set(outcomes(rows.swept(targets))) == {FAILED if is_never_empty else GONE}
    assert not is_never_empty or rows.store().remains(rows.dataset, targets) == {}


# --- what the database does besides ---


def refers(rows: Rows, action: str) -> str:
    """Another table refers to the third row; the path to it, as it is named."""
    columns = ", ".join(f"{name} {kind}" for name, kind in rows.columns.items())
    key, values = ", ".join(rows.columns), ", ".join(map(repr, rows.key(rows.names[2]).values()))
    rows.do(
        f"CREATE TABLE audit (n INTEGER PRIMARY KEY, {columns},"
        f" CONSTRAINT of_row FOREIGN KEY ({key}) REFERENCES {rows.table} ({key}) {action})",
        f"INSERT INTO audit VALUES (1, {values})",
    )
    return f"{rows.table} -> audit by of_row ({key}, {action})"


def referring(rows: Rows) -> int:
    with rows.engine.connect() as connection:
        column = next(iter(rows.columns))
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM audit WHERE {column} IS NOT NULL").scalar() or 0)


@pytest.mark.parametrize(("action", "effect"), [("CASCADE", "deletes"), ("SET NULL", "changes")])
def test_where_rows_of_another_table_would_go_or_change_nothing_is_listed_planned_or_deleted_until_that_is_accepted(
    rows: Rows, action: str, effect: str
) -> None:
    targets = rows.targets()
    path = refers(rows, f"ON DELETE {action}")
    store = rows.store()
    for question in (store.datasets, rows.targets):
        with pytest.raises(Refused) as fault:
            question()
        assert path in str(fault.value)
    assert {(one.outcome, path in str(one.error)) for one in rows.swept(targets).values()} == {(FAILED, True)}
    assert any(path in sentence for sentence in store.warnings())
    assert store.accepted_cascades() is None
    assert (rows.there(), referring(rows)) == ({*rows.names}, 1)
    accepting = rows.store(cascades="accepted")
    assert accepting.datasets() == [rows.dataset]
    assert str(accepting.accepted_cascades()).endswith(f"the database also {effect} rows of audit: {path}.")
    assert accepting.accepted_cascades() in accepting.warnings()
    assert set(outcomes(rows.swept(targets, cascades="accepted"))) == {DELETED}
    assert referring(rows) == 0
    store.close()


def test_a_row_to_which_another_refers_without_an_action_fails_alone(rows: Rows) -> None:
    refers(rows, "")
    found = rows.swept(rows.targets())
    assert outcomes(found) == ONE_FAILS
    assert "foreign key" in str(found[rows.names[2]].error).lower()
    assert (rows.there(), referring(rows)) == ({rows.names[2]}, 1)


# --- triggers that keep rows, or bring them back; those of MariaDB and MySQL can only raise ---

SILENT = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(params=["before", "after", "commit"])
def way(request: pytest.FixtureRequest, store_url: str) -> str:
    if request.param == "commit" and store_url.startswith("sqlite"):
        pytest.skip("nothing waits for the commit there")
    return str(request.param)


def keeps(engine: Engine, table: str, condition: str, way: str) -> None:
    """From now on rows of a table stay for which a condition about OLD is true. The name of the trigger is `keeper`."""
    if engine.dialect.name == "sqlite":
        act = "SELECT RAISE(IGNORE)" if way == "before" else f"INSERT OR IGNORE INTO {table} SELECT * FROM kept_{table}"
        statements = [
            f"CREATE TABLE kept_{table} AS SELECT * FROM {table} AS OLD WHERE {condition}",
            f"CREATE TRIGGER keeper {way.upper()} DELETE ON {table} WHEN {condition} BEGIN {act}; END",
        ]
    else:
        act = "RETURN NULL;" if way == "before" else f"INSERT INTO {table} SELECT OLD.*; RETURN OLD;"
        kind = {"before": "TRIGGER keeper BEFORE", "after": "TRIGGER keeper AFTER"}.get(way, "CONSTRAINT TRIGGER keeper AFTER")
        when = "DEFERRABLE INITIALLY DEFERRED " if way == "commit" else ""
        body = f"BEGIN IF {condition} THEN {act} END IF; RETURN OLD; END"
        statements = [
            f"CREATE FUNCTION keeper() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
            f"CREATE {kind} DELETE ON {table} {when}FOR EACH ROW EXECUTE FUNCTION keeper()",
        ]
    does(engine, *statements)


def does(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement.replace(":", r"\:")))


@SILENT
def test_a_row_that_a_trigger_keeps_fails_alone(rows: Rows, way: str) -> None:
    targets, name = rows.targets(), rows.names[2]
    keeps(rows.engine, rows.table, rows.where(name, "OLD."), way)
    found = rows.swept(targets)
    assert outcomes(found) == ONE_FAILS
    assert found[name].bytes == 0
    assert f"The trigger keeper on the table {rows.table} kept the row" in (found[name].error or "")
    assert rows.there() == {name}


def units_swept(units: Units, *names: str) -> dict[str, SweptTarget]:
    store = units.store()
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, names)]
    return {one.transaction: one for one in store.sweep(units.dataset, targets, 2)}


@SILENT
@pytest.mark.parametrize("table", ["summary", "process_object"])
def test_a_unit_of_work_of_which_a_row_is_kept_is_whole_and_its_neighbours_go(units: Units, way: str, table: str) -> None:
    units.has("u1", "u2", "u3", "u4", "u5")
    keeps(units.engine, table, "OLD.unit = 'u2'", way)
    found = units_swept(units, "u1", "u2", "u3", "u4")
    assert outcomes(found) == [DELETED, FAILED, DELETED, DELETED]
    assert f"The trigger keeper on the table {table} kept the row" in (found["u2"].error or "")
    assert units.whole("u2", "u5")


@SILENT
def test_rows_that_a_trigger_of_the_root_gives_a_child_are_no_orphans(units: Units) -> None:
    units.has("u1", "u2", "u3")
    into = "INSERT INTO summary (n, unit) VALUES (99, 'u2')"
    made = {
        "sqlite": [f"CREATE TRIGGER logs AFTER DELETE ON unit_of_work WHEN OLD.id = 'u2' BEGIN {into}; END"],
        "postgresql": [
            f"CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 'u2' THEN {into}; END IF;"
            " RETURN OLD; END $$",
            "CREATE TRIGGER logs AFTER DELETE ON unit_of_work FOR EACH ROW EXECUTE FUNCTION logs()",
        ],
    }
    does(units.engine, *made[units.dialect])
    found = units_swept(units, "u1", "u2")
    assert outcomes(found) == [DELETED, FAILED]
    assert "The database kept the row" in (found["u2"].error or "")
    assert units.whole("u2", "u3")


@SILENT
def test_orphans_that_are_kept_are_not_said_to_be_gone(units: Units) -> None:
    units.has("u1", "u2").loses("unit_of_work", "u2")
    keeps(units.engine, "summary", "OLD.unit = 'u2'", "before")
    assert outcomes(units_swept(units, "u1", "u2")) == [DELETED, FAILED]
    assert units.there("summary").count("u2") == 2


@SILENT
@pytest.mark.parametrize("table", ["unit_of_work", "summary"])
def test_a_time_that_a_trigger_takes_away_again_is_not_set(store_url: str, table: str) -> None:
    units = Units(store_url, ttl={"document_ttl": "30d"}).has("u1", "u2")
    condition = f"OLD.{'id' if table == 'unit_of_work' else 'unit'} = 'u2'"
    act = {
        "sqlite": [f"CREATE TRIGGER keeper BEFORE UPDATE ON {table} WHEN {condition} BEGIN SELECT RAISE(IGNORE); END"],
        "postgresql": [
            f"CREATE FUNCTION keeper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN"
            " NEW.expires := NULL; END IF; RETURN NEW; END $$",
            f"CREATE TRIGGER keeper BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION keeper()",
        ],
    }
    does(units.engine, *act[units.dialect])
    store = units.store()
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["u1", "u2"])]
    at = AS_OF + timedelta(microseconds=1)
    found = {one.transaction: one for one in store.expire(units.dataset, targets, at, 2)}
    assert outcomes(found) == [Outcome.EXPIRING, FAILED]
    assert f"Rows of the table {table} do not have the new time" in (found["u2"].error or "")
    # Who gives times takes back those that were half given.
    assert {one.outcome for one in store.expire(units.dataset, targets, None, 2)} == {Outcome.EXPIRING}
    assert units.expires("u1") == units.expires("u2") == {None}
    store.close()
    units.close()


# --- answers that are lost: what a sweep has deleted is never said to be gone already ---

AT_THE_CHILDREN = pytest.mark.parametrize("about", [b"DELETE FROM", b'DELETE FROM "unit_of_work"'])


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@AT_THE_CHILDREN
def test_what_was_deleted_without_an_answer_is_deleted_and_counted(rows: Rows, about: bytes) -> None:
    if about != b"DELETE FROM" and rows.table != "unit_of_work":
        pytest.skip("one table has one commit")
    targets, (gone, *names) = rows.targets(), rows.names
    rows.do(f"DELETE FROM {rows.table} WHERE {rows.where(gone)}")
    with proxied(rows.url) as (proxy, url):
        proxy.loses, proxy.about = True, about
        found = rows.swept(targets, url=url)
        assert proxy.lost == 1
    expected = {gone: (GONE, 0), **dict.fromkeys(names, (DELETED, rows.size))}
    assert {name: (one.outcome, one.bytes) for name, one in found.items()} == expected
    assert not {Remains.ALL, Remains.SOME} & set(rows.store().remains(rows.dataset, targets).values())


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_what_may_be_deleted_stays_begun_and_counts_when_it_is_looked_at(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=2, pause=0))
    targets = rows.targets()
    with proxied(rows.url) as (proxy, url):
        proxy.loses = proxy.goes_down = True
        proxy.about = f'DELETE FROM "{rows.table}"'.encode()
        found = rows.swept(targets, url=url)
    assert {one.outcome for one in found.values()} == {Outcome.WITHHELD}
    assert "lost at a commit" in (found[rows.names[0]].error or "")
    again = rows.swept([replace(one, begun_earlier=True) for one in targets])
    assert {(one.outcome, one.bytes) for one in again.values()} == {(GONE, rows.size)}


LOSES = """
CREATE SEQUENCE losses;
CREATE FUNCTION loses() RETURNS trigger AS $$ BEGIN
    IF nextval('losses') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL;
END $$ LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER loses AFTER DELETE ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION loses()
"""


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_server_that_ends_the_connection_before_the_commit_has_deleted_nothing_and_is_asked_again(rows: Rows) -> None:
    rows.do(LOSES.format(rows.table))
    found = rows.swept(rows.targets())
    assert {(one.outcome, one.bytes) for one in found.values()} == {(DELETED, rows.size)}
    with rows.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT last_value FROM losses").scalar_one() > 1


def test_a_sweep_counts_what_went_with_a_lost_answer(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away for longer than anybody tries: the mark stays begun, and the sweep after it knows whose it was."""
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=2, pause=0))
    schema = new_schema(server)
    with proxied(schema) as (proxy, url):
        blobs = SqlObjects(tmp_path, schema)
        blobs.put("a/1", b"xx")
        cycle = ObjectsCycle(blobs, listing={"sql": {**blobs.listing["sql"], "url": url}})
        assert cycle.marks() == 1
        proxy.loses = proxy.goes_down = True
        first = cycle.sweeps(as_of=DUE)["blobs/a"]
        assert (proxy.lost, first.bytes_freed, bool(first.refused)) == (1, 0, True)
        assert cycle.statuses() == {"a/1": "SWEEPING"}
        proxy.is_down = False
        assert cycle.sweeps(as_of=DUE)["blobs/a"].bytes_freed == 2
        assert cycle.statuses() == {"a/1": "SWEPT"}
        blobs.close()
