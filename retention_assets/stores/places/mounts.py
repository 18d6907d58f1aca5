"""Mounts of disks, and what the kernel tells of an open folder.

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
from retention_assets.stores.places.moves import system_call

# File systems whose inode numbers survive a reboot and are equal on every machine. In memory, overlay and FUSE they may change.
_LASTING = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4"}
# <linux/stat.h>: flags to ask for a descriptor itself, its birth and its mount number; size of the answer, and offsets of its
# mask, the time of birth, the device numbers and the mount number.
_AT_EMPTY_PATH = 0x1000
BIRTH = 0x800
_MOUNT_NUMBER = 0x1000
_SIZE = 256
_ANSWER = struct.Struct("=I76xqI44xIIQ")


class Mount(NamedTuple):
    """Device of a folder, and the number of the mount it was reached by, if known."""

    device: int
    number: int | None


@lru_cache(maxsize=128)
def keeps_numbers(mount: Mount) -> bool:
    return file_system(mount) in _LASTING


def file_system(mount: Mount) -> str | None:
    kinds = {line.partition(" ")[0]: line.partition(" - ")[2].partition(" ")[0] for line in mount_lines()}
    return kinds.get(str(mount.number))


def mount_of(descriptor: int) -> Mount:
    if facts := ask_statx(descriptor, _MOUNT_NUMBER):
        return Mount(os.makedev(*facts[3:5]), facts[5])
    return Mount(os.fstat(descriptor).st_dev, _ask_proc(descriptor))


def ask_statx(descriptor: int, fact: int) -> tuple[Any, ...] | None:
    if (statx := system_call("statx")) is None:
        return None
    answer = ctypes.create_string_buffer(_SIZE)
    if statx(descriptor, b"", _AT_EMPTY_PATH, fact, answer) != 0:
        return None
    facts = _ANSWER.unpack_from(answer)
    # an old kernel leaves the mount's number out of its answer, and many file systems a birth
    return facts if facts[0] & fact else None


def _ask_proc(descriptor: int) -> int | None:
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.partition(":")[2]) for line in lines if line.startswith("mnt_id:")), None)
