"""Failures outside of this program, as a sentence with a remedy: disks, permissions, and the database of the ledger.

They are recognised by the codes of systems and drivers. Any other is a fault of the program, whose trace somebody has to
read. Failures of stores carry their names (stores/protocol.py).
"""

import errno
import re
import sqlite3
from collections.abc import Iterator

from retention_assets.errors import BadInput, Refused

_FULL = "no space is left. Make room, then run again: the run finishes what was begun"
_DENIED = "access is denied. Let the user of this program write there, or name another place in the settings"
_READ_ONLY = "the file system is read-only. Mount it for writing, or name another place in the settings"
_BUSY = (
    "the ledger is busy: another program is writing to it. Run again when that is done. If no run is active, end the "
    "program that holds the lock"
)
_AWAY = (
    "the ledger can't be reached or written. Check the key ledger in the settings, and that its database is up. Then run "
    "again: the run finishes what was begun"
)
# SQLite names no file; without its folder it can't write either
_READ_ONLY_LEDGER = (
    "the file of the ledger, or its folder, is read-only. Let the user of this program write both, or name another place under"
    " the key ledger"
)
_SYSTEM = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EACCES: _DENIED, errno.EPERM: _DENIED, errno.EROFS: _READ_ONLY,
}  # fmt: skip
# Spark hands over failures of its programs as text.
_MESSAGES = {
    re.compile("No space left on device|Disk quota exceeded|database or disk is full"): _FULL,
    re.compile("Permission denied"): _DENIED,
    re.compile("Read-only file system"): _READ_ONLY,
    re.compile("database is locked|database table is locked"): _BUSY,
}
# every other database error but a missing privilege is a fault of this program
_LACKS_RIGHT = "42501"
# SQLite by the primary code, PostgreSQL by its SQLSTATE: no space, no privilege, read-only file.
_DATABASE: dict[str | int | None, str] = {
    sqlite3.SQLITE_FULL: _FULL, "53100": _FULL,
    sqlite3.SQLITE_PERM: _DENIED, _LACKS_RIGHT: _DENIED,
    sqlite3.SQLITE_READONLY: _READ_ONLY_LEDGER, "25006": _READ_ONLY,
}  # fmt: skip
_DATABASE_ERRORS = {"OperationalError", "InterfaceError", "InternalError"}


def failure_text(fault: BaseException) -> str | None:
    """Describe a failure, or its cause; None where this program is at fault."""
    for cause in _causes(fault):
        if isinstance(cause, Refused | BadInput):
            return str(cause)
        of_system = _SYSTEM.get(cause.errno or 0) if isinstance(cause, OSError) else None
        is_spark = type(cause).__module__.partition(".")[0] in ("py4j", "pyspark")
        if sentence := of_system or _database_failure(cause) or (_failure_in(str(cause)) if is_spark else None):
            return f"cannot go on: {sentence} ({_first_line(cause)})."
    return None


def _causes(fault: BaseException | None) -> Iterator[BaseException]:
    while fault is not None:
        yield fault
        fault = fault.__cause__ or (None if fault.__suppress_context__ else fault.__context__)


def _database_failure(fault: BaseException) -> str | None:
    if type(fault).__name__ not in {*_DATABASE_ERRORS, "ProgrammingError"} or not isinstance(fault, Exception):
        return None
    from retention_assets.sql.errors import code_of, is_conflict, is_lock_timeout

    if type(fault).__name__ not in _DATABASE_ERRORS:
        return _DATABASE[_LACKS_RIGHT] if code_of(fault) == _LACKS_RIGHT else None
    if is_conflict(fault) or is_lock_timeout(fault):
        return _BUSY
    return _DATABASE.get(code_of(fault)) or _failure_in(str(fault)) or _AWAY


def _failure_in(text: str) -> str | None:
    return next((sentence for pattern, sentence in _MESSAGES.items() if pattern.search(text)), None)


def _first_line(fault: BaseException) -> str:
    from retention_assets.settings.places import mask_secrets
    from retention_assets.settings.secrets import masked
    from retention_assets.sql.errors import driver_message

    # The number of such an error is part of its message.
    message = mask_secrets(masked(str(fault))) if isinstance(fault, OSError) else driver_message(fault)
    return " ".join(message.split()).rstrip(".")
