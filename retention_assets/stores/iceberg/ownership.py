"""From the snapshots of a table to the files that go with them.

Belongs here: which manifest lists stay when some snapshots go, and statistics, which metadata names and no manifest list does.
Does not belong here: manifests and what they hold (reachability.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from retention_assets.stores.iceberg.fence import file_identity
from retention_assets.stores.iceberg.manifests import File
from retention_assets.stores.iceberg.notes import SnapshotNote, notes_of
from retention_assets.stores.iceberg.reachability import OwnedFiles, Reachability


def staying_manifests(metadata: TableMetadata, going: Iterable[SnapshotNote]) -> list[str]:
    """The manifest lists of all other snapshots, whatever ref they are on, or none."""
    gone = {note.manifest_list for note in going}
    return [snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list not in gone]


def files_of_notes(
    reach: Reachability, metadata: TableMetadata, going: Mapping[str, SnapshotNote], stays: Iterable[str]
) -> dict[str, OwnedFiles]:
    """What each transaction owns, its statistics among it unless a remaining snapshot has the same."""
    owned = reach.owned(list(dict.fromkeys(note.manifest_list for note in going.values())), stays)
    lists = {note.manifest_list for note in going.values()}
    kept = {
        file_identity(file.location)
        for note in notes_of(metadata).values()
        if note.manifest_list not in lists
        for file in note.statistics
    }
    found: dict[str, OwnedFiles] = {}
    for name, note in going.items():
        own = _unkept(note.statistics, kept)
        kept.update(file_identity(file.location) for file in own)
        # Two snapshots with one manifest list would be told of the same files; the first has them.
        found[name] = replace(owned.pop(note.manifest_list, OwnedFiles()), statistics=own)
    return found


def _unkept(files: Iterable[File], kept: set[str]) -> tuple[File, ...]:
    return tuple(file for file in files if file_identity(file.location) not in kept)
