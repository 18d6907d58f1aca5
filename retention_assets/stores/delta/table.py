"""A table by its log: which file lives in which versions. Everything that a sweep decides follows from these intervals.

A file lives from the version that adds it up to the one that removes it, when these were committed: no time that a writer
noted counts. A file that is added again lives in several intervals. Change data lives in its one version.
"""

import re
from array import array
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, Ints
from retention_assets.frames.verdicts.shared_data import FOR_EVER
from retention_assets.stores.delta.actions import Commit

# a file that no version has removed lives up to here
_OPEN = 2**62
KEEP_VERSIONS = "retention.keep_versions"
DELETED_FILES = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
_UNIFORM = "delta.universalFormat.enabledFormats"
_COORDINATED = "delta.coordinatedCommits.commitCoordinator"
IN_COMMIT_TIME = "delta.enableInCommitTimestamps"
_DEFAULTS = {DELETED_FILES: "interval 1 week", LOG_RETENTION: "interval 30 days"}
_PROPERTY_COMMITS = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES"})
START, END = "VACUUM START", "VACUUM END"
ENGINE = "retention_assets"
_PART = re.compile(r"\s*(\d{1,9})\s+(microsecond|millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
_UNITS |= {"day": 24 * _UNITS["hour"], "week": 168 * _UNITS["hour"]}
# a copied table: its files were written within a minute, its commits noted over more than an hour
_COPIED_WITHIN, _WRITTEN_OVER = timedelta(minutes=1), timedelta(hours=1)
_LONGEST = timedelta.max // timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Version:
    """A version as its commit describes it. `base`: the newest version up to it that adds or removes a file."""

    number: int
    base: int
    closed_at: datetime
    # times of the commit: as its writer noted it, and of its file
    noted_at: datetime | None
    written_at: datetime
    operation: str | None
    engine: str | None
    user_metadata: str | None
    changes_data: bool
    # a CLONE names the table it copies
    source: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.base < self.number


@dataclass
class Table:
    """Everything that is known of a table up to its newest version."""

    times: str = "auto"
    # the same in copies, in which files keep their numbers
    lineage: object = field(default_factory=object)
    versions: dict[int, Version] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    # with its earlier ids
    ids: frozenset[str] = frozenset()
    keep_versions: str | None = None
    # the list of kept versions came with the commit that made the table, which may have had another one's properties
    keeps_since_made: bool = False
    # files of other folders that some version refers to, by number
    elsewhere: list[int] = field(default_factory=list)
    # an announcement of ours that has no end yet
    is_announced: bool = False

    # files by number: name, size or -1, and paths in the log that are not the name
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    raw: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    # intervals: file, first version, version that removed it
    _file: "array[int]" = field(default_factory=lambda: array("q"))
    _begin: "array[int]" = field(default_factory=lambda: array("q"))
    _end: "array[int]" = field(default_factory=lambda: array("q"))
    # live files with their vectors, by number, -1 for none; how many of them need each file; its open interval, or -1
    _live: dict[tuple[str, str | None], tuple[int, int]] = field(default_factory=dict)
    _count: "array[int]" = field(default_factory=lambda: array("q"))
    _row: "array[int]" = field(default_factory=lambda: array("q"))

    @property
    def newest(self) -> int:
        return next(reversed(self.versions))

    @property
    def newest_with_files(self) -> int:
        return self.versions[self.newest].base

    @property
    def has_commit_times(self) -> bool:
        return self.properties.get(IN_COMMIT_TIME, "").lower() == "true"

    @property
    def cleans_log(self) -> bool:
        return self.properties.get(LOG_CLEANUP, "true").lower() == "true"

    def copy(self) -> "Table":
        """Return a copy to which commits can be added; its files keep their numbers."""
        new = copy(self)
        vars(new).update({name: copy(value) for name, value in vars(self).items() if isinstance(value, dict | list | array)})
        vars(new).pop("intervals", None)
        return new

    def add_commit(self, number: int, commit: Commit, written_at: datetime) -> None:
        if commit.metadata is not None:
            self._take_metadata(commit)
        info = commit.info
        previous = self.versions[self.newest] if self.versions else None
        base = previous.base if commit.is_empty and previous else number
        noted_at = _instant(info.get("timestamp"))
        closed_at = self._time_of(info, noted_at, written_at)
        if previous and closed_at <= previous.closed_at:
            closed_at = previous.closed_at + _MILLISECOND
        parameters = info.get("operationParameters") or {}
        self.versions[number] = Version(
            number, base, closed_at, noted_at, written_at, _text(info.get("operation")), _text(info.get("engineInfo")),
            _text(info.get("userMetadata")), commit.changes_data,
            _text(parameters.get("source")) if info.get("operation") == "CLONE" else None,
        )  # fmt: skip
        if info.get("operation") in (START, END) and str(info.get("engineInfo", "")).startswith(ENGINE):
            self.is_announced = info["operation"] == START
        self._apply(number, commit)

    def _take_metadata(self, commit: Commit) -> None:
        metadata = commit.metadata or {}
        properties = {str(name): str(value) for name, value in (metadata.get("configuration") or {}).items()}
        # A RESTORE or CLONE brings properties along, which neither pin nor end what is pinned.
        operation = commit.info.get("operation")
        if operation in _PROPERTY_COMMITS or not (self.versions or operation == "CLONE"):
            self.keep_versions = properties.get(KEEP_VERSIONS)
            self.keeps_since_made = operation not in _PROPERTY_COMMITS
        self.properties, self.id = properties, str(metadata.get("id", ""))
        self.ids |= {self.id}

    def check_properties(self) -> None:
        """Raises Refused for properties that can't be read, and for those by which the log is not all that counts."""
        for name in (DELETED_FILES, LOG_RETENTION):
            self.interval(name)
        self.pinned_by_property()
        if self.properties.get(_UNIFORM, "").strip():
            raise Refused(f"its property {_UNIFORM} is set (UniForm): Iceberg's metadata refers to the same files")
        if any(name.startswith(_COORDINATED) for name in self.properties):
            raise Refused("its commits are coordinated by a catalog, so its newest versions may not be in its folder")

    def _time_of(self, info: Mapping[str, Any], noted_at: datetime | None, written_at: datetime) -> datetime:
        if (committed_at := _instant(info.get("inCommitTimestamp"))) and self.has_commit_times:
            return committed_at
        if self.times == "commit_info" and noted_at:
            return noted_at
        return max(noted_at or written_at, written_at)

    def _apply(self, number: int, commit: Commit) -> None:
        touched: set[int] = set()
        for action in commit.removes:
            if live := self._live.pop(action.key, None):
                self._count_files(live, -1, touched)
                self._note_path(live[0], action.name, action.path)
        for action in commit.adds:
            file = self._number(action.name, action.path, action.size)
            vector = self._number(action.vector_file, action.vector_file, None) if action.vector_file else -1
            if action.key not in self._live:
                self._count_files((file, vector), 1, touched)
            self._live[action.key] = file, vector
        for file in touched:
            row, is_live = self._row[file], self._count[file] > 0
            if is_live and row < 0:
                self._open_interval(file, number)
            elif not is_live and row >= 0:
                self._end[row], self._row[file] = number, -1
        for action in commit.change_data:
            file = self._number(action.name, action.path, action.size)
            if self._row[file] < 0:
                self._open_interval(file, number)
                self._end[self._row[file]], self._row[file] = number + 1, -1

    def _count_files(self, files: tuple[int, int], change: int, touched: set[int]) -> None:
        for file in files:
            if file >= 0:
                self._count[file] += change
                touched.add(file)

    def _number(self, name: str, path: str, size: int | None) -> int:
        if (file := self._numbers.get(name)) is None:
            file = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.sizes.append(-1 if size is None else size)
            self._count.append(0)
            self._row.append(-1)
            if name[0] == "/":
                self.elsewhere.append(file)
        self._note_path(file, name, path)
        return file

    def _note_path(self, file: int, name: str, path: str) -> None:
        if path != name and name[0] != "/":
            self.raw[path] = file

    def _open_interval(self, file: int, number: int) -> None:
        self._row[file] = len(self._file)
        self._file.append(file)
        self._begin.append(number)
        self._end.append(_OPEN)

    @cached_property
    def intervals(self) -> tuple[Ints, Ints, Ints]:
        """Return file, first version and version of removal of each interval."""
        file, begin, end = (np.array(column, dtype=np.int64) for column in (self._file, self._begin, self._end))
        return file, begin, end

    def text_of(self, name: str) -> str:
        """Return a property that is an interval as it is written, or Delta's default."""
        return self.properties.get(name, _DEFAULTS[name])

    def interval(self, name: str) -> timedelta:
        """Return the length of a property that is an interval. Raises Refused for one that can't be read."""
        text = self.text_of(name)
        rest = re.sub(r"^\s*interval\s", "", text, flags=re.IGNORECASE)
        micros, end = 0, 0
        while part := _PART.match(rest, end):
            micros, end = micros + int(part[1]) * _UNITS[part[2].lower()], part.end()
        if not end or rest[end:].strip() or micros > _LONGEST:
            raise Refused(f"its property {name} is {text!r}, which is no interval such as 'interval 7 days'")
        return timedelta(microseconds=micros)

    def pinned_by_property(self) -> list[int]:
        """Return the versions that the table itself names. Raises Refused unless it is a list of numbers up to the newest."""
        if self.keep_versions is None or self.pins_nothing:
            return []
        if (numbers := self._kept_versions) is None:
            raise Refused(
                f"its property {KEEP_VERSIONS} is {self.keep_versions!r}, and not versions such as '3,17' up to the newest, "
                f"{self.newest}. Set it anew: ALTER TABLE … SET TBLPROPERTIES"
            )
        return numbers

    @property
    def pins_nothing(self) -> bool:
        """True if its list of kept versions is invalid, and came with the table: it may be about another table's versions."""
        return self.keeps_since_made and self.keep_versions is not None and self._kept_versions is None

    @property
    def _kept_versions(self) -> list[int] | None:
        parts = (self.keep_versions or "").split(",")
        if not all(part.strip().isdecimal() for part in parts):
            return None
        numbers = sorted({int(part) for part in parts})
        return numbers if numbers[-1] <= self.newest else None

    @property
    def is_copied(self) -> bool:
        """True if the times of its commits are those of a copy."""
        if self.has_commit_times or self.times == "commit_info" or len(self.versions) < 2:
            return False
        # our own commits come later
        versions = [version for version in self.versions.values() if not version.is_empty]
        noted = [version.noted_at for version in versions if version.noted_at]
        written = [version.written_at for version in versions]
        return bool(noted) and max(written) - min(written) <= _COPIED_WITHIN and max(noted) - min(noted) > _WRITTEN_OVER

    @property
    def numbers_of_names(self) -> Mapping[str, int]:
        return self._numbers

    def live_names(self) -> set[str]:
        return {self.names[file] for files in self._live.values() for file in files if file >= 0}

    @property
    def live_count(self) -> int:
        return len(self._live)

    @property
    def live_bytes(self) -> int | None:
        """Bytes of the newest version's data files; None where the log does not have all sizes."""
        sizes = [self.sizes[file] for file, _ in self._live.values()]
        return None if -1 in sizes else sum(sizes)

    def newest_of(self, versions: Collection[int]) -> Ints:
        """Return for each file the newest of some versions that has it; -1 if none does."""
        wanted = np.array(sorted(versions), dtype=np.int64)
        file, begin, end = self.intervals
        newest = np.full(len(self.names), -1, dtype=np.int64)
        if len(wanted):
            last = np.searchsorted(wanted, end) - 1
            before_end = np.where(last >= 0, wanted[last], -1)
            np.maximum.at(newest, file, np.where(before_end >= begin, before_end, -1))
        return newest

    def counts(self, versions: Collection[int], files: Bools) -> dict[int, int]:
        """Return how many of some files each version has."""
        wanted, chosen = np.array(sorted(versions), dtype=np.int64), np.zeros(len(self.names), dtype=bool)
        chosen[: len(files)] = files
        file, begin, end = self.intervals
        rows, changes = chosen[file], np.zeros(len(wanted) + 1, dtype=np.int64)
        np.add.at(changes, np.searchsorted(wanted, begin[rows]), 1)
        np.add.at(changes, np.searchsorted(wanted, end[rows]), -1)
        return dict(zip(wanted.tolist(), np.cumsum(changes)[:-1].tolist(), strict=True))

    def files_of(self, version: int) -> Ints:
        """Return the files of a version, its change data among them."""
        file, begin, end = self.intervals
        return file[(begin <= version) & (version < end)]

    def size_of(self, name: str) -> int:
        """Bytes of a file by its name, -1 where the log does not have them."""
        return self.sizes[self._numbers[name]]

    def file_sizes(self) -> Ints:
        """Return the bytes of each file; 0 where the log does not have them, as for the files of deletion vectors."""
        return np.maximum(np.array(self.sizes, dtype=np.int64), 0)

    def exclusive_files(self) -> dict[int, tuple[int, int]]:
        """Return bytes and number of the files that each version has alone. An empty version counts with its base."""
        file, begin, end = self.intervals
        full = np.array([version.number for version in self.versions.values() if not version.is_empty], dtype=np.int64)
        spans = np.searchsorted(full, end) - np.searchsorted(full, begin)
        alone: Bools = np.bincount(file, spans, len(self.names)) == 1
        alone[self.elsewhere] = False
        rows = alone[file] & (spans == 1)
        owner = np.searchsorted(full, begin[rows])
        sizes, counts = np.bincount(owner, self.file_sizes()[file[rows]], len(full)), np.bincount(owner, minlength=len(full))
        return {number: (int(size), int(count)) for number, size, count in zip(full.tolist(), sizes, counts, strict=True)}

    def lives(self, stays: Collection[int]) -> dict[int, str]:
        """Return, for each version, the number of versions for which the files live that it adds, without those that stay."""
        file, begin, end = self.intervals
        moves = np.ones(len(self.names), dtype=bool)
        moves[[*stays]] = False
        pieces = np.unique(np.stack([begin, end], axis=1)[moves[file]], axis=0)
        lives: dict[int, list[str]] = {}
        for first, last in pieces.tolist():
            lives.setdefault(first, []).append(FOR_EVER if last == _OPEN else str(last - first))
        return {number: ",".join(own) for number, own in lives.items()}

    def base_of(self, number: int) -> int:
        """Return the version whose files a version has; its own number if it is not in the log."""
        version = self.versions.get(number)
        return version.base if version else number


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _instant(milliseconds: object) -> datetime | None:
    # a writer may note anything
    if not isinstance(milliseconds, int) or abs(milliseconds) > 253_402_300_799_000:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
