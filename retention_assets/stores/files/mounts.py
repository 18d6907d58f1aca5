"""Mounts: on which mount a folder lies, so that a removal never goes from one into another, and whether inodes last there.

Belongs here: asking the kernel. A folder of the same disk that is mounted once more (a bind mount) has the same device, so
the number of the mount is asked for as well: by statx, or else from /proc. Where neither is to be had the device must do.
Does not belong here: what follows from it (delete_local.py).
"""

import ctypes
import os
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from retention_assets.settings.places import mount_lines

# Of <linux/stat.h>: ask about the descriptor itself, for the number of its mount. Of the answer what is known, the two numbers
# of the device, and that of the mount.
_AT_EMPTY_PATH = 0x1000
_MOUNT_NUMBER = 0x1000
_SIZE = 256
_ANSWER = struct.Struct("=I132xIIQ")


class Mount(NamedTuple):
    """The device of a folder, and the number of the mount by which it was reached, if that can be known."""

    device: int
    number: int | None


# Where a folder has the same number after the machine has started anew, and on every machine. In memory, and where file
# systems are laid over each other or translated by a program, it may be another one.
_LASTING = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4"}


@lru_cache(maxsize=128)
def keeps_numbers(mount: Mount) -> bool:
    """Whether the file system of a mount is known to keep the numbers (inodes) of its folders."""
    kinds = {line.partition(" ")[0]: line.partition(" - ")[2].partition(" ")[0] for line in mount_lines()}
    return kinds.get(str(mount.number)) in _LASTING


def mount_of(descriptor: int) -> Mount:
    """The mount on which an open folder lies."""
    found = _ask_statx(descriptor)
    return found or Mount(os.fstat(descriptor).st_dev, _ask_proc(descriptor))


@lru_cache(maxsize=1)
def _statx() -> Any:
    """The function of the C library; None where there is none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def _ask_statx(descriptor: int) -> Mount | None:
    if (statx := _statx()) is None:
        return None
    answer = ctypes.create_string_buffer(_SIZE)
    if statx(descriptor, b"", _AT_EMPTY_PATH, _MOUNT_NUMBER, answer) != 0:
        return None
    mask, major, minor, number = _ANSWER.unpack_from(answer)
    # A kernel that does not know the question leaves it out of its answer.
    return Mount(os.makedev(major, minor), number) if mask & _MOUNT_NUMBER else None


def _ask_proc(descriptor: int) -> int | None:
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.partition(":")[2]) for line in lines if line.startswith("mnt_id:")), None)
