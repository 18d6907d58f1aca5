"""Places on disks.

Everything walks down from the root by descriptors of folders, follows no symlink and enters no other mount, so swapping a
folder for a symlink or mounting something in it leads nowhere. Disks have no conditional deletion: a file is compared and
removed through the descriptor of its folder, microseconds apart.

A bind mount of the same disk has the same device, so the mount's number is compared too: from statx, or else from /proc. Where
neither works, the device alone decides.
"""

import ctypes
import errno
import os
import re
import secrets
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import Identity, mount_lines
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.places.protocol import (
    SEPARATOR,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    RemovedFolder,
    is_own_file,
    is_plain_key,
)
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_MOUNTED = "Check that the disk is mounted. The sweep records nothing as gone"
_PROBE = re.compile(r"\.retention-clock-[0-9a-f]{32}")
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
# Creates a file without a name, which disappears with its descriptor even after a crash. Not available everywhere.
_NAMELESS: int | None = getattr(os, "O_TMPFILE", None)
_NOT_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
# names on a level that is split into shares; each share reads all names above it
_ENOUGH = 4_000
# seconds to delete a file of a local disk; network disks take longer
_QUICK = 0.002
# files of one folder per piece of work
_PIECE = 128
# File systems whose inode numbers survive a reboot and are equal on every machine. In memory, overlay and FUSE they may change.
_LASTING = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4"}
# From <linux/stat.h>: query the descriptor itself for its mount number; offsets of the mask, the device numbers and the mount
# number in the answer.
_AT_EMPTY_PATH = 0x1000
_MOUNT_NUMBER = 0x1000
_SIZE = 256
_ANSWER = struct.Struct("=I132xIIQ")


@dataclass(frozen=True)
class TreeShare:
    """Every `of`-th name on one level of the tree with everything below it, and every `of`-th file above that level.

    A hash selects the names: this needs no list of folders, and stays complete while folders come and go.
    """

    level: int
    number: int
    of: int

    def has(self, key: str) -> bool:
        return zlib.crc32(os.fsencode(key)) % self.of == self.number


class Mount(NamedTuple):
    """Device of a folder, and the number of the mount it was reached by, if known."""

    device: int
    number: int | None


@dataclass
class _OpenFolder:
    descriptor: int
    # path, which ends in a separator; empty for a root
    prefix: str
    level: int
    # None before it was listed
    folders: list[str] | None = None
    entered: int = 0
    # only where they are to be deleted
    files: list[str] = field(default_factory=list)


class _NoFolder(Refused):
    """Something else stands in the place of a folder."""


@dataclass(frozen=True)
class LocalPlace:
    """A folder of a disk. Its regular files are the objects; symlinks, sockets and folders are none."""

    root: str
    # files and folders at which a removal stops
    guarded: frozenset[Identity] = frozenset()

    may_hide = False

    def clock(self) -> datetime:
        """Time of a file just written, as the disk may be another machine's; this machine's time if it is not writable."""
        with self._opened() as root:
            try:
                written = _time_of_nameless(root)
                return from_micros((_time_of_named(root) if written is None else written) // 1000)
            except OSError as fault:
                if fault.errno in _NOT_WRITABLE:
                    return now()
                raise

    def shares(self, wanted: int) -> Sequence[TreeShare]:
        with self._opened() as root:
            home, folders, level = mount_of(root), [""], 0
            while folders:
                names, below = 0, list[str]()
                for prefix in folders:
                    with suppress(FileNotFoundError, _NoFolder), self._below(root, _segments(prefix), home) as (opened, _):
                        for entry in self._scan(opened[-1], prefix):
                            names += 1
                            if entry.is_dir(follow_symlinks=False):
                                below.append(f"{prefix}{entry.name}{SEPARATOR}")
                            if names > _ENOUGH:
                                return [TreeShare(level, number, max(1, wanted)) for number in range(max(1, wanted))]
                folders, level = below, level + 1
        return [TreeShare(0, 0, 1)]

    def entries(self, share: TreeShare) -> Iterator[Entry]:
        """Raises Refused for an unreadable folder and for a mount below the root. A file that disappears is left out."""

        def is_entered(above: _OpenFolder, name: str) -> bool:
            return share.of == 1 or above.level != share.level or share.has(above.prefix + name)

        with self._opened() as root, self._naming(""):
            for folder, entry in self._walk(root, mount_of(root), "", is_entered, strictly=False):
                if entry is None or not entry.is_file(follow_symlinks=False):
                    continue
                key = folder.prefix + entry.name
                is_elsewhere = share.of > 1 and folder.level <= share.level and not share.has(key)
                if is_elsewhere or (folder.level == 0 and _is_ours(key)):
                    continue
                try:
                    yield _entry(key, entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    # deleted after its name was read
                    continue

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        plain = [key for key in set(keys) if is_plain_key(key) and not _is_ours(key)]
        with self._opened() as root:
            home = mount_of(root)
            for folder, inside in _by_folder(plain).items():
                with suppress(FileNotFoundError, _NoFolder), self._below(root, _segments(folder), home) as (opened, _):
                    for key in inside:
                        with suppress(FileNotFoundError), self._naming(key):
                            status = os.stat(key.rpartition(SEPARATOR)[2], dir_fd=opened[-1], follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                yield _entry(key, status)

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        with (
            self._opened() as root,
            suppress(FileNotFoundError, _NoFolder),
            self._below(root, folder, mount_of(root), len(folder)) as (opened, _),
        ):
            for entry in self._scan(opened[-1], _prefix(folder)):
                if entry.is_dir(follow_symlinks=False):
                    yield f"{entry.name}{SEPARATOR}"
                elif entry.is_file(follow_symlinks=False) and (folder or not _is_ours(entry.name)):
                    yield entry.name

    def delete(
        self, objects: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Delete files. Folders that become empty stay: a writer may be about to use one."""
        folders = _by_folder(due.key for due in objects).items()
        pieces = [(folder, keys[at : at + _PIECE]) for folder, keys in folders for at in range(0, len(keys), _PIECE)]

        def delete_from(piece: tuple[str, Sequence[str]]) -> list[SweptTarget]:
            folder, keys = piece
            try:
                if folder and not is_plain_key(folder):
                    raise Refused(f"{quote(folder)} is not a folder of objects on a disk.")
                with ExitStack() as opened:
                    here: int | None = None
                    with suppress(FileNotFoundError):
                        (*_, here), _ = opened.enter_context(self._below(root, _segments(folder), home))
                    return [self._delete_file(here, key, check, permit, pace) for key in keys]
            except (OSError, Refused) as fault:
                return [SweptTarget(key, Outcome.FAILED, error=error_text(fault)) for key in keys]

        with self._opened() as root, ThreadPoolExecutor(max(1, parallelism)) as threads:
            self._check_holds(root, lambda _: True)
            home = mount_of(root)
            quick = _QUICK * len(objects) / max(1, len(pieces))
            return [swept for part in map_concurrently(threads, delete_from, pieces, quick) for swept in part]

    def may_keep(self, key: str, version: str | None) -> bool:  # noqa: ARG002 - disks keep no versions
        return False

    def check_root(self) -> None:
        with self._opened() as root:
            self._check_holds(root, lambda name: not is_own_file(name))

    def check_known(self) -> None:
        """Accept also a root in which only the file is left by which it is known."""
        with self._opened() as root:
            self._check_holds(root, lambda _: True)

    def has(self, folder: Folder) -> bool:
        path = os.path.join(self.root, *folder)
        return os.path.isdir(path) and not os.path.islink(path)

    def measure(self, folder: Folder) -> FolderNote | None:
        with self._opened_tree(folder) as tree:
            return None if tree is None else self._look(folder, *tree[1:])[0]

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete a folder. Everything is looked at before anything goes."""
        with self._opened_tree(folder) as tree:
            if tree is None:
                return None
            above, top, home = tree
            note, listed = self._look(folder, top, home)
            check(note)
            for here, entry in self._walk(top, home, _prefix(folder), listed=listed):
                if entry is not None:
                    if not entry.is_dir(follow_symlinks=False):
                        here.files.append(entry.name)
                    continue
                for name in here.files:
                    permit()
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=here.descriptor)
                for name in here.folders or ():
                    permit()
                    with suppress(FileNotFoundError):
                        os.rmdir(name, dir_fd=here.descriptor)
            permit()
            os.rmdir(folder[-1], dir_fd=above)
        return RemovedFolder(note.freed)

    def _look(self, folder: Folder, top: int, home: Mount) -> tuple[FolderNote, _OpenFolder]:
        # hard links seen inside the folder, per inode
        seen: Counter[Identity] = Counter()
        freed = files = size = newest = 0
        for here, entry in self._walk(top, home, _prefix(folder)):
            # folders are checked as they are entered
            if entry is None or entry.is_dir(follow_symlinks=False):
                continue
            here.files.append(entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            self._check_guarded(entry.name, status)
            files, size, newest = files + 1, size + status.st_size, max(newest, status.st_mtime_ns)
            links = status.st_nlink
            if links > 1:
                seen[status.st_dev, status.st_ino] += 1
                links -= seen[status.st_dev, status.st_ino] - 1
            # a file linked from elsewhere frees nothing; one linked several times in here frees its bytes once
            if links == 1 and stat.S_ISREG(status.st_mode):
                freed += status.st_size
        inode = os.fstat(top).st_ino if keeps_numbers(home) else None
        # the walk ends with the folder itself
        return FolderNote(freed, files, size, newest, inode), here

    def _delete_file(self, here: int | None, key: str, check: ObjectCheck, permit: Permit, pace: DeletionPace) -> SweptTarget:
        name = key.rpartition(SEPARATOR)[2]
        try:
            if here is None:
                return SweptTarget(key, Outcome.ALREADY_GONE)
            if not is_plain_key(name) or is_own_file(name):
                raise Refused(f"{quote(key)} is not the name of an object on a disk.")
            pace.wait(1)
            permit()
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise Refused(f"{quote(key)} is not a file any more. Remove it by hand.")
            self._check_guarded(name, status)
            if why := check(_entry(key, status)):
                return SweptTarget(key, Outcome.SPARED, error=why)
            os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            return SweptTarget(key, Outcome.ALREADY_GONE)
        except Withheld as fault:
            return SweptTarget(key, Outcome.WITHHELD, error=str(fault))
        except (OSError, Refused) as fault:
            return SweptTarget(key, Outcome.FAILED, error=error_text(fault))
        # a file with other hard links frees nothing
        return SweptTarget(key, Outcome.DELETED, status.st_size if status.st_nlink == 1 else 0)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            root = os.open(self.root, _FOLDER)
        except FileNotFoundError:
            raise Refused(f"The root {self.root} does not exist. {_NOT_MOUNTED} without it.") from None
        except OSError as fault:
            raise Refused(f"The root {self.root} can't be opened: {fault.strerror}. {_NOT_MOUNTED} without it.") from None
        try:
            yield root
        finally:
            os.close(root)

    def _check_holds(self, root: int, counts: Callable[[str], bool]) -> None:
        # Where the disk counts them, each subfolder is a link to the root. Listing thousands takes longer than removing one.
        if os.fstat(root).st_nlink > 2:
            return
        with os.scandir(root) as entries:
            if not any(counts(entry.name) for entry in entries):
                raise Refused(f"The root {self.root} is empty. {_NOT_MOUNTED} on it.")

    @contextmanager
    def _opened_tree(self, folder: Folder) -> Iterator[tuple[int, int, Mount] | None]:
        # the folder above, the folder itself and the mount it is on; None if it is not there
        with self._opened() as root, ExitStack() as stack:
            self._check_holds(root, lambda name: not is_own_file(name))
            tree = None
            with suppress(FileNotFoundError):
                (*_, above, here), home = stack.enter_context(self._below(root, folder, mount_of(root), len(folder) - 1))
                tree = above, here, home
            yield tree

    @contextmanager
    def _below(self, top: int, folder: Folder, home: Mount, disks: int = 0) -> Iterator[tuple[list[int], Mount]]:
        # Disks of their own may be mounted at the first `disks` folders. Raises FileNotFoundError if one is not there.
        opened = [top]
        try:
            for number, name in enumerate(folder):
                here, home = self._enter(opened[-1], name, _prefix(folder[:number]), home, number < disks)
                opened.append(here)
            yield opened, home
        finally:
            for descriptor in opened[1:]:
                os.close(descriptor)

    def _enter(self, above: int, name: str, prefix: str, home: Mount, disks: bool = False) -> tuple[int, Mount]:
        try:
            here = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except FileNotFoundError:
            raise
        except OSError as fault:
            # Linux answers ENOTDIR for a symlink as well, other systems ELOOP or EMLINK
            if fault.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
                raise self._unreadable(prefix + name, fault) from None
            mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
            kind = "a symlink, which could lead out of the root" if stat.S_ISLNK(mode) else "no folder"
            raise _NoFolder(f"{name} is {kind}. Put the folder itself there, or remove it by hand.") from None
        try:
            # a second mount of the same disk would be a second name of another folder
            if (mount := mount_of(here)) != home and not (disks and mount.device != home.device):
                raise Refused(
                    f"Something is mounted at {quote(prefix + name, 200)} in the root {self.root}, and other mounts are "
                    "never listed or deleted. Unmount it, give it its own store, or remove the folder by hand."
                )
            self._check_guarded(name, os.fstat(here))
        except BaseException:
            os.close(here)
            raise
        return here, mount

    def _check_guarded(self, name: str, status: os.stat_result) -> None:
        if (status.st_dev, status.st_ino) in self.guarded:
            raise Refused(
                f"{quote(name)} belongs to retention itself or to another store of the settings, so nothing is deleted "
                "there. Move it out of this store's data."
            )

    def _walk(
        self,
        top: int,
        home: Mount,
        prefix: str,
        is_entered: Callable[[_OpenFolder, str], bool] = lambda *_: True,
        strictly: bool = True,
        listed: _OpenFolder | None = None,
    ) -> Iterator[tuple[_OpenFolder, os.DirEntry[str] | None]]:
        # Every entry, and each folder with None once all below it was walked. Unless `strictly`, a folder that is gone or that
        # something else replaced is left out. The entries of `listed`, known from an earlier walk, are not listed again.
        first = _OpenFolder(os.dup(top), prefix, 0)
        pending = [replace(listed, descriptor=first.descriptor, entered=0) if listed else first]
        try:
            while pending:
                here = pending[-1]
                if here.folders is None:
                    here.folders = []
                    for entry in self._scan(here.descriptor, here.prefix):
                        if entry.is_dir(follow_symlinks=False):
                            here.folders.append(entry.name)
                        yield here, entry
                elif here.entered < len(here.folders):
                    name = here.folders[here.entered]
                    here.entered += 1
                    if not is_entered(here, name):
                        continue
                    try:
                        below, _ = self._enter(here.descriptor, name, here.prefix, home)
                    except (FileNotFoundError, _NoFolder):
                        if strictly:
                            raise
                        continue
                    pending.append(_OpenFolder(below, f"{here.prefix}{name}{SEPARATOR}", here.level + 1))
                else:
                    yield here, None
                    os.close(pending.pop().descriptor)
        finally:
            for folder in pending:
                os.close(folder.descriptor)

    def _scan(self, folder: int, prefix: str) -> Iterator[os.DirEntry[str]]:
        with self._naming(prefix), os.scandir(folder) as entries:
            yield from entries

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as fault:
            raise self._unreadable(path, fault) from None

    def _unreadable(self, path: str, fault: OSError) -> Refused:
        return Refused(
            f"{quote(path, 200) if path else 'The root'} of {self.root} can't be listed: {fault.strerror}. Let the user who "
            "runs retention read it, or move it out of the root."
        )


def _entry(key: str, status: os.stat_result) -> Entry:
    return Entry(key, status.st_size, status.st_mtime_ns, inode=status.st_ino, links=status.st_nlink)


def _by_folder(keys: Iterable[str]) -> dict[str, list[str]]:
    by_folder: dict[str, list[str]] = {}
    for key in keys:
        by_folder.setdefault(key.rpartition(SEPARATOR)[0], []).append(key)
    return by_folder


def _segments(path: str) -> Folder:
    return tuple(filter(None, path.split(SEPARATOR)))


def _prefix(folder: Folder) -> str:
    return SEPARATOR.join((*folder, ""))


def _is_ours(key: str) -> bool:
    return is_own_file(key) or _PROBE.fullmatch(key) is not None


def _time_of_nameless(folder: int) -> int | None:
    # mtime in nanoseconds; None where unnamed files are not supported
    if _NAMELESS is None:
        return None
    try:
        probe = os.open(".", os.O_WRONLY | _NAMELESS | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as fault:
        if fault.errno in _NOT_NAMELESS:
            return None
        raise
    try:
        return os.fstat(probe).st_mtime_ns
    finally:
        os.close(probe)


def _time_of_named(folder: int) -> int:
    name = f".retention-clock-{secrets.token_hex(16)}"
    probe = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        return os.fstat(probe).st_mtime_ns
    finally:
        os.close(probe)
        os.unlink(name, dir_fd=folder)


@lru_cache(maxsize=128)
def keeps_numbers(mount: Mount) -> bool:
    kinds = {line.partition(" ")[0]: line.partition(" - ")[2].partition(" ")[0] for line in mount_lines()}
    return kinds.get(str(mount.number)) in _LASTING


def mount_of(descriptor: int) -> Mount:
    mount = _ask_statx(descriptor)
    return mount or Mount(os.fstat(descriptor).st_dev, _ask_proc(descriptor))


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
