"""Files of a log: listed, told from other versions of themselves, and read.

Every question to the store lists anew, because an old listing may miss what protects data now; log.py has the exception for
logs of many files. A file may hold thousands of datasets that are asked for one by one, so it is read once, cut into them and
cached by its version. Remote files are read from a local copy, once it is as large as what was listed and has the same hash,
where the store has one that can be compared.
"""

import base64
import hashlib
import itertools
import os
import re
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import BadInput, Problem, Refused, irregular
from retention_assets.exchange import SMALL, datasets_in, ids_in, is_log, is_plain, read_file
from retention_assets.frames.arrays import Ints, join_chunks
from retention_assets.settings.places import has_scheme, mask_secrets
from retention_assets.silence import is_silence
from retention_assets.stores.places.file_systems import FileSystem, is_local, is_s3, open_file_system

# path, size and version; plain tuples because thousands are compared on every call
Found = tuple[str, int, str]

# these keys change whenever the content does
_EXACT = ("ETag", "etag", "VersionId", "version_id", "generation", "md5")
_VERSIONS = (*_EXACT, "mtime", "LastModified", "last_modified")
_SAYS_NOTHING = ("name", "size", "type", "Key", "Size", "StorageClass")
# nanoseconds; file systems may keep times no finer, and two changes within one grain can look the same
_GRAIN = 2_000_000_000
# larger files keep only their ids in memory; their lines are read on demand
WHOLE_BYTES = 64 << 20
# bytes that a process caches, over all logs
_KEPT_BYTES = 256 << 20
# files read together
_AT_ONCE = 1_000
# bytes of Python objects per dataset: its name and an array of places
_PER_DATASET = 250
_MD5 = re.compile(r"[0-9a-f]{32}")
_NO_IDS = pa.array([], pa.string())


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
    files = _local(path) if is_local(fs) else _remote(fs, path)
    if not files:
        expected = "a log: a file of JSON lines or Parquet, or a folder of them"
        raise BadInput(Problem("is not there, or holds no log", file=mask_secrets(place), expected=expected))
    return tuple(sorted(files))


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
            stats = [(entry.path, _stat_at(entry.path)) for entry in entries if is_log(entry.name)]
    except NotADirectoryError:
        stats = [(path, os.stat(path))]
    except FileNotFoundError:
        return []
    return [(name, info.st_size, _local_version(info)) for name, info in stats if info and _is_file(name, info)]


def _is_file(name: str, info: os.stat_result) -> bool:
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise BadInput(irregular(name))
    return stat.S_ISREG(info.st_mode)


def files_matching(glob: str) -> tuple[LogFile, ...]:
    """List the files that a glob matches, by path; a name that contains glob characters matches itself as well."""
    fs, path = open_file_system(glob)
    if is_local(fs):
        # files that vanish meanwhile are skipped, and so are folders
        stats = {name: info for name in {path, *fs.glob(path)} if (info := _stat_at(name)) and _is_file(name, info)}
        return tuple(LogFile(name, name, info.st_size, _local_version(info)) for name, info in sorted(stats.items()))
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
    # None for dangling symlinks and for files that vanish while they are listed
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
    # the keys known to identify content, or else everything the driver says
    if known := [f"{key}={info[key]}" for key in _VERSIONS if info.get(key)]:
        return "-".join(known)
    # reading a log changes the time of access
    facts = {
        key: value
        for key, value in info.items()
        if key not in _SAYS_NOTHING and "access" not in str(key).lower() and str(key).lower() != "atime"
    }
    if not any(value not in (None, "") for value in facts.values()):
        raise Refused(
            f"The file system of {mask_secrets(str(info['name']))} gives neither time nor version, so a changed log would "
            "not be noticed. Keep the log on a file system that gives them."
        )
    return repr(sorted(facts.items(), key=str))


@dataclass(frozen=True, eq=False)
class ContentSlice:
    """Lines of a file in file order, and the places of each dataset's lines."""

    table: pa.Table
    rows: dict[str, Ints]
    # estimated memory
    bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> "ContentSlice":
        table = table.combine_chunks()
        encoded = join_chunks(table["dataset"].dictionary_encode().unify_dictionaries())
        places = np.asarray(encoded.indices, dtype=np.int64)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places, minlength=len(encoded.dictionary)))[:-1]
        # without lines np.split returns one part, but there is no dataset
        rows = dict(zip(encoded.dictionary.to_pylist(), np.split(order, ends) if len(order) else (), strict=True))
        return cls(table, rows, table.nbytes + order.nbytes + _PER_DATASET * len(rows))

    def lines(self, datasets: Collection[str]) -> pa.Table:
        rows = [self.rows[name] for name in datasets if name in self.rows]
        return self.table.take(np.sort(np.concatenate(rows))) if rows else self.table.slice(0, 0)


class _SliceCache:
    """LRU cache of slices, bounded by bytes."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._slices: OrderedDict[tuple[LogFile, bool], ContentSlice] = OrderedDict()
        self._lock = Lock()

    def kept(self, file: LogFile, whole: bool) -> ContentSlice | None:
        key = file, whole
        with self._lock:
            if (kept := self._slices.get(key)) is not None:
                self._slices.move_to_end(key)
            return kept

    def get(self, file: LogFile, whole: bool, make: Callable[[], ContentSlice]) -> ContentSlice:
        """Return the cached slice or make one. Cached only if a later version of the file can't be mistaken for this one."""
        if (kept := self.kept(file, whole)) is not None:
            return kept
        key = file, whole
        stays = is_settled(file)
        slice_ = make()
        if stays and slice_.bytes <= _KEPT_BYTES:
            with self._lock:
                # another thread may have added it meanwhile
                if key not in self._slices:
                    self._slices[key] = slice_
                    self._room -= slice_.bytes
                while self._room < 0:
                    self._room += self._slices.popitem(last=False)[1].bytes
        return slice_


_cache = _SliceCache(_KEPT_BYTES)


@lru_cache(maxsize=100_000)
def datasets_of(file: LogFile) -> tuple[str, ...]:
    with local_copy(file) as path:
        return tuple(datasets_in(path))


def lines_of(file: LogFile, datasets: Collection[str]) -> pa.Table:
    if file.size > WHOLE_BYTES:
        return _read(file, datasets)
    return _cache.get(file, True, lambda: ContentSlice.of(_read(file))).lines(datasets)


def lines_of_all(wanted: Mapping[LogFile, Collection[str]]) -> list[pa.Table]:
    """Read the datasets' lines from each file, in the order of the files; neighbouring small files in one read.

    Starting a read costs more than a small file, and a log may have thousands.
    """
    tables: list[pa.Table] = []
    for alike, files in itertools.groupby(wanted, _can_be_joined):
        group = list(files)
        for first in range(0, len(group), _AT_ONCE):
            batch = group[first : first + _AT_ONCE]
            together = (
                _read_together(batch, set[str]().union(*(wanted[file] for file in batch))) if alike and len(batch) > 1 else None
            )
            tables += [lines_of(file, wanted[file]) for file in batch] if together is None else [together]
    return tables


def _can_be_joined(file: LogFile) -> bool:
    fs, _ = open_file_system(file.log)
    return is_local(fs) and 0 < file.size <= SMALL and is_plain(file.name)


def _read_together(files: Sequence[LogFile], datasets: Collection[str]) -> pa.Table | None:
    # None on a fault, so that the caller reads them singly and names the one at fault
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "log.jsonl"
        try:
            with whole.open("wb") as stream:
                for file in files:
                    stream.write(Path(file.path).read_bytes() + b"\n")
            return read_file(whole, datasets)
        except (BadInput, OSError):
            return None


def ids_of(file: LogFile, dataset: str) -> pa.Array:
    # small files answer without a database; very large ones cache only their ids
    if (kept := _cache.kept(file, True)) is not None:
        slice_ = kept
    elif SMALL < file.size <= WHOLE_BYTES:
        slice_ = _cache.get(file, True, lambda: ContentSlice.of(_read(file)))
    else:
        slice_ = _cache.get(file, False, lambda: ContentSlice.of(_of_copy(file, ids_in)))
    return (
        join_chunks(slice_.table["transaction"].take(slice_.rows[dataset]).drop_null()) if dataset in slice_.rows else _NO_IDS
    )


@contextmanager
def local_copy(file: LogFile) -> Iterator[Path]:
    """Yield a local path for the file, a copy if it is remote. Faults name the original place, not the copy."""
    fs, _ = open_file_system(file.log)
    if is_local(fs):
        yield Path(file.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"log-{file.name}"
        try:
            fs.get_file(file.path, str(copy))
            check_copy(fs, file, copy)
            yield copy
        except BadInput as fault:
            raise BadInput(replace(problem, file=file.shown) for problem in fault.problems) from None


def _read(file: LogFile, datasets: Collection[str] | None = None) -> pa.Table:
    return _of_copy(file, lambda path: read_file(path, datasets))


def _of_copy(file: LogFile, read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        with local_copy(file) as path:
            return read(path)
    except FileNotFoundError:
        raise BadInput(Problem("was removed while it was read", file=file.shown, remedy="Try again.")) from None


def check_copy(fs: FileSystem, file: LogFile, copy: Path) -> None:
    """Raises BadInput for a copy that is not the whole file that was listed."""
    size = copy.stat().st_size
    if size != file.size:
        raise _fault(file, f"came with {size} bytes, but was listed with {file.size}")
    expected = _md5_of(fs, file)
    if expected is None:
        return
    with copy.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != expected:
        raise _fault(file, "came with other content than its store reports")


def _fault(file: LogFile, what: str) -> BadInput:
    remedy = "Try again. If that does not help, check the network and the store."
    return BadInput(Problem(what, file=file.shown, expected="the whole file", remedy=remedy))


def _md5_of(fs: FileSystem, file: LogFile) -> str | None:
    if is_s3(fs):
        bucket, key, _ = fs.split_path(file.path)
        head = fs.call_s3("head_object", Bucket=bucket, Key=key)
        tag = str(head.get("ETag", "")).strip('"')
        # the ETag is the MD5 except for multipart uploads and objects encrypted with a key of their own
        own_key = head.get("SSECustomerAlgorithm") or str(head.get("ServerSideEncryption", "")).startswith("aws:kms")
        return tag if _MD5.fullmatch(tag) and not own_key else None
    info: Mapping[str, Any] = fs.info(file.path)
    settings = info.get("content_settings") or {}
    written = info.get("md5Hash") or (settings.get("content_md5") if isinstance(settings, Mapping) else None)
    if not written:
        return None
    return (bytes(written) if isinstance(written, bytes | bytearray) else base64.b64decode(written)).hex()
