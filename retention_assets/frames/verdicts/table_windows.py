"""Retention windows in the attributes of datasets (`select.from_table`): read them, judge transactions by them, each branch by
its own, and end branches and tags past their age (`expired_refs: drop`). A table has ages and counts, as Iceberg's, or one
window that begins when a transaction is superseded.

A window is a number at a head; a fold carries it to every transaction of the branch, so thousands of different windows cost
as much as one. Ages keep the table's milliseconds: a `Duration` would round them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import FOREVER, NEVER, Bools, Ints
from retention_assets.frames.log import SUPERSEDED_WINDOW, Log
from retention_assets.frames.views.history import History, Refs
from retention_assets.frames.views.scope import FAR, ScopeColumns, ScopeTable
from retention_assets.policy.durations import micros
from retention_assets.policy.keys import MOST

MAX_AGE = "max-snapshot-age-ms"
MIN_SNAPSHOTS = "min-snapshots-to-keep"
MAX_REF_AGE = "max-ref-age-ms"
# A branch of this name never ends, whatever its attributes.
_MAIN = "main"
_KEY = re.compile(rf"history\.expire\.(?:branch\.(?P<branch>.+)\.)?(?P<number>{MAX_AGE}|{MIN_SNAPSHOTS})", re.DOTALL)
_REF_KEY = re.compile(rf"history\.expire\.(?:(?P<kind>branch|tag)\.(?P<name>.+)\.)?{MAX_REF_AGE}", re.DOTALL)
_WHOLE = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class TableWindow:
    """Window on the path of a branch: an age below which transactions are kept, and a number of newest ones."""

    max_age_ms: int
    min_snapshots: int = 0
    # its age counts from when a transaction left the latest view
    since_superseded: bool = False

    def words(self) -> str:
        if self.since_superseded:
            return f"{SUPERSEDED_WINDOW} {self.max_age_ms}"
        return f"{MAX_AGE} {self.max_age_ms}, {MIN_SNAPSHOTS} {self.min_snapshots}"


@dataclass(frozen=True)
class TableWindows:
    """Window of a dataset, and those of the branches that have one of their own."""

    dataset: TableWindow
    branches: Mapping[str, TableWindow]
    # Highest age of a branch or tag, by kind and name; and of those without their own.
    ref_ages: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ref_age: int | None = None

    def ref_age_of(self, kind: str, name: str) -> int | None:
        """Milliseconds after which a branch or tag is over; None: never."""
        return None if (kind, name) == ("branch", _MAIN) else self.ref_ages.get((kind, name), self.ref_age)

    def words(self) -> str:
        branches = (f"; on branch {name}: {window.words()}" for name, window in sorted(self.branches.items()))
        return self.dataset.words() + "".join(branches)


def attribute(number: str, ref: str | None = None, kind: str = "branch") -> str:
    return f"history.expire.{number}" if ref is None else f"history.expire.{kind}.{ref}.{number}"


def table_windows(attributes: Mapping[str, str]) -> TableWindows | None:
    """Read a dataset's windows; None if a number is missing or not a whole one above zero: a guess could delete.

    A branch inherits each number that it leaves out from the dataset. A window since superseded may be zero.
    """
    if (text := attributes.get(SUPERSEDED_WINDOW)) is not None:
        if not _WHOLE.fullmatch(text) or int(text) > MOST:
            return None
        return TableWindows(TableWindow(int(text), since_superseded=True), {}, *_ref_ages(attributes))
    numbers_of: dict[str | None, dict[str, int]] = {}
    for key, text in attributes.items():
        if (about := _KEY.fullmatch(key)) is None:
            continue
        number = int(text) if _WHOLE.fullmatch(text) else 0
        if not 0 < number <= MOST:
            return None
        numbers_of.setdefault(about["branch"], {})[about["number"]] = number
    own = numbers_of.pop(None, {})
    if len(own) < len((MAX_AGE, MIN_SNAPSHOTS)):
        return None
    branches = {str(name): _window({**own, **numbers}) for name, numbers in numbers_of.items()}
    return TableWindows(_window(own), branches, *_ref_ages(attributes))


def _ref_ages(attributes: Mapping[str, str]) -> tuple[dict[tuple[str, str], int], int | None]:
    # An unreadable age ends nothing, and the dataset's general age does not end such a ref either.
    ages: dict[tuple[str, str], int] = {}
    every: int | None = None
    for key, text in attributes.items():
        if (about := _REF_KEY.fullmatch(key)) is None:
            continue
        age = int(text) if _WHOLE.fullmatch(text) and int(text) > 0 else MOST
        if about["kind"] is None:
            every = age
        else:
            ages[about["kind"], about["name"]] = age
    return ages, every


def _window(numbers: Mapping[str, int]) -> TableWindow:
    return TableWindow(numbers[MAX_AGE], numbers[MIN_SNAPSHOTS])


# by dataset; a dataset without readable windows is missing
Windows = Mapping[str, TableWindows]

# older than every instant, and far from where microseconds overflow
_OLDEST_MS = 2**52


@dataclass(frozen=True)
class WindowAnswer:
    """Answer of the windows for each transaction, in chain order."""

    # its dataset has no readable windows
    silent: Bools
    # The time that is compared; NEVER where it has none.
    time: Ints
    # Old enough is strictly before this, for each branch in scope that holds it.
    bound: Ints
    # Among the newest that some branch in scope keeps.
    within: Bools
    # How many the dataset itself keeps.
    count: Ints


def windows_of(datasets: pa.Table) -> Windows:
    by_dataset: dict[str, TableWindows] = {}
    for name, pairs in zip(datasets["dataset"].to_pylist(), datasets["attributes"].to_pylist(), strict=True):
        if (windows := table_windows(dict(pairs or ()))) is not None:
            by_dataset[name] = windows
    return by_dataset


def window_answer(windows: Windows, scope: ScopeColumns, as_of: datetime) -> WindowAnswer:
    """Judge every transaction by the windows of the branches in scope that hold it; on none of them, by the dataset's age."""
    history, refs = scope.history, scope.refs
    of_datasets = [windows.get(name) for name in history.names]
    silent = np.array([own is None for own in of_datasets], dtype=bool)
    bounds = np.array([_bound(own.dataset, as_of) if own else 0 for own in of_datasets], dtype=np.int64)
    counts = np.array([_count(own.dataset) if own else 0 for own in of_datasets], dtype=np.int64)
    bound, count = bounds[refs.dataset], counts[refs.dataset]
    for at, window in _of_branches(of_datasets, refs):
        bound[at], count[at] = _bound(window, as_of), _count(window)
    # Iceberg counts snapshots, whatever they did, so a DELETE counts here like any other and is kept like any other.
    within: Bools = scope.held & (scope.fewest_after(history.committed_so_far, history.committed, -count) < 0)
    # All branches that hold a transaction have to agree that it is old enough.
    least = np.where(scope.branches > 0, scope.over_heads(bound, np.minimum, FOREVER), history.per_dataset(bounds))
    time, since = history.closed, [own is not None and own.dataset.since_superseded for own in of_datasets]
    if any(since):
        time = np.where(history.per_dataset(np.array(since, dtype=bool)), scope.superseded_at, time)
    return WindowAnswer(history.per_dataset(silent), time, least, within, history.per_dataset(counts))


def window_ends(windows: Windows, scope: ScopeColumns) -> Ints:
    """Instant until which the window of its table holds each superseded transaction; FOREVER where there is no such instant."""
    time, tables = scope.superseded_at, [windows.get(name) for name in scope.history.names]
    lengths = [_length(of.dataset) if of and of.dataset.since_superseded else _OLDEST_MS * 1000 for of in tables]
    return np.where(time == NEVER, FOREVER, time + scope.history.per_dataset(np.array(lengths, dtype=np.int64)))


def _bound(window: TableWindow, as_of: datetime) -> int:
    return micros(as_of) - _length(window)


def _length(window: TableWindow) -> int:
    # microseconds
    return min(window.max_age_ms, _OLDEST_MS) * 1000


def _count(window: TableWindow) -> int:
    return min(window.min_snapshots, int(FAR))


def _of_branches(of_datasets: Sequence[TableWindows | None], refs: Refs) -> Iterator[tuple[int, TableWindow]]:
    # by place of the ref
    if not any(windows and windows.branches for windows in of_datasets):
        return
    places = {key: place for place, key in enumerate(zip(refs.dataset.tolist(), refs.rank.tolist(), strict=True))}
    ranks = {name: rank for rank, name in enumerate(refs.names)}
    for dataset, windows in enumerate(of_datasets):
        for name, window in windows.branches.items() if windows else ():
            place = places.get((dataset, ranks.get(name, -1)))
            if place is not None:
                yield place, window


def ref_ends(history: History, windows: Windows) -> tuple[Ints, Ints]:
    """The instant from which on each branch and each tag is over, FOREVER for one that never is.

    Iceberg keeps a ref that is exactly as old as it may become, and counts in milliseconds.
    """
    return _ends(history, history.branches, "branch", windows), _ends(history, history.tags, "tag", windows)


def _ends(history: History, refs: Refs, kind: str, windows: Windows) -> Ints:
    ends = np.full(len(refs.position), FOREVER)
    for place, (dataset, rank) in enumerate(zip(refs.dataset.tolist(), refs.rank.tolist(), strict=True)):
        own = windows.get(history.names[dataset])
        age = own.ref_age_of(kind, refs.names[rank]) if own else None
        committed_at = int(history.closed[refs.position[place]])
        if age is not None and age < _OLDEST_MS and committed_at != NEVER:
            ends[place] = committed_at + (age + 1) * 1000
    return ends


def remaining_scopes(history: History, windows: Windows, as_of: datetime) -> ScopeTable:
    branches, tags = (ends > micros(as_of) for ends in ref_ends(history, windows))
    return ScopeTable(history, branches, tags)


def next_ref_ends(history: History, windows: Windows, as_of: datetime) -> Ints:
    least = np.full(len(history.starts), FOREVER)
    for refs, ends in zip((history.branches, history.tags), ref_ends(history, windows), strict=True):
        later = ends > micros(as_of)
        np.minimum.at(least, refs.dataset[later], ends[later])
    return least


def ended_refs(log: Log, as_of: datetime) -> Mapping[tuple[str, str], tuple[str, ...]]:
    if not len(log.transactions):
        return {}
    history = History(log.transactions, micros(as_of))
    ids = log.transactions["transaction"]
    ended: dict[tuple[str, str], tuple[str, ...]] = {}
    for refs, ends in zip((history.branches, history.tags), ref_ends(history, windows_of(log.datasets)), strict=True):
        for place in np.flatnonzero(ends <= micros(as_of)).tolist():
            key = history.names[int(refs.dataset[place])], ids[int(history.rows[refs.position[place]])].as_py()
            ended[key] = (*ended.get(key, ()), refs.names[int(refs.rank[place])])
    return ended
