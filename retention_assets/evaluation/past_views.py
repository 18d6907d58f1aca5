"""Views of branches as they were at an instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, as_micros, flags, integers, join_chunks
from retention_assets.policy.durations import micros, text_of
from retention_assets.policy.selection import BRANCHED


@dataclass(frozen=True)
class ViewRow:
    transaction: str
    type: str
    closed_at: datetime
    bytes: int | None


@dataclass(frozen=True)
class BranchAsOf:
    """Transactions that a branch shows at an instant, oldest first; `current` if it shows the same now."""

    branch: str
    current: bool
    rows: tuple[ViewRow, ...]


def hidden_sentence(dataset: str, visible_from: datetime) -> str:
    return (
        f"The history of {dataset} before {text_of(visible_from)} can't be read: parts of it may be gone. Ask for that time "
        "or a later one."
    )


def refuse_hidden(dataset: str, at: datetime, visible_from: datetime | None, views: Sequence[BranchAsOf]) -> None:
    """Refuse an instant before the visibility mark, unless what was current then is current now."""
    if visible_from is None or at >= visible_from or (views and all(view.current for view in views)):
        return
    raise Refused(hidden_sentence(dataset, visible_from))


def views_at(rows: pa.Table, at: datetime, branch: str | None = None) -> list[BranchAsOf]:
    """Views of the live branches, or of one, at an instant, in the order of their names.

    A view is what was committed by then, back to the newest SNAPSHOT.
    """
    lists = join_chunks(rows["heads"])
    heads = zip(pc.list_flatten(lists).to_pylist(), pc.list_parent_indices(lists).to_pylist(), strict=True)
    committed = has_word(rows["status"], "COMMITTED") & np.isin(rows["type"].cast(pa.string()).to_numpy(False), BRANCHED)
    closed = as_micros(rows["closed_at"]) <= micros(at)
    # Plain lists: the walk asks for one row at a time.
    parents: list[int] = integers(rows["parent_ordinal"], -1).tolist()
    is_committed, is_closed, is_snapshot = committed.tolist(), closed.tolist(), has_word(rows["type"], "SNAPSHOT").tolist()
    views = []
    for name, row in sorted(heads):
        if branch not in (None, name):
            continue
        view, current = list[int](), True
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


def has_word(column: pa.ChunkedArray, word: str) -> Bools:
    return flags(pc.equal(column.cast(pa.string()), word))
