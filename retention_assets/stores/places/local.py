"""Places on disks.

Disks have no conditional deletion: a file is compared and removed through the descriptor of its folder, microseconds apart.
"""

import errno
import json
import os
import secrets
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import Identity
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.places import mounts
from retention_assets.stores.places.disk_root import DiskRoot, NoFolder, OpenFolder, is_ours, prefix_of, segments_of
from retention_assets.stores.places.disk_trash import NO_UNDO, DiskTrash, check_untouched, is_copied, trash_path
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

_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
# Creates a file without a name, which disappears with its descriptor even after a crash. Not available everywhere.
_NAMELESS: int = getattr(os, "O_TMPFILE", 0)
_NOT_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
# names on a level that is split into shares; each share reads all names above it
_ENOUGH = 4_000
# seconds to delete a file of a local disk; network disks take longer
_QUICK = 0.002
# files of one folder per piece of work
_PIECE = 128


@dataclass(frozen=True)
class TreeShare:
    """Share, one of `count`, of the names on one level of the tree, with everything below them, and of the files above it.

    A hash selects the names: this needs no list of folders, and stays complete while folders come and go.
    """

    level: int
    number: int
    count: int

    def has(self, key: str) -> bool:
        return zlib.crc32(os.fsencode(key)) % self.count == self.number


@dataclass(frozen=True)
class LocalPlace(DiskRoot, Place):
    """A folder of a disk. Its regular files are the objects; symlinks, sockets and folders are none."""

    def clock(self) -> datetime:
        """Time of a file just written, as the disk may be another machine's; this machine's time if it is not writable."""
        with self.open_root() as root:
            try:
                return from_micros(_time_of_new_file(root) // 1000)
            except OSError as fault:
                if fault.errno in _NOT_WRITABLE:
                    return now()
                raise

    def number(self) -> str | None:
        """Identify the folder, also once it is renamed: a copy has another inode or birth. None where that can't be told."""
        with suppress(OSError, Refused), self.open_root() as root:
            facts = mounts.ask_statx(root, mounts.BIRTH) if mounts.keeps_numbers(mounts.mount_of(root)) else None
            # images of disks may be made without times
            return f"{os.fstat(root).st_ino}-{facts[1]}.{facts[2]:09}" if facts and facts[1] else None
        return None

    def shares(self, wanted: int) -> Sequence[TreeShare]:
        with self.open_root() as root:
            folders, level = [""], 0
            while folders:
                names, next_level = 0, list[str]()
                for prefix in folders:
                    with suppress(FileNotFoundError, NoFolder), self.enter_path(root, segments_of(prefix)) as (opened, _):
                        for entry in self.scan(opened[-1], prefix):
                            names += 1
                            if entry.is_dir(follow_symlinks=False) and not is_ours(prefix + entry.name):
                                next_level.append(f"{prefix}{entry.name}{SEPARATOR}")
                            if names > _ENOUGH:
                                return [TreeShare(level, number, max(1, wanted)) for number in range(max(1, wanted))]
                folders, level = next_level, level + 1
        return [TreeShare(0, 0, 1)]

    def entries(self, share: TreeShare) -> Iterator[Entry]:
        """Raises Refused for an unreadable folder and for a mount below the root. A file that disappears is left out."""

        def is_entered(parent: OpenFolder, name: str) -> bool:
            if parent.level == 0 and is_ours(name):
                return False
            return share.count == 1 or parent.level != share.level or share.has(parent.prefix + name)

        with self.open_root() as root, self.naming(""):
            for folder, entry in self.walk(root, mounts.mount_of(root), "", is_entered, strictly=False):
                if entry is None or not entry.is_file(follow_symlinks=False):
                    continue
                key = folder.prefix + entry.name
                is_elsewhere = share.count > 1 and folder.level <= share.level and not share.has(key)
                if is_elsewhere or (folder.level == 0 and is_ours(key)):
                    continue
                # it may be gone since its name was read
                with suppress(FileNotFoundError):
                    yield _entry(key, entry.stat(follow_symlinks=False))

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        plain = [key for key in set(keys) if is_plain_key(key) and not is_ours(key)]
        with self.open_root() as root:
            for folder, keys_in_folder in _by_folder(plain).items():
                with suppress(FileNotFoundError, NoFolder), self.enter_path(root, segments_of(folder)) as (opened, _):
                    for key in keys_in_folder:
                        with suppress(FileNotFoundError), self.naming(key):
                            status = os.stat(key.rpartition(SEPARATOR)[2], dir_fd=opened[-1], follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                yield _entry(key, status)

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        with (
            self.open_root() as root,
            suppress(FileNotFoundError, NoFolder),
            self.enter_path(root, folder, len(folder)) as (opened, _),
        ):
            for entry in self.scan(opened[-1], prefix_of(folder)):
                if not folder and is_ours(entry.name):
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
        pieces = [(folder, keys[begin : begin + _PIECE]) for folder, keys in folders for begin in range(0, len(keys), _PIECE)]

        def delete_from(piece: tuple[str, Sequence[str]]) -> list[SweptTarget]:
            folder, keys = piece
            try:
                if folder and (not is_plain_key(folder) or is_ours(folder)):
                    raise Refused(f"{quote(folder)} is not a folder of objects on a disk.")
                with self.enter_path(root, segments_of(folder)) as ((*_, here), _):
                    return [self._delete_file(here, key, check, permit, pace) for key in keys]
            except FileNotFoundError:
                return [SweptTarget(key, Outcome.ALREADY_GONE) for key in keys]
            except (OSError, Refused) as fault:
                return [SweptTarget(key, Outcome.FAILED, error=error_text(fault)) for key in keys]

        with self.open_root() as root, ThreadPoolExecutor(max(1, parallelism)) as threads:
            self.check_holds(root, lambda _: True)
            quick = _QUICK * len(objects) / max(1, len(pieces))
            return [swept for part in map_concurrently(threads, delete_from, pieces, quick) for swept in part]

    def may_keep(self, key: str, version: str | None) -> bool:  # noqa: ARG002 - disks keep no versions
        return False

    def check_root(self) -> None:
        with self.open_root() as root:
            self.check_holds(root, lambda name: not is_ours(name))

    def check_known(self) -> None:
        """Accept also a root that holds nothing but its identity file."""
        with self.open_root() as root:
            self.check_holds(root, lambda _: True)

    def has(self, folder: Folder) -> bool:
        path = os.path.join(self.root, *folder)
        return not is_ours(prefix_of(folder)) and os.path.isdir(path) and not os.path.islink(path)

    def measure(self, folder: Folder) -> FolderNote | None:
        with self.open_root() as root:
            return self._measure(root, folder, lambda _: None)

    def _measure(self, root: int, folder: Folder, check: FolderCheck) -> FolderNote | None:
        if not self._is_there(root, folder):
            return None
        with self.enter_path(root, folder, len(folder) - 1) as ((*_, parent, top), home):
            note, _, changed = self._look(folder, parent, top, home)
            check(note)
            if folder[0] == TRASH:
                check_untouched(parent, *changed)
        return note

    def _is_there(self, root: int, folder: Folder) -> bool:
        if folder[0] != TRASH:
            self.check_holds(root, lambda name: not is_ours(name))
        return self.status_of(root, folder) is not None

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete a folder. Everything is looked at before anything goes."""
        with self.open_root() as root:
            if not self._is_there(root, folder):
                return None
            with self.enter_path(root, folder, len(folder) - 1) as ((*_, parent, top), home):
                note, listed, _ = self._look(folder, parent, top, home)
                check(note)
                for here, entry in self.walk(top, home, prefix_of(folder), listed=listed):
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
                os.rmdir(folder[-1], dir_fd=parent)
        return RemovedFolder(note.freed)

    def _look(self, folder: Folder, outer: int, top: int, home: mounts.Mount) -> tuple[FolderNote, OpenFolder, tuple[int, str]]:
        # The note of a folder, the folder as listed, and the file that changed last. `seen`: hard links in it by inode.
        seen: Counter[Identity] = Counter()
        freed = files = size = newest = 0
        changed = (0, "")
        for here, entry in self.walk(top, home, prefix_of(folder)):
            # folders are checked as they are entered
            if entry is None or entry.is_dir(follow_symlinks=False):
                continue
            here.files.append(entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            self.check_guarded(entry.name, status)
            files, size, newest = files + 1, size + status.st_size, max(newest, status.st_mtime_ns)
            changed = max(changed, (status.st_ctime_ns, here.prefix + entry.name))
            links = status.st_nlink
            if links > 1:
                seen[status.st_dev, status.st_ino] += 1
                links -= seen[status.st_dev, status.st_ino] - 1
            # a file linked from elsewhere frees nothing; one linked several times in here frees its bytes once
            if links == 1 and stat.S_ISREG(status.st_mode):
                freed += status.st_size
        is_known = mounts.keeps_numbers(home) and not (folder[0] == TRASH and is_copied(outer))
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
        self.check_guarded(name, status)
        entry = _entry(key, status)
        if why := check(entry._replace(inode=None) if is_aside and is_copied(here) else entry):
            raise FolderChanged(why)
        if is_aside:
            check_untouched(here, status.st_ctime_ns, key)
        # a file with other hard links frees nothing
        return status.st_size if status.st_nlink == 1 else 0

    def undo_fault(self) -> str | None:
        name = f"{TRASH}-{secrets.token_hex(16)}"
        path_aside = trash_path(f"0/{secrets.randbits(63)}", name)
        try:
            with self.open_root() as root:
                trash = DiskTrash(self, root)
                try:
                    with self.enter_path(root, (name, name), mode=0o700):
                        trash.put_aside((name,), path_aside)
                    if mounts.file_system(mounts.mount_of(root)) == "overlay":
                        self._try_old_folder(root, SEPARATOR.join(path_aside))
                finally:
                    trash.clear((name, name))
                    trash.clear((*path_aside, name))
        except Refused as fault:
            return str(fault)
        except OSError as fault:
            return f"Nothing in {self.root} can be set aside: {fault.strerror}. {NO_UNDO}"
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
                with suppress(FileNotFoundError), self.enter_path(root, path[:-1]) as ((*_, here), _):
                    return self._look_at_file(here, thing.key, check, is_aside=path[0] == TRASH)
                return None

            def act() -> int | None:
                if not is_plain_key(thing.key) or is_ours(thing.key):
                    raise Refused(f"{quote(thing.key)} is not the name of an object on a disk.")
                pace.wait(1)
                path = segments_of(thing.key)
                path_aside = trash_path(thing.aside, path[-1])
                if order is not Order.DELETE_ASIDE:
                    return trash.move(order, path, path_aside, permit, look)
                if (freed := look(path_aside)) is not None:
                    permit()
                    with self.enter_parent(root, path_aside) as mark:
                        os.unlink(path_aside[-1], dir_fd=mark)
                trash.clear(path_aside[:-1])
                return freed

            return _tried(thing.key, act, order.done)

        with self.open_root() as root, ThreadPoolExecutor(max(1, parallelism)) as threads:
            self.check_holds(root, lambda _: True)
            trash = DiskTrash(self, root)
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

        path_aside = trash_path(aside, folder[-1])
        with self.open_root() as root:
            trash = DiskTrash(self, root)
            origin, kept = trash.read_note(path_aside[:-1]) or (folder, kept)
            if order is not Order.DELETE_ASIDE:
                check_origin(origin, folder)
                facts = {"plan": path_aside[1], "mark": path_aside[2], "path": SEPARATOR.join(folder)}
                text = lambda: json.dumps({**facts, "note": kept and kept._asdict()})  # noqa: E731
                freed = trash.move(order, folder, path_aside, permit, look, text)
                return None if freed is None else RemovedFolder(freed)
            removed = self.delete_tree(trash_path(aside, "".join(origin[-1:])), permit, check_whole)
            trash.clear(path_aside[:-1])
            return removed


def _entry(key: str, status: os.stat_result) -> Entry:
    return Entry(key, status.st_size, status.st_mtime_ns, inode=status.st_ino, links=status.st_nlink)


def _by_folder(keys: Iterable[str]) -> dict[str, list[str]]:
    by_folder: dict[str, list[str]] = {}
    for key in keys:
        by_folder.setdefault(key.rpartition(SEPARATOR)[0], []).append(key)
    return by_folder


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
