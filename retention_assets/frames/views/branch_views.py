"""One row per transaction with its views and what protects it, and one row per branch with the size of its latest view.

Never one row per branch and transaction: a hundred thousand branches of one history cost one walk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Counts, Ints, flags, from_micros, integers, join_chunks
from retention_assets.frames.log import CLASS, INSTANT, NAME, attribute_of, in_one_piece
from retention_assets.frames.views.history import TYPES, History
from retention_assets.frames.views.scope import FAR, ScopeColumns, ScopeTable, in_latest_view
from retention_assets.policy.durations import micros
from retention_assets.policy.globs import matching
from retention_assets.policy.selection import BRANCHED

_OBJECT = TYPES.index("OBJECT")
# witness of a reference to an OBJECT whose row names nobody
_A_SCAN = "the last scan"


@dataclass(frozen=True)
class Protection:
    """For each transaction, in chain order, the rank of a branch and of a live tag that protect it; FAR where none does."""

    branch: Counts
    tag: Counts


def protection(scopes: ScopeTable) -> Protection:
    """Look at every live branch and tag, whatever a policy looks at. Marking, checks and the sweep all call this."""
    return Protection(scopes.everywhere.latest, in_latest_view(scopes.history, scopes.tags))


def witnesses(scopes: ScopeTable, protected: Protection) -> pa.DictionaryArray:
    """The name of the branch, or else of the tag, that protects each transaction, in the order of the log."""
    names = [*scopes.history.branches.names, *scopes.history.tags.names]
    tag = np.where(protected.tag < FAR, protected.tag.astype(np.int64) + len(scopes.history.branches.names), -1)
    index = scopes.history.in_log_order(np.where(protected.branch < FAR, protected.branch, tag)).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(names, pa.string()))


@dataclass(frozen=True)
class ScannedReferences:
    """OBJECTs to which a scan found a reference, in chain order, and who refers to them."""

    is_referenced: Bools
    names: Sequence[str] = ()
    # index among the names
    witness: Counts | None = None


def references(history: History) -> ScannedReferences:
    """Read the references of scans. Other logs have none, and cost nothing."""
    objects: Bools = history.type == _OBJECT
    if "attributes" not in history.log.column_names or not objects.any():
        return ScannedReferences(np.zeros(len(history), dtype=bool))
    is_referenced: Bools = objects & history.column(flags(pc.equal(attribute_of(history.log, CLASS), "referenced")))
    if not is_referenced.any():
        return ScannedReferences(is_referenced)
    referrers = attribute_of(history.log, "witness").dictionary_encode()
    names = referrers.dictionary.to_pylist()
    return ScannedReferences(
        is_referenced, [*names, _A_SCAN], history.column(integers(referrers.indices, len(names)).astype(np.int32))
    )


# rows per part: the branches with the largest latest views
MOST = 1_000

BRANCH_ENDS = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("branch", pa.string()),
        pa.field("views", pa.int64()),
        pa.field("transactions", pa.int64()),
        pa.field("newest_close", INSTANT),
    ]
)


def branch_ends(history: History, most: int = MOST) -> pa.Table:
    forest, refs = history.chains, history.branches
    if not len(refs.position):
        return BRANCH_ENDS.empty_table()
    # a head ends its chain
    chain = forest.at(refs.position)
    snapshots, committed = history.snapshots_in_chain, history.committed_in_chain
    begins_without = (committed > 0) & ~history.begins_view
    last_snapshot = np.append(history.snapshot_positions, 0)[np.maximum(history.snapshots_so_far[forest.last] - 1, 0)]
    since_snapshot = history.committed_so_far[forest.last] - history.committed_so_far[last_snapshot] + 1
    newest_close = history.newest_close(forest.last)

    def at_heads(at_root: int, after: Callable[[Ints, Ints], Ints]) -> Ints:
        # `after` turns the values before chains into those at their ends.
        before = forest.descend(np.full(len(forest.first), at_root, dtype=np.int64), after)
        return after(chain, before[chain])

    views = at_heads(0, lambda at, value: value + snapshots[at] + np.where(value == 0, begins_without[at], 0))
    latest = at_heads(0, lambda at, value: np.where(snapshots[at] > 0, since_snapshot[at], value + committed[at]))
    closes = at_heads(int(NEVER), lambda at, value: np.where(committed[at] > 0, newest_close[at], value))
    names = np.array(history.names, dtype=object)[refs.dataset]
    first = np.lexsort((refs.rank, names.astype(str), -latest))[:most]
    return pa.table(
        {
            "dataset": pa.array(names[first], pa.string()),
            "branch": pa.array([refs.names[rank] for rank in refs.rank[first].tolist()], pa.string()),
            "views": views[first],
            "transactions": latest[first],
            "newest_close": from_micros(closes[first]),
        },
        schema=BRANCH_ENDS,
    )


BRANCH_VIEWS = pa.schema(
    [
        pa.field("dataset", NAME),
        pa.field("transaction", pa.string()),
        pa.field("ordinal", pa.int32()),
        pa.field("branches", pa.int32()),
        pa.field("view", pa.int32()),
        pa.field("newer", pa.int32()),
        pa.field("superseded_at", INSTANT),
        pa.field("view_closed_at", INSTANT),
        pa.field("open_after", pa.bool_()),
        pa.field("protected_by", NAME),
    ]
)


def branch_views(log: pa.Table, as_of: datetime, branches: Sequence[str] = ("*",)) -> pa.Table:
    """Compute the views of a sound log, in its order, on the branches that a glob matches; all branches protect."""
    if not len(log):
        return BRANCH_VIEWS.empty_table()
    return _views(History(in_one_piece(log), micros(as_of)), branches)


def view_ends(log: pa.Table, as_of: datetime) -> pa.Table:
    """Compute the newest view of each transaction of a sound log, in its order, and when it left the latest view."""
    if not pc.any(pc.is_in(join_chunks(log["type"]).dictionary, pa.array(BRANCHED))).as_py():
        # No view has any of them.
        return pa.table({name: pa.nulls(len(log), BRANCH_VIEWS.field(name).type) for name in ("view", "superseded_at")})
    history = History(in_one_piece(log), micros(as_of))
    return pa.table(_ends(history, ScopeTable(history).everywhere))


def _ends(history: History, scope: ScopeColumns) -> dict[str, pa.Array]:
    back = history.in_log_order
    return {"view": _counts(back(scope.view)), "superseded_at": from_micros(back(scope.superseded_at))}


def branch_views_and_ends(log: pa.Table, as_of: datetime) -> tuple[pa.Table, pa.Table]:
    """Compute the views of a sound log, and its branches with the largest latest views, from one forest."""
    if not len(log):
        return BRANCH_VIEWS.empty_table(), BRANCH_ENDS.empty_table()
    history = History(in_one_piece(log), micros(as_of))
    return _views(history, ("*",)), branch_ends(history)


def _views(history: History, branches: Sequence[str]) -> pa.Table:
    scopes = ScopeTable(history)
    scope = scopes.of(np.array(matching(history.branches.names, branches), dtype=bool))
    back = history.in_log_order
    columns = {
        "dataset": history.log["dataset"],
        "transaction": history.log["transaction"],
        "ordinal": history.log["ordinal"],
        "branches": pa.array(back(scope.branches)),
        **_ends(history, scope),
        "newer": _counts(back(scope.newer)),
        "view_closed_at": from_micros(back(scope.view_closed_at)),
        "open_after": pa.array(back(scope.open_after)),
        "protected_by": witnesses(scopes, protection(scopes)),
    }
    return pa.table(columns, schema=BRANCH_VIEWS)


def _counts(values: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values < 0)
