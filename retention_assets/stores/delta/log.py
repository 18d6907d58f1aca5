"""Reads tables from their logs, and converts them to lines of a log.

A table is read once; later questions list its log and read what is new. A log is refused if its versions are uncertain: a gap,
a commit that is cut short, a newest state that differs from its checksum.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any, NamedTuple

import numpy as np

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools
from retention_assets.frames.log import COPIED_TIMES, EMPTY_VERSIONS, SHARED_DATA, STRAYS, SUPERSEDED_WINDOW, WINDOW_SPARES
from retention_assets.frames.verdicts.shared_data import CLAIMED, LIVES, MISSING
from retention_assets.policy.durations import from_micros
from retention_assets.stores.delta.actions import read_checkpoint, read_commit
from retention_assets.stores.delta.folder import LogFile, TableFolder
from retention_assets.stores.delta.table import DELETED_FILES, LOG_CLEANUP, LOG_RETENTION, Table

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)")
_STAGED = ("_staged_commits", "_commits")
# tables kept in memory, each some hundred bytes a file
_TABLES = 32
Line = dict[str, Any]


class LogFiles(NamedTuple):
    """Files of a log by version: commits, and the files of whole checkpoints."""

    commits: Mapping[int, LogFile]
    checkpoints: Mapping[int, Sequence[LogFile]]
    checksums: Mapping[int, LogFile]


@dataclass
class _Memory:
    table: Table
    read: Sequence[LogFile]
    lock: RLock


class TableReader:
    def __init__(self, times: str) -> None:
        self._times = times
        self._memory: OrderedDict[str, _Memory] = OrderedDict()
        self._lock = Lock()

    def read(self, folder: TableFolder) -> Table | None:
        """Return a table as it is now; None if there is none. Raises Refused for a log that can't be relied on."""
        with self._lock:
            memory = self._memory.setdefault(folder.canonical, _Memory(Table(self._times), (), RLock()))
            self._memory.move_to_end(folder.canonical)
            while len(self._memory) > _TABLES:
                self._memory.popitem(last=False)
        with memory.lock:
            try:
                if not (listed := folder.list_log()):
                    return None
                return _update(memory, folder, listed, self._times)
            except Refused:
                raise
            except Exception as fault:  # a log may hold anything
                raise Refused(f"its log can't be read: {type(fault).__name__}: {fault}") from fault


def _update(memory: _Memory, folder: TableFolder, listed: Sequence[LogFile], times: str) -> Table:
    files = _sort_files(folder, listed)
    first, newest = min(files.commits), max(files.commits)
    if missing := set(range(first, newest)) - files.commits.keys():
        raise Refused(f"commit {min(missing)} is missing between {first} and {newest}")
    table = memory.table
    # a commit that was replaced or cleaned up changes what was read
    if memory.read and memory.read == _files_of(table, files):
        if newest in table.versions:
            return table
        table = table.copy()
    else:
        table = Table(times)
        _begin(table, folder, files, first)
    start = table.newest + 1 if table.versions else first
    new = [files.commits[number] for number in range(start, newest + 1)]
    for number, file, content in zip(range(start, newest + 1), new, folder.read([file.name for file in new]), strict=True):
        try:
            table.add_commit(number, read_commit(folder, content), from_micros(file.time // 1000))
        except Refused as fault:
            raise Refused(f"commit {number} can't be relied on: {fault}") from fault
        except Exception as fault:
            raise Refused(f"commit {number} can't be read: {type(fault).__name__}: {fault}") from fault
        if not table.id:
            raise Refused(f"commit {number} comes before any metadata")
    table.check_properties()
    if newest in files.checksums:
        _check_sum(folder, table, files.checksums[newest])
    memory.table, memory.read = table, _files_of(table, files)
    return table


def _files_of(table: Table, files: LogFiles) -> list[LogFile]:
    return [file for number, file in sorted(files.commits.items()) if number in table.versions]


def _sort_files(folder: TableFolder, listed: Sequence[LogFile]) -> LogFiles:
    """Sort the files of a log by version. Raises Refused for a log without commits, and for staged ones."""
    commits, checksums, parts = dict[int, LogFile](), dict[int, LogFile](), dict[tuple[int, str], list[LogFile]]()
    whole: dict[int, Sequence[LogFile]] = {}
    for file in listed:
        if match := _COMMIT.fullmatch(file.name):
            commits[int(match[1])] = file
        elif file.name.endswith(".crc") and file.name[:20].isdigit():
            checksums[int(file.name[:20])] = file
        elif match := _CHECKPOINT.fullmatch(file.name):
            if match[2]:
                parts.setdefault((int(match[1]), match[3]), []).append(file)
            else:
                whole[int(match[1])] = [file]
        elif file.size is None and file.name in _STAGED and folder.names_in(file.name):
            raise Refused(f"it has staged commits in {file.name}, so its newest versions are not in its log")
    for (number, count), files in parts.items():
        if len(files) == int(count):
            whole.setdefault(number, files)
    if not commits:
        raise Refused("its log has no commit")
    return LogFiles(commits, whole, checksums)


def _begin(table: Table, folder: TableFolder, files: LogFiles, first: int) -> None:
    # Without commit 0, versions begin with the oldest whole checkpoint that the commits continue.
    if first == 0:
        return
    following = sorted(number for number in files.checkpoints if first - 1 <= number <= max(files.commits))
    if not following:
        raise Refused(f"it begins with commit {first}, and has no whole checkpoint from which it could be read")
    start = following[0]
    commit = read_checkpoint(folder, [file.name for file in files.checkpoints[start]])
    time = files.checkpoints[start][0].time
    if start in files.commits:
        [content] = folder.read([files.commits[start].name])
        own = read_commit(folder, content)
        commit.info, commit.changes_data, commit.change_data = own.info, own.changes_data, own.change_data
        time = files.commits[start].time
    table.add_commit(start, commit, from_micros(time // 1000))


def _check_sum(folder: TableFolder, table: Table, file: LogFile) -> None:
    [content] = folder.read([file.name])
    try:
        checksum = json.loads(content)
    except ValueError:
        checksum = None
    if not isinstance(checksum, dict):
        # checksums are optional, and written after the commit
        return
    counted = {"numFiles": table.live_count, "tableSizeBytes": table.live_bytes}
    for name, number in counted.items():
        if number is not None and isinstance(checksum.get(name), int) and checksum[name] != number:
            raise Refused(f"its newest version has {name} {number} by its log, and {checksum[name]} by {file.name}")


def token_of(*facts: object) -> str:
    """Hash what decides about the lines of a table."""
    return hashlib.sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Pins:
    """Versions that stay whatever policies say, each with the names of what pins it."""

    names: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, streams: Mapping[str, int]) -> "Pins":
        """Collect the pins of a table; `streams` are the oldest versions that its readers still need, by name."""
        names: dict[int, list[str]] = {}
        for number in table.pinned_by_property():
            names.setdefault(number, []).append(f"keep-{number}")
        for stream, oldest in streams.items():
            for number in table.versions:
                if number >= oldest:
                    names.setdefault(number, []).append(f"stream {stream}: {number}")
        return cls({number: own for number, own in names.items() if number in table.versions})

    def of_bases(self, table: Table) -> dict[int, str]:
        """Return in words what pins versions with files, the newest ones included."""
        pinned = {table.base_of(number): f"tag {own[0]} pins it" for number, own in self.names.items()}
        newest = {
            table.newest_with_files: "it is the newest version with files of its own",
            table.newest: "it is the newest version",
        }
        return pinned | newest


def lines_of(
    dataset: str, table: Table, pins: Pins, spares: bool, strays: int, claimed: Mapping[int, str], missing: Bools
) -> Iterator[Line]:
    """Yield the lines of a table: about itself, its versions, its newest version as branch `main`, and its pins.

    `claimed`: files that stay, by number, with who needs them. `missing`: for each file whether it is not there.
    """
    window = round(table.interval(DELETED_FILES).total_seconds() * 1000)
    attributes = {
        "table": table.id, DELETED_FILES: table.text_of(DELETED_FILES),
        SUPERSEDED_WINDOW: str(window), EMPTY_VERSIONS: "kept", SHARED_DATA: "version", STRAYS: str(strays),
        **({WINDOW_SPARES: "true"} if spares else {}), **({COPIED_TIMES: "copied"} if table.is_copied else {}),
        **{name: table.properties[name] for name in (LOG_RETENTION, LOG_CLEANUP) if name in table.properties},
    }  # fmt: skip
    yield {"dataset": dataset, "attributes": attributes}
    own, lives, claims = table.exclusive_files(), table.lives(claimed), _claims(table, claimed)
    lost = table.counts(table.versions, missing)
    parent = None
    for version in table.versions.values():
        facts = {"operation": version.operation, "engine": version.engine, "user_metadata": version.user_metadata}
        number = version.number
        size, files = own.get(number, (0, 0))
        yield {
            "dataset": dataset, "transaction": str(number), "parent": parent, "parent_given": True,
            "type": "DELETE" if version.is_empty else "SNAPSHOT", "status": "COMMITTED",
            "opened_at": version.closed_at, "closed_at": version.closed_at,
            "bytes": size, "files": files,
            "attributes": {
                **{name: text for name, text in facts.items() if text},
                "data_change": "true" if version.changes_data else "false",
                **{key: text for key, text in ((LIVES, lives.get(number)), (CLAIMED, claims.get(number))) if text},
                **({MISSING: str(lost[number])} if lost[number] else {}),
            },
        }  # fmt: skip
        parent = str(number)
    yield {"dataset": dataset, "branch": "main", "head": parent}
    yield from ({"dataset": dataset, "tag": name, "head": str(number)} for number, own in pins.names.items() for name in own)


def _claims(table: Table, claimed: Mapping[int, str]) -> dict[int, str]:
    # by version, somebody else who needs a file of it
    if not claimed:
        return {}
    files = np.zeros(len(table.names), dtype=bool)
    files[[*claimed]] = True
    having = (number for number, count in table.counts(table.versions, files).items() if count)
    if len(names := {*claimed.values()}) == 1:
        return dict.fromkeys(having, names.pop())
    own = {number: table.files_of(number) for number in having}
    return {number: claimed[int(numbers[files[numbers]][0])] for number, numbers in own.items() if len(numbers)}
