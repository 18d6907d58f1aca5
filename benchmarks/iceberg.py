"""PyIceberg's planning of snapshot expiry, table by table, beside our kernel on the same histories.

Belongs here: tables that exist in memory alone (metadata with many snapshots and refs, no data files), and the two rules that
both sides can express. Nothing is committed: only the plan is made.

`older_than` is PyIceberg's own: by age, refs excepted. PyIceberg 0.12 has no rule for "and keep at least N per branch", so for
`keep_newest` the ids are found as its users find them, with its `ancestors_of` for each branch, and handed to `by_ids`. That
copies the whole metadata twice for each id, so it is asked for small tables only.
Where the two sides differ by design (a back-dated snapshot in the middle) no history is made here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, ancestors_of
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.types import LongType, NestedField

from benchmarks.environments import AS_OF
from retention_assets.frames import DATASETS, INSTANT, LOG, Log, candidate_marks
from retention_assets.policy import Policy, micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

AGE_DAYS, KEPT = 20, 20
CUT_OFF = AS_OF - timedelta(days=AGE_DAYS)
_HOUR = 3_600_000


def _rule(name: str, **select: object) -> Policy:
    """Iceberg also expires what no ref reaches, so the rule looks at everything."""
    line = {"older_than": f"{AGE_DAYS}d", **select}
    return Policy.model_validate({"name": name, "datasets": {"include": ["*"]}, "branches": {"reach": "any"}, "select": line})


@dataclass(frozen=True)
class Rule:
    """One rule as both sides say it: our policy, and a function that plans with PyIceberg."""

    policy: Policy
    plan: Callable[[Table], set[int]]


def table(snapshots: int, seed: int = 1) -> Table:
    """A table with a main branch, two side branches, a tag, and a stretch of history that no ref reaches any more."""
    draw = np.random.default_rng(seed)
    ids = draw.permutation(np.arange(1, snapshots + 1)) * 7_919 + 2**52
    side = snapshots // 10
    trunk = snapshots - 3 * side
    parents = np.arange(snapshots) - 1
    parents[trunk::side] = draw.integers(0, trunk, len(parents[trunk::side]))
    newest = micros(AS_OF) // 1000
    made = [
        Snapshot(
            snapshot_id=int(ids[at]),
            parent_snapshot_id=int(ids[parents[at]]) if parents[at] >= 0 else None,
            sequence_number=at + 1,
            timestamp_ms=newest - (snapshots - at) * 100 * 24 * _HOUR // snapshots,
            manifest_list=f"memory:///{ids[at]}.avro",
            summary=Summary(Operation.APPEND),
            schema_id=0,
        )
        for at in range(snapshots)
    ]
    heads = {"main": trunk - 1, "audit": trunk + side - 1, "backfill": trunk + 2 * side - 1}
    refs = {name: _ref(ids[at], SnapshotRefType.BRANCH) for name, at in heads.items()}
    refs["release"] = _ref(ids[trunk // 3], SnapshotRefType.TAG)
    metadata = TableMetadataV2(
        location="memory:///table",
        last_column_id=1,
        schemas=[Schema(NestedField(1, "value", LongType(), required=False), schema_id=0)],
        current_schema_id=0,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        default_spec_id=0,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=0,
        last_sequence_number=snapshots,
        snapshots=made,
        current_snapshot_id=int(ids[heads["main"]]),
        refs=refs,
    )
    # A plan asks neither the catalog nor the files; there are none.
    return Table(("lake", f"t{seed}"), metadata, "memory:///table/metadata.json", PyArrowFileIO(), cast("Catalog", None))


def _ref(snapshot: np.int64, kind: SnapshotRefType) -> SnapshotRef:
    return SnapshotRef(
        snapshot_id=int(snapshot),
        snapshot_ref_type=kind,
        min_snapshots_to_keep=None,
        max_snapshot_age_ms=None,
        max_ref_age_ms=None,
    )


def by_age(of: Table) -> set[int]:
    """What PyIceberg would expire: older than the cut-off."""
    return _planned(of.maintenance.expire_snapshots().older_than(CUT_OFF))


def by_age_and_count(of: Table) -> set[int]:
    """The same, but the newest of each branch stay."""
    metadata = of.metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            for count, snapshot in enumerate(ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)):
                if count == KEPT:
                    break
                kept.add(snapshot.snapshot_id)
    bound = micros(CUT_OFF) // 1000
    old = [one.snapshot_id for one in metadata.snapshots if one.timestamp_ms < bound and one.snapshot_id not in kept]
    return _planned(of.maintenance.expire_snapshots().by_ids(old))


def _planned(expiry: Any) -> set[int]:
    """The update that a commit would send. PyIceberg has no public name for "plan, but do not commit"."""
    (update,), _ = expiry._commit()
    assert isinstance(update, RemoveSnapshotsUpdate)
    return set(update.snapshot_ids)


RULES = {
    "older_than": Rule(_rule("older-than"), by_age),
    "keep_newest": Rule(_rule("keep-newest", beyond={"transactions": KEPT}), by_age_and_count),
}


def log_of(tables: Sequence[TableMetadata]) -> Log:
    """Tables as a log: each snapshot is a full state. Reading the objects is part of our side's work."""
    snapshots = [(number, one) for number, metadata in enumerate(tables) for one in sorted(metadata.snapshots, key=_order)]
    counts = [len(metadata.snapshots) for metadata in tables]
    starts = np.cumsum([0, *counts[:-1]])
    row_of = {(number, one.snapshot_id): row for row, (number, one) in enumerate(snapshots)}
    parents = [
        -1 if one.parent_snapshot_id is None else row_of[number, one.parent_snapshot_id] - int(starts[number])
        for number, one in snapshots
    ]  # fmt: skip
    heads: list[list[str]] = [[] for _ in snapshots]
    tags: list[list[str]] = [[] for _ in snapshots]
    for number, metadata in enumerate(tables):
        for name, ref in metadata.refs.items():
            (tags if ref.snapshot_ref_type == SnapshotRefType.TAG else heads)[row_of[number, ref.snapshot_id]].append(name)
    n = len(snapshots)
    closed = pa.array([one.timestamp_ms * 1000 for _, one in snapshots]).view(INSTANT)
    columns = {
        "dataset": pa.DictionaryArray.from_arrays(
            pa.array(np.repeat(np.arange(len(tables), dtype=np.int32), counts)),
            pa.array([f"lake/t{number}" for number in range(len(tables))]),
        ),
        "transaction": pa.array([str(one.snapshot_id) for _, one in snapshots]),
        "ordinal": pa.array((np.arange(n) - np.repeat(starts, counts)).astype(np.int32)),
        "parent_ordinal": pa.array(parents, pa.int32()),
        "type": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), pa.array(["SNAPSHOT"])),
        "status": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), pa.array(["COMMITTED"])),
        "opened_at": closed,
        "closed_at": closed,
        "heads": pa.array(heads, pa.list_(pa.string())),
        "tags": pa.array(tags, pa.list_(pa.string())),
        "tag_expiries": pa.array([[None] * len(names) for names in tags], pa.list_(INSTANT)),
    }
    transactions = pa.table({field.name: columns.get(field.name, pa.nulls(n, field.type)) for field in LOG}, schema=LOG)
    names = transactions["dataset"].unique().cast(pa.string())
    about = {"dataset": names, "transactions": pa.array(counts)}
    return Log(
        transactions,
        pa.table({field.name: about.get(field.name, pa.nulls(len(tables), field.type)) for field in DATASETS}, schema=DATASETS),
    )


def _order(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def verdicts(log: Log, policy: Policy, as_of: datetime = AS_OF) -> pa.Table:
    """Our side, from a log."""
    return candidate_marks(log.transactions, log.datasets, (policy,), (), as_of)


def marked(marks: pa.Table) -> set[int]:
    """The snapshots that our side marked."""
    rows = zip(marks["transaction"].to_pylist(), marks["verdict"].to_pylist(), strict=True)
    return {int(transaction) for transaction, verdict in rows if verdict == "mark"}
