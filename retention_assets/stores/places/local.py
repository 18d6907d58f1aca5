"""Places on disks.

Everything walks down from the root by descriptors of folders, follows no symlink and enters no other mount, so swapping a
folder for a symlink or mounting something in it leads nowhere. Disks have no conditional deletion: a file is compared and
removed through the descriptor of its folder, microseconds apart.

A bind mount of the same disk has the same device, so the mount's number is compared too: from statx, or else from /proc. Where
neither works, the device alone decides.

Setting aside renames into a folder of its own in the trash, `<root>/.retention-trash/<plan>/<mark>`, and looks again there: a
thing that was written to in between moves back. Of folders, `<mark>.json` beside it notes the place and what was there. The
time of a mark's folder is that of the move: what changed later does not come back. Both times of a folder agree until the trash
is copied; then neither these nor inodes are compared.
"""

import ctypes
import errno
import json
import os
import re
import secrets
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import Identity, mount_lines
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.places.moves import move_new, opener, rename_new, system_call
from retention_assets.stores.places.protocol import (
    SEPARATOR,
    TRASH,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderChanged,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    Place,
    RemovedFolder,
    check_origin,
    is_own_file,
    is_plain_key,
)
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_MOUNTED = "Check that the disk is mounted. The sweep records nothing as gone"
_PROBE = re.compile(r"\.retention-clock-[0-9a-f]{32}")
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
# Creates a file without a name, which disappears with its descriptor even after a crash. Not available everywhere.
_NAMELESS: int = getattr(os, "O_TMPFILE", 0)
_ASIDE = re.compile(r"[0-9]+/[0-9]+")
# nanoseconds, at most, between the times that one rename gives to a file and to its new folder
_ONE_CALL = 100_000_000
_NO_UNDO = "Leave `undo` out where a file system refuses that, as overlays do and mounts within the root."
_NOT_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
# names on a level that is split into shares; each share reads all names above it
_ENOUGH = 4_000
# seconds to delete a file of a local disk; network disks take longer
_QUICK = 0.002
# files of one folder per piece of work
_PIECE = 128
# File systems whose inode numbers survive a reboot and are equal on every machine. In memory, overlay and FUSE they may change.
_LASTING = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "nfs", "nfs4"}
# From <linux/stat.h>: query the descriptor itself for its birth and its mount number; offsets of the mask, the time of birth,
# the device numbers and the mount number in the answer.
_AT_EMPTY_PATH = 0x1000
_BIRTH = 0x800
_MOUNT_NUMBER = 0x1000
_SIZE = 256
_ANSWER = struct.Struct("=I76xqI44xIIQ")
# bytes that are freed with what is at a path from the root, None if nothing is; raises OSError or Refused for what may not move
Look = Callable[[Folder], int | None]


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
class LocalPlace(Place):
    """A folder of a disk. Its regular files are the objects; symlinks, sockets and folders are none."""

    root: str
    # files and folders at which a removal stops
    guarded: frozenset[Identity] = frozenset()

    may_hide = False

    def clock(self) -> datetime:
        """Time of a file just written, as the disk may be another machine's; this machine's time if it is not writable."""
        with self._opened() as root:
            try:
                return from_micros(_time_of_new_file(root) // 1000)
            except OSError as fault:
                if fault.errno in _NOT_WRITABLE:
                    return now()
                raise

    def number(self) -> str | None:
        """Identify the folder, also once it is renamed: a copy has another inode or birth. None where that can't be told."""
        with suppress(OSError, Refused), self._opened() as root:
            facts = _ask_statx(root, _BIRTH) if keeps_numbers(mount_of(root)) else None
            # images of disks may be made without times
            return f"{os.fstat(root).st_ino}-{facts[1]}.{facts[2]:09}" if facts and facts[1] else None
        return None

    def shares(self, wanted: int) -> Sequence[TreeShare]:
        with self._opened() as root:
            folders, level = [""], 0
            while folders:
                names, below = 0, list[str]()
                for prefix in folders:
                    with suppress(FileNotFoundError, _NoFolder), self._below(root, _segments(prefix)) as (opened, _):
                        for entry in self._scan(opened[-1], prefix):
                            names += 1
                            if entry.is_dir(follow_symlinks=False) and not _is_ours(prefix + entry.name):
                                below.append(f"{prefix}{entry.name}{SEPARATOR}")
                            if names > _ENOUGH:
                                return [TreeShare(level, number, max(1, wanted)) for number in range(max(1, wanted))]
                folders, level = below, level + 1
        return [TreeShare(0, 0, 1)]

    def entries(self, share: TreeShare) -> Iterator[Entry]:
        """Raises Refused for an unreadable folder and for a mount below the root. A file that disappears is left out."""

        def is_entered(above: _OpenFolder, name: str) -> bool:
            is_ours = above.level == 0 and _is_ours(name)
            return not is_ours and (share.of == 1 or above.level != share.level or share.has(above.prefix + name))

        with self._opened() as root, self._naming(""):
            for folder, entry in self._walk(root, mount_of(root), "", is_entered, strictly=False):
                if entry is None or not entry.is_file(follow_symlinks=False):
                    continue
                key = folder.prefix + entry.name
                is_elsewhere = share.of > 1 and folder.level <= share.level and not share.has(key)
                if is_elsewhere or (folder.level == 0 and _is_ours(key)):
                    continue
                # it may be gone since its name was read
                with suppress(FileNotFoundError):
                    yield _entry(key, entry.stat(follow_symlinks=False))

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        plain = [key for key in set(keys) if is_plain_key(key) and not _is_ours(key)]
        with self._opened() as root:
            for folder, inside in _by_folder(plain).items():
                with suppress(FileNotFoundError, _NoFolder), self._below(root, _segments(folder)) as (opened, _):
                    for key in inside:
                        with suppress(FileNotFoundError), self._naming(key):
                            status = os.stat(key.rpartition(SEPARATOR)[2], dir_fd=opened[-1], follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                yield _entry(key, status)

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        with (
            self._opened() as root,
            suppress(FileNotFoundError, _NoFolder),
            self._below(root, folder, len(folder)) as (opened, _),
        ):
            for entry in self._scan(opened[-1], _prefix(folder)):
                if not folder and _is_ours(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield f"{entry.name}{SEPARATOR}"
                elif entry.is_file(follow_symlinks=False):
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
                if folder and (not is_plain_key(folder) or _is_ours(folder)):
                    raise Refused(f"{quote(folder)} is not a folder of objects on a disk.")
                with self._below(root, _segments(folder)) as ((*_, here), _):
                    return [self._delete_file(here, key, check, permit, pace) for key in keys]
            except FileNotFoundError:
                return [SweptTarget(key, Outcome.ALREADY_GONE) for key in keys]
            except (OSError, Refused) as fault:
                return [SweptTarget(key, Outcome.FAILED, error=error_text(fault)) for key in keys]

        with self._opened() as root, ThreadPoolExecutor(max(1, parallelism)) as threads:
            self._check_holds(root, lambda _: True)
            quick = _QUICK * len(objects) / max(1, len(pieces))
            return [swept for part in map_concurrently(threads, delete_from, pieces, quick) for swept in part]

    def may_keep(self, key: str, version: str | None) -> bool:  # noqa: ARG002 - disks keep no versions
        return False

    def check_root(self) -> None:
        with self._opened() as root:
            self._check_holds(root, lambda name: not _is_ours(name))

    def check_known(self) -> None:
        """Accept also a root in which only the file is left by which it is known."""
        with self._opened() as root:
            self._check_holds(root, lambda _: True)

    def has(self, folder: Folder) -> bool:
        path = os.path.join(self.root, *folder)
        return not _is_ours(_prefix(folder)) and os.path.isdir(path) and not os.path.islink(path)

    def measure(self, folder: Folder) -> FolderNote | None:
        with self._opened() as root:
            return self._measure(root, folder, lambda _: None)

    def _measure(self, root: int, folder: Folder, check: FolderCheck) -> FolderNote | None:
        if not self._is_there(root, folder):
            return None
        with self._below(root, folder, len(folder) - 1) as ((*_, above, top), home):
            note, _, changed = self._look(folder, above, top, home)
            check(note)
            if folder[0] == TRASH:
                _check_untouched(above, *changed)
        return note

    def _is_there(self, root: int, folder: Folder) -> bool:
        if folder[0] != TRASH:
            self._check_holds(root, lambda name: not _is_ours(name))
        return self._status(root, folder) is not None

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete a folder. Everything is looked at before anything goes."""
        with self._opened() as root:
            if not self._is_there(root, folder):
                return None
            with self._below(root, folder, len(folder) - 1) as ((*_, above, top), home):
                note, listed, _ = self._look(folder, above, top, home)
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

    def _look(self, folder: Folder, above: int, top: int, home: Mount) -> tuple[FolderNote, _OpenFolder, tuple[int, str]]:
        # hard links seen inside the folder, per inode
        seen: Counter[Identity] = Counter()
        freed = files = size = newest = 0
        changed = (0, "")
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
            changed = max(changed, (status.st_ctime_ns, here.prefix + entry.name))
            links = status.st_nlink
            if links > 1:
                seen[status.st_dev, status.st_ino] += 1
                links -= seen[status.st_dev, status.st_ino] - 1
            # a file linked from elsewhere frees nothing; one linked several times in here frees its bytes once
            if links == 1 and stat.S_ISREG(status.st_mode):
                freed += status.st_size
        is_known = keeps_numbers(home) and not (folder[0] == TRASH and _is_copied(above))
        # the walk ends with the folder itself
        return FolderNote(freed, files, size, newest, os.fstat(top).st_ino if is_known else None), here, changed

    def _delete_file(self, here: int, key: str, check: ObjectCheck, permit: Permit, pace: DeletionPace) -> SweptTarget:
        def act() -> int | None:
            pace.wait(1)
            permit()
            with suppress(FileNotFoundError):
                freed = self._look_at_file(here, key, check)
                os.unlink(key.rpartition(SEPARATOR)[2], dir_fd=here)
                return freed
            return None

        return _tried(key, act, Outcome.DELETED)

    def _look_at_file(self, here: int, key: str, check: ObjectCheck, is_aside: bool = False) -> int:
        name = key.rpartition(SEPARATOR)[2]
        if not is_plain_key(name) or is_own_file(name):
            raise Refused(f"{quote(key)} is not the name of an object on a disk.")
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{quote(key)} is not a file any more. Remove it by hand.")
        self._check_guarded(name, status)
        entry = _entry(key, status)
        if why := check(entry._replace(inode=None) if is_aside and _is_copied(here) else entry):
            raise FolderChanged(why)
        if is_aside:
            _check_untouched(here, status.st_ctime_ns, key)
        # a file with other hard links frees nothing
        return status.st_size if status.st_nlink == 1 else 0

    def undo_fault(self) -> str | None:
        name = f"{TRASH}-{secrets.token_hex(16)}"
        trash = _trash_path(f"0/{secrets.randbits(63)}", name)
        try:
            with self._opened() as root:
                try:
                    with self._below(root, (name, name), makes=0o700):
                        self._put_aside(root, (name,), trash)
                    if _file_system(mount_of(root)) == "overlay":
                        self._try_old_folder(root, SEPARATOR.join(trash))
                finally:
                    self._clear(root, (name, name))
                    self._clear(root, (*trash, name))
        except Refused as fault:
            return str(fault)
        except OSError as fault:
            return f"Nothing in {self.root} can be set aside: {fault.strerror}. {_NO_UNDO}"
        return None

    def _try_old_folder(self, root: int, target: str) -> None:
        # An overlay moves what is new, and refuses old folders before it sees that the target is not empty: nothing moves.
        if name := next((name for name in self.names_in() if name.endswith(SEPARATOR)), None):
            try:
                os.rename(name, target, src_dir_fd=root, dst_dir_fd=root)
                # unless somebody has emptied the target
                os.rename(target, name, src_dir_fd=root, dst_dir_fd=root)
            except OSError as fault:
                if fault.errno in (errno.EXDEV, errno.EPERM):
                    raise

    def carry_out(
        self, order: Order, due: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        def attempt(thing: DueObject) -> SweptTarget:
            def look(path: Folder) -> int | None:
                with suppress(FileNotFoundError), self._below(root, path[:-1]) as ((*_, here), _):
                    return self._look_at_file(here, thing.key, check, is_aside=path[0] == TRASH)
                return None

            def act() -> int | None:
                if not is_plain_key(thing.key) or _is_ours(thing.key):
                    raise Refused(f"{quote(thing.key)} is not the name of an object on a disk.")
                pace.wait(1)
                path = _segments(thing.key)
                trash = _trash_path(thing.aside, path[-1])
                if order is not Order.DELETE_ASIDE:
                    return self._move(order, root, path, trash, permit, look)
                if (freed := look(trash)) is not None:
                    permit()
                    with self._above(root, trash) as mark:
                        os.unlink(trash[-1], dir_fd=mark)
                self._clear(root, trash[:-1])
                return freed

            return _tried(thing.key, act, order.done)

        with self._opened() as root, ThreadPoolExecutor(max(1, parallelism)) as threads:
            self._check_holds(root, lambda _: True)
            return map_concurrently(threads, attempt, due, _QUICK)

    def carry_out_tree(
        self, order: Order, folder: Folder, aside: str, permit: Permit, check: FolderCheck
    ) -> RemovedFolder | None:
        kept: FolderNote | None = None

        def check_whole(note: FolderNote) -> None:
            if kept and (why := note.change(kept, begun=order.deletes)):
                raise FolderChanged(why)
            check(note)

        def look(path: Folder) -> int | None:
            nonlocal kept
            is_new = order is Order.SET_ASIDE and path[0] != TRASH
            note = self._measure(root, path, check if is_new else check_whole)
            kept = note if is_new else kept
            return note and note.freed

        trash = _trash_path(aside, folder[-1])
        with self._opened() as root:
            origin, kept = self._read_note(root, trash[:-1]) or (folder, kept)
            if order is not Order.DELETE_ASIDE:
                check_origin(origin, folder)
                facts = {"plan": trash[1], "mark": trash[2], "path": SEPARATOR.join(folder)}
                text = lambda: json.dumps({**facts, "note": kept and kept._asdict()})  # noqa: E731
                freed = self._move(order, root, folder, trash, permit, look, text)
                return None if freed is None else RemovedFolder(freed)
            removed = self.delete_tree(_trash_path(aside, "".join(origin[-1:])), permit, check_whole)
            self._clear(root, trash[:-1])
            return removed

    def _read_note(self, root: int, mark: Folder) -> tuple[Folder, FolderNote] | None:
        place = (*mark[:-1], f"{mark[-1]}.json")
        try:
            with self._above(root, place) as above, open(place[-1], "rb", opener=opener(above)) as file:
                # a crash leaves an empty one
                if not (content := file.read()):
                    return None
            facts = json.loads(content)
            return _segments(facts["path"]), FolderNote(**facts["note"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError):
            fault = "is no note of what was set aside. Bring it back, or remove it: then its plan alone says what was there."
            raise Refused(f"{SEPARATOR.join(place)} in {self.root} {fault}") from None

    def _move(
        self, order: Order, root: int, path: Folder, trash: Folder, permit: Permit, look: Look, note: Callable[[], str] = str
    ) -> int | None:
        aside, present = self._status(root, trash), self._status(root, path)
        if aside and present and os.path.samestat(aside, present):
            # a killed restore has linked the file, and its name in the trash is left
            permit()
            with self._above(root, trash) as mark:
                os.unlink(trash[-1], dir_fd=mark)
            aside = None
        if order is Order.RESTORE:
            if look(trash) is not None:
                permit()
                self._put_back(root, path, trash)
            elif look(path) is None:
                raise Refused(f"Neither {SEPARATOR.join(trash)} nor {SEPARATOR.join(path)} is in {self.root}.")
            self._clear(root, trash[:-1])
            return 0
        if aside is None:
            if look(path) is None:
                self._clear(root, trash[:-1])
                return None
            permit()
            self._put_aside(root, path, trash, note())
        try:
            return look(trash)
        except (OSError, Refused):
            try:
                self._put_back(root, path, trash)
            except (OSError, Refused) as fault:
                raise Withheld(f"{SEPARATOR.join(trash)} changed, and can't be put back: {error_text(fault)}") from fault
            self._clear(root, trash[:-1])
            raise

    def _put_aside(self, root: int, path: Folder, trash: Folder, note: str = "") -> None:
        name = path[-1]
        try:
            with self._above(root, path) as above, self._below(root, trash[:-1], makes=0o700) as ((*_, plan, mark), _):
                if names := os.listdir(mark):
                    raise Refused(f"{SEPARATOR.join(trash[:-1])} in {self.root} holds {quote(names[0])}. Move it away.")
                if note:
                    with open(f"{trash[-2]}.json", "wb", buffering=0, opener=opener(plan)) as file:
                        file.write(note.encode())
                if not rename_new(name, above, mark):
                    # nobody else writes into the folder of a mark, which is empty
                    os.rename(name, name, src_dir_fd=above, dst_dir_fd=mark)
        except OSError as fault:
            self._clear(root, trash[:-1])
            name = quote(SEPARATOR.join(path), 200)
            raise Refused(f"{name} can't be moved to {TRASH} in {self.root}: {fault.strerror}. {_NO_UNDO}") from fault

    def _put_back(self, root: int, path: Folder, trash: Folder) -> None:
        try:
            with self._above(root, trash) as mark, self._above(root, path, makes=0o777) as above:
                move_new(path[-1], mark, above)
        except FileExistsError:
            name = quote(SEPARATOR.join(path), 200)
            raise Refused(f"Something else is at {name} in {self.root}. Move it away to restore.") from None

    def _clear(self, root: int, folder: Folder) -> None:
        # with its note, and the folders above it, as far as they are empty; one that stays does no harm
        with suppress(OSError, Refused), self._below(root, folder) as ((*_, above, here), _):
            if not os.listdir(here):
                os.unlink(f"{folder[-1]}.json", dir_fd=above)
        for depth in range(len(folder), 0, -1):
            with suppress(OSError, Refused), self._above(root, folder[:depth]) as above:
                os.rmdir(folder[depth - 1], dir_fd=above)

    def _status(self, root: int, path: Folder) -> os.stat_result | None:
        with suppress(FileNotFoundError), self._above(root, path) as above:
            return os.stat(path[-1], dir_fd=above, follow_symlinks=False)
        return None

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
        # Where the disk counts them, each subfolder is a link to the root; one may be the trash. Listing thousands takes longer
        # than removing one.
        if os.fstat(root).st_nlink > 3:
            return
        with os.scandir(root) as entries:
            if not any(counts(entry.name) for entry in entries):
                raise Refused(f"The root {self.root} is empty. {_NOT_MOUNTED} on it.")

    @contextmanager
    def _above(self, root: int, path: Folder, makes: int | None = None) -> Iterator[int]:
        with self._below(root, path[:-1], len(path) - 1, makes) as ((*_, above), _):
            yield above

    @contextmanager
    def _below(self, root: int, folder: Folder, disks: int = 0, makes: int | None = None) -> Iterator[tuple[list[int], Mount]]:
        # Disks of their own may be mounted at the first `disks` folders. Raises FileNotFoundError if one is not there and there
        # is no mode to make it with.
        opened, home = [root], mount_of(root)
        try:
            for number, name in enumerate(folder):
                if makes is not None:
                    with suppress(FileExistsError):
                        os.mkdir(name, makes, dir_fd=opened[-1])
                is_disk = number < disks and folder[0] != TRASH
                here, home = self._enter(opened[-1], name, _prefix(folder[:number]), home, is_disk)
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
    top = key.partition(SEPARATOR)[0]
    return is_own_file(top) or _PROBE.fullmatch(top) is not None


def _trash_path(aside: str, name: str) -> Folder:
    if not (_ASIDE.fullmatch(aside) and is_plain_key(name)):
        raise Refused(f"{quote(aside)} is no folder of the trash, or {quote(name, 200)} no name in one.")
    return (TRASH, *aside.split(SEPARATOR), name)


def _is_copied(mark: int) -> bool:
    status = os.fstat(mark)
    return status.st_mtime_ns != status.st_ctime_ns


def _check_untouched(mark: int, changed: int, name: str) -> None:
    if not _is_copied(mark) and changed > os.fstat(mark).st_mtime_ns + _ONE_CALL:
        raise FolderChanged(
            f"{quote(name, 200)} was changed after it was set aside, though not in size and time. Compare it with a backup. To "
            "restore it as it is, `touch` the folder of its mark in the trash."
        )


def _tried(key: str, act: Callable[[], int | None], done: Outcome) -> SweptTarget:
    try:
        freed = act()
    except Withheld as fault:
        return SweptTarget(key, Outcome.WITHHELD, error=str(fault))
    except (OSError, Refused) as fault:
        outcome = Outcome.SPARED if isinstance(fault, FolderChanged) else Outcome.FAILED
        return SweptTarget(key, outcome, error=error_text(fault))
    return SweptTarget(key, Outcome.ALREADY_GONE) if freed is None else SweptTarget(key, done, freed)


def _time_of_new_file(folder: int) -> int:
    # mtime in nanoseconds
    name, flags = None, os.O_WRONLY | os.O_CLOEXEC
    try:
        probe = os.open(".", flags | _NAMELESS, 0o600, dir_fd=folder)
    except OSError as fault:
        if fault.errno not in _NOT_NAMELESS:
            raise
        name = f".retention-clock-{secrets.token_hex(16)}"
        probe = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        return os.fstat(probe).st_mtime_ns
    finally:
        os.close(probe)
        if name is not None:
            os.unlink(name, dir_fd=folder)


@lru_cache(maxsize=128)
def keeps_numbers(mount: Mount) -> bool:
    return _file_system(mount) in _LASTING


def _file_system(mount: Mount) -> str | None:
    kinds = {line.partition(" ")[0]: line.partition(" - ")[2].partition(" ")[0] for line in mount_lines()}
    return kinds.get(str(mount.number))


def mount_of(descriptor: int) -> Mount:
    if facts := _ask_statx(descriptor, _MOUNT_NUMBER):
        return Mount(os.makedev(*facts[3:5]), facts[5])
    return Mount(os.fstat(descriptor).st_dev, _ask_proc(descriptor))


def _ask_statx(descriptor: int, fact: int) -> tuple[Any, ...] | None:
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
