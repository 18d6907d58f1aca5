"""Views that readers have of one sound dataset: a branch at an instant, and the transactions that are visible at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, as_micros, flags, integers, join_chunks, keys_of
from retention_assets.policy.durations import micros
from retention_assets.policy.fields import BRANCHED
from retention_assets.policy.globs import protecting
from retention_assets.policy.model import Hold


@dataclass(frozen=True)
class ViewRow:
    """Transaction that a reader sees."""

    transaction: str
    type: str
    closed_at: datetime
    bytes: int | None


@dataclass(frozen=True)
class BranchAsOf:
    """Transactions that readers of a branch see at an instant, oldest first; and whether that is the view that is current
    now.
    """

    branch: str
    current: bool
    rows: tuple[ViewRow, ...]


def views_at(rows: pa.Table, at: datetime, branch: str | None = None) -> list[BranchAsOf]:
    """Views of the live branches, or of one, at an instant, in the order of their names.

    A view is what was committed by then, back to the newest SNAPSHOT.
    """
    lists = join_chunks(rows["heads"])
    heads = zip(pc.list_flatten(lists).to_pylist(), pc.list_parent_indices(lists).to_pylist(), strict=True)
    committed = _is(rows["status"], "COMMITTED") & np.isin(rows["type"].cast(pa.string()).to_numpy(False), BRANCHED)
    closed = as_micros(rows["closed_at"]) <= micros(at)
    # Plain lists: the walk asks for one row at a time.
    parents: list[int] = integers(rows["parent_ordinal"], -1).tolist()
    is_committed, is_closed, is_snapshot = committed.tolist(), closed.tolist(), _is(rows["type"], "SNAPSHOT").tolist()
    views = []
    for name, row in sorted(heads):
        if branch not in (None, name):
            continue
        view: list[int] = []
        current = True
        while row >= 0:
            if is_committed[row] and is_closed[row]:
                view.append(row)
                if is_snapshot[row]:
                    break
            elif is_committed[row]:
                current = False
            row = parents[row]
        columns = rows.select(["transaction", "type", "closed_at", "bytes"]).take(pa.array(view[::-1], pa.int64()))
        views.append(BranchAsOf(name, current, tuple(ViewRow(**one) for one in columns.to_pylist())))
    return views


def visible_rows(rows: pa.Table, views: pa.Table, visible_from: datetime) -> Bools:
    """Transactions that a reader who keeps to the visibility mark can still read, given the dataset's `branch_views`.

    In a view: visible if it is current on some live branch at an instant not before the mark. Pinned by a tag or OPEN:
    visible. In no view (ABORTED, on no branch, a RECORD or OBJECT): visible if it closed, or was opened and never closed,
    at the mark or later.
    """
    mark = micros(visible_from)
    in_view = flags(pc.is_valid(views["view"]))
    current = in_view & flags(pc.equal(views["view"], 0))
    since = in_view & (as_micros(views["superseded_at"]) > mark)
    loose = ~in_view & (as_micros(pc.coalesce(rows["closed_at"], rows["opened_at"])) >= mark)
    found: Bools = current | since | loose | flags(pc.is_valid(views["protected_by"])) | _is(rows["status"], "OPEN")
    return found


def readable_but_swept(views: pa.Table, swept: pa.Table, visible_from: Mapping[str, datetime]) -> pa.Table:
    """Swept transactions, still listed, that a state needs which readers are told of: it was current not before the
    visibility mark. Only a policy that says so can take what is in a latest view.
    """
    old = views.filter(pc.greater(views["view"], 0)).select(["dataset", "transaction", "superseded_at"])
    mine = old.filter(pc.is_in(keys_of(old), value_set=keys_of(swept)))
    marks = [visible_from.get(name) for name in mine["dataset"].to_pylist()]
    return mine.filter(pc.greater(mine["superseded_at"], pa.array(marks, mine.schema.field("superseded_at").type)))


def held_rows(rows: pa.Table, holds: Sequence[Hold]) -> Bools:
    found: Bools = np.zeros(len(rows), dtype=bool)
    names = rows["transaction"].to_pylist() if any(hold.transactions is not None for hold in holds) else []
    for hold in holds:
        found |= True if hold.transactions is None else np.array(protecting(names, hold.transactions), dtype=bool)
    return found


def _is(column: pa.ChunkedArray, word: str) -> Bools:
    return flags(pc.equal(column.cast(pa.string()), word))
