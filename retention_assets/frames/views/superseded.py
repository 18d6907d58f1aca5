"""Which transactions no longer own a current file on any branch in scope.

Belongs here: the `superseded` line alone. It needs the names of files; a transaction without a list is superseded only where
a later SNAPSHOT replaced the whole view.

A file of a transaction is still current if some head sees it: a branch whose latest view holds the transaction, with no later
transaction on the way that names the file again. So for each file the heads below its writer are counted, less those below
the next writers of the same file. What remains sees the file. That is one pass over (transaction, file) pairs, for any number
of branches.
"""

import numpy as np
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, integers, join_chunks
from retention_assets.frames.views.forest import preorder
from retention_assets.frames.views.history import History
from retention_assets.frames.views.scope import FAR, ScopeColumns


def superseded(scope: ScopeColumns) -> Bools:
    """COMMITTED transactions all of whose files were replaced or deleted later on every branch in scope."""
    history = scope.history
    current = scope.latest < FAR
    result = history.committed & ~current
    if current.any():
        lists = history.log["file_names"]
        listed = history.column(flags(pc.is_valid(lists)))
        result |= current & listed & ~_owns_a_current_file(scope, history, current)
    return result


def _owns_a_current_file(scope: ScopeColumns, history: History, current: Bools) -> Bools:
    rows, file = _pairs(history, current)
    owns = np.zeros(len(history), dtype=bool)
    if not len(rows):
        return owns
    begin, end = preorder(history.chains)
    view = _view_roots(history)
    order = np.lexsort((begin[rows], file, view[rows]))
    rows, file = rows[order], file[order]
    new_group = np.append(True, (file[1:] != file[:-1]) | (view[rows[1:]] != view[rows[:-1]]))
    above = _enclosing(begin[rows], end[rows], new_group)
    seen = _heads_in_view(scope)[rows]
    unseen = np.zeros(len(rows), dtype=np.int64)
    below = above >= 0
    np.add.at(unseen, above[below], seen[below])
    owns[rows[seen > unseen]] = True
    return owns


def _pairs(history: History, current: Bools) -> tuple[Ints, Ints]:
    """The (position, file) pairs of the transactions that some latest view in scope holds, each once."""
    lists = join_chunks(history.log["file_names"])
    row = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    encoded = pc.list_flatten(lists).dictionary_encode()
    file = integers(encoded.indices, -1).astype(np.int64)
    if history.order is not None:
        row = history.positions[row]
    wanted = current[row]
    keys = np.unique(row[wanted] * np.int64(len(encoded.dictionary) + 1) + file[wanted])
    return np.divmod(keys, np.int64(len(encoded.dictionary) + 1))


def _view_roots(history: History) -> Ints:
    """For each position the SNAPSHOT that began its view (or its root): the same number, the same tree of views."""
    forest = history.chains
    here = np.maximum.accumulate(np.where(history.snapshots, np.arange(len(history)), -1))
    last = here[forest.last]
    begun = last >= forest.first
    above = forest.descend(-2 - forest.first, lambda at, value: np.where(begun[at], last[at], value))
    return np.where(here >= forest.spread(forest.first), here, forest.spread(above))


def _heads_in_view(scope: ScopeColumns) -> Ints:
    """How many heads in scope see each position in their latest view."""
    history, forest = scope.history, scope.history.chains
    here = np.bincount(forest.at(scope.refs.position), minlength=len(forest.first))
    whole = history.snapshots_in_chain == 0
    below = forest.fold(here, lambda at, value: np.where(whole[at], value, 0), np.add)
    return np.where(history.snapshots_after == 0, forest.spread(below), 0)


def _enclosing(begin: Ints, end: Ints, new_group: Bools) -> Ints:
    """For nested intervals sorted by begin in groups: the nearest earlier one of the group that encloses each, or -1."""
    rows = np.arange(len(begin), dtype=np.int64)
    group = np.cumsum(new_group)
    candidate = np.where(new_group, -1, rows - 1)
    while True:
        outside = (candidate >= 0) & (end[np.maximum(candidate, 0)] <= begin)
        if not outside.any():
            return np.where((candidate >= 0) & (group[np.maximum(candidate, 0)] == group), candidate, -1)
        candidate[outside] = candidate[candidate[outside]]
