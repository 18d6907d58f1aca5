"""One row per transaction: what its branches say about it. Never one row per branch and transaction.

Belongs here: the table of design section 4, made from the columns of a `Scope`. The columns themselves are history.py's.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import from_micros
from retention_assets.frames.history import FAR, History, Refs, Scope
from retention_assets.frames.log import INSTANT, NAME
from retention_assets.policy.globs import matching
from retention_assets.policy.instants import micros

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
    """The views of a sound log, in its order, seen by the branches that some glob matches; protection looks at all of them."""
    if not len(log):
        return BRANCH_VIEWS.empty_table()
    history = History(log.combine_chunks(), micros(as_of))
    chosen = np.array(matching(history.branches.names, branches), dtype=bool)[history.branches.rank]
    scope = history.everywhere if chosen.all() else Scope(history, chosen)
    back = history.in_log_order
    columns = {
        "dataset": history.log["dataset"],
        "transaction": history.log["transaction"],
        "ordinal": history.log["ordinal"],
        "branches": pa.array(back(scope.branches)),
        "view": _counted(back(scope.view)),
        "newer": _counted(back(scope.newer)),
        "superseded_at": from_micros(back(scope.superseded_at)),
        "view_closed_at": from_micros(back(scope.view_closed_at)),
        "open_after": pa.array(back(scope.open_after)),
        "protected_by": _witness(history.branches, back(history.everywhere.latest), history.tags, back(history.pinned)),
    }
    return pa.table(columns, schema=BRANCH_VIEWS)


def _counted(values: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _witness(branches: Refs, latest: npt.NDArray[np.int32], tags: Refs, pinned: npt.NDArray[np.int32]) -> pa.Array:
    """The name of the branch, or else the tag, that protects each row."""
    index = np.where(latest < FAR, latest, np.where(pinned < FAR, len(branches.names) + pinned.astype(np.int64), -1))
    names = pa.array([*branches.names, *tags.names], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32), mask=index < 0), names)
