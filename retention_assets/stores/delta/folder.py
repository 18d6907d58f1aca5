"""The folder of a table: its log as listed, content of files, names of files in it, and globs of such folders."""

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

from retention_assets.errors import Refused, quote
from retention_assets.policy.globs import is_literal
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.retry import retry
from retention_assets.stores.delta.settings import fixed_part
from retention_assets.stores.places import open_place
from retention_assets.stores.places.file_systems import FileSystem, is_local, open_file_system
from retention_assets.stores.places.fsspec import time_in_ns
from retention_assets.stores.places.s3_bucket import PATIENCE

LOG = "_delta_log"
CHANGE_DATA = "_change_data/"
_ABSOLUTE = re.compile(r"/|([A-Za-z][A-Za-z0-9+.-]*):/+")
# files of the log that are read at once; thousands of them together would not fit in memory
_AT_ONCE = 64
# Z85 and Python's base85 count alike, each with its own digits
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_DIGITS = str.maketrans(_Z85, _B85)
_ENCODED_UUID = 20


class LogFile(NamedTuple):
    """A file of a log: its name, size, and time of writing in nanoseconds. Folders have no size."""

    name: str
    size: int | None
    time: int


@dataclass(frozen=True)
class TableFolder:
    """A folder that holds a `_delta_log`, by its path or URI."""

    location: str

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        return open_file_system(self.location)

    @property
    def shown(self) -> str:
        return shown_place(self.location)

    @cached_property
    def canonical(self) -> str:
        """The path without links, or the URI, as names of files in it begin; ends in a separator."""
        fs, path = self._opened
        return f"{os.path.realpath(path)}/" if is_local(fs) else f"s3://{path.rstrip('/')}/"

    def is_there(self) -> bool:
        """Tell whether there is such a folder, or anything below it."""
        fs, path = self._opened
        fs.invalidate_cache()
        return bool(fs.exists(path))

    def list_log(self) -> tuple[LogFile, ...]:
        """List the log, sorted by name; empty if there is none. Raises OSError, and Refused behind a link to nothing."""
        fs, path = self._opened
        try:
            if is_local(fs):
                with os.scandir(f"{path}/{LOG}") as entries:
                    visible = (entry for entry in entries if not entry.name.startswith("."))
                    files = list(filter(None, map(_local_file, visible)))
            else:
                fs.invalidate_cache()
                infos = retry(lambda: fs.ls(f"{path}/{LOG}", detail=True), PATIENCE)
                files = [_remote_file(info) for info in infos]
        except (FileNotFoundError, NotADirectoryError) as fault:
            if is_local(fs) and _leads_nowhere(f"{path}/{LOG}"):
                raise Refused(f"{self.shown} is behind a link that leads nowhere. Check that its disk is mounted") from fault
            return ()
        return tuple(sorted(files))

    def names_in(self, folder: str) -> list[str]:
        fs, path = self._opened
        try:
            names = [name.rstrip("/").rpartition("/")[2] for name in fs.ls(f"{path}/{LOG}/{folder}", detail=False)]
            # an object may stand for the folder itself
            return [f"{folder}/{name}" for name in names if name != folder]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, names: Sequence[str]) -> Iterator[bytes]:
        """Read files of the log in order. Raises OSError."""
        fs, path = self._opened
        for begin in range(0, len(names), _AT_ONCE):
            places = [f"{path}/{LOG}/{name}" for name in names[begin : begin + _AT_ONCE]]
            if is_local(fs):
                for place in places:
                    with open(place, "rb") as file:
                        yield file.read()
            else:
                yield from _read_all(fs, places)

    def open(self, name: str) -> IO[Any]:
        fs, path = self._opened
        opened: IO[Any] = fs.open(f"{path}/{LOG}/{name}", "rb")
        return opened

    def name_of(self, path: str) -> str:
        """Return the name of a file below the folder by its path in the log; one elsewhere begins with a separator.

        A path of the log is a URI: it is decoded once.
        """
        absolute = _ABSOLUTE.match(path)
        name = unquote(path, errors="surrogateescape")
        if absolute is None:
            return name
        place = canonical_place(name)
        return place[len(self.canonical) :] if place.startswith(self.canonical) else f"/{place}"

    def vector_name(self, storage: str, text: str) -> str | None:
        """Return the name of a deletion vector's file; None for an inline one. Raises Refused for an unknown storage type."""
        if storage == "i":
            return None
        if storage == "p":
            return self.name_of(text)
        if storage != "u" or len(text) < _ENCODED_UUID:
            raise Refused(f"a deletion vector has the unknown storage type {storage!r}")
        prefix, encoded = text[:-_ENCODED_UUID], text[-_ENCODED_UUID:]
        return f"{prefix}{'/' if prefix else ''}deletion_vector_{_decoded_uuid(encoded)}.bin"


def shown_place(place: str) -> str:
    """Return a place as people see it: without secrets, and any name as text."""
    return mask_secrets(place).encode(errors="backslashreplace").decode()


def canonical_place(place: str) -> str:
    """Return the one form of an absolute path or URI: without links on a disk, with one scheme for S3."""
    scheme, path = _split(place)
    if scheme in ("", "file", "local"):
        folder, _, name = path.rpartition("/")
        return f"{_real(folder)}/{name}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{path.lstrip('/')}"


def _split(place: str) -> tuple[str, str]:
    absolute = _ABSOLUTE.match(place)
    scheme = ((absolute and absolute[1]) or "").lower()
    path = place[len(scheme) + 1 :] if scheme else place
    path = path.removeprefix("//localhost") if scheme == "file" and path.startswith("//localhost/") else path
    return scheme, f"/{path.lstrip('/')}"


@lru_cache(maxsize=4096)
def _real(folder: str) -> str:
    return os.path.realpath(folder).rstrip("/")


def _decoded_uuid(text: str) -> str:
    from base64 import b85decode

    try:
        return str(uuid.UUID(bytes=b85decode(text.translate(_DIGITS))))
    except ValueError as fault:
        raise Refused(f"a deletion vector has the name {text!r}, which is no encoded UUID") from fault


def _is_folder(entry: "os.DirEntry[str]", every: bool) -> bool:
    if not entry.is_symlink():
        return entry.is_dir()
    # A link that leads nowhere counts if every folder is wanted: opening it then reports what is missing.
    return os.path.isdir(entry.path) or (every and entry.name[0] != "." and not os.path.exists(entry.path))


def _leads_nowhere(path: str) -> bool:
    return any(place.is_symlink() and not place.exists() for place in (Path(path), *Path(path).parents))


def _local_file(entry: "os.DirEntry[str]") -> LogFile | None:
    # None if it was removed after it was listed
    try:
        if entry.is_dir():
            return LogFile(entry.name, None, 0)
        status = entry.stat()
    except FileNotFoundError as fault:
        if entry.is_symlink():
            raise Refused(f"{quote(entry.name)} in its log is a link that leads nowhere") from fault
        return None
    return LogFile(entry.name, status.st_size, status.st_mtime_ns)


def _remote_file(info: dict[str, Any]) -> LogFile:
    name = info["name"].rstrip("/").rpartition("/")[2]
    is_folder = info["type"] == "directory"
    return LogFile(name, None if is_folder else info["size"], 0 if is_folder else time_in_ns(info.get("LastModified")) or 0)


def _read_all(fs: FileSystem, places: Sequence[str]) -> Iterator[bytes]:
    contents = retry(lambda: fs.cat(list(places), on_error="raise"), PATIENCE)
    if isinstance(contents, bytes):
        yield contents
        return
    yield from (contents[place] for place in places)


def find_folders(glob: str, every: bool = False) -> list[str]:
    """Return the folders that a glob matches, by path; a glob without wildcards is its own match.

    Raises Refused if the folder that it begins with is not there. Unless `every` one is wanted, it must not be empty, and `*`
    matches no name that begins with a dot or an underscore.
    """
    fixed = fixed_part(glob)
    rest = [name for name in glob[len(fixed) :].split("/") if name]
    if not rest:
        return [glob]
    place = open_place(fixed)
    if not (any(True for _ in place.names_in()) or every or _folders_in(fixed, every)):
        raise Refused(f"{mask_secrets(fixed)} is empty. Check the place, and that its disk is mounted.")
    folders: list[str] = [fixed]
    for name in rest:
        folders = [f"{parent}/{child}" for parent in folders for child in _children(parent, name, every)]
    return sorted(folders)


def _children(parent: str, name: str, every: bool) -> Iterator[str]:
    if is_literal(name):
        yield name
        return
    for child in _folders_in(parent, every):
        if (every or name[0] in "._" or child[0] not in "._") and fnmatchcase(child, name):
            yield child


def _folders_in(folder: str, every: bool) -> list[str]:
    fs, path = open_file_system(folder)
    if not is_local(fs):
        return [name[:-1] for name in open_place(folder).names_in() if name.endswith("/") and name != "/"]
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if _is_folder(entry, every)]
    except (FileNotFoundError, NotADirectoryError):
        return []
