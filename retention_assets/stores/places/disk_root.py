"""Folders of a disk.

Everything walks down from the root by descriptors of folders, follows no symlink and enters no other mount, so swapping a
folder for a symlink or mounting something in it leads nowhere.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from retention_assets.errors import Refused, quote
from retention_assets.settings.places import Identity
from retention_assets.stores.places import mounts
from retention_assets.stores.places.protocol import SEPARATOR, TRASH, Folder, is_own_file

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_MOUNTED = "Check that the disk is mounted. The sweep records nothing as gone"
_PROBE = re.compile(r"\.retention-clock-[0-9a-f]{32}")


@dataclass
class OpenFolder:
    descriptor: int
    # path, which ends in a separator; empty for a root
    prefix: str
    level: int
    # None before it was listed
    folders: list[str] | None = None
    entered: int = 0
    # noted only before they are deleted
    files: list[str] = field(default_factory=list)


class NoFolder(Refused):
    """Something else stands in the place of a folder."""


@dataclass(frozen=True)
class DiskRoot:
    """A folder of a disk, of which everything below is reached by its descriptor."""

    root: str
    # files and folders at which a removal stops
    guarded: frozenset[Identity] = frozenset()

    @contextmanager
    def open_root(self) -> Iterator[int]:
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

    def check_holds(self, root: int, counts: Callable[[str], bool]) -> None:
        """Raises Refused for a root with no name that counts: its disk may not be mounted."""
        # where disks count links, more than 3 mean a subfolder besides the trash: thousands of names need no listing
        if os.fstat(root).st_nlink > 3:
            return
        with os.scandir(root) as entries:
            if not any(counts(entry.name) for entry in entries):
                raise Refused(f"The root {self.root} is empty. {_NOT_MOUNTED} on it.")

    def status_of(self, root: int, path: Folder) -> os.stat_result | None:
        with suppress(FileNotFoundError), self.enter_parent(root, path) as parent:
            return os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
        return None

    @contextmanager
    def enter_parent(self, root: int, path: Folder, mode: int | None = None) -> Iterator[int]:
        with self.enter_path(root, path[:-1], len(path) - 1, mode) as ((*_, parent), _):
            yield parent

    @contextmanager
    def enter_path(
        self, root: int, folder: Folder, disks: int = 0, mode: int | None = None
    ) -> Iterator[tuple[list[int], mounts.Mount]]:
        """Open the folders of a path, and make those that are missing if there is a mode for them; with the last one's mount.

        Disks of their own may be mounted at the first `disks` folders.
        """
        opened, home = [root], mounts.mount_of(root)
        try:
            for number, name in enumerate(folder):
                if mode is not None:
                    with suppress(FileExistsError):
                        os.mkdir(name, mode, dir_fd=opened[-1])
                is_disk = number < disks and folder[0] != TRASH
                child, home = self.enter(opened[-1], name, prefix_of(folder[:number]), home, is_disk)
                opened.append(child)
            yield opened, home
        finally:
            for descriptor in opened[1:]:
                os.close(descriptor)

    def enter(self, parent: int, name: str, prefix: str, home: mounts.Mount, disks: bool = False) -> tuple[int, mounts.Mount]:
        try:
            child = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            raise
        except OSError as fault:
            # Linux answers ENOTDIR for a symlink as well, other systems ELOOP or EMLINK
            if fault.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
                raise self._unreadable(prefix + name, fault) from None
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            kind = "a symlink, which could lead out of the root" if stat.S_ISLNK(status.st_mode) else "no folder"
            raise NoFolder(f"{name} is {kind}. Put the folder itself there, or remove it by hand.") from None
        try:
            # a second mount of the same disk would be a second name of another folder
            if (mount := mounts.mount_of(child)) != home and not (disks and mount.device != home.device):
                raise Refused(
                    f"Something is mounted at {quote(prefix + name, 200)} in the root {self.root}, and other mounts are "
                    "never listed or deleted. Unmount it, give it its own store, or remove the folder by hand."
                )
            self.check_guarded(name, os.fstat(child))
        except BaseException:
            os.close(child)
            raise
        return child, mount

    def check_guarded(self, name: str, status: os.stat_result) -> None:
        if (status.st_dev, status.st_ino) in self.guarded:
            raise Refused(
                f"{quote(name)} belongs to retention itself or to another store of the settings, so nothing is deleted "
                "there. Move it out of this store's data."
            )

    def walk(
        self,
        top: int,
        home: mounts.Mount,
        prefix: str,
        is_entered: Callable[[OpenFolder, str], bool] = lambda *_: True,
        strictly: bool = True,
        listed: OpenFolder | None = None,
    ) -> Iterator[tuple[OpenFolder, os.DirEntry[str] | None]]:
        # Every entry, and each folder with None once all below it was walked. Unless `strictly`, a folder that is gone or that
        # something else replaced is left out. The entries of `listed`, known from an earlier walk, are not listed again.
        first = OpenFolder(os.dup(top), prefix, 0)
        pending = [replace(listed, descriptor=first.descriptor, entered=0) if listed else first]
        try:
            while pending:
                here = pending[-1]
                if here.folders is None:
                    here.folders = []
                    for entry in self.scan(here.descriptor, here.prefix):
                        if entry.is_dir(follow_symlinks=False):
                            here.folders.append(entry.name)
                        yield here, entry
                elif here.entered < len(here.folders):
                    name = here.folders[here.entered]
                    here.entered += 1
                    if not is_entered(here, name):
                        continue
                    try:
                        child, _ = self.enter(here.descriptor, name, here.prefix, home)
                    except (FileNotFoundError, NoFolder):
                        if strictly:
                            raise
                        continue
                    pending.append(OpenFolder(child, f"{here.prefix}{name}{SEPARATOR}", here.level + 1))
                else:
                    yield here, None
                    os.close(pending.pop().descriptor)
        finally:
            for folder in pending:
                os.close(folder.descriptor)

    def scan(self, folder: int, prefix: str) -> Iterator[os.DirEntry[str]]:
        with self.naming(prefix), os.scandir(folder) as entries:
            yield from entries

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
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


def segments_of(path: str) -> Folder:
    return tuple(filter(None, path.split(SEPARATOR)))


def prefix_of(folder: Folder) -> str:
    return SEPARATOR.join((*folder, ""))


def is_ours(key: str) -> bool:
    top = key.partition(SEPARATOR)[0]
    return is_own_file(top) or _PROBE.fullmatch(top) is not None
