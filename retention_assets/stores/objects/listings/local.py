"""Lists the regular files below a local folder, by their relative paths.

The walk uses directory descriptors, so it follows no symlink and enters no other mount. Symlinks, sockets and folders are no
objects. A mount below the root refuses the listing, which could not be complete. A file that disappears meanwhile is left out.

A share is the part of the names on one level of the tree that a hash selects, with everything below them: this needs no list of
folders, and stays complete while folders come and go.
"""

import errno
import os
import secrets
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.policy.durations import from_micros
from retention_assets.stores.objects.conditions import stat_conditions
from retention_assets.stores.objects.delete_probe import PROBE, remove_probe
from retention_assets.stores.objects.naming import SEPARATOR, first_level_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import BATCH, objects_batch
from retention_assets.stores.places import is_own_file
from retention_assets.stores.places.mounts import Mount, mount_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
# Creates a file without a name, which disappears with its descriptor even after a crash. Not available everywhere.
_NAMELESS: int | None = getattr(os, "O_TMPFILE", None)
_NOT_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
# names on a level that is split into shares; each share reads all names above it
_ENOUGH = 4_000


@dataclass(frozen=True)
class TreeShare:
    """Every `of`-th name on one level of the tree with everything below it, and every `of`-th file above that level."""

    level: int
    number: int
    of: int


@dataclass
class _Files:
    keys: list[str] = field(default_factory=list)
    mtimes: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    inodes: list[int] = field(default_factory=list)
    links: list[int] = field(default_factory=list)

    def add(self, key: str, found: os.stat_result) -> None:
        self.keys.append(key)
        self.mtimes.append(found.st_mtime_ns)
        self.sizes.append(found.st_size)
        self.inodes.append(found.st_ino)
        self.links.append(found.st_nlink)

    def batch(self, root: str) -> pa.RecordBatch:
        mtimes, sizes = pa.array(self.mtimes, pa.int64()), pa.array(self.sizes, pa.int64())
        # inode numbers may need all 64 bits
        inodes = pa.array(self.inodes, pa.uint64())
        created = pa.array(np.asarray(self.mtimes, np.int64) // 1000).cast(INSTANT)
        condition = stat_conditions(mtimes, sizes, inodes, pa.array(self.links, pa.int64()))
        return objects_batch(self.keys, root, {"size": sizes, "created_at": created, "condition": condition})


@dataclass
class _Open:
    descriptor: int
    prefix: str
    level: int
    folders: list[str] | None = None


@dataclass(frozen=True)
class LocalObjects:
    root: str

    def begin(self) -> datetime:
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
            home = mount_of(root)
            folders, level = [""], 0
            while folders:
                names, below = 0, list[str]()
                for prefix in folders:
                    descriptor = self._open_below(root, prefix, home)
                    if descriptor is None:
                        continue
                    with self._closing(descriptor), self._refusing(prefix), os.scandir(descriptor) as entries:
                        for entry in entries:
                            names += 1
                            if entry.is_dir(follow_symlinks=False):
                                below.append(f"{prefix}{entry.name}{SEPARATOR}")
                            if names > _ENOUGH:
                                return [TreeShare(level, number, max(1, wanted)) for number in range(max(1, wanted))]
                folders, level = below, level + 1
        return [TreeShare(0, 0, 1)]

    def read(self, share: TreeShare) -> Iterator[pa.RecordBatch]:
        """Raises Refused for an unreadable folder and for a mount below the root."""
        for found in self._walk(share):
            yield found.batch(self.root)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._opened() as root:
            home = mount_of(root)
            found, folder = _Files(), ""
            descriptor: int | None = os.dup(root)
            try:
                for key in sorted(set(keys)):
                    above, _, name = key.rpartition(SEPARATOR)
                    if not _is_plain(key) or _is_ours(key):
                        continue
                    if above != folder:
                        if descriptor is not None:
                            os.close(descriptor)
                            descriptor = None
                        folder = above
                        descriptor = self._open_below(root, f"{above}{SEPARATOR}" if above else "", home)
                    if descriptor is not None:
                        self._look(descriptor, name, key, found)
                    if len(found.keys) >= BATCH:
                        yield found.batch(self.root)
                        found = _Files()
            finally:
                if descriptor is not None:
                    os.close(descriptor)
            if found.keys:
                yield found.batch(self.root)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        return first_level_datasets(settings, self._first_level)

    def _first_level(self) -> Iterator[str]:
        with self._opened() as root, self._refusing(""), os.scandir(root) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield f"{entry.name}{SEPARATOR}"
                elif entry.is_file(follow_symlinks=False) and not _is_ours(entry.name):
                    yield entry.name

    def _walk(self, share: TreeShare) -> Iterator[_Files]:
        with self._opened() as root:
            home = mount_of(root)
            found = _Files()
            pending = [_Open(os.dup(root), "", 0)]
            try:
                while pending:
                    here = pending[-1]
                    if here.folders is None:
                        here.folders = []
                        for name, seen in self._names(here, share):
                            if seen is None:
                                here.folders.append(name)
                                continue
                            found.add(name, seen)
                            if len(found.keys) >= BATCH:
                                yield found
                                found = _Files()
                    elif here.folders:
                        name = here.folders.pop()
                        if (below := self._open_one(here.descriptor, name, here.prefix, home)) is not None:
                            pending.append(_Open(below, f"{here.prefix}{name}{SEPARATOR}", here.level + 1))
                    else:
                        os.close(pending.pop().descriptor)
                if found.keys:
                    yield found
            finally:
                for one in pending:
                    os.close(one.descriptor)

    def _names(self, here: _Open, share: TreeShare) -> Iterator[tuple[str, os.stat_result | None]]:
        """Files of the share with their keys, and folders to enter (without a stat result) by their names."""
        prefix, is_root = here.prefix, here.level == 0
        picks_files = share.of > 1 and here.level <= share.level
        picks_folders = share.of > 1 and here.level == share.level
        with self._refusing(prefix), os.scandir(here.descriptor) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    key = prefix + entry.name
                    if (not picks_files or _is_in(key, share)) and not (is_root and _is_ours(key)):
                        try:
                            seen = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            # deleted after its name was read
                            continue
                        yield key, seen
                elif entry.is_dir(follow_symlinks=False) and (not picks_folders or _is_in(prefix + entry.name, share)):
                    yield entry.name, None

    def _look(self, descriptor: int, name: str, key: str, found: _Files) -> None:
        with self._refusing(key), suppress(FileNotFoundError):
            seen = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISREG(seen.st_mode):
                found.add(key, seen)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            root = os.open(self.root, _FOLDER)
        except OSError as fault:
            raise Refused(
                f"The root {self.root} can't be listed: {fault.strerror}. Is a disk not mounted? Nothing is taken for gone"
                " without it."
            ) from None
        with self._closing(root):
            yield root

    @contextmanager
    def _closing(self, descriptor: int) -> Iterator[None]:
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _refusing(self, prefix: str) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise Refused(
                f"{quote(prefix, 200) if prefix else 'The root'} of {self.root} can't be listed: {fault.strerror}. Let the user"
                " that runs retention read it, or move it out of the root."
            ) from None

    def _open_below(self, root: int, prefix: str, home: Mount) -> int | None:
        above, at = os.dup(root), ""
        for name in prefix.split(SEPARATOR)[:-1]:
            try:
                below = self._open_one(above, name, at, home)
            finally:
                os.close(above)
            if below is None:
                return None
            above, at = below, f"{at}{name}{SEPARATOR}"
        return above

    def _open_one(self, above: int, name: str, prefix: str, home: Mount) -> int | None:
        """Open a folder by its name; None if it is gone or no folder any more. Raises Refused for another mount."""
        with self._refusing(prefix + name), suppress(FileNotFoundError, NotADirectoryError):
            found = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            if mount_of(found) != home:
                os.close(found)
                raise Refused(
                    f"Something is mounted at {quote(prefix + name, 200)} in the root {self.root}, and what is on another mount"
                    " is not listed. Unmount it, or give it a store of its own."
                )
            return found
        return None


def _time_of_nameless(folder: int) -> int | None:
    """mtime of an unnamed file just written, in nanoseconds; None if unnamed files are not supported."""
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
        remove_probe(name, folder)


def _is_in(key: str, share: TreeShare) -> bool:
    return zlib.crc32(os.fsencode(key)) % share.of == share.number


def _is_ours(key: str) -> bool:
    return is_own_file(key) or PROBE.fullmatch(key) is not None


def _is_plain(key: str) -> bool:
    return "\0" not in key and {"", ".", ".."}.isdisjoint(key.split(SEPARATOR))
