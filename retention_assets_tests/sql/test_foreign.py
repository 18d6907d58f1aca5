"""A database of somebody else, of every kind: what is tried again, what is not, and what readers cost others."""

import pickle
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Connection, select, text

from retention_assets.errors import Refused, Withheld
from retention_assets.settings.places import Url
from retention_assets.sql import engines, foreign
from retention_assets.sql.errors import RETRY_TRANSIENT, WriteFailed, is_referenced
from retention_assets.sql.foreign import ForeignDatabase, indexes_of, table_of
from retention_assets_tests.sql.conftest import make_table

pytestmark = pytest.mark.dialect


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LOCK_SECONDS", 1)


def _rows(database: ForeignDatabase) -> list[tuple[int, str]]:
    with database.reading() as connection:
        return [(row.k, row.v) for row in connection.execute(text("SELECT k, v FROM t ORDER BY k"))]


def _set(value: str, key: int = 1) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(text("UPDATE t SET v = :v WHERE k = :k"), {"v": value, "k": key}).rowcount


def test_a_reader_sees_one_state_and_no_writer_waits_for_it(database: ForeignDatabase) -> None:
    with database.reading() as connection:
        before = connection.execute(text("SELECT v FROM t WHERE k = 1")).scalar()
        if database.dialect != "sqlite":  # a SQLite file that is not in WAL mode can't do this; the next test has one that is
            database.write(_set("new"))
        assert connection.execute(text("SELECT v FROM t WHERE k = 1")).scalar() == before == "a"


def test_in_wal_mode_neither_waits_on_sqlite(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "wal.db") as made:
        made.execute("PRAGMA journal_mode = WAL")
    made.close()
    database = ForeignDatabase(Url(f"sqlite:///{tmp_path / 'wal.db'}"), "s")
    database.write(make_table)
    with database.reading() as connection:
        assert connection.execute(text("SELECT v FROM t WHERE k = 1")).scalar() == "a"
        database.write(_set("new"))
        assert connection.execute(text("SELECT v FROM t WHERE k = 1")).scalar() == "a"
    assert _rows(database)[0] == (1, "new")


def test_a_reader_cannot_write(database: ForeignDatabase) -> None:
    with pytest.raises(Refused, match="can't be read"), database.reading() as connection:
        connection.execute(text("DELETE FROM t"))
    assert len(_rows(database)) == 3


def test_a_write_is_done_whole_or_not_at_all(database: ForeignDatabase) -> None:
    def half(connection: Connection) -> None:
        connection.execute(text("DELETE FROM t WHERE k = 1"))
        connection.execute(text("INSERT INTO t VALUES (2, 'again')"))

    with pytest.raises(WriteFailed) as caught:
        database.write(half)
    assert not caught.value.is_transient
    assert len(_rows(database)) == 3


def test_a_fault_of_the_statement_is_not_tried_again(database: ForeignDatabase) -> None:
    tries = []

    def wrong(connection: Connection) -> None:
        tries.append(1)
        connection.execute(text("SELECT nonsense FROM nowhere"))

    with pytest.raises(WriteFailed, match="nowhere") as caught:
        database.write(wrong)
    assert (len(tries), caught.value.is_transient, caught.value.is_lost) == (1, False, False)


def test_a_deadlock_is_tried_again(database: ForeignDatabase) -> None:
    if database.dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time, so that no two can wait for each other")
    both, tries = threading.Barrier(2), [0, 0]

    def crossed(who: int, first: int, second: int) -> None:
        def work(connection: Connection) -> None:
            tries[who] += 1
            _set(f"by {who}", first)(connection)
            if tries[who] == 1:
                both.wait(30)
            _set(f"by {who}", second)(connection)

        database.write(work)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(crossed, 0, 1, 2), threads.submit(crossed, 1, 2, 1)]:
            done.result()
    assert sum(tries) == 3
    assert len({value for _, value in _rows(database)[:2]}) == 1


def test_a_lost_connection_is_made_anew(database: ForeignDatabase) -> None:
    if database.dialect == "sqlite":
        pytest.skip("SQLite is in this program")
    tries = []

    def work(connection: Connection) -> None:
        tries.append(1)
        _set("once", 1)(connection)
        if len(tries) == 1:
            _end(database, connection)
        _set("twice", 2)(connection)

    database.write(work)
    assert len(tries) == 2
    assert _rows(database)[:2] == [(1, "once"), (2, "twice")]


def _end(database: ForeignDatabase, connection: Connection) -> None:
    postgresql = database.dialect == "postgresql"
    number = connection.execute(text("SELECT pg_backend_pid()" if postgresql else "SELECT connection_id()")).scalar()
    with database.engine.connect() as other:
        other.exec_driver_sql(f"SELECT pg_terminate_backend({number})" if postgresql else f"KILL {number}")


@pytest.mark.usefixtures("impatient")
def test_a_lock_that_does_not_come_ends_in_words(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=2))
    database = ForeignDatabase(Url(store_url), "s")
    database.write(make_table)
    tries = []

    def waiting(connection: Connection) -> None:
        tries.append(1)
        _set("never")(connection)

    with database.engine.connect() as other, other.begin():
        _set("held")(other)
        with pytest.raises(WriteFailed) as caught:
            database.write(waiting)
    assert (caught.value.is_transient, caught.value.is_lost) == (True, False), str(caught.value)
    # On SQLite it is the transaction that can't begin.
    assert len(tries) == (0 if database.dialect == "sqlite" else 2)
    assert _rows(database)[0] == (1, "held")
    database.close()


def test_a_database_travels_with_its_password_and_shows_it_to_nobody() -> None:
    database = ForeignDatabase(Url("postgresql://me:secret@nowhere.invalid/db"), "s")
    travelled: ForeignDatabase = pickle.loads(pickle.dumps(database))
    assert isinstance(travelled.url, Url)
    assert travelled.url.exposed == "postgresql://me:secret@nowhere.invalid/db"
    assert "secret" not in repr(travelled)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_not_there_is_said_without_the_password(scheme: str) -> None:
    database = ForeignDatabase(Url(f"{scheme}://me:secret@127.0.0.1:1/db"), "s")
    with pytest.raises(Refused) as refused, database.reading():
        pass
    with pytest.raises(WriteFailed) as failed:
        database.write(lambda _: None)
    assert failed.value.is_lost
    assert "secret" not in f"{refused.value} {failed.value}"
    database.close()


LIMITS = {
    "postgresql": "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')",
    "mysql": "SELECT @@max_statement_time, @@idle_transaction_timeout",
}


def test_a_transaction_that_writes_ends_before_a_lease_does_and_whoever_comes_next_reads_as_long_as_it_takes(
    database: ForeignDatabase,
) -> None:
    """A program that was stopped in the middle of it holds no lock for longer, and what it sent is not done later."""
    query = LIMITS.get(database.dialect)
    if query is None:
        pytest.skip("SQLite has one writer, in the same program")

    def limits(connection: Connection) -> tuple[str, ...]:
        return tuple(str(one).removesuffix("s").partition(".")[0] for one in connection.exec_driver_sql(query).one())

    with database.reading() as connection:
        usual = limits(connection)
    assert database.write(limits) == ("40", "55") != usual
    with database.reading() as connection:
        assert limits(connection) == usual


@pytest.mark.parametrize("refused", [1, 2, None])
def test_a_permit_is_asked_before_a_transaction_begins_and_commits(database: ForeignDatabase, refused: int | None) -> None:
    before, seen = _rows(database), list[object]()

    def permit() -> None:
        seen.append(_rows(database))
        if len(seen) == refused:
            raise Withheld("not any more")

    if refused is None:
        assert database.write(_set("new"), permit) == 1
        assert _rows(database)[0] == (1, "new")
    else:
        with pytest.raises(Withheld, match="not any more"):
            database.write(_set("new"), permit)
        assert _rows(database) == before
    # Whenever it is asked, nothing of it is done yet.
    assert seen == [before] * (refused or 2)


def test_any_name_is_quoted(database: ForeignDatabase) -> None:
    quote = database.engine.dialect.identifier_preparer.quote_identifier
    name, column = 'Select "it\'s" ü%', "from %s"
    made = f"CREATE TABLE {quote(name)} ({quote(column)} bigint)"
    database.write(lambda connection: connection.exec_driver_sql(made.replace("%%", "%").replace("%", _percent(database))))
    table = table_of(database, name)
    database.write(lambda connection: connection.execute(table.insert().values({column: 7})))
    [batch] = database.batches(select(table.c[column]), pa.schema([("n", pa.int64())]))
    assert batch["n"].to_pylist() == [7]


def _percent(database: ForeignDatabase) -> str:
    return "%" if database.dialect == "sqlite" else "%%"


def test_a_table_that_is_not_there_is_named(database: ForeignDatabase) -> None:
    with pytest.raises(Refused, match="no table nowhere"):
        table_of(database, "nowhere")


def test_indexes_are_found(database: ForeignDatabase) -> None:
    database.write(lambda connection: connection.execute(text("CREATE INDEX by_v ON t (v)")))
    assert indexes_of(database, "t") == [("k",), ("v",)]


def test_reading_makes_no_sqlite_file(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no SQLite file"):
        table_of(ForeignDatabase(Url(f"sqlite:///{tmp_path / 'none.db'}"), "s"), "t")
    assert not list(tmp_path.iterdir())


def test_a_foreign_key_is_told_from_other_constraints(database: ForeignDatabase) -> None:
    database.write(lambda connection: connection.execute(text("CREATE TABLE c (k bigint, FOREIGN KEY (k) REFERENCES t (k))")))
    database.write(lambda connection: connection.execute(text("INSERT INTO c VALUES (1)")))
    causes = []
    for statement in ("DELETE FROM t WHERE k = 1", "INSERT INTO t VALUES (1, 'again')"):
        with pytest.raises(WriteFailed) as failed:
            database.write(lambda connection, statement=statement: connection.execute(text(statement)))  # type: ignore[misc]
        causes.append(is_referenced(failed.value.__cause__))
    assert causes == [True, False]
