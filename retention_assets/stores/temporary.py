"""Temporary folders that go when their program ends, or after it was killed.

A program locks a file in its folder as long as it lives. A folder that is older than a day and not locked is abandoned, and the
next program removes it.
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
    """Make a local folder, and remove abandoned ones of the same kind and user."""
    _remove_left(re.compile(rf"retention-{kind}-[a-z0-9_]{{8}}"))
    with tempfile.TemporaryDirectory(prefix=f"retention-{kind}-") as folder, open(f"{folder}/{_LOCK}", "wb") as lock:
        # without file locks nobody else gets one either, and the folder stays
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder


def _remove_left(form: re.Pattern[str]) -> None:
    latest = (now() - _LEFT).timestamp()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if form.fullmatch(entry.name):
                # what can't be removed is left to the next program
                with suppress(OSError):
                    _remove_unless_in_use(entry, latest)


def _remove_unless_in_use(entry: os.DirEntry[str], latest: float) -> None:
    """A folder of an older release has no file to lock, and stays."""
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    with open(os.open(f"{entry.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as lock:
        if os.fstat(lock.fileno()).st_mtime <= latest:
            # raises if it is locked
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path)
