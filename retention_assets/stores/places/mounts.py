"""Tells on which mount a folder lies, so that a removal never crosses into another, and whether inode numbers last there.

A bind mount of the same disk has the same device, so the mount's number is compared too: from statx, or else from /proc. Where
neither works, the device alone decides.
"""

import ctypes
import os
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from retention_assets.settings.places import mount_lines

# From <linux/stat.h>: query the descriptor itself for its mount number; offsets of the mask, the device numbers and the mount
# number in the answer.
_AT_EMPTY_PATH = 0x1000
_MOUNT_NUMBER = 0x1000
_SIZE = 256
_ANSWER = struct.Struct("=I132xIIQ")


class Mount(NamedTuple):
    """Device of a folder, and the number of the mount it was reached by, if known."""

    device: int
    number: int | None


# File systems whose inode numbers survive a reboot and are equal on every machine. In memory, overlay and FUSE they may change.
_LASTING = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4"}


@lru_cache(maxsize=128)
def keeps_numbers(mount: Mount) -> bool:
    kinds = {line.partition(" ")[0]: line.partition(" - ")[2].partition(" ")[0] for line in mount_lines()}
    return kinds.get(str(mount.number)) in _LASTING


def mount_of(descriptor: int) -> Mount:
    found = _ask_statx(descriptor)
    return found or Mount(os.fstat(descriptor).st_dev, _ask_proc(descriptor))


@lru_cache(maxsize=1)
def _statx() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def _ask_statx(descriptor: int) -> Mount | None:
    if (statx := _statx()) is None:
        return None
    answer = ctypes.create_string_buffer(_SIZE)
    if statx(descriptor, b"", _AT_EMPTY_PATH, _MOUNT_NUMBER, answer) != 0:
        return None
    mask, major, minor, number = _ANSWER.unpack_from(answer)
    # an old kernel leaves the number out of its answer
    return Mount(os.makedev(major, minor), number) if mask & _MOUNT_NUMBER else None


def _ask_proc(descriptor: int) -> int | None:
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.partition(":")[2]) for line in lines if line.startswith("mnt_id:")), None)
