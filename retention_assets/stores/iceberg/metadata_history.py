"""Snapshots that are no longer in a table's metadata, looked up in the metadata files of before.

Belongs here: finding how a snapshot's files are found, after it was expired and its note went with its plan.
Does not belong here: deciding whether they may be deleted. A sweep checks that against the present.
"""

from collections.abc import Set

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from retention_assets.stores.iceberg.notes import SnapshotNote, notes_of


def notes_of_before(table: Table, snapshot_ids: Set[int]) -> dict[int, SnapshotNote]:
    """Notes of those expired snapshots whose manifest list is still there, from the table's log of metadata files.

    What is not found there is not swept: its files stay until an orphan scan of the table.
    """
    found: dict[int, SnapshotNote] = {}
    for entry in reversed(table.metadata.metadata_log):
        if snapshot_ids <= found.keys():
            break
        try:
            earlier = notes_of(FromInputFile.table_metadata(table.io.new_input(entry.metadata_file)))
        # Tables remove metadata files of long ago, and what can't be read tells nothing.
        except (OSError, EOFError, ValueError):
            continue
        found |= {one: earlier[one] for one in snapshot_ids - found.keys() if one in earlier}
    return {one: note for one, note in found.items() if is_there(table.io, note)}


def is_there(io: FileIO, note: SnapshotNote) -> bool:
    """Whether anything of an expired snapshot is left: its manifest list goes last. What can't be told is looked into."""
    try:
        return io.new_input(note.manifest_list).exists()
    except OSError:
        return True
