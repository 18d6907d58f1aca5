"""Deleting from a local file system: the folder of one transaction, and what is left of a log file that was not finished.

Belongs here: the one function that deletes local data of a `files` store, and the one that measures it. Both go down from the
root by directory descriptors, follow no symlink and enter no other mount: whoever swaps a folder for a symlink, or mounts
something in it, leads them nowhere.
Does not belong here: which folder it is to be (paths.py).
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from retention_assets.errors import Refused
from retention_assets.stores.files.mounts import Mount, mount_of
from retention_assets.stores.files.paths import Folder, is_own_file
from retention_assets.stores.protocol import Permit

_UNMOUNT = "Unmount it, or remove the folder by hand."
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def measure(root: str, folder: Folder) -> int | None:
    """The bytes that removing a folder would free, or None if it is not there."""
    seen: Counter[tuple[int, int]] = Counter()
    size = 0
    with _open_parent(root, folder) as above:
        if above is None:
            return None
        for _, _, names, here in _walk(folder[-1], above):
            for name in names:
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=here, follow_symlinks=False)
                    seen[found.st_dev, found.st_ino] += 1
                    # A file with names elsewhere frees nothing, one with several names in here frees its bytes once.
                    if stat.S_ISREG(found.st_mode) and seen[found.st_dev, found.st_ino] == found.st_nlink:
                        size += found.st_size
    return size


def remove_folder(root: str, folder: Folder, permit: Permit) -> int | None:
    """Remove a folder with all that is in it; the bytes that became free, or None if it was not there.

    Raises OSError, Refused or Withheld at the first thing that stays. What is gone by then is gone; the next call
    removes the rest.
    """
    freed = 0
    with _open_parent(root, folder) as above:
        if above is None:
            return None
        for _, folders, names, here in _walk(folder[-1], above, ahead=True):
            for name in names:
                permit()
                freed += _remove_file(name, here)
            for name in folders:
                permit()
                _remove_empty_folder(name, here)
        permit()
        os.rmdir(folder[-1], dir_fd=above)
    return freed


def replace_file(unfinished: str, path: str) -> None:
    """Give a file that was written whole its name. What had that name is gone."""
    os.rename(unfinished, path)


def remove_unfinished(path: str) -> None:
    """Remove a file that was not written whole, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def check_root(root: str) -> None:
    """Raises Refused for a root that is not there or holds nothing: that of a disk that is not mounted looks so."""
    os.close(_open_root(root))


@contextmanager
def _open_parent(root: str, folder: Folder) -> Iterator[int | None]:
    """The folder above, as a descriptor: None if the folder is not there. A root without anything answers nothing."""
    above = _open_root(root)
    try:
        home = mount_of(above)
        for segment in folder[:-1]:
            below = os.open(segment, _FOLDER | os.O_NOFOLLOW, dir_fd=above) if _is_folder(segment, above) else None
            if below is None:
                yield None
                return
            os.close(above)
            above = below
            # A disk of its own may be mounted there. A second mount of the same disk is a second name of another folder.
            if (found := mount_of(above)) != home and found.device == home.device:
                raise Refused(f"The folder {segment} of {root} is another folder of the same disk, mounted there. {_UNMOUNT}")
        yield above if _is_folder(folder[-1], above) else None
    finally:
        os.close(above)


def _open_root(root: str) -> int:
    try:
        found = os.open(root, _FOLDER)
    except FileNotFoundError:
        raise Refused(f"The root {root} is not there. Is a disk not mounted? Nothing is taken for gone without it.") from None
    try:
        # Where a disk counts them, each folder in it is one more name of the root. To list only the first of thousands takes
        # longer than to remove a folder.
        if os.stat(found).st_nlink > 2:
            return found
        with os.scandir(found) as entries:
            if all(is_own_file(entry.name) for entry in entries):
                raise Refused(f"The root {root} is empty. Is a disk not mounted? Nothing is taken for gone on it.")
    except BaseException:
        os.close(found)
        raise
    return found


def _is_folder(name: str, above: int) -> bool:
    """Whether a folder is there. Raises Refused if something else stands in its place."""
    try:
        mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        return True
    what = "a symlink, which could lead out of the root" if stat.S_ISLNK(mode) else "no folder"
    raise Refused(f"{name} is {what}. Put the folder itself there, or remove it by hand.")


def _walk(
    name: str, above: int, home: Mount | None = None, ahead: bool = False
) -> Iterator[tuple[str, list[str], list[str], int]]:
    """What is in a folder and below it, the deepest first, each with a descriptor of where it is.

    Raises Refused at the first folder that lies on another mount than the one above all of them; `ahead` of everything,
    so that what is mounted somewhere in a folder keeps all of it.
    """
    home = home or mount_of(above)
    here = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        if mount_of(here) != home:
            raise Refused(f"Something is mounted at {name} in the folder, so nothing of it is deleted. {_UNMOUNT}")
        folders: list[str] = []
        names: list[str] = []
        with os.scandir(here) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        for below in folders if ahead else ():
            for _ in _walk(below, here, home):
                pass
        for below in folders:
            yield from _walk(below, here, home)
        yield name, folders, names, here
    finally:
        os.close(here)


def _remove_file(name: str, here: int) -> int:
    """Remove a file, or a symlink itself; the bytes that became free."""
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else 0


def _remove_empty_folder(name: str, here: int) -> None:
    with suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=here)
