"""Deletes and measures the folder of one transaction on any fsspec file system but local disks and S3, with retries."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from retention_assets.errors import Refused
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.places import IDENTITY
from retention_assets.stores.places.file_systems import FileSystem
from retention_assets.stores.protocol import Permit

Result = TypeVar("Result")
Info = Mapping[str, Any]

# drivers' names for the time of writing; rewriting a file changes it
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "timeCreated", "creation_time", "created")

_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Removed(NamedTuple):
    """Bytes that a removal freed, and the bytes that stay readable as versions."""

    freed: int
    hidden: int | None = None


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) and not isinstance(error, _LASTING)


# a fault after the last attempt is reported, and the next sweep tries again
PATIENCE = RetryPolicy(_may_pass, attempts=3, pause=0.5, growth=6, jitter=0)


def with_patience(request: Callable[[], Result]) -> Result:
    return retry(request, PATIENCE)


def measure(fs: FileSystem, folder: str) -> FolderNote | None:
    places = with_patience(lambda: _list(fs, folder))
    return _note_of(places) if places else None


def is_empty(fs: FileSystem, root: str) -> bool:
    """Tell whether nothing is below a root; an entry for the root itself and its identity file don't count."""
    return with_patience(lambda: not _any_below(fs, root.rstrip("/")))


def names_in(fs: FileSystem, folder: str) -> frozenset[str]:
    fs.invalidate_cache()
    try:
        places = with_patience(lambda: fs.ls(folder, detail=False))
    except FileNotFoundError:
        return frozenset()
    return frozenset(place.rstrip("/").rpartition("/")[2] for place in places)


def remove_folder(fs: FileSystem, folder: str, permit: Permit, check: FolderCheck = accept_any) -> int | None:
    """Remove everything below a folder; return the bytes that were there, or None if nothing was.

    Raises OSError, FolderChanged or Withheld when anything stays. What is gone by then is gone; the next call removes the rest.
    """
    places = with_patience(lambda: _list(fs, folder))
    if not places:
        return None
    note = _note_of(places)
    check(note)
    # files before folders, deepest folders first
    for place in sorted(places, key=lambda place: (place.endswith("/"), -place.count("/"))):
        with_patience(partial(_delete_one, fs, place, permit))
    with_patience(lambda: _check_none_left(fs, folder, len(places)))
    return note.freed


def time_in_ns(time: object) -> int | None:
    """Convert a driver's time; None where it has none, or a form of its own."""
    try:
        time = datetime.fromisoformat(time) if isinstance(time, str) else time
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() if isinstance(time, datetime) else time
    except (ValueError, OverflowError):
        return None
    return round(time * 1_000_000) * 1_000 if isinstance(time, int | float) else None


def replace_file(fs: FileSystem, unfinished: str, place: str) -> None:
    """Rename a completely written file over `place`."""
    fs.mv(unfinished, place)


def _note_of(places: Mapping[str, Info]) -> FolderNote:
    files = [
        (int(info["size"] or 0), time_in_ns(next((info[key] for key in _TIMES if info.get(key)), None)))
        for place, info in places.items()
        if not place.endswith("/")
    ]
    return FolderNote.of_files(sum(size for size, _ in files), files)


def _list(fs: FileSystem, folder: str) -> dict[str, Info]:
    """List below a folder without caches; folders end in a /."""
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
    """Raises OSError while the file system still lists anything: some drivers are silent about what they do not delete."""
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
    """Delete a file or an empty folder by its literal name, never as a pattern."""
    permit()
    with suppress(FileNotFoundError):
        if not place.endswith("/"):
            fs.rm_file(place)
            return
        # where folders are only key prefixes, they go with the last file
        fs.invalidate_cache()
        if fs.isdir(place.rstrip("/")):
            fs.rmdir(place.rstrip("/"))
