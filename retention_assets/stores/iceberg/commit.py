"""Removes exactly the planned snapshots from a table's metadata in one optimistic commit. Only here PyIceberg's private names
are used.

A catalog that removes a snapshot silently drops every branch and tag that points at it. Requirements that the known refs stay
where they are miss a ref that was made a moment ago. Catalogs that apply commits in this program (SQL, Hive, Glue, DynamoDB,
BigQuery) therefore get a requirement of our own, which they check against the metadata that they then replace. A REST server
has no such requirement: there, `refs_dropped` looks afterwards at the metadata that it committed upon.

The log of current snapshots, which time travel reads, is cut after the last entry of a removed snapshot. With a gap in it, the
entry before the gap would answer for the time of what is gone, with another state. Servers do the same by Iceberg's
specification.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Literal

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


class CommitConflict(Exception):
    """Somebody else changed the table first. Nothing was committed."""


class CommitUnknown(Exception):
    """The commit failed in a way that does not say whether it was made."""


class AssertNoRefOn(ValidatableTableRequirement):
    """No branch or tag points at any of the snapshots that are to go, but those that are dropped, if they are as they were."""

    type: Literal["assert-no-ref-on"] = "assert-no-ref-on"
    snapshot_ids: frozenset[int]
    dropping: dict[str, SnapshotRef]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raises CommitFailedException for the first ref on one of them."""
        refs = refs_by_snapshot(base_metadata, self.dropping) if base_metadata else {}
        for snapshot in sorted(self.snapshot_ids & refs.keys()):
            raise CommitFailedException(f"Requirement failed: {refs[snapshot]} points at {snapshot}")


class SnapshotRemoval(RemoveSnapshotsUpdate):
    """The removal of snapshots that PyIceberg sends, applied in one walk: its own looks through the lists for each id."""


@_apply_table_update.register(SnapshotRemoval)
def _(update: SnapshotRemoval, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    going = frozenset(update.snapshot_ids)
    known = {snapshot.snapshot_id for snapshot in base_metadata.snapshots}
    log = log_without(base_metadata.snapshot_log, known - going)
    if going - known or going & refs_by_snapshot(base_metadata).keys():
        # anything but the plain case is left to PyIceberg
        applied: TableMetadata = _apply_table_update.dispatch(RemoveSnapshotsUpdate)(update, base_metadata, context)
        return applied.model_copy(update={"snapshot_log": log})
    context.add_update(update)
    staying = [
        # a history begins anew after what was removed
        snapshot.model_copy(update={"parent_snapshot_id": None}) if snapshot.parent_snapshot_id in going else snapshot
        for snapshot in base_metadata.snapshots
        if snapshot.snapshot_id not in going
    ]
    return base_metadata.model_copy(update={"snapshots": staying, "snapshot_log": log})


def can_commit(table: Table) -> bool:
    """Catalogs for which PyIceberg writes the metadata can't commit to tables of format 3."""
    return table.metadata.format_version < 3 or not isinstance(table.catalog, MetastoreCatalog)


def log_without(log: Sequence[SnapshotLogEntry], staying: Set[int]) -> list[SnapshotLogEntry]:
    """Keep the part of the log behind the last entry of a snapshot that is removed: it still tells what was current when."""
    gone = [at for at, entry in enumerate(log) if entry.snapshot_id not in staying]
    return list(log[gone[-1] + 1 :] if gone else log)


def refs_by_snapshot(metadata: TableMetadata, dropping: Mapping[str, SnapshotRef] = MappingProxyType({})) -> dict[int, str]:
    """Return the snapshots with a ref on them, each with one such ref; the current snapshot even without a ref.

    Refs to be dropped don't count if they are unchanged.
    """
    current = (
        {} if metadata.current_snapshot_id is None else {metadata.current_snapshot_id: "the table as its current snapshot"}
    )
    staying = {name: ref for name, ref in metadata.refs.items() if name == MAIN_BRANCH or dropping.get(name) != ref}
    return current | {ref.snapshot_id: f"{ref.snapshot_ref_type.value} {name}" for name, ref in staying.items()}


def remove_snapshots(
    table: Table, snapshot_ids: Collection[int], dropping: Mapping[str, SnapshotRef] = MappingProxyType({})
) -> None:
    """Remove snapshots, their statistics and the refs dropped with them from a table as it was loaded.

    Raises CommitConflict or CommitUnknown.
    """
    metadata = table.metadata
    going = frozenset(snapshot_ids)
    # in the order of the metadata, in which a catalog looks for them
    ordered = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in going]
    updates: list[Any] = [
        # before the snapshots, with which a catalog would silently drop them
        *(RemoveSnapshotRefUpdate(ref_name=name) for name, ref in dropping.items() if metadata.refs.get(name) == ref),
        *(RemoveStatisticsUpdate(snapshot_id=one) for one in sorted(going & {s.snapshot_id for s in metadata.statistics})),
        *(
            RemovePartitionStatisticsUpdate(snapshot_id=one)
            for one in sorted(going & {s.snapshot_id for s in metadata.partition_statistics})
        ),
        SnapshotRemoval(snapshot_ids=ordered),
    ]
    requirements: list[Any] = [
        AssertTableUUID(uuid=metadata.table_uuid),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()),
    ]
    if isinstance(table.catalog, MetastoreCatalog):
        requirements.append(AssertNoRefOn(snapshot_ids=going, dropping=dict(dropping)))
    _commit(table, updates, requirements)


def _commit(table: Table, updates: list[Any], requirements: list[Any]) -> None:
    # the table's own commit also honours `write.metadata.delete-after-commit.enabled`
    try:
        table._do_commit(updates=tuple(updates), requirements=tuple(requirements))
    except CommitFailedException as fault:
        raise CommitConflict(str(fault)) from fault
    # a catalog raises ValueError if what is to be removed is already gone
    except ValueError as fault:
        raise CommitConflict(str(fault)) from fault
    # Catalogs raise what their drivers raise. A lost answer is not a lost commit, so the caller has to look.
    except Exception as fault:
        raise CommitUnknown(f"{type(fault).__name__}: {fault}") from fault


def refs_dropped(
    table: Table, loaded: str, snapshot_ids: Collection[int], dropping: Mapping[str, SnapshotRef] = MappingProxyType({})
) -> dict[int, str]:
    """Return refs that a server dropped together with these snapshots, because they were made after the table was loaded.

    Raises CommitUnknown if that can't be looked up. `table` is the result of the commit, `loaded` the location of the metadata
    in which the refs were checked.
    """
    log = table.metadata.metadata_log
    if isinstance(table.catalog, MetastoreCatalog) or not log or log[-1].metadata_file == loaded:
        return {}
    try:
        base = FromInputFile.table_metadata(table.io.new_input(log[-1].metadata_file))
    # neither the file system nor the content can be trusted
    except Exception as fault:
        raise CommitUnknown(f"{type(fault).__name__}: {fault}") from fault
    return {snapshot: ref for snapshot, ref in refs_by_snapshot(base, dropping).items() if snapshot in snapshot_ids}
