"""Judge transactions by the windows that datasets carry themselves (`select.from_table`), each branch by its own.

A window is a number at a head, and a fold leads it to every transaction that the branch holds, so thousands of datasets
with as many different windows cost what one costs. Ages are exact, to the microsecond of `as_of`: no duration of whole
seconds comes between.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints
from retention_assets.frames.views.history import Refs, in_chain
from retention_assets.frames.views.scope import FAR, ScopeColumns
from retention_assets.policy.durations import micros
from retention_assets.policy.table_windows import TableWindow, TableWindows, table_windows

# by dataset; a dataset without readable windows is missing
Windows = Mapping[str, TableWindows]

_LATEST = np.iinfo(np.int64).max
# An age beyond every instant, and far from where microseconds would wrap around.
_OLDEST_MS = 2**52


@dataclass(frozen=True)
class WindowAnswer:
    """Answer of the windows for each transaction, in chain order."""

    # its dataset has no readable windows
    silent: Bools
    # Old enough is strictly before this, for each branch in scope that holds it.
    bound: Ints
    # Among the newest that some branch in scope keeps.
    within: Bools
    # How many the dataset itself keeps.
    count: Ints


def windows_of(datasets: pa.Table) -> Windows:
    """Read the windows of the datasets of a log."""
    found: dict[str, TableWindows] = {}
    for name, pairs in zip(datasets["dataset"].to_pylist(), datasets["attributes"].to_pylist(), strict=True):
        if (windows := table_windows(dict(pairs or ()))) is not None:
            found[name] = windows
    return found


def window_answer(windows: Windows, scope: ScopeColumns, as_of: datetime) -> WindowAnswer:
    """Judge every transaction by the windows of the branches in scope that hold it; on none of them, by the dataset's age."""
    history, refs = scope.history, scope.refs
    mine = [windows.get(name) for name in history.names]
    silent = np.array([one is None for one in mine], dtype=bool)
    bounds = np.array([_bound(one.dataset, as_of) if one else 0 for one in mine], dtype=np.int64)
    counts = np.array([_count(one.dataset) if one else 0 for one in mine], dtype=np.int64)
    bound, count = bounds[refs.dataset], counts[refs.dataset]
    for at, window in _of_branches(mine, refs):
        bound[at], count[at] = _bound(window, as_of), _count(window)
    within = _among_newest(scope, count)
    return WindowAnswer(history.per_dataset(silent), _least_bound(scope, bound, bounds), within, history.per_dataset(counts))


def _bound(window: TableWindow, as_of: datetime) -> int:
    return micros(as_of) - min(window.max_age_ms, _OLDEST_MS) * 1000


def _count(window: TableWindow) -> int:
    return min(window.min_snapshots, int(FAR))


def _of_branches(said: Sequence[TableWindows | None], refs: Refs) -> Iterator[tuple[int, TableWindow]]:
    """The refs whose branch has a window of its own, by their place."""
    if not any(windows and windows.branches for windows in said):
        return
    places = {key: place for place, key in enumerate(zip(refs.dataset.tolist(), refs.rank.tolist(), strict=True))}
    ranks = {name: rank for rank, name in enumerate(refs.names)}
    for dataset, windows in enumerate(said):
        for name, window in windows.branches.items() if windows else ():
            place = places.get((dataset, ranks.get(name, -1)))
            if place is not None:
                yield place, window


def _least_bound(scope: ScopeColumns, of_ref: Ints, of_dataset: Ints) -> Ints:
    """The least bound of the branches that hold each transaction: all of them have to agree that it is old enough."""
    history, refs = scope.history, scope.refs
    forest = history.chains
    at_end = np.full(len(forest.first), _LATEST)
    np.minimum.at(at_end, forest.at(refs.position), of_ref)
    bound = forest.spread(forest.fold(at_end, lambda _, value: value, np.minimum))
    if len(history.loose):
        # An ABORTED one is on the branches of its nearest committed ancestor, and without one on all of the dataset's.
        anywhere = np.full(len(history.starts), _LATEST)
        np.minimum.at(anywhere, refs.dataset, of_ref)
        at = history.anchors
        rootless = np.searchsorted(history.starts, history.loose, side="right") - 1
        bound[history.loose] = np.where(at < 0, anywhere[rootless], bound[at])
    return np.where(scope.branches > 0, bound, history.per_dataset(of_dataset))


def _among_newest(scope: ScopeColumns, of_ref: Ints) -> Bools:
    """Tell whether fewer than a branch's number of committed transactions follow each on that branch, for any branch in
    scope.

    Iceberg counts snapshots, whatever they did, so a DELETE counts here like any other and is kept like any other.
    """
    history = scope.history
    forest, so_far = history.chains, np.cumsum(history.committed, dtype=np.int32)
    total = in_chain(so_far, history.committed, forest)
    at_end = np.full(len(forest.first), np.int64(FAR))
    np.minimum.at(at_end, forest.at(scope.refs.position), -of_ref)
    lacking = forest.fold(at_end, lambda at, value: value + total[at], np.minimum)
    within: Bools = scope.held & (forest.spread(so_far[forest.last] + lacking) - so_far < 0)
    return within
