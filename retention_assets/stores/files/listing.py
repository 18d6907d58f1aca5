"""Which files a log of a `files` store has, and which version each is.

Belongs here: listing, and telling one version of a file from another. Questions to the store begin with a listing of their
own, because what was true a moment ago may protect nothing now; of a log of many files see log.py.
Does not belong here: what is in the files (content.py), and what follows from it (log.py).
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retention_assets.clock import now
from retention_assets.errors import BadInput, Problem, Refused, irregular
from retention_assets.exchange import is_log
from retention_assets.settings.urls import has_scheme, mask_secrets
from retention_assets.silence import is_silence
from retention_assets.stores.files.file_systems import FileSystem, is_local, open_file_system

# Path, size and version. Thousands of them are compared on every call, so they are plain.
Found = tuple[str, int, str]

# These are another text whenever the content is another.
_EXACT = ("ETag", "etag", "VersionId", "version_id", "generation", "md5")
_VERSIONS = (*_EXACT, "mtime", "LastModified", "last_modified")
_SAYS_NOTHING = ("name", "size", "type", "Key", "Size", "StorageClass")
# A file system may keep times no finer than this; what changed within it may change again and look the same.
_GRAIN = 2_000_000_000


@dataclass(frozen=True)
class LogFile:
    """A file of a log as it was when it was listed. Another content is another value."""

    # The place of the log, by which its file system is opened, and the path in that.
    log: str
    path: str
    size: int
    version: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """The place as it may stand in a message."""
        if not has_scheme(self.log):
            return self.path
        log = mask_secrets(self.log).rstrip("/")
        return log if log.endswith(f"/{self.name}") else f"{log}/{self.name}"


def list_logs(place: str) -> tuple[Found, ...]:
    """The files of a log as they are now, by path. Raises BadInput if there is none."""
    fs, path = open_file_system(place)
    found = _local(path) if is_local(fs) else _remote(fs, path)
    if not found:
        expected = "a log: a file of JSON lines or Parquet, or a folder of them"
        raise BadInput(Problem("is not there, or holds no log", file=mask_secrets(place), expected=expected))
    return tuple(sorted(found))


def is_settled(file: LogFile) -> bool:
    """Whether what is read from now on is the content of this version, and no later content can have the same version."""
    fs, _ = open_file_system(file.log)
    if not is_local(fs):
        # A version that begins so was made of one of these keys.
        return file.version.startswith(tuple(f"{key}=" for key in _EXACT))
    try:
        info = os.stat(file.path)
    except FileNotFoundError:
        return False
    return _local_version(info) == file.version and now().timestamp() * 1e9 - info.st_ctime_ns > _GRAIN


def is_as_listed(file: LogFile) -> bool:
    """Whether a local file still is the version that was listed."""
    info = _stat_at(file.path)
    return info is not None and _local_version(info) == file.version


def folder_version(place: str) -> str | None:
    """Another text once files have come into a local folder, or are gone from it; none of what is no such folder."""
    fs, path = open_file_system(place)
    info = _stat_at(path) if is_local(fs) else None
    return _local_version(info) if info and stat.S_ISDIR(info.st_mode) else None


def _local(path: str) -> list[Found]:
    try:
        with os.scandir(path) as entries:
            stats = [(entry.path, _stat(entry)) for entry in entries if is_log(entry.name)]
    except NotADirectoryError:
        stats = [(path, os.stat(path))]
    except FileNotFoundError:
        return []
    return [(name, info.st_size, _local_version(info)) for name, info in stats if info and _is_file(name, info)]


def _is_file(name: str, info: os.stat_result) -> bool:
    """Whether it is a file and no folder. Raises BadInput for a pipe, a device or a socket."""
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise BadInput(irregular(name))
    return stat.S_ISREG(info.st_mode)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a symlink that leads nowhere, and for what went while it was listed."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def files_matching(glob: str) -> tuple[LogFile, ...]:
    """The files that a glob means as they are now, by path; a name that holds signs of a glob means itself as well."""
    fs, path = open_file_system(glob)
    if is_local(fs):
        # What goes while it is looked for was not there, and a folder is no file.
        found = {name: info for name in {path, *fs.glob(path)} if (info := _stat_at(name)) and _is_file(name, info)}
        return tuple(LogFile(name, name, info.st_size, _local_version(info)) for name, info in sorted(found.items()))
    fs.invalidate_cache()
    entries = fs.glob(path, detail=True)
    if not entries and fs.isfile(path):
        entries = {path: fs.info(path)}
    begin = "" if has_scheme(path) else glob[: glob.rindex("://") + len("://")]
    return tuple(
        LogFile(f"{begin}{name}", name, int(entry["size"]), _version(entry))
        for name, entry in sorted(entries.items())
        if entry["type"] == "file"
    )


def _stat_at(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _local_version(info: os.stat_result) -> str:
    # The time of the last change of any kind is there too: no tool sets it back.
    return f"{info.st_mtime_ns}-{info.st_ctime_ns}-{info.st_ino}"


def _remote(fs: FileSystem, path: str) -> list[Found]:
    fs.invalidate_cache()
    try:
        info = fs.info(path)
        entries = [info] if info["type"] == "file" else [entry for entry in fs.ls(path, detail=True) if is_log(entry["name"])]
    except FileNotFoundError as fault:
        # The driver for http calls so whatever went wrong.
        if is_silence(fault):
            raise
        return []
    return [(str(entry["name"]), int(entry["size"]), _version(entry)) for entry in entries if entry["type"] == "file"]


def _version(info: Mapping[str, Any]) -> str:
    """The keys that are known to tell, or else everything that the driver says. Raises Refused if it says nothing."""
    if known := [f"{key}={info[key]}" for key in _VERSIONS if info.get(key)]:
        return "-".join(known)
    facts = {key: value for key, value in info.items() if key not in _SAYS_NOTHING and not _is_of_reading(key)}
    if not any(value not in (None, "") for value in facts.values()):
        raise Refused(
            f"The file system of {mask_secrets(str(info['name']))} tells nothing by which a changed log would be seen: no"
            " time, no version. Keep the log on a file system that does."
        )
    return repr(sorted(facts.items(), key=str))


def _is_of_reading(key: object) -> bool:
    """Reading a log must not make it look changed."""
    return "access" in str(key).lower() or str(key).lower() == "atime"
