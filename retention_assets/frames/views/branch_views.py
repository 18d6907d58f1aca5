"""One row per transaction: what its branches say about it. Never one row per branch and transaction.

Belongs here: the table of design section 4, made from the columns of a `Scope`. The columns themselves are scope.py's, and the
branches beside it are branch_ends.py's.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import from_micros
from retention_assets.frames.grouping import in_one_piece
from retention_assets.frames.log import INSTANT, NAME
from retention_assets.frames.views.branch_ends import BRANCH_ENDS, branch_ends
from retention_assets.frames.views.history import History
from retention_assets.frames.views.protection import protection, witnesses
from retention_assets.frames.views.scope import ScopeTable
from retention_assets.policy.durations import micros
from retention_assets.policy.globs import matching

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
    return _views(History(in_one_piece(log), micros(as_of)), branches)


def branch_views_and_ends(log: pa.Table, as_of: datetime) -> tuple[pa.Table, pa.Table]:
    """The views of a sound log, and its branches with the largest latest views: both from one look at its forest."""
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
        "view": _counted(back(scope.view)),
        "newer": _counted(back(scope.newer)),
        "superseded_at": from_micros(back(scope.superseded_at)),
        "view_closed_at": from_micros(back(scope.view_closed_at)),
        "open_after": pa.array(back(scope.open_after)),
        "protected_by": witnesses(scopes, protection(scopes)),
    }
    return pa.table(columns, schema=BRANCH_VIEWS)


def _counted(values: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values < 0)
