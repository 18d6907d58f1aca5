"""Retries: which failures are done again, how often and after which pauses, without waiting for any."""

import random
import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from retention_assets.errors import Refused
from retention_assets.sql import retry as retries
from retention_assets.sql.errors import RETRY_CONFLICTS, RETRY_TRANSIENT, is_conflict, is_lock_timeout, is_lost, is_transient
from retention_assets.sql.retry import RetryPolicy, retry


class Busy(Exception):
    """A failure that passes."""


def is_busy(error: Exception) -> bool:
    return isinstance(error, Busy)


class Work:
    def __init__(self, *failures: BaseException) -> None:
        self.failures, self.times = failures, 0

    def __call__(self) -> str:
        self.times += 1
        if self.times <= len(self.failures):
            raise self.failures[self.times - 1]
        return "done"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr(retries, "sleep", made.append)
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    return made


@pytest.mark.parametrize(
    ("policy", "made"),
    [
        pytest.param(RetryPolicy(is_busy, attempts=5, pause=1), [1, 2, 4, 8], id="twice as long each time"),
        pytest.param(RetryPolicy(is_busy, attempts=5, pause=1, longest=3), [1, 2, 3, 3], id="never longer than the longest"),
        pytest.param(RetryPolicy(is_busy, attempts=3, pause=0.5, growth=6), [0.5, 3], id="growing faster"),
        pytest.param(RetryPolicy(is_busy, attempts=4), [0, 0, 0], id="at once"),
        pytest.param(RetryPolicy(is_busy, attempts=1), [], id="never"),
    ],
)
def test_what_passes_is_done_again_after_longer_pauses(policy: RetryPolicy, made: list[float], pauses: list[float]) -> None:
    work = Work(*[Busy()] * len(made))
    assert retry(work, policy) == "done"
    assert pauses == made
    with pytest.raises(Busy):
        retry(Work(*[Busy()] * (len(made) + 1)), policy)


def test_chance_leaves_out_no_more_than_its_share() -> None:
    waited = [RetryPolicy(is_busy, pause=8, jitter=0.25).pause_after(1) for _ in range(1000)]
    assert 6 <= min(waited) < max(waited) <= 8


def test_without_a_limit_it_is_done_until_it_succeeds(pauses: list[float]) -> None:
    assert retry(Work(*[Busy()] * 2000), RetryPolicy(is_busy)) == "done"
    assert len(pauses) == 2000


@pytest.mark.parametrize("failure", [ValueError(), KeyboardInterrupt()], ids=["another failure", "an interruption"])
def test_what_does_not_pass_is_raised_at_once(failure: BaseException, pauses: list[float]) -> None:
    work = Work(Busy(), failure)
    with pytest.raises(type(failure)):
        retry(work, RetryPolicy(is_busy, attempts=9, pause=1))
    assert (work.times, pauses) == (2, [1])


def sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    return error


def statement(cause: BaseException, lost: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", None, cause, connection_invalidated=lost)


class MySqlError(Exception):
    """As pymysql raises it: a number and a text."""


CONFLICT, LOCK, LOST, LASTING = "conflict", "lock", "lost", "lasting"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sqlite(sqlite3.SQLITE_BUSY), CONFLICT),
        (sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), CONFLICT),
        (statement(sqlite(sqlite3.SQLITE_LOCKED)), CONFLICT),
        (statement(sqlite(sqlite3.SQLITE_CONSTRAINT)), LASTING),
        (statement(psycopg.errors.SerializationFailure()), CONFLICT),
        (statement(psycopg.errors.DeadlockDetected()), CONFLICT),
        (statement(psycopg.errors.LockNotAvailable()), LOCK),
        (statement(psycopg.errors.AdminShutdown()), LOST),
        (statement(psycopg.errors.ConnectionFailure()), LOST),
        (statement(psycopg.errors.UniqueViolation()), LASTING),
        (statement(psycopg.OperationalError("no answer"), lost=True), LOST),
        (statement(MySqlError(1213, "Deadlock found")), CONFLICT),
        (statement(MySqlError(1205, "Lock wait timeout")), LOCK),
        (statement(MySqlError(2013, "Lost connection")), LOST),
        (statement(MySqlError(1062, "Duplicate entry")), LASTING),
        # No failure of a database, whatever it carries.
        (KeyError(sqlite3.SQLITE_BUSY), LASTING),
        (Refused("40001"), LASTING),
    ],
    ids=repr,
)
def test_a_failure_of_a_statement_is_of_one_kind(error: Exception, kind: str) -> None:
    assert (is_conflict(error), is_lock_timeout(error), is_lost(error)) == (kind == CONFLICT, kind == LOCK, kind == LOST)
    assert is_transient(error) == (kind != LASTING)
    # The ledger's transactions are not done again when a commit may have been lost on its way back.
    assert RETRY_CONFLICTS.is_transient(error) == (kind == CONFLICT)
    assert RETRY_TRANSIENT.is_transient(error) == (kind != LASTING)
