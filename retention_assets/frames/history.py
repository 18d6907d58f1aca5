"""A batch of whole datasets as arrays in chain order, and what a set of branches says about each transaction.

Belongs here: the meaning of branch, view and protection (design section 4), for any number of datasets and branches at once.
One `Scope` is one set of branches; each of its columns is computed when first asked for, over the whole batch.
`protected` is the one answer to "who is protected": marking, checks and the sweep all use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, as_micros, codes, integers, joined
from retention_assets.frames.forest import Bools, Chains, Ints, chains
from retention_assets.policy.model import BRANCHED, INDEPENDENT, STATUSES

TYPES = (*BRANCHED, *INDEPENDENT)
SNAPSHOT, DELETE, RECORD = TYPES.index("SNAPSHOT"), TYPES.index("DELETE"), TYPES.index("RECORD")
OPEN, COMMITTED, ABORTED = (STATUSES.index(status) for status in ("OPEN", "COMMITTED", "ABORTED"))

FAR = np.int32(np.iinfo(np.int32).max)
Counts = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Refs:
    """Branches or live tags: the position that each points at, its dataset, and its name as a rank in the names' order."""

    position: Ints
    dataset: Ints
    rank: Ints
    names: Sequence[str]


class History:
    """Whole datasets of a sound log, in chain order. Rows of a dataset stay together; `order` leads back to the log."""

    def __init__(self, log: pa.Table, as_of: int) -> None:
        self.log = log
        dataset = joined(log["dataset"])
        index = integers(dataset.indices, -1)
        self.starts = np.flatnonzero(np.append(True, index[1:] != index[:-1])) if len(index) else np.array([], dtype=np.int64)
        self.names: list[str] = dataset.dictionary.take(pa.array(index[self.starts])).to_pylist()
        self.sizes = np.diff(np.append(self.starts, len(index)))
        parent = integers(log["parent_ordinal"], -1).astype(np.int64)
        parent += np.where(parent >= 0, np.repeat(self.starts, self.sizes), 0)
        heads, tags = _refs(log, "heads", None), _refs(log, "tags", as_of)
        ends = np.zeros(len(parent), dtype=bool)
        ends[heads[0]] = True
        ends[tags[0]] = True
        self.chains: Chains = chains(parent, ends)
        self.order = self.chains.order
        self.branches, self.tags = self._placed(*heads), self._placed(*tags)
        self.type: Bytes = self.column(codes(log["type"], TYPES))
        self.status: Bytes = self.column(codes(log["status"], STATUSES))
        self.independent: Bools = self.type >= len(BRANCHED)
        self.committed: Bools = (self.status == COMMITTED) & ~self.independent
        self._parent = parent

    def __len__(self) -> int:
        return len(self.type)

    def column(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A column of the log, in chain order."""
        return values if self.order is None else values[self.order]

    def in_log_order(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A column in chain order, back in the order of the log."""
        if self.order is None:
            return values
        back = np.empty_like(values)
        back[self.order] = values
        return back

    @cached_property
    def rows(self) -> Ints:
        """The row of the log at each position: the order of transactions."""
        return np.arange(len(self), dtype=np.int64) if self.order is None else self.order

    def per_dataset(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A value of each dataset, given to each of its rows."""
        return np.repeat(values, self.sizes)

    def time(self, name: str) -> Ints:
        """A timestamp column in microseconds; NEVER where it is missing."""
        return self.column(as_micros(self.log[name]))

    @cached_property
    def closed(self) -> Ints:
        """Closing times. An OPEN transaction has none, whatever its row says."""
        return np.where(self.status == OPEN, NEVER, self.time("closed_at"))

    @cached_property
    def data(self) -> Bools:
        """Data transactions: COMMITTED and not DELETE."""
        return self.committed & (self.type != DELETE)

    @cached_property
    def snapshots(self) -> Bools:
        """COMMITTED SNAPSHOTs: each begins a view."""
        return self.committed & (self.type == SNAPSHOT)

    @cached_property
    def loose(self) -> Ints:
        """Positions of OPEN and ABORTED transactions of branched histories."""
        return np.flatnonzero(~self.committed & ~self.independent)

    @cached_property
    def anchors(self) -> Ints:
        """For each loose position that of its nearest committed ancestor, or -1: it lies on that one's branches."""
        parent = self._parent
        if self.order is not None:
            position = np.empty(len(parent), dtype=np.int64)
            position[self.order] = np.arange(len(parent))
            parent = parent[self.order]
            parent = np.where(parent < 0, -1, position[parent])
        up = np.arange(len(parent), dtype=np.int64)
        up[self.loose] = parent[self.loose]
        at = up[self.loose]
        while True:
            above = np.where(at < 0, -1, up[at])
            if np.array_equal(above, at):
                return at
            up[self.loose] = above
            at = above

    @cached_property
    def snapshots_so_far(self) -> Counts:
        """COMMITTED SNAPSHOTs at or before each position of the batch."""
        return np.cumsum(self.snapshots, dtype=np.int32)

    @cached_property
    def snapshot_positions(self) -> Ints:
        """Where the COMMITTED SNAPSHOTs stand."""
        return np.flatnonzero(self.snapshots)

    @cached_property
    def snapshots_in_chain(self) -> Counts:
        """COMMITTED SNAPSHOTs of each chain."""
        return _in_chain(self.snapshots_so_far, self.snapshots, self.chains)

    @cached_property
    def snapshots_after(self) -> Counts:
        """COMMITTED SNAPSHOTs after each position in its chain."""
        return self.chains.spread(self.snapshots_so_far[self.chains.last]) - self.snapshots_so_far

    @cached_property
    def last_committed(self) -> Ints:
        """The newest committed position at or before each one in the batch; it may lie before the chain."""
        return np.maximum.accumulate(np.where(self.committed, np.arange(len(self)), -1))

    @cached_property
    def everywhere(self) -> "Scope":
        """What all live branches say."""
        return Scope(self, np.ones(len(self.branches.rank), dtype=bool))

    @cached_property
    def pinned(self) -> Ints:
        """For each position the rank of a live tag whose view holds it, FAR if none."""
        return _in_latest_view(self, self.tags)

    @cached_property
    def protected(self) -> Bools:
        """Who is protected: in the latest view of any live branch, or in the view that a live tag pins."""
        return (self.everywhere.latest < FAR) | (self.pinned < FAR)

    def _placed(self, rows: Ints, rank: Ints, names: Sequence[str]) -> Refs:
        position = rows
        if self.order is not None:
            back = np.empty(len(self.order), dtype=np.int64)
            back[self.order] = np.arange(len(self.order))
            position = back[rows]
        return Refs(position, np.searchsorted(self.starts, rows, side="right") - 1, rank, names)


class Scope:
    """What a set of branches says about each transaction. Columns are in chain order, -1 or NEVER where they say nothing."""

    def __init__(self, history: History, chosen: Bools) -> None:
        self.history = history
        refs = history.branches
        self.refs = Refs(refs.position[chosen], refs.dataset[chosen], refs.rank[chosen], refs.names)
        self._chain = history.chains.at(self.refs.position)

    @cached_property
    def _heads(self) -> Ints:
        """Heads at or below the end of each chain."""
        forest = self.history.chains
        here = np.bincount(self._chain, minlength=len(forest.first))
        return forest.fold(here, lambda _, value: value, np.add).astype(np.int64)

    @cached_property
    def _heads_in_dataset(self) -> Ints:
        return np.bincount(self.refs.dataset, minlength=len(self.history.starts))

    @cached_property
    def branches(self) -> Counts:
        """How many of the branches hold each transaction."""
        history = self.history
        count = history.chains.spread(self._heads.astype(np.int32))
        if len(history.loose):
            at = history.anchors
            rootless = np.searchsorted(history.starts, history.loose, side="right") - 1
            count[history.loose] = np.where(at < 0, self._heads_in_dataset[rootless], count[at])
        count[history.independent] = 0
        return count

    @cached_property
    def held(self) -> Bools:
        """Committed, and on one of the branches: only these are in views."""
        return self.history.committed & (self.branches > 0)

    @cached_property
    def view(self) -> Counts:
        """The newest view index over the branches; 0 is the latest view of one of them."""
        history = self.history
        total = history.snapshots_in_chain
        best = _fewest(history.chains, self._chain, total)
        return np.where(self.held, history.snapshots_after + history.chains.spread(best), -1).astype(np.int32)

    @cached_property
    def newer(self) -> Counts:
        """The fewest newer data transactions on any of the branches."""
        history = self.history
        so_far = np.cumsum(history.data, dtype=np.int32)
        best = _fewest(history.chains, self._chain, _in_chain(so_far, history.data, history.chains))
        after = history.chains.spread(so_far[history.chains.last] + best) - so_far
        return np.where(self.held, after, -1).astype(np.int32)

    @cached_property
    def latest(self) -> Ints:
        """The rank of a branch whose latest view holds each transaction, FAR if there is none."""
        return _in_latest_view(self.history, self.refs)

    @cached_property
    def superseded_at(self) -> Ints:
        """When each left the latest view of the last branch that had it there; NEVER while it is in one."""
        history, forest = self.history, self.history.chains
        closed, total = history.closed, history.snapshots_in_chain
        first_close = closed[_next_snapshot(history, forest.first - 1, total)]
        alive = self._heads > 0
        below = forest.fold(
            np.full(len(forest.first), NEVER),
            lambda at, value: np.where(alive[at], np.where(total[at] > 0, first_close[at], value), NEVER),
            np.maximum,
        )
        following = closed[_next_snapshot(history, np.arange(len(history)), history.snapshots_after)]
        inside = np.where(history.snapshots_after > 0, following, forest.spread(below))
        return np.where(self.view > 0, inside, NEVER)

    @cached_property
    def view_closed_at(self) -> Ints:
        """When the newest view that holds each transaction got its newest transaction; the latest over the branches."""
        history, forest = self.history, self.history.chains
        closed, total, last = history.closed, history.snapshots_in_chain, forest.last
        committed_so_far = np.cumsum(history.committed, dtype=np.int32)
        some = _in_chain(committed_so_far, history.committed, forest) > 0
        first_snapshot = _next_snapshot(history, forest.first - 1, total)
        first_committed = _first_committed(history, forest, committed_so_far)
        begins_view = some & (total > 0) & (first_committed == first_snapshot)
        cut = np.where(total > 0, first_snapshot - 1, last)
        newest = closed[np.maximum(history.last_committed[np.maximum(cut, 0)], 0)]
        bare = np.zeros(len(forest.first), dtype=bool)
        bare[self._chain] = True
        alive = self._heads > 0
        # `bare`: below this end some branch adds nothing more to the view. `further`: the latest close that a branch adds.
        bare = forest.fold(bare, lambda at, value: alive[at] & np.where(some[at], begins_view[at], value), np.logical_or)

        def passed(at: Ints, value: Ints) -> Ints:
            own = np.where(total[at] > 0, newest[at], np.maximum(np.where(bare[at], newest[at], NEVER), value))
            return np.where(alive[at] & ~begins_view[at], np.where(some[at], own, value), NEVER)

        further = forest.fold(np.full(len(forest.first), NEVER), passed, np.maximum)
        following = _next_snapshot(history, np.arange(len(history)), history.snapshots_after)
        stop = np.where(history.snapshots_after > 0, following - 1, forest.spread(last))
        inside = closed[np.maximum(history.last_committed[stop], 0)]
        at_end = np.maximum(np.where(forest.spread(bare), inside, NEVER), forest.spread(further))
        return np.where(self.held, np.where(history.snapshots_after > 0, inside, at_end), NEVER)

    @cached_property
    def open_after(self) -> Bools:
        """In the latest view of a branch on which an OPEN transaction follows the last committed one."""
        history, forest = self.history, self.history.chains
        opens = history.status[history.loose] == OPEN
        if not opens.any():
            return np.zeros(len(history), dtype=bool)
        opened = self._newest_open(history.loose[opens], history.anchors[opens]) > history.rows[self._tips]
        at_end = np.zeros(len(forest.first), dtype=bool)
        at_end[self._chain[opened]] = True
        below = forest.fold(at_end, lambda at, value: value & (history.snapshots_in_chain[at] == 0), np.logical_or)
        return self.held & (history.snapshots_after == 0) & forest.spread(below)


    @cached_property
    def _tips(self) -> Ints:
        """The last committed position of each branch, -1 where it has none."""
        history = self.history
        tip = self.refs.position.copy()
        among = np.searchsorted(history.loose, tip)
        loose = np.append(history.loose, -1)[among] == tip
        tip[loose] = history.anchors[among[loose]]
        return tip

    def _newest_open(self, positions: Ints, anchors: Ints) -> Ints:
        """The row of the newest OPEN transaction on each branch, by the order of the log; -1 if there is none.

        It is on every branch that holds its nearest committed ancestor, and without one on every branch of the dataset.
        """
        history, forest = self.history, self.history.chains
        rows, rootless = history.rows[positions], anchors < 0
        anywhere = np.full(len(history.starts), -1, dtype=np.int64)
        np.maximum.at(anywhere, np.searchsorted(history.starts, positions[rootless], side="right") - 1, rows[rootless])
        own = np.full(len(forest.first), -1, dtype=np.int64)
        np.maximum.at(own, forest.at(anchors[~rootless]), rows[~rootless])
        above = forest.descend(np.full(len(own), -1, dtype=np.int64), lambda at, value: np.maximum(value, own[at]))
        return np.maximum(np.maximum(above, own)[self._chain], anywhere[self.refs.dataset])


def _refs(log: pa.Table, column: str, as_of: int | None) -> tuple[Ints, Ints, Sequence[str]]:
    """The row, the rank of the name, and the names of what a list column points with; tags only while they live."""
    lists = joined(log[column])
    rows = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    encoded = pc.list_flatten(lists).dictionary_encode()
    index = integers(encoded.indices, -1).astype(np.int64)
    if as_of is not None:
        expires = as_micros(pc.list_flatten(joined(log["tag_expiries"])))
        live = (expires == NEVER) | (expires > as_of)
        rows, index = rows[live], index[live]
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rows, rank[index], encoded.dictionary.take(pa.array(order)).to_pylist()


def _in_chain(so_far: Counts, flag: Bools, forest: Chains) -> Counts:
    """How many flagged rows each chain has, from their running count."""
    return so_far[forest.last] - so_far[forest.first] + flag[forest.first]


def _fewest(forest: Chains, heads: Ints, total: Counts) -> Counts:
    """The least sum of chain totals between each chain's end and a head at or below it."""
    at_end = np.full(len(forest.first), FAR, dtype=np.int64)
    at_end[heads] = 0
    best = forest.fold(at_end, lambda at, value: np.minimum(value + total[at], FAR), np.minimum)
    return np.where(best >= FAR, 0, best).astype(np.int32)


def _in_latest_view(history: History, refs: Refs) -> Ints:
    """The least rank of a ref whose last view holds each position, FAR if none: a path without a SNAPSHOT leads to it."""
    forest = history.chains
    at_end = np.full(len(forest.first), FAR, dtype=np.int64)
    np.minimum.at(at_end, forest.at(refs.position), refs.rank)
    best = forest.fold(at_end, lambda at, value: np.where(history.snapshots_in_chain[at] == 0, value, FAR), np.minimum)
    if not len(refs.rank):
        return np.full(len(history), FAR, dtype=np.int32)
    return np.where(history.committed & (history.snapshots_after == 0), forest.spread(best.astype(np.int32)), FAR)


def _next_snapshot(history: History, before: Ints, there: Counts) -> Ints:
    """The position of the first SNAPSHOT after each position, where `there` says that the chain has one; else 0."""
    if not len(history.snapshot_positions):
        return np.zeros(len(before), dtype=np.int64)
    so_far = np.where(before < 0, 0, history.snapshots_so_far[np.maximum(before, 0)])
    following = np.minimum(so_far, len(history.snapshot_positions) - 1)
    return np.where(there > 0, history.snapshot_positions[following], 0)


def _first_committed(history: History, forest: Chains, so_far: Counts) -> Ints:
    """The position of each chain's first committed row; meaningless where it has none."""
    positions = np.flatnonzero(history.committed)
    if not len(positions):
        return np.full(len(forest.first), -1, dtype=np.int64)
    before = so_far[forest.first] - history.committed[forest.first]
    return positions[np.minimum(before, len(positions) - 1)]
