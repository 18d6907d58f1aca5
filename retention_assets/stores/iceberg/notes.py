"""Notes about snapshots for a plan, so that their files are found once they are expired.

They come from the metadata or, for a snapshot that was expired and whose note went with its plan, from earlier metadata files.

A snapshot that is set aside is in a property of its table instead of in its snapshots. Whoever has the table sees it there.
"""

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.typedef import IcebergBaseModel

from retention_assets.errors import Refused
from retention_assets.stores.iceberg.manifests import File

# prefix of a table property, before the id of its snapshot
ASIDE = "retention.aside."
_FACTS = ("snapshots", "statistics", "partition_statistics")


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


class AsideSnapshot(IcebergBaseModel):
    """A snapshot that is set aside, with all that the metadata had about it."""

    # its uuid, as properties are copied to other tables
    table: str
    aside: str  # plan/mark
    snapshots: tuple[Snapshot]
    statistics: list[StatisticsFile]
    partition_statistics: list[PartitionStatisticsFile]

    @classmethod
    def of(cls, metadata: TableMetadata, snapshot_id: int, aside: str) -> "AsideSnapshot":
        facts = {key: [fact for fact in getattr(metadata, key) if fact.snapshot_id == snapshot_id] for key in _FACTS}
        return cls(table=str(metadata.table_uuid), aside=aside, **facts)

    @property
    def snapshot(self) -> Snapshot:
        return self.snapshots[0]


def asides_of(metadata: TableMetadata) -> dict[int, AsideSnapshot]:
    """Return the snapshots that are set aside. Raises Refused if a property can't be read: its files would go."""
    asides = []
    for name in (name for name in metadata.properties if name.startswith(ASIDE)):
        try:
            asides.append(AsideSnapshot.model_validate_json(metadata.properties[name]))
        except ValueError as fault:
            raise Refused(f"the table property {name} can't be read; put it back as it was, or remove it") from fault
    return {aside.snapshot.snapshot_id: aside for aside in asides if aside.table == str(metadata.table_uuid)}


def with_asides(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with the set aside snapshots among the others: their files stay as well."""
    asides = asides_of(metadata).values()
    facts = {key: [*(fact for aside in asides for fact in getattr(aside, key)), *getattr(metadata, key)] for key in _FACTS}
    return metadata.model_copy(update=facts)


def left_of_dropped(found: Sequence[TableMetadata], table: str, lists: Set[str]) -> TableMetadata | None:
    """Return a dropped table as if all snapshots in the metadata found but those of `lists` were set aside: their files stay.

    None unless the metadata has the claims on `lists`: it is unknown who else needs their files.
    """
    own = sorted((one for one in found if str(one.table_uuid) == table), key=lambda one: one.last_updated_ms)
    if not own or not lists <= {aside.snapshot.manifest_list for one in own for aside in asides_of(one).values()}:
        return None
    stay: dict[str, AsideSnapshot] = {}
    for whole in map(with_asides, found):
        for one in whole.snapshots:
            if one.manifest_list not in lists | stay.keys():
                stay[one.manifest_list] = AsideSnapshot.of(whole, one.snapshot_id, "").model_copy(update={"table": table})
    properties = {name: text for name, text in own[-1].properties.items() if not name.startswith(ASIDE)}
    properties |= {f"{ASIDE}{number}": one.model_dump_json() for number, one in enumerate(stay.values())}
    nothing: dict[str, Any] = {**{key: [] for key in _FACTS}, "refs": {}, "current_snapshot_id": None}
    return own[-1].model_copy(update={**nothing, "properties": properties})


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
    """Tell whether an expired snapshot still has files: its manifest list is deleted last. True if unknown."""
    try:
        return io.new_input(note.manifest_list).exists()
    except OSError:
        return True


def note_from(text: str | None) -> SnapshotNote | None:
    """Parse a plan's note. None if it is invalid: nothing can be deleted by it."""
    with suppress(ValueError):
        match json.loads(text or ""):
            case {"table": str(table), "manifest_list": str(location), "statistics": list(files), **other}:
                return SnapshotNote(table, location, tuple(_file(file) for file in files), _refs(other.get("refs", {})))
    return None


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
