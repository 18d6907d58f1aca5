"""Places on any file system that fsspec knows, but for local disks and S3: gs://, abfs://, sftp://, memory:// and so on.

fsspec has no conditional deletion: a writer may replace an object between the look at it and its deletion. Some drivers are
silent about what they do not delete, so it is looked for afterwards.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import mask_secrets, mask_text
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.places.file_systems import FileSystem, open_file_system
from retention_assets.stores.places.protocol import (
    IDENTITY,
    SEPARATOR,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    Place,
    RemovedFolder,
    is_plain_key,
)
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

Info = Mapping[str, Any]

# Drivers' names for the time of writing. Last write first: a copy of an old object is a new object.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "timeCreated", "creation_time", "created")
_AT_ONCE = 16
LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# a fault after the last attempt is reported, and the next sweep tries again
FOLDER_PATIENCE = RetryPolicy(
    lambda fault: isinstance(fault, OSError) and not isinstance(fault, LASTING), attempts=3, pause=0.5, growth=6, jitter=0
)


def check_not_empty(place: Place, location: str) -> None:
    """Raises Refused for a root without data."""
    if not place.has(()):
        raise Refused(f"The root {mask_secrets(location)} is empty. Check the place. The sweep records nothing as gone in it.")


def time_in_ns(time: object) -> int | None:
    """Convert a driver's time; None where it has none, or a form of its own."""
    try:
        time = datetime.fromisoformat(time) if isinstance(time, str) else time
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() if isinstance(time, datetime) else time
        nanoseconds = round(time * 1_000_000) * 1_000 if isinstance(time, int | float) else None
    except (ValueError, OverflowError):
        return None
    return nanoseconds if nanoseconds is not None and abs(nanoseconds) < 1 << 63 else None


@dataclass(frozen=True)
class NamesShare:
    """Share, one of `count`, of the names in the root, each with everything below it; a hash of the name tells which."""

    number: int
    count: int


@dataclass(frozen=True)
class FsspecPlace(Place):
    """Files below a folder. Everything below one name in the root is in memory at once."""

    location: str

    def shares(self, wanted: int) -> Sequence[NamesShare]:
        return [NamesShare(number, max(1, wanted)) for number in range(max(1, wanted))]

    def entries(self, share: NamesShare) -> Iterator[Entry]:
        fs, root = self._open()
        for name, top in self._top(fs, root):
            if zlib.crc32(f"{root}{name}".encode(errors="surrogateescape")) % share.count != share.number:
                continue
            with self._refusing():
                infos = self._find(fs, f"{root}{name}") if top["type"] == "directory" else {f"{root}{name}": top}
            yield from (_entry(path[len(root) :], info) for path, info in infos.items() if info["type"] == "file")

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        fs, root = self._open()
        fs.invalidate_cache()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from filter(None, threads.map(partial(self._look, fs, root), sorted(set(keys))))

    def _look(self, fs: FileSystem, root: str, key: str) -> Entry | None:
        # a driver may resolve dots, which leads to another file
        if not is_plain_key(key) or key == IDENTITY:
            return None
        with suppress(FileNotFoundError, NotADirectoryError), self._refusing():
            info: Info = fs.info(f"{root}{key}")
            return _entry(key, info) if info["type"] == "file" else None
        return None

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        fs, root = self._open(folder)
        for name, info in self._top(fs, root, missing_is_empty=bool(folder)):
            yield name + (SEPARATOR if info["type"] == "directory" else "")

    def delete(
        self, objects: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Delete objects one by one. A look precedes each attempt."""
        fs, root = self._open()

        def attempt(key: str) -> SweptTarget:
            fs.invalidate_cache()
            if (present := self._look(fs, root, key)) is None:
                return SweptTarget(key, Outcome.ALREADY_GONE)
            if why := check(present):
                return SweptTarget(key, Outcome.SPARED, error=why)
            permit()
            fs.rm_file(f"{root}{key}")
            return SweptTarget(key, Outcome.DELETED, present.size or 0)

        def delete(due: DueObject) -> SweptTarget:
            path = f"{root}{due.key}"
            try:
                pace.wait(1)
                swept = retry(partial(attempt, due.key), FOLDER_PATIENCE)
                if swept.outcome is Outcome.DELETED:
                    fs.invalidate_cache(fs._parent(path))
                    if fs.exists(path):
                        raise OSError("the file system reports the deletion, but still has the file")
            except FileNotFoundError:
                return SweptTarget(due.key, Outcome.ALREADY_GONE)
            except Withheld as fault:
                return SweptTarget(due.key, Outcome.WITHHELD, error=str(fault))
            except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and one fails alone
                return SweptTarget(due.key, Outcome.FAILED, error=error_text(fault))
            return swept

        with ThreadPoolExecutor(max(1, parallelism)) as threads:
            return map_concurrently(threads, delete, objects)

    def may_keep(self, key: str, version: str | None) -> bool:  # noqa: ARG002 - nobody can be asked
        return True

    def check_root(self) -> None:
        check_not_empty(self, self.location)

    def has(self, folder: Folder) -> bool:
        fs, root = self._open(folder)
        return bool(self._top(fs, root, missing_is_empty=True))

    def measure(self, folder: Folder) -> FolderNote | None:
        fs, root = self._open(folder)
        infos = retry(lambda: self._tree(fs, root), FOLDER_PATIENCE)
        return _note_of(infos) if infos else None

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        fs, root = self._open(folder)
        infos = retry(lambda: self._tree(fs, root), FOLDER_PATIENCE)
        if not infos:
            return None
        note = _note_of(infos)
        check(note)
        # files before folders, deepest folders first
        for path in sorted(infos, key=lambda path: (path.endswith(SEPARATOR), -path.count(SEPARATOR))):
            retry(partial(_delete_one, fs, path, permit), FOLDER_PATIENCE)

        def check_none_left() -> None:
            if staying := self._tree(fs, root):
                raise OSError(f"{len(staying)} of {len(infos)} places stay: {min(staying)}")

        retry(check_none_left, FOLDER_PATIENCE)
        return RemovedFolder(note.freed)

    def _open(self, folder: Folder = ()) -> tuple[FileSystem, str]:
        fs, path = open_file_system(self.location)
        return fs, SEPARATOR.join((path.rstrip(SEPARATOR), *folder, ""))

    def _top(self, fs: FileSystem, root: str, missing_is_empty: bool = False) -> list[tuple[str, Info]]:
        fs.invalidate_cache()
        with self._refusing():
            try:
                listed = retry(lambda: fs.ls(root.rstrip(SEPARATOR), detail=True), FOLDER_PATIENCE)
                infos = {str(info["name"]).rstrip(SEPARATOR): info for info in listed}
            except FileNotFoundError:
                if missing_is_empty:
                    return []
                shown = mask_secrets(self.location)
                raise Refused(f"{shown} does not exist. The sweep records nothing as gone without it.") from None
        self._check_below(infos, root)
        return [(path[len(root) :], info) for path, info in infos.items() if path[len(root) :] not in ("", IDENTITY)]

    def _tree(self, fs: FileSystem, root: str) -> dict[str, Info]:
        # also the folder itself; paths of folders end in a separator
        fs.invalidate_cache()
        folder = root.rstrip(SEPARATOR)
        try:
            if not fs.isdir(folder):
                return {}
            infos = self._find(fs, folder, withdirs=True)
        except FileNotFoundError:
            return {}
        return {root: {"size": 0}} | {
            path + (SEPARATOR if info["type"] == "directory" else ""): info for path, info in infos.items()
        }

    def _find(self, fs: FileSystem, folder: str, **more: Any) -> dict[str, Info]:
        infos = {path.rstrip(SEPARATOR): info for path, info in fs.find(folder, detail=True, **more).items()}
        self._check_below(infos, f"{folder}{SEPARATOR}")
        return infos

    def _check_below(self, paths: Mapping[str, Info], root: str) -> None:
        # a driver may name what it was not asked for
        if stray := next((path for path in paths if not f"{path}{SEPARATOR}".startswith(root)), None):
            raise Refused(
                f"The file system names {quote(stray, 200)} among files below {root}, so nothing there is listed or deleted."
            )

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as fault:
            text = mask_text(str(fault)) or type(fault).__name__
            raise Refused(f"{mask_secrets(self.location)} can't be listed: {text}. Check its permissions.") from fault


def _entry(key: str, info: Info) -> Entry:
    time = time_in_ns(next((info[name] for name in _TIMES if info.get(name)), None))
    generation, etag = info.get("generation"), info.get("etag") or info.get("ETag")
    return Entry(
        key, info.get("size"), time,
        generation=str(generation) if generation else None, etag=str(etag).strip('"') if etag else None,
    )  # fmt: skip


def _note_of(infos: Mapping[str, Info]) -> FolderNote:
    files = [_entry(path, info) for path, info in infos.items() if not path.endswith(SEPARATOR)]
    return FolderNote.of_files(sum(int(file.size or 0) for file in files), ((int(file.size or 0), file.time) for file in files))


def _delete_one(fs: FileSystem, path: str, permit: Permit) -> None:
    # by its literal name, never as a pattern
    permit()
    with suppress(FileNotFoundError):
        if not path.endswith(SEPARATOR):
            fs.rm_file(path)
            return
        # where folders are only key prefixes, they go with the last file
        fs.invalidate_cache()
        if fs.isdir(path.rstrip(SEPARATOR)):
            fs.rmdir(path.rstrip(SEPARATOR))
