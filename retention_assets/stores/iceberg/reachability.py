"""Computes exactly which files only the given snapshots reach, and lists all files that a table reaches.

A file is owned by the snapshots that go when no staying snapshot holds it live: a manifest named by any staying list is kept
whole, and a data file that any of their manifests holds as ADDED or EXISTING is kept, whatever other manifest calls it deleted.
Unreadable files raise on the staying side; on the side that goes they are reported and keep what only they would name.
Snapshots that are set aside stay. As other engines don't know of them, their manifests may be missing, and then name nothing.

Orphans are compared with all files that the current metadata reaches, by every manifest of every snapshot, including staged
ones and those of every ref. Files of the metadata log are named and not followed: what only they name was expired.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.fence import file_identity, folders_of
from retention_assets.stores.iceberg.log import collects_garbage
from retention_assets.stores.iceberg.manifests import (
    NOTHING_KEPT,
    File,
    Manifest,
    ManifestList,
    ParsedFiles,
    Unreadable,
    live_files,
    manifest_list,
)
from retention_assets.stores.iceberg.notes import SnapshotNote, asides_of, notes_of, with_asides

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# manifests whose files are in memory at once
_AT_ONCE = 64


@dataclass(frozen=True)
class OwnedFiles:
    """Files that only the snapshots that go reach, assigned to the first that reaches them.

    A manifest belongs to the same snapshot as every data file that no earlier one names, so deleting a snapshot's data, then
    its manifests, then its list never loses the way to a remaining file.
    """

    data: tuple[File, ...] = ()
    manifests: tuple[File, ...] = ()
    statistics: tuple[File, ...] = ()
    lists: tuple[File, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def files(self) -> tuple[File, ...]:
        return self.data + self.manifests + self.statistics + self.lists

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass
class Reachability:
    """Files of one table; each manifest is read once."""

    io: FileIO
    threads: Executor
    parsed: ParsedFiles
    _known: dict[str, Manifest] = field(default_factory=dict)
    _read: dict[str, bool] = field(default_factory=dict)
    # identities of manifests that a snapshot in the metadata names
    _needed: set[str] = field(default_factory=set)
    _reached: dict[str, Manifest] = field(default_factory=dict)
    _lists: dict[str, ManifestList | Unreadable] = field(default_factory=dict)
    _live: dict[Manifest, Mapping[str, File] | Unreadable] = field(default_factory=dict)
    _wanted: Set[str] = frozenset()
    _live_wanted: dict[Manifest, Set[str]] = field(default_factory=dict)

    def find_manifests(self, staying: Mapping[str, bool]) -> Mapping[str, Manifest]:
        """Return every manifest named by the lists, by identity. Raises Unreadable, but not for a missing list marked False."""
        if not self._read.items() <= staying.items():
            # somebody else expired one of them meanwhile: what only it named is no longer reached
            self._read, self._needed, self._reached = {}, set(), {}

        def read(location: str) -> None:
            try:
                manifests = {manifest.identity: manifest for manifest in self._list_at(location).manifests}
            except Unreadable as fault:
                if staying[location] or not fault.missing:
                    raise
                return
            self._reached.update(manifests)
            self._needed.update(manifests if staying[location] else ())

        map_concurrently(self.threads, read, sorted(staying.keys() - self._read.keys()))
        self._read = dict(staying)
        return self._reached

    def find_live(self, lists: Mapping[str, bool]) -> set[str]:
        """Return every manifest named by the lists and every file one of those holds live, by identity. Raises Unreadable."""
        manifests = self.find_manifests(lists)
        filled = [manifest for manifest in manifests.values() if manifest.live != 0]
        identities = set(manifests)
        for files in map_concurrently(self.threads, self.staying_files, filled):
            identities.update(files)
        return identities

    def find_owned(self, going: Sequence[str], staying: Mapping[str, bool]) -> dict[str, OwnedFiles]:
        """Return the files that may be deleted with each list in `going`. Raises Unreadable for a staying list."""
        reached = self.find_manifests(staying)
        lists = self._read_once(self._lists, going, self._list_at)
        own = {
            location: []
            if isinstance(found, Unreadable)
            else [manifest for manifest in found.manifests if manifest.identity not in reached]
            for location, found in lists.items()
        }
        unique = list(dict.fromkeys(manifest for manifests in own.values() for manifest in manifests))
        live = self._read_once(self._live, unique, self._live_files)
        wanted = {name for found in live.values() if not isinstance(found, Unreadable) for name in found}
        taken = self._live_in(reached.values(), wanted) | reached.keys() | {file_identity(location) for location in staying}
        return {location: _share_out(lists[location], own[location], live, taken) for location in going}

    def _list_at(self, location: str) -> ManifestList:
        return manifest_list(self.io, location, self._known, self.parsed)

    def _live_files(self, manifest: Manifest) -> Mapping[str, File]:
        return live_files(self.io, manifest, self.parsed)

    def staying_files(self, manifest: Manifest) -> Mapping[str, File]:
        try:
            return self._live_files(manifest)
        except Unreadable as fault:
            if manifest.identity in self._needed or not fault.missing:
                raise
            return {}

    def _live_in(self, manifests: Iterable[Manifest], wanted: Set[str]) -> set[str]:
        if not wanted <= self._wanted:
            self._wanted, self._live_wanted = wanted, {}
        if not self._wanted:
            return set()
        new = [manifest for manifest in manifests if manifest not in self._live_wanted and manifest.live != 0]
        kept = map_concurrently(self.threads, lambda manifest: self._wanted & self.staying_files(manifest).keys(), new)
        self._live_wanted.update(zip(new, kept, strict=True))
        return {name for manifest in manifests for name in self._live_wanted.get(manifest, ())}

    def _read_once(
        self, memory: dict[_Key, _Value | Unreadable], keys: Sequence[_Key], read: Callable[[_Key], _Value]
    ) -> dict[_Key, _Value | Unreadable]:
        def attempt(key: _Key) -> _Value | Unreadable:
            try:
                return read(key)
            except Unreadable as fault:
                return fault

        new = [key for key in keys if key not in memory]
        memory.update(zip(new, map_concurrently(self.threads, attempt, new), strict=True))
        return {key: memory[key] for key in keys}


def _share_out(
    found: ManifestList | Unreadable,
    manifests: Sequence[Manifest],
    live: Mapping[Manifest, Mapping[str, File] | Unreadable],
    taken: set[str],
) -> OwnedFiles:
    # files of a list that no snapshot before it has taken; adds them to `taken`
    if isinstance(found, Unreadable):
        return OwnedFiles(unreadable=(found,))
    data: list[File] = []
    whole: list[File] = []
    faults: list[Unreadable] = []
    for manifest in manifests:
        entries = live[manifest]
        if isinstance(entries, Unreadable):
            faults.append(entries)
            continue
        data += [file for name, file in entries.items() if name not in taken]
        taken.update(entries)
        if manifest.identity not in taken:
            whole.append(manifest)
            taken.add(manifest.identity)
    own = [] if file_identity(found.location) in taken else [File(found.location, found.bytes)]
    taken.add(file_identity(found.location))
    return OwnedFiles(tuple(data), tuple(whole), lists=tuple(own), unreadable=tuple(faults))


def staying_lists(metadata: TableMetadata, going: Iterable[SnapshotNote] = ()) -> dict[str, bool]:
    """Return the manifest lists of all other snapshots. False: set aside, so other engines may have removed it."""
    lists = {aside.snapshot.manifest_list: False for aside in asides_of(metadata).values()}
    lists |= {snapshot.manifest_list: True for snapshot in metadata.snapshots}
    due = {note.manifest_list for note in going}
    return {location: is_required for location, is_required in lists.items() if location not in due}


def files_of_notes(
    reach: Reachability, metadata: TableMetadata, going: Mapping[str, SnapshotNote], stays: Mapping[str, bool]
) -> dict[str, OwnedFiles]:
    """Return what each transaction owns, with its statistics unless a remaining snapshot has the same."""
    lists = dict.fromkeys(note.manifest_list for note in going.values())
    owned = reach.find_owned(list(lists), stays)
    kept = {
        file_identity(file.location)
        for note in notes_of(with_asides(metadata)).values()
        if note.manifest_list not in lists
        for file in note.statistics
    }
    files: dict[str, OwnedFiles] = {}
    for name, note in going.items():
        own = tuple(file for file in note.statistics if file_identity(file.location) not in kept)
        kept.update(file_identity(file.location) for file in own)
        # two snapshots with one manifest list own the same files; the first gets them
        files[name] = replace(owned.pop(note.manifest_list, OwnedFiles()), statistics=own)
    return files


@dataclass(frozen=True)
class ReachedFiles:
    """Files of one class, or folders that count as reached with everything in them."""

    what: str
    locations: tuple[str, ...]
    folders: bool = False


def files_reached(table: Table, parallelism: int) -> Iterator[ReachedFiles]:
    """Yield files class by class, also of what is set aside; one may come several times. Raises Unreadable or Refused."""
    metadata = with_asides(table.metadata)
    yield ReachedFiles("metadata file", (table.metadata_location,))
    yield ReachedFiles("metadata log", tuple(entry.metadata_file for entry in metadata.metadata_log))
    yield ReachedFiles("version hint", _version_hints(table))
    if not collects_garbage(metadata):
        yield ReachedFiles("gc.enabled is not true, so everything stays", folders_of(metadata), folders=True)
    yield ReachedFiles("statistics", tuple(one.statistics_path for one in metadata.statistics))
    yield ReachedFiles("partition statistics", tuple(one.statistics_path for one in metadata.partition_statistics))
    staying = staying_lists(table.metadata)
    yield ReachedFiles("manifest list", tuple(staying))
    with ThreadPoolExecutor(parallelism) as threads:
        reach = Reachability(table.io, threads, NOTHING_KEPT)
        manifests = list(reach.find_manifests(staying).values())
        yield ReachedFiles("manifest", tuple(manifest.location for manifest in manifests))
        for begin in range(0, len(manifests), _AT_ONCE):
            batch = manifests[begin : begin + _AT_ONCE]
            live = map_concurrently(threads, reach.staying_files, batch)
            for manifest, files in zip(batch, live, strict=True):
                what = "delete file" if manifest.deletes else "data file"
                yield ReachedFiles(what, tuple(file.location for file in files.values()))


def _version_hints(table: Table) -> tuple[str, ...]:
    # readers without a catalog find the newest metadata by them
    folders = (f"{table.location().rstrip('/')}/metadata", table.metadata_location.rpartition("/")[0])
    places = dict.fromkeys(f"{folder}/version-hint.text" for folder in folders)

    def may_be_there(place: str) -> bool:
        try:
            return table.io.new_input(place).exists()
        # an error means unknown, not absent
        except Exception:  # noqa: BLE001
            return True

    return tuple(filter(may_be_there, places))
