"""The logs of a `files` store: which files there are, which datasets each speaks of, and their lines.

Belongs here: listing, and reading through exchange.py; a remote file is read from a copy. Which datasets a file holds is
remembered by the file's identity, because every question about a dataset begins with it and a log may have a million lines.
Does not belong here: data, and what the lines mean.
"""

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention_assets.exchange import datasets_in, is_log, joined_lines, read_file, reading_order
from retention_assets.frames.arrays import joined
from retention_assets.places import has_scheme, masked
from retention_assets.problems import BadInput, Problem
from retention_assets.stores.file_systems import FileSystem, is_local, opened

# By these a remote file system tells one version of a file from another, each in its own words.
_VERSIONS = (
    "ETag",
    "etag",
    "VersionId",
    "version_id",
    "generation",
    "md5",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)


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
        log = masked(self.log).rstrip("/")
        return log if log.endswith(f"/{self.name}") else f"{log}/{self.name}"


@dataclass(frozen=True)
class FilesLog:
    """The log of a store: one file, or all those in a folder."""

    store: str
    place: str

    def files(self) -> list[LogFile]:
        """The files in reading order, listed anew. Raises BadInput if there is none."""
        fs, path = opened(self.place)
        found = _local_files(Path(path)) if is_local(fs) else _remote_files(fs, path)
        files = [LogFile(self.place, *one) for one in found]
        if not files:
            expected = "a log: a file of JSON lines or Parquet, or a folder of them"
            raise BadInput(Problem("is not there, or holds no log", file=masked(self.place), expected=expected))
        return sorted(files, key=lambda file: reading_order(file.name))

    def held(self) -> dict[LogFile, tuple[str, ...]]:
        """The files, each with the datasets that it speaks of."""
        found = {file: _datasets_of(file) for file in self.files()}
        problems = [self._foreign(file, name) for file, names in found.items() if (name := self._first_foreign(names))]
        if problems:
            raise BadInput(problems)
        return found

    def datasets(self) -> list[str]:
        """The names of all datasets, sorted."""
        return sorted(set[str]().union(*self.held().values()))

    def holding(self, datasets: Collection[str]) -> dict[LogFile, list[str]]:
        """The files that speak of some datasets, each with those of them that it speaks of."""
        wanted = set(datasets)
        found = {file: [name for name in names if name in wanted] for file, names in self.held().items()}
        return {file: names for file, names in found.items() if names}

    def lines(self, datasets: Collection[str]) -> pa.Table:
        """The lines of some datasets, read now."""
        return joined_lines([_read(file, names) for file, names in self.holding(datasets).items()] if datasets else [])

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """Datasets that a chain of files connects are together, so that each file is read once."""
        first = {dataset: dataset for dataset in datasets}

        def root(dataset: str) -> str:
            while first[dataset] != dataset:
                first[dataset] = dataset = first[first[dataset]]
            return dataset

        held = self.holding(datasets) if datasets else {}
        for names in held.values():
            for name in names:
                first[root(name)] = root(names[0])
        # What no file speaks of costs nothing to read.
        nowhere = sorted(first.keys() - set[str]().union(*held.values()))
        for name in nowhere:
            first[name] = nowhere[0]
        shares: dict[str, list[str]] = {}
        for dataset in sorted(first):
            shares.setdefault(root(dataset), []).append(dataset)
        return [tuple(share) for share in shares.values()]

    def tokens(self, datasets: Sequence[str]) -> dict[str, str]:
        """Per dataset a hash of the files that speak of it. A new file that does changes it, as does a file that is gone."""
        holding: dict[str, list[LogFile]] = {}
        for file, names in (self.holding(datasets) if datasets else {}).items():
            for name in names:
                holding.setdefault(name, []).append(file)
        digests: dict[tuple[LogFile, ...], str] = {}
        for files in {tuple(files) for files in holding.values()}:
            said = repr([(file.path, file.size, file.version) for file in files])
            digests[files] = hashlib.sha256(said.encode(errors="surrogateescape")).hexdigest()
        return {name: digests[tuple(files)] for name, files in holding.items()}

    def transactions(self, dataset: str) -> pa.Array:
        """The ids of a dataset's transactions, whether or not its history is sound."""
        ids = [_ids_of(file, dataset) for file in self.holding([dataset])]
        return pa.concat_arrays(ids) if ids else pa.array([], pa.string())

    def _first_foreign(self, names: Iterable[str]) -> str | None:
        return next(
            (name for name in names if not (name.startswith(f"{self.store}/") and len(name) > len(self.store) + 1)), None
        )

    def _foreign(self, file: LogFile, name: str) -> Problem:
        return Problem(
            f"speaks of a dataset that is not of the store {self.store}", file=file.shown, key="dataset", value=name,
            expected=f"{self.store}/name on each line",
            remedy="Move those lines to the log of their own store, or mend the name.",
        )  # fmt: skip


def _local_files(path: Path) -> list[tuple[str, int, str]]:
    if path.is_dir():
        entries = [path / entry.name for entry in os.scandir(path) if is_log(entry.name) and entry.is_file()]
    else:
        entries = [path] if path.is_file() else []
    found = [(str(entry), entry.stat()) for entry in entries]
    # The time of the last change of any kind is there too: no tool sets it back.
    return [(entry, info.st_size, f"{info.st_mtime_ns}-{info.st_ctime_ns}-{info.st_ino}") for entry, info in found]


def _remote_files(fs: FileSystem, path: str) -> list[tuple[str, int, str]]:
    fs.invalidate_cache()
    try:
        info = fs.info(path)
        entries = [info] if info["type"] == "file" else [entry for entry in fs.ls(path, detail=True) if is_log(entry["name"])]
    except FileNotFoundError:
        return []
    return [(str(entry["name"]), int(entry["size"]), _version(entry)) for entry in entries if entry["type"] == "file"]


def _version(info: Mapping[str, Any]) -> str:
    return "-".join(str(info[key]) for key in _VERSIONS if key in info)


@contextmanager
def _here(file: LogFile) -> Iterator[Path]:
    """The file on this machine. What is wrong with it is said of its own place, not of the copy's."""
    fs, _ = opened(file.log)
    if is_local(fs):
        yield Path(file.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"log-{file.name}"
        try:
            fs.get_file(file.path, str(copy))
            yield copy
        except BadInput as fault:
            raise BadInput(replace(problem, file=file.shown) for problem in fault.problems) from None


def _read(file: LogFile, datasets: Collection[str] | None = None) -> pa.Table:
    try:
        with _here(file) as path:
            return read_file(path, datasets)
    except FileNotFoundError:
        raise BadInput(Problem("was there a moment ago and is not any more", file=file.shown, remedy="Try again.")) from None


@lru_cache(maxsize=100_000)
def _datasets_of(file: LogFile) -> tuple[str, ...]:
    with _here(file) as path:
        return tuple(datasets_in(path))


@lru_cache(maxsize=16)
def _ids_of(file: LogFile, dataset: str) -> pa.Array:
    return joined(_read(file, [dataset])["transaction"].drop_null())
