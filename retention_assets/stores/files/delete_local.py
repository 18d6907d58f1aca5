"""Deletes and measures the folder of one transaction on a local file system.

Both walk down from the root by directory descriptors, follow no symlink and enter no other mount, so swapping a folder for a
symlink or mounting something in it leads them nowhere. A removal stops before anything goes if it meets a file or folder that
retention itself or another store keeps.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from retention_assets.errors import Refused, quote
from retention_assets.settings.places import Identity
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.files.paths import Folder
from retention_assets.stores.places import is_own_file
from retention_assets.stores.places.mounts import Mount, keeps_numbers, mount_of
from retention_assets.stores.protocol import Permit

_UNMOUNT = "Unmount it, or remove the folder by hand."
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# files and folders at which a removal stops
Guarded = frozenset[Identity]
# names of the folders and of everything else in a folder
Entries = tuple[list[str], list[str]]


def measure(root: str, folder: Folder, guarded: Guarded = frozenset()) -> FolderNote | None:
    with _open_folder(root, folder, guarded) as (_, here, home):
        return None if here is None else _look(folder[-1], here, home, guarded)[0]


def remove_folder(
    root: str, folder: Folder, permit: Permit, guarded: Guarded = frozenset(), check: FolderCheck = accept_any
) -> int | None:
    """Remove a folder with all that is in it; return the bytes freed, or None if it was not there.

    Everything is looked at before anything goes. Raises OSError, Refused, FolderChanged or Withheld at the first thing that
    stays; what is gone by then is gone, and the next call removes the rest.
    """
    with _open_folder(root, folder, guarded) as (above, top, home):
        if top is None:
            return None
        note, entries = _look(folder[-1], top, home, guarded)
        check(note)
        for _, folders, names, here in _walk(folder[-1], top, home, entries):
            for name in names:
                permit()
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=here)
            for name in folders:
                permit()
                with suppress(FileNotFoundError):
                    os.rmdir(name, dir_fd=here)
        permit()
        os.rmdir(folder[-1], dir_fd=above)
    return note.freed


def replace_file(unfinished: str, path: str) -> None:
    """Rename a completely written file over `path`."""
    os.rename(unfinished, path)


def remove_unfinished(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def check_root(root: str) -> None:
    """Raises Refused for a root that is missing or empty: that of an unmounted disk looks so."""
    os.close(_open_root(root))


@contextmanager
def _open_folder(root: str, folder: Folder, guarded: Guarded) -> Iterator[tuple[int, int | None, Mount]]:
    """Open the folder and the one above; the folder is None if it is not there. Also gives the mount it must lie on.

    Raises Refused for an empty root.
    """
    above = _open_root(root)
    try:
        home = top = mount_of(above)
        for segment in folder[:-1]:
            if (below := _open_below(segment, above)) is None:
                yield above, None, home
                return
            os.close(above)
            above = below
            # A disk of its own may be mounted here. A second mount of the same disk would be a second name of another folder.
            if (home := mount_of(above)) != top and home.device == top.device:
                raise Refused(f"The folder {segment} of {root} is another folder of the same disk, mounted there. {_UNMOUNT}")
            check_unguarded(segment, os.fstat(above), guarded)
        if (here := _open_below(folder[-1], above)) is None:
            yield above, None, home
            return
        try:
            _check_mount(folder[-1], here, home)
            yield above, here, home
        finally:
            os.close(here)
    finally:
        os.close(above)


def _open_root(root: str) -> int:
    try:
        found = os.open(root, _FOLDER)
    except FileNotFoundError:
        raise Refused(f"The root {root} is not there. Is a disk not mounted? Nothing is taken for gone without it.") from None
    try:
        # Where the disk counts them, each subfolder is a link to the root. Listing thousands takes longer than removing a
        # folder.
        if os.stat(found).st_nlink > 2:
            return found
        with os.scandir(found) as entries:
            if all(is_own_file(entry.name) for entry in entries):
                raise Refused(f"The root {root} is empty. Is a disk not mounted? Nothing is taken for gone on it.")
    except BaseException:
        os.close(found)
        raise
    return found


def _open_below(name: str, above: int) -> int | None:
    """Open a folder, or return None if nothing is there. Raises Refused if something else stands in its place."""
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError as error:
        # Linux answers ENOTDIR for a symlink as well, other systems ELOOP or EMLINK
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise
        mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    what = "a symlink, which could lead out of the root" if stat.S_ISLNK(mode) else "no folder"
    raise Refused(f"{name} is {what}. Put the folder itself there, or remove it by hand.")


def check_unguarded(name: str, status: os.stat_result, guarded: Guarded) -> None:
    """Raises Refused for a file or folder of retention itself or of another store, whatever path led to it."""
    if (status.st_dev, status.st_ino) in guarded:
        raise Refused(
            f"{quote(name)} is a place of retention itself or of another store, which the settings name, so nothing is deleted"
            " there. Move it out of this store's data."
        )


def _look(name: str, top: int, home: Mount, guarded: Guarded) -> tuple[FolderNote, Entries]:
    """Return the note of an open folder, and its own entries. Raises Refused for what is mounted or guarded in it."""
    # hard links seen inside the folder, per inode
    seen: Counter[Identity] = Counter()
    freed = files = size = newest = 0
    own = os.fstat(top)
    entries: Entries = ([], [])
    for folder, folders, names, here in _walk(name, top, home):
        check_unguarded(folder, own if here == top else os.fstat(here), guarded)
        # the walk ends with the folder itself
        entries = folders, names
        for file in names:
            try:
                status = os.stat(file, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue
            check_unguarded(file, status, guarded)
            files, size, newest = files + 1, size + status.st_size, max(newest, status.st_mtime_ns)
            links = status.st_nlink
            if links > 1:
                seen[status.st_dev, status.st_ino] += 1
                links -= seen[status.st_dev, status.st_ino] - 1
            # a file linked from elsewhere frees nothing; one linked several times in here frees its bytes once
            if links == 1 and stat.S_ISREG(status.st_mode):
                freed += status.st_size
    return FolderNote(freed, files, size, newest, own.st_ino if keeps_numbers(home) else None), entries


def _check_mount(name: str, here: int, home: Mount) -> None:
    if mount_of(here) != home:
        raise Refused(f"Something is mounted at {name} in the folder, so nothing of it is deleted. {_UNMOUNT}")


def _walk(name: str, here: int, home: Mount, entries: Entries | None = None) -> Iterator[tuple[str, list[str], list[str], int]]:
    """Walk an open folder, deepest first, with open descriptors. Raises Refused at the first folder on another mount."""
    folders, names = entries or ([], [])
    if entries is None:
        with os.scandir(here) as listed:
            for entry in listed:
                (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    for folder in folders:
        below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
        try:
            _check_mount(folder, below, home)
            yield from _walk(folder, below, home)
        finally:
            os.close(below)
    yield name, folders, names, here
