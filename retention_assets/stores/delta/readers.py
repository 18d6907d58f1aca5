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

# seconds for which a look at all other tables counts: a sweep of many tables would list each of them for each
_LATELY = 60.0
_THREADS = 16


@dataclass
class OtherTables:
    """Files of other folders that tables refer to, by table."""

    reader: TableReader
    # tables of the store and of other stores, whose faults are their own; and tables that must be readable
    find_tables: Callable[[], Iterable[str]]
    find_clones: Callable[[], Iterable[str]]
    _references: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    _unread: dict[str, str] = field(default_factory=dict)
    _looked_at: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)

    def claims(self, folder: TableFolder) -> dict[str, str]:
        """Return the names in a folder to which other tables refer, with their tables. Raises Refused if that is unknown."""
        with self._lock:
            if moment().running - self._looked_at > _LATELY:
                self._look()
                self._looked_at = moment().running
            claimed: dict[str, str] = {}
            for location, (_, references) in self._references.items():
                names = (place for place in references if place.startswith(folder.canonical))
                if location != folder.canonical:
                    claimed |= {
                        place[len(folder.canonical) :]: f"the table {mask_secrets(location.rstrip('/'))}" for place in names
                    }
            for location, text in self._unread.items():
                if folder.canonical.rstrip("/") in text and location != folder.canonical:
                    raise Refused(
                        f"{mask_secrets(location)} names this table and can't be read, so nobody knows which files it needs"
                    )
            return claimed

    def _look(self) -> None:
        clones = {TableFolder(location).canonical: TableFolder(location) for location in self.find_clones()}
        tables = {TableFolder(location).canonical: TableFolder(location) for location in self.find_tables()} | clones
        with ThreadPoolExecutor(_THREADS) as threads:
            read = dict(zip(tables, threads.map(self._read, tables.values()), strict=True))
        if fault := next((location for location in clones if not isinstance(read[location], tuple)), None):
            reason = read[fault] or "it has no log"
            raise Refused(
                f"{mask_secrets(fault)} can't be read ({reason}), and may refer to files of any table of this store. Nothing of"
                " the store is swept until it can, or is taken out of also_read"
            )
        self._references = {location: found for location, found in read.items() if isinstance(found, tuple)}
        self._unread = {location: _text_of(tables[location]) for location, found in read.items() if isinstance(found, str)}

    def _read(self, folder: TableFolder) -> tuple[str, frozenset[str]] | str | None:
        # its references; the fault if it can't be read; None if it is gone
        try:
            token = token_of(folder.list_log())
            if (known := self._references.get(folder.canonical)) and known[0] == token:
                return known
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
            elif name in {found.rpartition("/")[2] for found in find_folders(f"{above}/*", may_be_none=True)}:
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
