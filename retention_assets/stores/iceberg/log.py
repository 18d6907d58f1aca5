"""Converts snapshots and refs of Iceberg tables, from metadata already read, to lines of a log.

Model `states`: each snapshot is a full state, so each is a SNAPSHOT. Model `deltas`: a snapshot is what its operation says, and
one that carries no data file over from before is a SNAPSHOT. What a table says about its own retention is only reported:
deletions need a policy that asks for it (`from_table`).

Attributes of a dataset: `gc.enabled`, `format-version`, `commits.enabled` (false where this program can't commit to the table),
and the table's own retention (`history.expire.max-snapshot-age-ms`, `history.expire.min-snapshots-to-keep` and, if set,
`history.expire.max-ref-age-ms`), with Iceberg's defaults where the table says nothing. What a ref says otherwise stands under
`history.expire.branch.NAME.` and `history.expire.tag.NAME.`. No tag ends by itself: one past its age pins its snapshot until
somebody drops it, which a policy can ask for (`expired_refs: drop`). Of a transaction: `operation`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot

from retention_assets.frames.log import COMMITS
from retention_assets.frames.verdicts.table_windows import MAX_AGE, MAX_REF_AGE, MIN_SNAPSHOTS, attribute

Model = Literal["states", "deltas"]
Line = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {Operation.APPEND: "APPEND", Operation.DELETE: "DELETE"}
_FIVE_DAYS = 5 * 24 * 60 * 60 * 1000
_DEFAULTS = {attribute(MAX_AGE): str(_FIVE_DAYS), attribute(MIN_SNAPSHOTS): "1"}
MAX_REF_AGE_PROPERTY = attribute(MAX_REF_AGE)


def lines_of(dataset: str, metadata: TableMetadata, model: Model, *, commits: bool = True) -> list[Line]:
    """Return a table's lines: about itself, its snapshots in the order of the metadata, its refs."""
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    attributes = {
        "gc.enabled": "true" if collects_garbage(metadata) else "false",
        "format-version": str(metadata.format_version),
        **own_attributes(metadata.properties, metadata.refs),
        **({} if commits else {COMMITS: "false"}),
    }
    return [
        {"dataset": dataset, "attributes": attributes},
        *(_transaction(dataset, snapshot, snapshot.parent_snapshot_id in known, model) for snapshot in metadata.snapshots),
        *(
            {"dataset": dataset, ref.snapshot_ref_type.value: name, "head": str(ref.snapshot_id)}
            for name, ref in metadata.refs.items()
        ),
    ]


def collects_garbage(metadata: TableMetadata) -> bool:
    """Tell whether the table lets its files be deleted. Only `true` counts: a typo must not delete."""
    return metadata.properties.get("gc.enabled", "true").strip().lower() == "true"


def own_attributes(properties: Mapping[str, str], refs: Mapping[str, SnapshotRef]) -> dict[str, str]:
    """Return the table's numbers in force, and deviations of branches.

    An unreadable number is shown as written: it keeps no history from being read, and nothing is judged by it.
    """
    written = {name: properties[name] for name in (*_DEFAULTS, MAX_REF_AGE_PROPERTY) if name in properties}
    return {**_DEFAULTS, **written, **_ref_attributes(refs)}


def _ref_attributes(refs: Mapping[str, SnapshotRef]) -> dict[str, str]:
    numbers = {
        attribute(number, name, ref.snapshot_ref_type.value): value
        for name, ref in refs.items()
        for number, value in (
            (MAX_AGE, ref.max_snapshot_age_ms),
            (MIN_SNAPSHOTS, ref.min_snapshots_to_keep),
            (MAX_REF_AGE, ref.max_ref_age_ms),
        )
    }
    return {name: str(value) for name, value in numbers.items() if value is not None}


def _transaction(dataset: str, snapshot: Snapshot, parent_is_there: bool, model: Model) -> Line:
    made_at = _instant(snapshot.timestamp_ms)
    operation = snapshot.summary.operation if snapshot.summary else None
    return {
        "dataset": dataset,
        "transaction": str(snapshot.snapshot_id),
        # an expired parent leaves its id behind; a history begins anew after it
        "parent": str(snapshot.parent_snapshot_id) if parent_is_there else None,
        "parent_given": True,
        "type": "SNAPSHOT" if model == "states" else _type(snapshot, operation),
        "status": "COMMITTED",
        "opened_at": made_at,
        "closed_at": made_at,
        "bytes": _counted(snapshot, "added-files-size"),
        "files": _counted(snapshot, "added-data-files"),
        "attributes": {"operation": operation.value} if operation else {},
    }


def _type(snapshot: Snapshot, operation: Operation | None) -> str:
    # a SNAPSHOT begins a view and gives up what came before, so it needs proof in the summary
    total, added = _counted(snapshot, "total-data-files"), _counted(snapshot, "added-data-files")
    if total is not None and total == (added or 0):
        return "SNAPSHOT"
    return _TYPES.get(operation, "UPDATE") if operation else "UPDATE"


def _counted(snapshot: Snapshot, key: str) -> int | None:
    # text that any writer may have left out or spoiled
    text = str(snapshot.summary.get(key, "")) if snapshot.summary else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _instant(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
