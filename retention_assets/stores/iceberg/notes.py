"""What is written down about a snapshot before it is expired, so that its files are found when it no longer is in the metadata.

Belongs here: the note, as a value and as the text that a plan keeps; making it from the metadata or, of a snapshot that was
expired and whose note went with its plan, from the metadata files of before.
Does not belong here: deciding whether its files may be deleted. A sweep checks that against the present.
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
    """The table by its uuid (a name may be given to another table), the manifest list and the statistics of a snapshot.

    And the refs on it, with all that makes them again, should they be dropped together with it.
    """

    table: str
    manifest_list: str
    statistics: tuple[File, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)

    def text(self) -> str:
        """The note as a plan keeps it."""
        statistics = [[file.location, file.bytes] for file in self.statistics]
        content: dict[str, Any] = {"table": self.table, "manifest_list": self.manifest_list, "statistics": statistics}
        if self.refs:
            content["refs"] = {name: json.loads(ref.model_dump_json(exclude_none=True)) for name, ref in self.refs.items()}
        return json.dumps(content)


def notes_of(metadata: TableMetadata) -> dict[int, SnapshotNote]:
    """A note for each snapshot that is in the metadata."""
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


def note_from(text: str) -> SnapshotNote:
    """A note from the text of a plan. Raises ValueError if it is none: nothing can be deleted by it."""
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
    """The id of a snapshot, or none for a text that is not one as the log writes it."""
    try:
        one = int(transaction)
    except ValueError:
        return None
    return one if str(one) == transaction else None
