"""What fails outside of the program: real failures of disks and databases, each a sentence that says what to do about it."""

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from retention_assets import cli
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.failures import failure_text
from retention_assets.ledger import open_ledger
from retention_assets.sql import engines
from retention_assets.sql.retry import RetryPolicy
from retention_assets_tests.ledger.states import T0
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT, Run, run

__all__ = ["run"]

FULL, DENIED, READ_ONLY = (
    "no space is left. Make room",
    "access is denied. Let the user",
    "the file system is read-only. Mount",
)
READ_ONLY_LEDGER = "the file of the ledger, or its folder, is read-only. Let the user"
BUSY, AWAY = "the ledger is busy: another program", "the ledger can't be reached or written. Check the key ledger"


def raised(work: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the driver raises
        work()
    return caught.value


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, FULL), (errno.EDQUOT, FULL), (errno.EACCES, DENIED), (errno.EPERM, DENIED), (errno.EROFS, READ_ONLY),
    ],
)  # fmt: skip
def test_a_disk_says_what_to_do(number: int, words: str) -> None:
    said = failure_text(OSError(number, "odd", "/data/x"))
    assert said is not None
    assert said.startswith(f"cannot go on: {words}")
    assert said.endswith(f"([Errno {number}] odd: '/data/x').")


def test_what_this_program_did_wrong_is_no_failure_of_others() -> None:
    for fault in (ValueError("x"), KeyError("Permission denied"), OSError(errno.ENOENT, "x"), OSError("x")):
        assert failure_text(fault) is None


def test_a_failure_is_found_below_what_it_caused() -> None:
    for cause, words in ((OSError(errno.ENOSPC, "x"), FULL), (Refused("a hold"), "a hold"), (BadInput(Problem("odd")), "odd")):
        fault = RuntimeError("a step")
        fault.__cause__ = cause
        assert words in (failure_text(fault) or "")
        fault = RuntimeError("another")
        fault.__context__ = cause
        assert words in (failure_text(fault) or "")
        # Whoever said `from None` has said all.
        fault.__suppress_context__ = True
        assert failure_text(fault) is None


def test_a_sqlite_that_is_full_locked_or_read_only_says_so(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db", isolation_level=None) as small:
        small.execute("CREATE TABLE t (x)")
        small.execute("PRAGMA max_page_count = 2")
        full = raised(lambda: small.execute("INSERT INTO t VALUES (zeroblob(100000))"))
        small.execute("BEGIN EXCLUSIVE")
        with sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None) as other:
            locked = raised(lambda: other.execute("BEGIN IMMEDIATE"))
        other.close()
        small.execute("ROLLBACK")
    small.close()
    with sqlite3.connect(f"file:{tmp_path / 'x.db'}?mode=ro", uri=True) as still:
        read_only = raised(lambda: still.execute("INSERT INTO t VALUES (1)"))
    still.close()
    missing = raised(lambda: sqlite3.connect(tmp_path / "none" / "x.db"))
    for fault, words in ((full, FULL), (locked, BUSY), (read_only, READ_ONLY_LEDGER), (missing, AWAY)):
        assert words in (failure_text(fault) or ""), fault


def test_a_postgresql_that_ends_the_connection_or_refuses_says_so(server: str) -> None:
    url = server.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)
    with engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with psycopg.connect(server, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        lost = raised(lambda: connection.execute(text("SELECT 1")))
        connection.invalidate()
    with engine.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = on"))
        connection.commit()
        read_only = raised(lambda: connection.execute(text("CREATE TABLE no_such (x int)")))
        connection.rollback()
        connection.execute(text("SET ROLE pg_monitor"))
        denied = raised(lambda: connection.execute(text("SELECT * FROM pg_authid")))
        connection.rollback()
        bug = raised(lambda: connection.execute(text("SELECT 1 / 0")))
    engine.dispose()
    assert AWAY in (failure_text(lost) or "")
    assert READ_ONLY in (failure_text(read_only) or "")
    assert (type(denied).__name__, DENIED in (failure_text(denied) or "")) == ("ProgrammingError", True)
    assert failure_text(bug) is None


def test_a_driver_that_refuses_what_this_program_says_is_no_failure_of_others() -> None:
    assert failure_text(IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))) is None
    assert isinstance(IntegrityError("INSERT", {}, Exception("x")), DBAPIError)


@pytest.fixture
def busy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0)
    monkeypatch.setattr("retention_assets.ledger.database.RETRY_CONFLICTS", RetryPolicy(lambda _: False))


@pytest.mark.usefixtures("busy")
def test_a_ledger_that_is_locked_for_long_is_a_sentence_and_no_trace(run: Run) -> None:
    file = Path(".retention/ledger.db")
    open_ledger(f"sqlite:///{file.absolute()}").close()
    with sqlite3.connect(file, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        code, out, err = run("hold", "--name", "h", "--dataset", "lake/d", "--reason", "r")
        writer.execute("ROLLBACK")
    writer.close()
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith(f"cannot go on: {BUSY}")
    with open_ledger(f"sqlite:///{file.absolute()}") as ledger:
        assert ledger.holds.recorded(T0).placed == []


@pytest.mark.program
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write anywhere")
def test_who_may_only_read_a_folder_is_told_what_to_write_or_to_name(run: Run, tmp_path: Path) -> None:
    ledger = tmp_path / ".retention" / "ledger.db"
    open_ledger(f"sqlite:///{ledger}").close()
    for place in (ledger, ledger.parent, tmp_path):
        place.chmod(place.stat().st_mode & ~0o222)
    hold = ("hold", "--name", "h", "--dataset", "lake/d", "--reason", "r")
    remedy = "Let the user of this program write the file and its folder, or name another place under the key ledger."
    sentences = {
        hold: f"The ledger sqlite:///{ledger} cannot be opened: attempt to write a readonly database. {remedy}",
        ("init", "new"): f"{tmp_path / 'new'} cannot be written. Name a folder of your own: `retention init DIR`.",
    }
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    for words, sentence in sentences.items():
        command = [*powerless, sys.executable, "-c", ENTRY, *words]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{sentence}\n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [(PermissionError(errno.EACCES, "odd\x1b[2J", "/w"), r"access is denied.*odd\\x1b\[2J"), (RuntimeError("a fault of ours"), None)],
)  # fmt: skip
def test_the_command_line_says_what_failed_and_leaves_its_own_faults_their_trace(
    fault: Exception, words: str | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("retention_assets.people.command.find_environment", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    if words is None:
        monkeypatch.setattr("sys.argv", ["retention", "marks"])
        with pytest.raises(RuntimeError, match="a fault of ours"):
            cli.main()
        return
    code, out, err = run("marks")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert re.search(words, err)
