"""Others that need files of a table: tables that refer to them by absolute paths, and streams that lag behind.

Clones and streams are found only where the settings name them. One that can't be read counts as needing everything.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from posixpath import normpath
from threading import Lock
from typing import NamedTuple

from retention_assets.clock import moment
from retention_assets.errors import Refused, quote
from retention_assets.stores.delta.actions import paths_of_checkpoint
from retention_assets.stores.delta.folder import TableFolder, canonical_place, find_folders, shown_place
from retention_assets.stores.delta.log import TableReader, token_of
from retention_assets.stores.places.file_systems import open_file_system
from retention_assets.stores.protocol import error_text

# A look at the stores' tables is used for this many times its duration: a sweep of many tables would list all for each.
_COUNTS_FOR = 20
_THREADS = 16
_KEY = re.compile(rb'"(?:path|pathOrInlineDv)"\s*:\s*"')
_PATH = re.compile(rb'"(?:path|pathOrInlineDv)"\s*:\s*("(?:[^"\\]|\\.)*")')


class _Read(NamedTuple):
    """A table with the token of its log, and the places elsewhere that it refers to; None if these are unknown."""

    token: str
    places: frozenset[str] | None
    # why it can't be read
    fault: str | None = None


@dataclass
class OtherTables:
    """Files of other folders that tables refer to, by table."""

    reader: TableReader
    # tables of this and other stores, whose faults concern only themselves; and tables that must be readable
    find_tables: Callable[[], Iterable[str]]
    find_clones: Callable[[], Iterable[str]]
    # tables as last read, by folder
    _clones: Mapping[str, _Read] = field(default_factory=dict)
    _tables: Mapping[str, _Read] = field(default_factory=dict)
    # when the last look at the tables of stores began and ended, when clones were looked at last, and what it found wrong
    _looked: tuple[float, float] = (0.0, float("-inf"))
    _looked_at: float = float("-inf")
    _fault: Refused | None = None
    _lock: Lock = field(default_factory=Lock)

    def claims(self, folder: TableFolder, lately: float = 0.0) -> dict[str, str]:
        """Return the names in a folder to which other tables refer, with their tables. Raises Refused if that is unknown.

        A look of the last `lately` seconds counts.
        """
        with self._lock:
            if moment().running - self._looked_at > lately:
                try:
                    self._fault = None
                    self.look()
                except Refused as fault:
                    self._fault = fault
                self._looked_at = moment().running
            if self._fault:
                raise self._fault
            claimed: dict[str, str] = {}
            for location, read in {**self._tables, **self._clones}.items():
                shown = shown_place(location.rstrip("/"))
                if location == folder.canonical:
                    continue
                if read.places is None:
                    raise Refused(f"{shown} can't be read ({read.fault}), and may name this table")
                names = [place[len(folder.canonical) :] for place in read.places if place.startswith(folder.canonical)]
                if read.fault and names:
                    raise Refused(f"{shown} names this table and can't be read, so nobody knows which files it needs")
                claimed |= dict.fromkeys(names, f"the table {shown}")
            return claimed

    def look(self) -> None:
        """Read what changed. Raises Refused for tables that must be readable, and are not."""
        self._clones = self._read_all(self.find_clones(), self._clones)
        if location := next((location for location, read in self._clones.items() if read.fault), None):
            raise Refused(
                f"{shown_place(location)} can't be read ({self._clones[location].fault}), and may refer to files of any table"
                " of this store. Nothing of the store is swept until it can, or is taken out of also_read"
            )
        began, ended = self._looked
        if (present := moment().running) - ended > _COUNTS_FOR * (ended - began):
            self._tables = self._read_all(self.find_tables(), self._tables, may_be_none=True)
            self._looked = present, moment().running

    def _read_all(self, locations: Iterable[str], earlier: Mapping[str, _Read], may_be_none: bool = False) -> dict[str, _Read]:
        folders = {folder.canonical: folder for folder in map(TableFolder, locations)}
        with ThreadPoolExecutor(_THREADS) as threads:
            read = threads.map(lambda folder: self._read(folder, earlier.get(folder.canonical)), folders.values())
            pairs = zip(folders, read, strict=True)
            return {name: answer or _Read("", None, "it has no log") for name, answer in pairs if answer or not may_be_none}

    def _read(self, folder: TableFolder, earlier: _Read | None) -> _Read | None:
        # None if it is gone
        try:
            token = token_of(folder.list_log())
            if earlier and earlier.token == token:
                return earlier
            table = self.reader.read(folder)
        except (Refused, OSError) as fault:
            return _Read("", _places_in(folder), error_text(fault))
        return _Read(token, frozenset(table.names[file][1:] for file in table.elsewhere)) if table else None


def _places_in(folder: TableFolder) -> frozenset[str] | None:
    """Find the places in a log that can't be read as a table; None if one of its files can't be read at all."""
    written: set[str] = set()
    try:
        for name in [*(file.name for file in folder.list_log() if file.size is not None), *folder.names_in("_sidecars")]:
            if name.endswith(".json"):
                [content] = folder.read([name])
                paths = _PATH.findall(content)
                if len(paths) < len(_KEY.findall(content)):
                    return None  # it is cut short in the middle of one
                written.update(str(json.loads(text)) for text in paths)
            elif name.endswith(".parquet"):
                written.update(paths_of_checkpoint(folder, name))
        names = {folder.name_of(path) for path in written}
        absolute = {name for name in names if name[:1] == "/"}
        # a relative path may lead out of the folder, too
        relative = {canonical_place(normpath(folder.canonical + name)) for name in names - absolute}
        return frozenset(relative | {name[1:] for name in absolute})
    except Exception:  # noqa: BLE001 - a broken file may raise anything
        return None


def find_clones(globs: Iterable[str]) -> Iterator[str]:
    """Return the folders that must be readable. One that its parent folder does not list was deleted."""
    for glob in globs:
        for location in find_folders(glob, every=True):
            parent, _, name = location.rpartition("/")
            if location != glob:
                # a glob may match other folders
                if TableFolder(location).list_log():
                    yield location
            elif name in {other.rpartition("/")[2] for other in find_folders(f"{parent}/*", every=True)}:
                yield location


@dataclass(frozen=True)
class Streams:
    """Oldest version that each stream still needs, by the id of its table."""

    oldest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # a stream that can't be read may need any version of any table
    fault: str | None = None
    # globs that match no folder
    empty: Sequence[str] = ()

    def of(self, table: str) -> Mapping[str, int]:
        return {self.fault: 0} if self.fault else self.oldest.get(table, {})


def read_streams(globs: Iterable[str]) -> Streams:
    """Read the offsets in checkpoint folders of Spark."""
    oldest: dict[str, dict[str, int]] = {}
    empty: list[str] = []
    try:
        for glob in globs:
            locations = find_folders(glob, every=True)
            empty += () if locations else (shown_place(glob),)
            for location in locations:
                for table, version in _offsets(location, may_be_none=location != glob):
                    own = oldest.setdefault(table, {})
                    stream = shown_place(location.rpartition("/")[2])
                    own[stream] = min(version, own.get(stream, version))
    except Exception as fault:  # noqa: BLE001 - file systems raise anything
        return Streams(fault=f"that can't be read ({error_text(fault)})")
    return Streams(oldest, empty=empty)


def _offsets(location: str, may_be_none: bool) -> Iterator[tuple[str, int]]:
    # one file for each batch: a header, then the offset of each source; sources of other kinds have no reservoir
    fs, path = open_file_system(location)
    fs.invalidate_cache()
    if may_be_none and location.rpartition("/")[2][0] in "._" and not fs.exists(f"{path.rstrip('/')}/offsets"):
        return  # a hidden folder of something else
    for name in fs.ls(f"{path.rstrip('/')}/offsets", detail=False):
        if name.rpartition("/")[2].isdigit():
            header, *lines = fs.cat_file(name).decode().splitlines() or [""]
            if not header.startswith("v"):
                raise Refused(f"{quote(name.rpartition('/')[2])} is no offset file")
            for line in lines:
                offset = json.loads(line) if line.lstrip().startswith("{") else None
                if isinstance(offset, dict) and "reservoirId" in offset:
                    yield str(offset["reservoirId"]), int(offset["reservoirVersion"])
