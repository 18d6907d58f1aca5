"""Moves on disks that replace nothing, whatever is written at the same instant."""

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import file_digest
from typing import Any

# from <linux/fs.h>
_NOREPLACE = 1
_NO_FLAGS = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}
# Not all file systems have hard links, and some let nobody but the owner make one.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# permissions, which nobody else gives, of what a move makes in the place of a folder or a file
_FOLDER, _FILE = stat.S_ISVTX, stat.S_ISVTX | 0o600


@cache
def system_call(name: str) -> Any:
    """Return a function of the system's library, None if it has none."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def opener(folder: int, mode: int = 0o600) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)


def rename_new(name: str, source: int, target: int) -> bool:
    """Rename into another open folder. False where nobody can promise that it replaces nothing, as on NFS."""
    rename, as_bytes = system_call("renameat2"), os.fsencode(name)
    if rename is not None and rename(source, as_bytes, target, as_bytes, _NOREPLACE) == 0:
        return True
    if rename is None or (code := ctypes.get_errno()) in _NO_FLAGS:
        return False
    raise OSError(code, os.strerror(code), name)


def move_new(name: str, source: int, target: int) -> None:
    """Move as `rename_new`, or by other calls that replace nothing."""
    if rename_new(name, source, target):
        return
    _remove_unfinished(name, target)
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
            # A rename replaces an empty folder: this one, into which nobody can write.
            os.mkdir(name, _FOLDER, dir_fd=target)
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            return
        try:
            os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except OSError as fault:
            if fault.errno not in _NO_LINKS:
                raise
            _copy_new(name, source, target)
    except OSError:
        _remove_unfinished(name, target)
        raise
    os.unlink(name, dir_fd=source)


def _copy_new(name: str, source: int, target: int) -> None:
    with open(name, "rb", opener=opener(source)) as old, open(name, "x+b", opener=opener(target, _FILE)) as new:
        shutil.copyfileobj(old, new)
        for file in (new, old):
            file.flush()
            file.seek(0)
        os.fsync(new.fileno())
        if file_digest(old, "sha256").digest() != file_digest(new, "sha256").digest():
            raise OSError(errno.EIO, "its copy has other bytes", name)
        status = os.fstat(old.fileno())
        os.utime(new.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fchmod(new.fileno(), stat.S_IMODE(status.st_mode))


def _remove_unfinished(name: str, folder: int) -> None:
    # the source of an unfinished move is still whole
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if mode in (stat.S_IFDIR | _FOLDER, stat.S_IFREG | _FILE):
            (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(name, dir_fd=folder)
