"""The log of a `files` store: which files hold lines of which dataset, and the answers that follow from it.

Each question lists the files anew (but see `recent_index`). What depends only on file versions is computed once for them, so a
question about one dataset costs no more where there are many.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.errors import BadInput, Problem
from retention_assets.exchange import joined_lines, reading_order
from retention_assets.stores.files.log_files import (
    Found,
    LogFile,
    datasets_of,
    folder_version,
    ids_of,
    is_as_listed,
    lines_of_all,
    list_logs,
)

# bytes of log: some thousand small histories, or about a second of work
_TOGETHER = 4 << 20


@dataclass(frozen=True, eq=False)
class LogIndex:
    """Files of a log as listed, by dataset. Two indexes of one listing are the same object."""

    # all dataset names, sorted, each with its files in reading order
    files: Mapping[str, tuple[LogFile, ...]]

    def files_holding(self, datasets: Collection[str]) -> dict[LogFile, list[str]]:
        """Return the files that mention any of the datasets, in reading order, each with those datasets."""
        holding: dict[LogFile, list[str]] = {}
        for name in sorted(set(datasets)):
            for file in self.files.get(name, ()):
                holding.setdefault(file, []).append(name)
        return dict(sorted(holding.items(), key=lambda one: reading_order(one[0].name)))

    def transactions(self, dataset: str) -> pa.Array:
        ids = [ids_of(file, dataset) for file in self.files.get(dataset, ())]
        return pa.concat_arrays(ids) if ids else pa.array([], pa.string())


class _Listed(NamedTuple):
    """A listing of a local folder, when it began, and the folder's version before it."""

    at: float
    folder: str
    files: LogIndex


# last listing of each log with many files
_listed: dict["FilesLog", _Listed] = {}
# from this many files on a listing costs more than deleting a small dataset; seconds for which one stays valid
_MANY, _LATELY = 100, 1.0


@dataclass(frozen=True)
class FilesLog:
    """The log of a store: one file, or all files in a folder."""

    store: str
    place: str

    def index(self) -> LogIndex:
        """List the files anew. Raises BadInput if there is none, or one speaks of another store."""
        _listed.pop(self, None)
        at, folder = moment().running, folder_version(self.place)
        files = list_logs(self.place)
        index = _index_of(self, files)
        if len(files) >= _MANY and folder is not None:
            _listed[self] = _Listed(at, folder, index)
        return index

    def recent_index(self, dataset: str) -> LogIndex:
        """Return an index for one dataset in the middle of a sweep, which may be one of thousands.

        For a large folder a listing of the last second is reused if neither the folder nor a file of the dataset has changed: a
        sweep checks for changes no more often than that itself.
        """
        listed = _listed.get(self)
        if listed is None or moment().running - listed.at > _LATELY or folder_version(self.place) != listed.folder:
            return self.index()
        return listed.files if all(map(is_as_listed, listed.files.files.get(dataset, ()))) else self.index()

    def datasets(self) -> list[str]:
        return list(self.index().files)

    def lines(self, datasets: Collection[str]) -> pa.Table:
        holding = self.index().files_holding(datasets) if datasets else {}
        return joined_lines(lines_of_all(holding))

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """Group datasets that share files, also through others, so that each file is read once; merge small groups."""
        first = {dataset: dataset for dataset in datasets}

        def root(dataset: str) -> str:
            while first[dataset] != dataset:
                first[dataset] = dataset = first[first[dataset]]
            return dataset

        holding = self.index().files_holding(datasets) if datasets else {}
        for names in holding.values():
            for name in names:
                first[root(name)] = root(names[0])
        # a dataset in no file costs nothing to read
        nowhere = sorted(first.keys() - set[str]().union(*holding.values()))
        for name in nowhere:
            first[name] = nowhere[0]
        shares: dict[str, list[str]] = {}
        for dataset in sorted(first):
            shares.setdefault(root(dataset), []).append(dataset)
        sizes = dict.fromkeys(shares, 0)
        for file, names in holding.items():
            sizes[root(names[0])] += file.size
        return [tuple(sorted(share)) for share in _pack([(shares[one], size) for one, size in sizes.items()])]

    def tokens(self, datasets: Sequence[str]) -> dict[str, str]:
        """Hash the files that mention each dataset. Adding or removing such a file changes the token."""
        known = self.index().files if datasets else {}
        holding = {name: known[name] for name in datasets if name in known}
        digests: dict[tuple[LogFile, ...], str] = {}
        for files in set(holding.values()):
            versions = repr([(file.path, file.size, file.version) for file in files])
            digests[files] = hashlib.sha256(versions.encode(errors="surrogateescape")).hexdigest()
        return {name: digests[files] for name, files in holding.items()}


def _pack(shares: Iterable[tuple[list[str], int]]) -> Iterator[list[str]]:
    together: list[str] = []
    room = _TOGETHER
    for share, size in shares:
        if together and size > room:
            yield together
            together, room = [], _TOGETHER
        together += share
        room -= size
    if together:
        yield together


# a sweep may serve several stores, and one of them may be written to meanwhile
@lru_cache(maxsize=8)
def _index_of(log: FilesLog, found: tuple[Found, ...]) -> LogIndex:
    files = sorted((LogFile(log.place, *one) for one in found), key=lambda file: reading_order(file.name))
    problems: list[Problem] = []
    holding: dict[str, list[LogFile]] = {}
    for file in files:
        names = datasets_of(file)
        begin = f"{log.store}/"
        if foreign := next((name for name in names if not name.startswith(begin) or name == begin), None):
            problems.append(
                Problem(
                    f"names a dataset that does not belong to the store {log.store}", file=file.shown, key="dataset",
                    value=foreign, expected=f"{log.store}/name on each line",
                    remedy="Move those lines to the log of their own store, or mend the name.",
                )
            )  # fmt: skip
        for name in names:
            holding.setdefault(name, []).append(file)
    if problems:
        raise BadInput(problems)
    return LogIndex({name: tuple(holding[name]) for name in sorted(holding)})
