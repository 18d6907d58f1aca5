"""Columns about a set of branches: branch, view and age of a view of each transaction, and whether its files are superseded
(design section 4); and the lines of what lies on no branch.

Each is a minimum or maximum over the branches that hold a transaction, computed when first asked for and over the whole
batch. Cost is linear in transactions for any number of branches: inside a chain a column is a prefix sum, between chains it
is a fold.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Counts, Ints, changes, flags, integers, join_chunks, places_from_end
from retention_assets.frames.log import CLASS, attribute_of
from retention_assets.frames.views.forest import enclosing, subtrees, without_those_below
from retention_assets.frames.views.history import COMMITTED, DELETE, OPEN, TYPES, History, Refs, S, in_chain
from retention_assets.policy.globs import matching
from retention_assets.policy.selection import Branches, Window

OBJECT = TYPES.index("OBJECT")
# The classes of a scan whose OBJECTs are their line, at any size of the store.
_ON_LINE = ("unreferenced", "realm_purge")


class Line:
    """Lines of what lies on no branch, in chain order; `live` are the rows on a live branch.

    A log without live branches is a line by the order of its rows; RECORDs and OBJECTs by their closing, ties by name.
    """

    def __init__(self, history: History, live: Bools) -> None:
        self._history = history
        bare = ~np.logical_or.reduceat(live, history.starts)
        self.rows: Bools = history.independent | history.per_dataset(bare)

    @cached_property
    def committed(self) -> Bools:
        """Rows that count where every commit does. An OBJECT in another class of a scan is on no line."""
        history = self._history
        committed: Bools = self.rows & (history.status == COMMITTED)
        if (history.type == OBJECT).any() and "attributes" in history.log.column_names:
            class_of = attribute_of(history.log, CLASS)
            elsewhere = history.column(~flags(pc.or_(pc.is_null(class_of), pc.is_in(class_of, value_set=pa.array(_ON_LINE)))))
            committed &= ~(elsewhere & (history.type == OBJECT))
        return committed

    @cached_property
    def data(self) -> Bools:
        data: Bools = self.committed & (self._history.type != DELETE)
        return data

    def newer(self, counted: Bools) -> Ints:
        """Number of newer rows that count; meaningless for rows that do not count."""
        at, starts = self.ordered(counted)
        newer = np.zeros(len(self._history), dtype=np.int64)
        newer[at] = places_from_end(starts, len(at)) - 1
        return newer

    def ordered(self, counted: Bools) -> tuple[Ints, Ints]:
        """Positions of the rows that count, those of a line together and oldest first, and where each line starts."""
        history = self._history
        at = np.flatnonzero(counted)
        kind = np.where(history.independent, history.type, 0)
        line = (history.per_dataset(np.arange(len(history.starts))) * len(TYPES) + kind)[at]
        time = np.where(history.independent, history.closed, history.rows)[at]
        order = np.lexsort((time, line))
        equal = (np.diff(line[order]) == 0) & (np.diff(time[order]) == 0)
        if equal.any():
            tied = order[np.append(equal, False) | np.append(False, equal)]
            name = np.zeros(len(at), dtype=np.int64)
            names = history.log["transaction"].take(pa.array(history.rows[at[tied]]))
            name[tied[np.asarray(pc.sort_indices(names))]] = np.arange(len(tied))
            order = np.lexsort((name, time, line))
        return at[order], np.flatnonzero(changes(line[order]))


# rank or count that stands for none
FAR = np.int32(np.iinfo(np.int32).max)


class ScopeColumns:
    """Views of a set of branches. Columns are in chain order, -1 or NEVER where there is no value."""

    def __init__(self, history: History, chosen: Bools) -> None:
        self.history = history
        self.refs = _some(history.branches, chosen)
        self._chain = history.chains.at(self.refs.position)

    @cached_property
    def _alive(self) -> Bools:
        # Chains from whose end some head in scope is reached.
        forest = self.history.chains
        at_end = np.zeros(len(forest.first), dtype=bool)
        at_end[self._chain] = True
        return forest.fold(at_end, lambda _, value: value, np.logical_or)

    @cached_property
    def branches(self) -> Counts:
        count = self.over_heads(np.ones(len(self.refs.rank), dtype=np.int32), np.add, 0)
        count[self.history.independent] = 0
        return count

    def over_heads(self, of_head: npt.NDArray[S], merge: np.ufunc, none: int) -> npt.NDArray[S]:
        """Numbers of heads in scope, merged over those whose branches hold each position; `none` where there is none.

        An OPEN or ABORTED one is on the branches of its nearest committed ancestor, and without one on all of its dataset.
        """
        history, forest = self.history, self.history.chains
        at_end = np.full(len(forest.first), none, dtype=of_head.dtype)
        merge.at(at_end, self._chain, of_head)
        merged = forest.spread(forest.fold(at_end, lambda _, value: value, merge))
        if len(history.loose):
            anywhere = np.full(len(history.starts), none, dtype=of_head.dtype)
            merge.at(anywhere, self.refs.dataset, of_head)
            dataset = np.searchsorted(history.starts, history.loose, side="right") - 1
            merged[history.loose] = np.where(history.anchors < 0, anywhere[dataset], merged[history.anchors])
        return merged

    @cached_property
    def held(self) -> Bools:
        """Committed, and on one of the branches: only these are in views."""
        return self.history.committed & (self.branches > 0)

    @cached_property
    def view(self) -> Counts:
        """The newest view index over the branches; 0 is the latest view of one of them."""
        history = self.history
        return np.where(self.held, self.fewest_after(history.snapshots_so_far, history.snapshots), -1).astype(np.int32)

    @cached_property
    def newer(self) -> Counts:
        """The fewest newer data transactions on any of the branches."""
        data = self.history.data
        return np.where(self.held, self.fewest_after(np.cumsum(data, dtype=np.int32), data), -1).astype(np.int32)

    def fewest_after(self, so_far: Counts, flag: Bools, at_heads: Ints | int = 0) -> Counts:
        """The least number of flagged rows between each position and a head in scope, plus the number of that head.

        `so_far` is the running count of the flags. Meaningless where no head follows.
        """
        forest = self.history.chains
        total = in_chain(so_far, flag, forest)
        at_end = np.full(len(forest.first), FAR, dtype=np.int64)
        np.minimum.at(at_end, self._chain, at_heads)
        best = forest.fold(at_end, lambda at, value: np.minimum(value + total[at], FAR), np.minimum)
        best = np.where(best >= FAR, 0, best).astype(np.int32)
        return forest.spread(so_far[forest.last] + best) - so_far

    @cached_property
    def latest(self) -> Counts:
        """The rank of a branch whose latest view holds each transaction, FAR if there is none."""
        return in_latest_view(self.history, self.refs)

    @cached_property
    def superseded_at(self) -> Ints:
        """Time at which each left the latest view of the last branch that had it there; NEVER while it is in one."""
        history, forest = self.history, self.history.chains
        total, alive = history.snapshots_in_chain, self._alive
        first_close = history.closed[history.first_snapshot]
        below = forest.fold(
            np.full(len(forest.first), NEVER),
            lambda at, value: np.where(alive[at], np.where(total[at] > 0, first_close[at], value), NEVER),
            np.maximum,
        )
        inside = np.where(history.snapshots_after > 0, history.closed[history.next_snapshot], forest.spread(below))
        return np.where(self.view > 0, inside, NEVER)

    @cached_property
    def view_closed_at(self) -> Ints:
        """Latest time, over the branches, at which the newest view that holds each transaction got its last one."""
        history, forest = self.history, self.history.chains
        total, last, alive = history.snapshots_in_chain, forest.last, self._alive
        has_commits, begins_view = history.committed_in_chain > 0, history.begins_view
        newest = history.newest_close(np.where(total > 0, np.maximum(history.first_snapshot - 1, 0), last))
        bare = np.zeros(len(forest.first), dtype=bool)
        bare[self._chain] = True
        # `bare`: below this end some branch adds nothing more to the view. `further`: the latest close that a branch adds.
        bare = forest.fold(bare, lambda at, value: alive[at] & np.where(has_commits[at], begins_view[at], value), np.logical_or)

        def passed(at: Ints, value: Ints) -> Ints:
            own = np.where(total[at] > 0, newest[at], np.maximum(np.where(bare[at], newest[at], NEVER), value))
            return np.where(alive[at] & ~begins_view[at], np.where(has_commits[at], own, value), NEVER)

        further = forest.fold(np.full(len(forest.first), NEVER), passed, np.maximum)
        inside = history.newest_close(np.where(history.snapshots_after > 0, history.next_snapshot - 1, forest.spread(last)))
        at_end = np.maximum(np.where(forest.spread(bare), inside, NEVER), forest.spread(further))
        return np.where(self.held, np.where(history.snapshots_after > 0, inside, at_end), NEVER)

    @cached_property
    def open_after(self) -> Bools:
        """In the latest view of a branch on which an OPEN transaction follows the last committed one."""
        history = self.history
        opens = history.status[history.loose] == OPEN
        if not opens.any():
            return np.zeros(len(history), dtype=bool)
        opened = self._newest_open(history.loose[opens], history.anchors[opens]) > history.rows[self._tips]
        return _over_last_views(history, self.refs, opened.astype(np.int64), np.maximum, np.int32(0)) > 0

    @cached_property
    def _tips(self) -> Ints:
        # The last committed position of each branch, -1 where it has none.
        history = self.history
        tip = self.refs.position.copy()
        among = np.searchsorted(history.loose, tip)
        loose = np.append(history.loose, -1)[among] == tip
        tip[loose] = history.anchors[among[loose]]
        return tip

    def _newest_open(self, positions: Ints, anchors: Ints) -> Ints:
        # The row of the newest OPEN transaction on each branch, by the order of the log; -1 if there is none. It is on every
        # branch that holds its nearest committed ancestor, and without one on every branch of the dataset.
        history, forest = self.history, self.history.chains
        rows, rootless = history.rows[positions], anchors < 0
        anywhere = np.full(len(history.starts), -1, dtype=np.int64)
        np.maximum.at(anywhere, np.searchsorted(history.starts, positions[rootless], side="right") - 1, rows[rootless])
        own = np.full(len(forest.first), -1, dtype=np.int64)
        np.maximum.at(own, forest.at(anchors[~rootless]), rows[~rootless])
        above = forest.descend(np.full(len(own), -1, dtype=np.int64), lambda at, value: np.maximum(value, own[at]))
        return np.maximum(np.maximum(above, own)[self._chain], anywhere[self.refs.dataset])


class ScopeTable:
    """Scopes of a batch: each distinct set of branches is computed once, however many policies look at it.

    `branches` and `tags` are left out by their places: they are as good as dropped.
    """

    def __init__(self, history: History, branches: Bools | None = None, tags: Bools | None = None) -> None:
        self.history = history
        self._there = np.ones(len(history.branches.rank), dtype=bool) if branches is None else branches
        self.tags = history.tags if tags is None else _some(history.tags, tags)
        self._known: dict[bytes, ScopeColumns] = {}
        self.everywhere = ScopeColumns(history, self._there)

    @cached_property
    def line(self) -> Line:
        return Line(self.history, self.everywhere.branches > 0)

    def of(self, names: Bools) -> ScopeColumns:
        """The scope of the branches whose names are chosen."""
        chosen = names[self.history.branches.rank] & self._there
        if np.array_equal(chosen, self._there):
            return self.everywhere
        key = chosen.tobytes()
        if key not in self._known:
            self._known[key] = ScopeColumns(self.history, chosen)
        return self._known[key]

    def named(self, name: str) -> ScopeColumns:
        return self.of(np.array([name == other for other in self.history.branches.names], dtype=bool))

    def groups(self, branches: Branches) -> list[tuple[Window | None, ScopeColumns]]:
        """The branches in scope, grouped by the window that judges them; None is `select` as it is."""
        names = self.history.branches.names
        left = np.array(matching(names, branches.include), dtype=bool)
        if branches.exclude:
            left &= ~np.array(matching(names, branches.exclude), dtype=bool)
        groups: list[tuple[Window | None, ScopeColumns]] = []
        for window in branches.windows:
            matched = left & np.array(matching(names, (window.match,)), dtype=bool)
            left &= ~matched
            groups.append((window, self.of(matched)))
        return [(None, self.of(left)), *groups]

    def all_in(self, branches: Branches) -> ScopeColumns:
        return self.groups(branches.model_copy(update={"windows": ()}))[0][1]


def _some(refs: Refs, chosen: Bools) -> Refs:
    return Refs(refs.position[chosen], refs.dataset[chosen], refs.rank[chosen], refs.names)


def in_latest_view(history: History, refs: Refs) -> Counts:
    """The least rank of a ref whose last view holds each position, FAR if none."""
    return _over_last_views(history, refs, refs.rank, np.minimum, FAR)


def _over_last_views(history: History, refs: Refs, of_ref: Ints, merge: np.ufunc, none: np.int32) -> Counts:
    # Numbers of refs, merged over those whose last view holds each position: a path without a SNAPSHOT leads to them.
    if not len(refs.rank):
        return np.full(len(history), none)
    forest = history.chains
    at_end = np.full(len(forest.first), none, dtype=np.int64)
    merge.at(at_end, forest.at(refs.position), of_ref)
    below = forest.fold(at_end, lambda at, value: np.where(history.snapshots_in_chain[at] == 0, value, none), merge)
    return np.where(history.committed & (history.snapshots_after == 0), forest.spread(below.astype(np.int32)), none)


def view_roots(history: History) -> Ints:
    """For each position the SNAPSHOT that began its view; without one a number below 0, the same from one root on."""
    forest = history.chains
    here = np.maximum.accumulate(np.where(history.snapshots, np.arange(len(history)), -1))
    last = here[forest.last]
    begun = last >= forest.first
    above = forest.descend(-2 - forest.first, lambda at, value: np.where(begun[at], last[at], value))
    return np.where(here >= forest.spread(forest.first), here, forest.spread(above))


def up_to_their_views(history: History, marked: Bools) -> Bools:
    """Rows from the start of the view of each marked row up to it: what a tag on the row would pin."""
    forest = history.chains
    # Views in parts that each lie in one chain: where a part begins, and its last row that a marked one needs, or -1.
    begins = history.snapshots.copy()
    begins[forest.first] = True
    first, at = np.flatnonzero(begins), np.flatnonzero(marked)
    needed = np.full(len(first), -1, dtype=np.int64)
    needed[np.searchsorted(first, at, side="right") - 1] = at
    top = np.searchsorted(first, forest.first)
    bottom = np.append(top, len(first))[1:] - 1
    # A chain that does not begin with a SNAPSHOT goes on with the view at the end of the chain above.
    goes_on = ~history.snapshots[forest.first]
    whole = forest.fold(
        np.zeros(len(top), dtype=bool),
        lambda at, value: goes_on[at] & ((needed[top[at]] >= 0) | (value & (top[at] == bottom[at]))),
        np.logical_or,
    )
    needed[bottom[whole]] = forest.last[whole]
    first, needed = first[needed >= 0], needed[needed >= 0]
    length = needed + 1 - first
    rows = np.zeros(len(history), dtype=bool)
    rows[np.repeat(needed + 1 - np.cumsum(length), length) + np.arange(length.sum())] = True
    return rows & history.committed


def superseded(scope: ScopeColumns) -> Bools:
    """COMMITTED transactions all of whose files were replaced or deleted later on every branch in scope.

    A transaction without a list of files is superseded only where a later SNAPSHOT replaced the whole view. A file is current
    if some head sees it: a branch whose latest view holds its writer, without a later writer of the same file on the way. So
    for each file the heads below its writer are counted, less those below the next writers: one pass for any number of
    branches.
    """
    history = scope.history
    current = scope.latest < FAR
    result = history.committed & ~current
    if current.any():
        rows, file = _pairs(history, current)
        above = enclosing(*subtrees(history.chains, rows), file, view_roots(history)[rows])
        heads = _over_last_views(history, scope.refs, np.ones(len(scope.refs.rank), dtype=np.int64), np.add, np.int32(0))[rows]
        is_current = ~history.column(flags(pc.is_valid(history.log["file_names"])))
        is_current[rows[without_those_below(above, heads) > 0]] = True
        result |= current & ~is_current
    return result


def _pairs(history: History, current: Bools) -> tuple[Ints, Ints]:
    # The (position, file) pairs of the transactions that some latest view in scope holds, each once.
    lists = join_chunks(history.log["file_names"])
    row = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    encoded = pc.list_flatten(lists).dictionary_encode()
    file = integers(encoded.indices, -1).astype(np.int64)
    if history.order is not None:
        row = history.positions[row]
    wanted = current[row]
    keys = np.unique(row[wanted] * np.int64(len(encoded.dictionary) + 1) + file[wanted])
    return np.divmod(keys, np.int64(len(encoded.dictionary) + 1))
