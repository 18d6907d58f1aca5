"""Failures of statements by driver code (conflict, lock timeout, lost connection), their retry policies and messages."""

import re
import sqlite3

from sqlalchemy.exc import DBAPIError

from retention_assets.settings.places import mask_secrets
from retention_assets.settings.secrets import masked
from retention_assets.silence import is_silence
from retention_assets.sql.retry import RetryPolicy

# SQLSTATE of PostgreSQL, number of MariaDB and MySQL, or primary code of SQLite: no two are equal. PostgreSQL: serialization,
# deadlock. MySQL: 1020 row changed since it was read, 1213 deadlock, 1615 statement must be prepared again. SQLite: busy,
# locked.
_CONFLICTS = {"40001", "40P01", 1020, 1213, 1615, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_LOCK_TIMEOUTS = {"55P03", 1205}
# PostgreSQL: connection ended by an administrator, server going down or coming up; also all of class 08. MySQL: gone away,
# lost in a query, killed, server going down, the packet that ends it.
_LOST = {"57P01", "57P02", "57P03", "57P05", 1053, 1080, 1152, 1184, 1927, 2006, 2013, 2055, 4031}
# A row refers to the one that was to go.
_REFERENCED = {"23001", "23503", 1217, 1451}
_HIDES_ROWS = re.compile(r'affected by row-level security policy for table "?([^"\n]+)')


class WriteFailed(Exception):
    """A transaction that had no effect, as a message. `is_lost`: the database could not be reached in the end."""

    def __init__(self, text: str, is_lost: bool, is_transient: bool) -> None:
        super().__init__(text)
        self.is_lost, self.is_transient = is_lost, is_transient


def is_conflict(error: Exception) -> bool:
    """The database rolled the transaction back in favour of another one."""
    return code_of(error) in _CONFLICTS


def is_lock_timeout(error: Exception) -> bool:
    return code_of(error) in _LOCK_TIMEOUTS


def is_lost(error: Exception) -> bool:
    """The connection is gone, so the fate of a commit is unknown."""
    code = code_of(error)
    invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    return invalidated or code in _LOST or (isinstance(code, str) and code.startswith("08"))


def is_referenced(error: BaseException | None) -> bool:
    """A foreign key keeps a row from being deleted."""
    # SQLite has the code of a trigger for some keys
    is_key = isinstance(error, DBAPIError) and code_of(error) in _REFERENCED
    return is_key or str(getattr(error, "orig", "")) == "FOREIGN KEY constraint failed"


def is_transient(error: Exception) -> bool:
    return is_conflict(error) or is_lock_timeout(error) or (is_lost(error) and not is_silence(error))


# For transactions that must not run twice, such as the ledger's: retry only what was certainly undone.
RETRY_CONFLICTS = RetryPolicy(is_conflict, attempts=12, pause=0.01, longest=1, jitter=1)
# For idempotent transactions: retry also what may have been committed without an answer.
RETRY_TRANSIENT = RetryPolicy(is_transient, attempts=8, pause=0.02, longest=2)


def driver_message(error: BaseException) -> str:
    """An error in one line, without statement, values or password."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "args", None) and len(cause.args) == 2 and isinstance(cause.args[0], int):
        # pymysql: number and text
        cause_text = f"{cause.args[1]} ({cause.args[0]})"
    else:
        cause_text = str(cause)
    if match := _HIDES_ROWS.search(cause_text):
        return (
            f"row level security would hide rows of the table {match[1]} from the user of the database. Let the user see all"
            " of them (ALTER ROLE … BYPASSRLS), or make it the owner of the table without FORCE ROW LEVEL SECURITY."
        )
    lines = mask_secrets(masked(cause_text)).strip().splitlines()
    return lines[0].strip() if lines else type(cause).__name__


def hides_rows(error: BaseException) -> bool:
    return bool(_HIDES_ROWS.search(str(getattr(error, "orig", None) or error)))


def code_of(error: Exception) -> str | int | None:
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if cause is error:
        return None
    number = next(iter(getattr(cause, "args", ())), None)
    # pymysql also has a SQLSTATE, but it is the same for most failures.
    return number if isinstance(number, int) else getattr(cause, "sqlstate", None)
