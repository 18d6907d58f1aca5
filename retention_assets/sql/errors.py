"""What a failed statement means: whether the same transaction may succeed when it is tried again, and how it is said.

Belongs here: the codes by which each driver tells that the database undid a transaction in favour of another one, waited too
long for a lock, or lost the connection.
Does not belong here: trying again (databases.py).
"""

import sqlite3

from sqlalchemy.exc import DBAPIError

from retention_assets.settings.urls import mask_secrets

# Serialization, deadlock, a lock that did not come in time; PostgreSQL also: an administrator ended the connection, the server
# is going down or coming up, and everything in class 08.
_POSTGRESQL = {"40001", "40P01", "55P03"}
_POSTGRESQL_LOST = {"57P01", "57P02", "57P03", "57P05"}
# 1020: the row changed since it was read; 1205: lock wait; 1213: deadlock; 1615: a prepared statement must be prepared again.
_MYSQL = {1020, 1205, 1213, 1615}
# Gone away, lost while asking, killed, server going down, the packet that ends it.
_MYSQL_LOST = {1053, 1080, 1152, 1184, 1927, 2006, 2013, 2055, 4031}
_SQLITE = {5, 6}  # busy, locked


def is_lost(error: DBAPIError) -> bool:
    """Whether the connection is gone, so that nobody knows what became of a commit."""
    code = _code(error)
    if isinstance(code, str):
        return error.connection_invalidated or code in _POSTGRESQL_LOST or code.startswith("08")
    return error.connection_invalidated or code in _MYSQL_LOST


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction, begun anew, may well succeed."""
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _SQLITE
    return is_lost(error) or _code(error) in _POSTGRESQL | _MYSQL


def is_lock_timeout(error: DBAPIError) -> bool:
    """Whether somebody else's lock was waited for in vain."""
    return _code(error) in ("55P03", 1205)


def driver_message(error: BaseException) -> str:
    """An error in one line, without the statement, its values, or a password."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "args", None) and len(cause.args) == 2 and isinstance(cause.args[0], int):
        # pymysql: the number and the text.
        cause_text = f"{cause.args[1]} ({cause.args[0]})"
    else:
        cause_text = str(cause)
    lines = mask_secrets(cause_text).strip().splitlines()
    return lines[0].strip() if lines else type(cause).__name__


def _code(error: DBAPIError) -> str | int | None:
    """The SQLSTATE of PostgreSQL, or the number of MariaDB and MySQL."""
    number = next(iter(getattr(error.orig, "args", ())), None)
    # pymysql knows a SQLSTATE as well, which is the same for most of them.
    return number if isinstance(number, int) else getattr(error.orig, "sqlstate", None)
