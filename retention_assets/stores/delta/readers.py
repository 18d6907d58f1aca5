"""Who else needs files of a table: other tables that refer to them by absolute paths, and streams that lag behind.

Clones and streams are found only where the settings name them. What can't be read needs everything.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.delta.folder import TableFolder, find_folders
from retention_assets.stores.delta.log import TableReader, token_of
from retention_assets.stores.places.file_systems import open_file_system
from retention_assets.stores.protocol import error_text

# A look at the tables of stores counts for so many times as long as it took: a sweep of many would list each for each.
_COUNTS_FOR = 20
_THREADS = 16
# what a table refers to elsewhere, with the token of its log; or why it can't be read
_Read = tuple[str, frozenset[str]] | str


@dataclass
class OtherTables:
    """Files of other folders that tables refer to, by table."""

    reader: TableReader
    # tables of the store and of other stores, whose faults are their own; and tables that must be readable
    find_tables: Callable[[], Iterable[str]]
    find_clones: Callable[[], Iterable[str]]
    # as read last, by the folder
    _clones: Mapping[str, _Read] = field(default_factory=dict)
    _tables: Mapping[str, _Read] = field(default_factory=dict)
    # when the last look at the tables of stores began and ended
    _looked: tuple[float, float] = (0.0, float("-inf"))
    _lock: Lock = field(default_factory=Lock)

    def claims(self, folder: TableFolder) -> dict[str, str]:
        """Return the names in a folder to which other tables refer, with their tables. Raises Refused if that is unknown."""
        with self._lock:
            self._look()
            claimed: dict[str, str] = {}
            for location, read in {**self._tables, **self._clones}.items():
                shown = mask_secrets(location.rstrip("/"))
                if location == folder.canonical:
                    continue
                if isinstance(read, str):
                    if folder.canonical.rstrip("/") in _text_of(TableFolder(location)):
                        raise Refused(f"{shown} names this table and can't be read, so nobody knows which files it needs")
                    continue
                names = (place[len(folder.canonical) :] for place in read[1] if place.startswith(folder.canonical))
                claimed |= dict.fromkeys(names, f"the table {shown}")
            return claimed

    def _look(self) -> None:
        self._clones = self._read_all(self.find_clones(), self._clones)
        if fault := next((location for location, read in self._clones.items() if isinstance(read, str)), None):
            raise Refused(
                f"{mask_secrets(fault)} can't be read ({self._clones[fault]}), and may refer to files of any table of this"
                " store. Nothing of the store is swept until it can, or is taken out of also_read"
            )
        began, ended = self._looked
        if (present := moment().running) - ended > _COUNTS_FOR * (ended - began):
            self._tables = self._read_all(self.find_tables(), self._tables, may_be_none=True)
            self._looked = present, moment().running

    def _read_all(self, locations: Iterable[str], before: Mapping[str, _Read], may_be_none: bool = False) -> dict[str, _Read]:
        folders = {folder.canonical: folder for folder in map(TableFolder, locations)}
        with ThreadPoolExecutor(_THREADS) as threads:
            read = threads.map(lambda folder: self._read(folder, before.get(folder.canonical)), folders.values())
            pairs = zip(folders, read, strict=True)
            return {name: answer or "it has no log" for name, answer in pairs if answer or not may_be_none}

    def _read(self, folder: TableFolder, before: _Read | None) -> _Read | None:
        # None if it is gone
        try:
            token = token_of(folder.list_log())
            if isinstance(before, tuple) and before[0] == token:
                return before
            table = self.reader.read(folder)
        except (Refused, OSError) as fault:
            return error_text(fault)
        return (token, frozenset(table.names[file][1:] for file in table.elsewhere)) if table else None


def _text_of(folder: TableFolder) -> str:
    try:
        names = [file.name for file in folder.list_log() if file.size is not None and file.name.endswith(".json")]
        return b"\n".join(folder.read(names)).decode(errors="replace").replace("\\/", "/")
    except OSError as fault:
        raise Refused(f"{folder.shown} can't be read: {fault}") from fault


def find_clones(globs: Iterable[str]) -> Iterator[str]:
    """Return the folders that must be readable. One that is not in the folder above it any more was deleted."""
    for glob in globs:
        for location in find_folders(glob, may_be_none=True):
            above, _, name = location.rpartition("/")
            if location != glob:
                # a glob may match other folders
                if TableFolder(location).list_log():
                    yield location
            elif name in {other.rpartition("/")[2] for other in find_folders(f"{above}/*", may_be_none=True)}:
                yield location


@dataclass(frozen=True)
class Streams:
    """Oldest version that each stream still needs, by the id of its table."""

    oldest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # a stream that can't be read may need any version of any table
    fault: str | None = None

    def of(self, table: str) -> Mapping[str, int]:
        return {self.fault: 0} if self.fault else self.oldest.get(table, {})


def read_streams(globs: Iterable[str]) -> Streams:
    """Read the offsets in checkpoint folders of Spark."""
    oldest: dict[str, dict[str, int]] = {}
    try:
        for glob in globs:
            for location in find_folders(glob, may_be_none=True):
                for table, version in _offsets(location):
                    own = oldest.setdefault(table, {})
                    stream = mask_secrets(location.rpartition("/")[2])
                    own[stream] = min(version, own.get(stream, version))
    # file systems raise anything
    except Exception as fault:  # noqa: BLE001
        return Streams(fault=f"that can't be read ({error_text(fault)})")
    return Streams(oldest)


def _offsets(location: str) -> Iterator[tuple[str, int]]:
    # one file for each batch: a header, then the offset of each source; sources of other kinds have no reservoir
    fs, path = open_file_system(location)
    fs.invalidate_cache()
    for name in fs.ls(f"{path.rstrip('/')}/offsets", detail=False):
        if name.rpartition("/")[2].isdigit():
            for line in fs.cat_file(name).decode().splitlines()[1:]:
                offset = json.loads(line) if line.startswith("{") else None
                if isinstance(offset, dict) and "reservoirId" in offset:
                    yield str(offset["reservoirId"]), int(offset["reservoirVersion"])
