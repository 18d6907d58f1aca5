"""Notes about snapshots for a plan, so that their files are found once they are expired.

They come from the metadata or, for a snapshot that was expired and whose note went with its plan, from earlier metadata files.
"""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef

from retention_assets.stores.iceberg.manifests import File


@dataclass(frozen=True)
class SnapshotNote:
    """The table's uuid (a name may pass to another table), and a snapshot's manifest list and statistics.

    Also the refs on it, with everything needed to restore them if they are dropped together with it.
    """

    table: str
    manifest_list: str
    statistics: tuple[File, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)

    def text(self) -> str:
        statistics = [[file.location, file.bytes] for file in self.statistics]
        content: dict[str, Any] = {"table": self.table, "manifest_list": self.manifest_list, "statistics": statistics}
        if self.refs:
            content["refs"] = {name: json.loads(ref.model_dump_json(exclude_none=True)) for name, ref in self.refs.items()}
        return json.dumps(content)


def notes_of(metadata: TableMetadata) -> dict[int, SnapshotNote]:
    """Make a note for each snapshot in the metadata."""
    statistics: dict[int, list[File]] = {}
    for one in [*metadata.statistics, *metadata.partition_statistics]:
        statistics.setdefault(one.snapshot_id, []).append(File(one.statistics_path, one.file_size_in_bytes))
    refs: dict[int, dict[str, SnapshotRef]] = {}
    for name, ref in metadata.refs.items():
        if name != MAIN_BRANCH:
            refs.setdefault(ref.snapshot_id, {})[name] = ref
    return {
        snapshot.snapshot_id: SnapshotNote(
            str(metadata.table_uuid),
            snapshot.manifest_list,
            tuple(statistics.get(snapshot.snapshot_id, ())),
            refs.get(snapshot.snapshot_id, {}),
        )
        for snapshot in metadata.snapshots
    }


def notes_of_expired(table: Table, snapshot_ids: Set[int]) -> dict[int, SnapshotNote]:
    """Make notes of expired snapshots whose manifest list is still there, from the table's log of metadata files.

    A snapshot not found there is not swept: its files stay until an orphan scan of the table.
    """
    notes: dict[int, SnapshotNote] = {}
    for entry in reversed(table.metadata.metadata_log):
        if snapshot_ids <= notes.keys():
            break
        try:
            earlier = notes_of(FromInputFile.table_metadata(table.io.new_input(entry.metadata_file)))
        # tables remove old metadata files, and unreadable ones tell nothing
        except (OSError, EOFError, ValueError):
            continue
        notes |= {one: earlier[one] for one in snapshot_ids - notes.keys() if one in earlier}
    return {one: note for one, note in notes.items() if is_there(table.io, note)}


def is_there(io: FileIO, note: SnapshotNote) -> bool:
    """Tell whether anything of an expired snapshot is left; its manifest list goes last. True if unknown."""
    try:
        return io.new_input(note.manifest_list).exists()
    except OSError:
        return True


def note_from(text: str) -> SnapshotNote:
    """Parse a plan's note. Raises ValueError if it is invalid: nothing can be deleted by it."""
    content: Any = json.loads(text)
    match content:
        case {"table": str(table), "manifest_list": str(location), "statistics": list(files)}:
            return SnapshotNote(table, location, tuple(_file(file) for file in files), _refs(content.get("refs", {})))
    raise ValueError("it does not name a table, a manifest list and statistics")


def _refs(content: Any) -> dict[str, SnapshotRef]:
    if not isinstance(content, dict):
        raise ValueError("it names refs without what they say")
    return {str(name): SnapshotRef.model_validate(ref) for name, ref in content.items()}


def _file(content: Any) -> File:
    match content:
        case [str(location), int(size)]:
            return File(location, size)
    raise ValueError("it names statistics without a location and a size")


def snapshot_id(transaction: str) -> int | None:
    """Parse a snapshot's id; None for a text that the log would not write."""
    try:
        one = int(transaction)
    except ValueError:
        return None
    return one if str(one) == transaction else None
