"""Removes exactly the planned snapshots from a table's metadata, or puts some back, in one optimistic commit. Only here
PyIceberg's private names are used.

A catalog that removes a snapshot silently drops every branch and tag that points at it. Requirements that the known refs stay
where they are miss a ref that was made a moment ago. Catalogs that apply commits in this program (SQL, Hive, Glue, DynamoDB,
BigQuery) therefore get a requirement of our own, which they check against the metadata that they then replace. A REST server
has no such requirement: there, `refs_dropped` looks afterwards at the metadata that it committed upon.

The log of current snapshots, which time travel reads, is cut after the last entry of a removed snapshot. With a gap in it, the
entry before the gap would answer for the time of what is gone, with another state. Servers do the same by Iceberg's
specification.

A catalog takes the sequence number and the time of the table from the snapshot that was added last. After an old one they would
be behind those of other snapshots, and readers in Java refuse such a table. So a stand-in for a new snapshot is added last, and
removed in the same commit. A server may refuse old snapshots nevertheless: a commit that sets aside makes it take one first.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Literal

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from retention_assets.stores.iceberg.notes import ASIDE, AsideSnapshot

# prefix of a tag, before the id of its snapshot
RESTORED = "restored-"
# Milliseconds. A tag without an age of its own would end by the table's `history.expire.max-ref-age-ms`.
_FOREVER = 2**63 - 1
_Check = Callable[[TableMetadata], str | None]


class CommitConflict(Exception):
    """Somebody else changed the table first. Nothing was committed."""


class CommitUnknown(Exception):
    """The commit failed in a way that does not say whether it was made."""


class Assertion(ValidatableTableRequirement):
    """Requirement of our own on the metadata that the commit replaces."""

    type: Literal["assertion"] = "assertion"
    fault_in: _Check

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata and (fault := self.fault_in(base_metadata)):
            raise CommitFailedException(f"Requirement failed: {fault}")


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
    # a history begins anew after what was removed
    orphan = {"parent_snapshot_id": None}
    kept = [snapshot for snapshot in base_metadata.snapshots if snapshot.snapshot_id not in going]
    staying = [one.model_copy(update=orphan) if one.parent_snapshot_id in going else one for one in kept]
    return base_metadata.model_copy(update={"snapshots": staying, "snapshot_log": log})


def can_commit(table: Table) -> bool:
    """Catalogs for which PyIceberg writes the metadata can't commit to tables of format 3."""
    return table.metadata.format_version < 3 or not isinstance(table.catalog, MetastoreCatalog)


def log_without(log: Sequence[SnapshotLogEntry], staying: Set[int]) -> list[SnapshotLogEntry]:
    """Return the log after the last entry of a removed snapshot: there it still tells what was current when."""
    removed = [at for at, entry in enumerate(log) if entry.snapshot_id not in staying]
    return list(log[removed[-1] + 1 :] if removed else log)


def refs_by_snapshot(metadata: TableMetadata, dropping: Mapping[str, SnapshotRef] = MappingProxyType({})) -> dict[int, str]:
    """Return the snapshots with a ref on them, each with one such ref; the current snapshot even without a ref.

    Refs to be dropped don't count if they are unchanged.
    """
    number = metadata.current_snapshot_id
    current = {} if number is None else {number: "the table as its current snapshot"}
    staying = {name: ref for name, ref in metadata.refs.items() if name == MAIN_BRANCH or dropping.get(name) != ref}
    return current | {ref.snapshot_id: f"{ref.snapshot_ref_type.value} {name}" for name, ref in staying.items()}


def remove_snapshots(
    table: Table,
    snapshot_ids: Collection[int],
    dropping: Mapping[str, SnapshotRef] = MappingProxyType({}),
    asides: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Remove snapshots, their statistics and the refs dropped with them from a table as it was loaded.

    Properties note those of `asides`; notes of the others are removed. Raises CommitConflict or CommitUnknown.
    """
    metadata = table.metadata
    going = frozenset(snapshot_ids)
    # in the order of the metadata: a catalog looks for them one after the other
    removed = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in going]
    kept = {f"{ASIDE}{one}": AsideSnapshot.of(metadata, one, aside).model_dump_json() for one, aside in asides.items()}
    obsolete = [name for one in going - asides.keys() if (name := f"{ASIDE}{one}") in metadata.properties]
    updates: list[Any] = [
        # refs before snapshots: with these a catalog would drop refs silently
        *(RemoveSnapshotRefUpdate(ref_name=name) for name, ref in dropping.items() if metadata.refs.get(name) == ref),
        *(RemoveStatisticsUpdate(snapshot_id=one) for one in sorted(going & {s.snapshot_id for s in metadata.statistics})),
        *(
            RemovePartitionStatisticsUpdate(snapshot_id=one)
            for one in sorted(going & {s.snapshot_id for s in metadata.partition_statistics})
        ),
        *([SnapshotRemoval(snapshot_ids=[snapshot.snapshot_id for snapshot in removed])] if removed else []),
        *([SetPropertiesUpdate(updates=kept)] if kept else []),
        *([RemovePropertiesUpdate(removals=obsolete)] if obsolete else []),
    ]
    if kept and not isinstance(table.catalog, MetastoreCatalog):
        # as old as possible: a server that refuses old snapshots refuses this commit already, not only the restoring one
        old = _addition(removed[0], snapshot_id=metadata.new_snapshot_id(), timestamp_ms=1)
        updates += [old, *_stand_in(metadata), RemoveSnapshotsUpdate(snapshot_ids=[old.snapshot.snapshot_id])]

    def fault_in(base: TableMetadata) -> str | None:
        return next((f"{ref} points at {one}" for one, ref in refs_by_snapshot(base, dropping).items() if one in going), None)

    _commit(table, updates, {name: ref.snapshot_id for name, ref in metadata.refs.items()}, fault_in)


def put_back(table: Table, asides: Mapping[int, AsideSnapshot]) -> None:
    """Put what was set aside back into a table as it was loaded, each with a tag. Raises CommitConflict or CommitUnknown."""
    number, tags = table.metadata.next_sequence_number(), {one: f"{RESTORED}{one}" for one in asides}
    updates: list[Any] = []
    for one, aside in asides.items():
        tag = {"type": "tag", "ref-name": tags[one], "snapshot-id": one, "max-ref-age-ms": _FOREVER}
        updates += [_addition(aside.snapshot), SetSnapshotRefUpdate.model_validate(tag)]
        updates += [SetStatisticsUpdate(statistics=file) for file in aside.statistics]
        updates += [SetPartitionStatisticsUpdate(partition_statistics=file) for file in aside.partition_statistics]
    claims = [name for one in asides if (name := f"{ASIDE}{one}") in table.metadata.properties]
    updates += [*_stand_in(table.metadata), *([RemovePropertiesUpdate(removals=claims)] if claims else [])]

    def fault_in(base: TableMetadata) -> str | None:
        return None if base.next_sequence_number() == number else "a snapshot was added"

    _commit(table, updates, dict.fromkeys(tags.values()), fault_in)


def _addition(old: Snapshot, **other: int) -> AddSnapshotUpdate:
    # without its parent: no catalog takes a snapshot that has one and an old sequence number
    return AddSnapshotUpdate(snapshot=old.model_copy(update={"parent_snapshot_id": None, **other}))


def _stand_in(metadata: TableMetadata) -> list[Any]:
    last = Snapshot(
        snapshot_id=metadata.new_snapshot_id(),
        sequence_number=metadata.next_sequence_number(),
        timestamp_ms=metadata.last_updated_ms,
        manifest_list=metadata.location,
        summary=Summary(Operation.APPEND),
    )
    return [AddSnapshotUpdate(snapshot=last), RemoveSnapshotsUpdate(snapshot_ids=[last.snapshot_id])]


def _commit(table: Table, updates: list[Any], refs: Mapping[str, int | None], fault_in: _Check) -> None:
    requirements: list[Any] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
    requirements += [AssertRefSnapshotId(ref=name, snapshot_id=at) for name, at in refs.items()]
    if isinstance(table.catalog, MetastoreCatalog):
        requirements.append(Assertion(fault_in=fault_in))
    # the table's own commit also honours `write.metadata.delete-after-commit.enabled`
    try:
        table._do_commit(updates=tuple(updates), requirements=tuple(requirements))
    except CommitFailedException as fault:
        raise CommitConflict(str(fault)) from fault
    # a catalog raises ValueError if what is to be removed is already gone
    except ValueError as fault:
        raise CommitConflict(str(fault)) from fault
    # Catalogs raise what their drivers raise. The commit may have been made, so the caller has to look.
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
