"""Deleting the folder of one transaction from any file system that fsspec knows, beyond this machine's and S3.

Belongs here: the one function that deletes remote data of a `files` store, the listing that measures it, and trying again
where a store is busy.
Does not belong here: S3 (delete_s3.py), and which folder it is to be (paths.py).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from retention_assets.errors import Refused
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.files.file_systems import FileSystem
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.files.paths import IDENTITY
from retention_assets.stores.protocol import Permit

Result = TypeVar("Result")
Info = Mapping[str, Any]

# The words of drivers for when a file was written: what is written anew has another one.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "timeCreated", "creation_time", "created")

_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Removed(NamedTuple):
    """What a removal did: the bytes that became free, and where versions can still be read, the bytes of those."""

    freed: int
    hidden: int | None = None


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) and not isinstance(error, _LASTING)


# What fails after the last attempt is reported, and the next sweep tries again.
PATIENCE = RetryPolicy(_may_pass, attempts=3, pause=0.5, growth=6, jitter=0)


def with_patience(request: Callable[[], Result]) -> Result:
    """A request that is made again when it fails for a reason that may pass."""
    return retry(request, PATIENCE)


def measure(fs: FileSystem, folder: str) -> FolderNote | None:
    """A folder as it is now, or None if there is nothing."""
    places = with_patience(lambda: _list(fs, folder))
    return _note_of(places) if places else None


def is_empty(fs: FileSystem, root: str) -> bool:
    """Whether nothing is below a root; what stands for the root itself, and by what it is known, is nothing."""
    return with_patience(lambda: not _any_below(fs, root.rstrip("/")))


def names_in(fs: FileSystem, folder: str) -> frozenset[str]:
    """List the names in a folder, none where it is not there."""
    fs.invalidate_cache()
    try:
        places = with_patience(lambda: fs.ls(folder, detail=False))
    except FileNotFoundError:
        return frozenset()
    return frozenset(place.rstrip("/").rpartition("/")[2] for place in places)


def remove_folder(fs: FileSystem, folder: str, permit: Permit, check: FolderCheck = accept_any) -> int | None:
    """Remove everything below a folder; the bytes that were there, or None if nothing was.

    Raises OSError, FolderChanged or Withheld when anything stays. What is gone by then is gone; the next call removes the rest.
    """
    places = with_patience(lambda: _list(fs, folder))
    if not places:
        return None
    note = _note_of(places)
    check(note)
    # Files before folders, and the deepest folders first.
    for place in sorted(places, key=lambda place: (place.endswith("/"), -place.count("/"))):
        with_patience(partial(_delete_one, fs, place, permit))
    with_patience(lambda: _check_none_left(fs, folder, len(places)))
    return note.freed


def time_in_ns(time: object) -> int | None:
    """A time as a driver says it; None where it says none, or in a way of its own."""
    try:
        time = datetime.fromisoformat(time) if isinstance(time, str) else time
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() if isinstance(time, datetime) else time
    except (ValueError, OverflowError):
        return None
    return round(time * 1_000_000) * 1_000 if isinstance(time, int | float) else None


def replace_file(fs: FileSystem, unfinished: str, place: str) -> None:
    """Give a file that was written whole its name. What had that name is gone."""
    fs.mv(unfinished, place)


def _note_of(places: Mapping[str, Info]) -> FolderNote:
    files = [
        (int(info["size"] or 0), time_in_ns(next((info[key] for key in _TIMES if info.get(key)), None)))
        for place, info in places.items()
        if not place.endswith("/")
    ]
    return FolderNote.of_files(sum(size for size, _ in files), files)


def _list(fs: FileSystem, folder: str) -> dict[str, Info]:
    """What lies below a folder, asked anew: places, those of folders with a / at their ends."""
    fs.invalidate_cache()
    try:
        if not fs.isdir(folder):
            return {}
        found = fs.find(folder, withdirs=True, detail=True)
    except FileNotFoundError:
        return {}
    places: dict[str, Info] = {
        place.rstrip("/") + ("/" if info["type"] == "directory" else ""): info for place, info in found.items()
    }
    below = folder.rstrip("/") + "/"
    if strange := next((place for place in places if not place.startswith(below)), None):
        raise Refused(f"The file system names {strange} among what is below {below}, so nothing there is deleted.")
    return {below: {"size": 0}, **places}


def _check_none_left(fs: FileSystem, folder: str, there: int) -> None:
    """Raises OSError when the file system still lists anything: some say nothing of what they do not delete."""
    if left := _list(fs, folder):
        raise OSError(f"{len(left)} of {there} places stay: {min(left)}")


def _any_below(fs: FileSystem, root: str) -> bool:
    fs.invalidate_cache()
    try:
        nothing = (root, f"{root}/{IDENTITY}")
        return any(str(info["name"]).rstrip("/") not in nothing for info in fs.ls(root, detail=True))
    except FileNotFoundError:
        return False


def _delete_one(fs: FileSystem, place: str, permit: Permit) -> None:
    """Delete a file or an empty folder by its very name, which is never taken for a pattern."""
    permit()
    with suppress(FileNotFoundError):
        if not place.endswith("/"):
            fs.rm_file(place)
            return
        # Where folders are only the beginnings of names, they go with the last file.
        fs.invalidate_cache()
        if fs.isdir(place.rstrip("/")):
            fs.rmdir(place.rstrip("/"))
