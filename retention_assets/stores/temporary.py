"""Temporary folders that stay neither when their program ends nor when it is killed.

Belongs here: making one, and removing those of the same kind that were left. A program holds a lock on a file in its folder as
long as it lives, be that a second or a week: what is older than a day and locked by nobody is nobody's any more.
Does not belong here: what is in them, and the warehouse (pipeline/warehouse.py).
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from retention_assets.clock import now

_LOCK = ".in-use"
_LEFT = timedelta(days=1)


@contextmanager
def temporary_folder(kind: str) -> Iterator[str]:
    """A folder of this machine. Those of its kind that killed programs of this user have left go first."""
    _remove_left(re.compile(rf"retention-{kind}-[a-z0-9_]{{8}}"))
    with tempfile.TemporaryDirectory(prefix=f"retention-{kind}-") as folder, open(f"{folder}/{_LOCK}", "wb") as lock:
        # Where there are no locks nobody else gets one either, and the folder is left alone.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder


def _remove_left(form: re.Pattern[str]) -> None:
    latest = (now() - _LEFT).timestamp()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if form.fullmatch(entry.name):
                # Whatever can't be removed is left to the next.
                with suppress(OSError):
                    _remove_unless_in_use(entry, latest)


def _remove_unless_in_use(entry: os.DirEntry[str], latest: float) -> None:
    """A folder of an older release has no file to lock, and stays."""
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    with open(os.open(f"{entry.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as lock:
        if os.fstat(lock.fileno()).st_mtime <= latest:
            # Raises where somebody has it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path)
