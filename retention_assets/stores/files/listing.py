"""Lists the files of a log and tells one version of a file from another.

Every question to the store lists anew, because an old listing may miss what protects data now; log.py has the exception for
logs of many files.
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
from retention_assets.stores.places.file_systems import FileSystem, is_local, open_file_system

# path, size and version; plain tuples because thousands are compared on every call
Found = tuple[str, int, str]

# these keys change whenever the content does
_EXACT = ("ETag", "etag", "VersionId", "version_id", "generation", "md5")
_VERSIONS = (*_EXACT, "mtime", "LastModified", "last_modified")
_SAYS_NOTHING = ("name", "size", "type", "Key", "Size", "StorageClass")
# nanoseconds; file systems may keep times no finer, and two changes within one grain can look the same
_GRAIN = 2_000_000_000


@dataclass(frozen=True)
class LogFile:
    """A file of a log as it was when it was listed. Other content makes another value."""

    # the place of the log, which opens its file system, and the path in it
    log: str
    path: str
    size: int
    version: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """Mask secrets of the place for messages."""
        if not has_scheme(self.log):
            return self.path
        log = mask_secrets(self.log).rstrip("/")
        return log if log.endswith(f"/{self.name}") else f"{log}/{self.name}"


def list_logs(place: str) -> tuple[Found, ...]:
    """List the files of a log, by path. Raises BadInput if there is none."""
    fs, path = open_file_system(place)
    found = _local(path) if is_local(fs) else _remote(fs, path)
    if not found:
        expected = "a log: a file of JSON lines or Parquet, or a folder of them"
        raise BadInput(Problem("is not there, or holds no log", file=mask_secrets(place), expected=expected))
    return tuple(sorted(found))


def is_settled(file: LogFile) -> bool:
    """Tell whether what is read from now on is this version's content, and no later content can have the same version."""
    fs, _ = open_file_system(file.log)
    if not is_local(fs):
        # such a version was made of one of these keys
        return file.version.startswith(tuple(f"{key}=" for key in _EXACT))
    try:
        info = os.stat(file.path)
    except FileNotFoundError:
        return False
    return _local_version(info) == file.version and now().timestamp() * 1e9 - info.st_ctime_ns > _GRAIN


def is_as_listed(file: LogFile) -> bool:
    """Tell whether a local file still is the version that was listed."""
    info = _stat_at(file.path)
    return info is not None and _local_version(info) == file.version


def folder_version(place: str) -> str | None:
    """Return a text that changes when files enter or leave a local folder; None for anything but a local folder."""
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
    """Raises BadInput for a pipe, a device or a socket."""
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise BadInput(irregular(name))
    return stat.S_ISREG(info.st_mode)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for dangling symlinks and for files that vanished while listing."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def files_matching(glob: str) -> tuple[LogFile, ...]:
    """List the files that a glob matches, by path; a name that contains glob characters matches itself as well."""
    fs, path = open_file_system(glob)
    if is_local(fs):
        # files that vanish meanwhile are skipped, and so are folders
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
    # includes the ctime: no tool can set it back
    return f"{info.st_mtime_ns}-{info.st_ctime_ns}-{info.st_ino}"


def _remote(fs: FileSystem, path: str) -> list[Found]:
    fs.invalidate_cache()
    try:
        info = fs.info(path)
        entries = [info] if info["type"] == "file" else [entry for entry in fs.ls(path, detail=True) if is_log(entry["name"])]
    except FileNotFoundError as fault:
        # the http driver raises it for any fault
        if is_silence(fault):
            raise
        return []
    return [(str(entry["name"]), int(entry["size"]), _version(entry)) for entry in entries if entry["type"] == "file"]


def _version(info: Mapping[str, Any]) -> str:
    """Use the keys known to identify content, or else everything the driver says. Raises Refused if it says nothing."""
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
    """Filter out keys that reading a log changes."""
    return "access" in str(key).lower() or str(key).lower() == "atime"
