"""A batch of whole datasets as arrays in chain order: types, times, commits, SNAPSHOTs, branches and live tags.

Each column is computed when first asked for. Columns that depend on branches are in scope.py.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Counts, Ints, Small, as_micros, codes, integers, inverse, join_chunks
from retention_assets.frames.log import bounds_of
from retention_assets.frames.views.forest import Chains, chains
from retention_assets.policy.selection import BRANCHED, INDEPENDENT, STATUSES

TYPES = (*BRANCHED, *INDEPENDENT)
SNAPSHOT, DELETE, RECORD = TYPES.index("SNAPSHOT"), TYPES.index("DELETE"), TYPES.index("RECORD")
OPEN, COMMITTED = STATUSES.index("OPEN"), STATUSES.index("COMMITTED")

S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True)
class Refs:
    """Branches or live tags: the position that each points at, its dataset, and its name as a rank in the names' order."""

    position: Ints
    dataset: Ints
    rank: Ints
    names: Sequence[str]


class History:
    """Whole datasets of a sound log, in chain order. Rows of a dataset stay together; `order` leads back to the log."""

    def __init__(self, log: pa.Table, as_of: int, copied: Collection[str] = ()) -> None:
        self.log = log
        bounds = bounds_of(log)
        self.starts, self.sizes = bounds[:-1], np.diff(bounds)
        self.names: list[str] = log["dataset"].take(pa.array(self.starts)).cast(pa.string()).to_pylist()
        parent = integers(log["parent_ordinal"], -1).astype(np.int64)
        parent += np.where(parent >= 0, np.repeat(self.starts, self.sizes), 0)
        heads, tags = _refs(log, "heads", None), _refs(log, "tags", as_of)
        ends = np.zeros(len(parent), dtype=bool)
        ends[heads[0]] = True
        ends[tags[0]] = True
        self.chains: Chains = chains(parent, ends)
        self.order = self.chains.order
        self.branches, self.tags = self._placed(*heads), self._placed(*tags)
        self.type: Small = self.column(codes(log["type"], TYPES))
        self.status: Small = self.column(codes(log["status"], STATUSES))
        self.independent: Bools = self.type >= len(BRANCHED)
        self.committed: Bools = (self.status == COMMITTED) & ~self.independent
        # rows of the datasets whose commits have the times of a copy
        self.copied = self.rows_of(copied)
        self._parent = parent

    def __len__(self) -> int:
        return len(self.type)

    def column(self, values: npt.NDArray[S]) -> npt.NDArray[S]:
        return values if self.order is None else values[self.order]

    def in_log_order(self, values: npt.NDArray[S]) -> npt.NDArray[S]:
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

    @cached_property
    def positions(self) -> Ints:
        return self.rows if self.order is None else inverse(self.order)

    def per_dataset(self, values: npt.NDArray[S]) -> npt.NDArray[S]:
        return np.repeat(values, self.sizes)

    def rows_of(self, datasets: Collection[str]) -> Bools | None:
        """Flag the rows of some datasets; None where there are none."""
        chosen = [name in datasets for name in self.names] if datasets else []
        return self.per_dataset(np.array(chosen, dtype=bool)) if any(chosen) else None

    def time(self, name: str) -> Ints:
        return self.column(as_micros(self.log[name]))

    @cached_property
    def closed(self) -> Ints:
        return self.time("closed_at")

    @cached_property
    def data(self) -> Bools:
        data: Bools = self.committed & (self.type != DELETE)
        return data

    @cached_property
    def snapshots(self) -> Bools:
        snapshots: Bools = self.committed & (self.type == SNAPSHOT)
        return snapshots

    @cached_property
    def loose(self) -> Ints:
        """Positions of OPEN and ABORTED transactions of branched histories."""
        return np.flatnonzero(~self.committed & ~self.independent)

    @cached_property
    def anchors(self) -> Ints:
        """For each loose position that of its nearest committed ancestor, or -1: it lies on that one's branches."""
        return self.nearest_above(self.loose)

    def nearest_above(self, passed: Ints) -> Ints:
        """For each of some positions that of its nearest ancestor which is none of them, or -1."""
        parent = self._parent
        if self.order is not None:
            parent = parent[self.order]
            parent = np.where(parent < 0, -1, self.positions[parent])
        up = np.arange(len(parent), dtype=np.int64)
        up[passed] = parent[passed]
        at = up[passed]
        while True:
            above = np.where(at < 0, -1, up[at])
            if np.array_equal(above, at):
                return at
            up[passed] = above
            at = above

    @cached_property
    def snapshots_so_far(self) -> Counts:
        """COMMITTED SNAPSHOTs at or before each position of the batch."""
        return np.cumsum(self.snapshots, dtype=np.int32)

    @cached_property
    def snapshot_positions(self) -> Ints:
        return np.flatnonzero(self.snapshots)

    @cached_property
    def snapshots_in_chain(self) -> Counts:
        return in_chain(self.snapshots_so_far, self.snapshots, self.chains)

    @cached_property
    def snapshots_after(self) -> Counts:
        return self.chains.spread(self.snapshots_so_far[self.chains.last]) - self.snapshots_so_far

    @cached_property
    def first_snapshot(self) -> Ints:
        """Position of the first SNAPSHOT of each chain; meaningless where it has none."""
        first = self.chains.first
        return np.append(self.snapshot_positions, 0)[self.snapshots_so_far[first] - self.snapshots[first]]

    @cached_property
    def next_snapshot(self) -> Ints:
        """Position of the SNAPSHOT after each position; meaningless where no more follows in its chain."""
        return np.append(self.snapshot_positions, 0)[self.snapshots_so_far]

    @cached_property
    def committed_so_far(self) -> Counts:
        return np.cumsum(self.committed, dtype=np.int32)

    @cached_property
    def committed_in_chain(self) -> Counts:
        return in_chain(self.committed_so_far, self.committed, self.chains)

    @cached_property
    def begins_view(self) -> Bools:
        """Chains whose first committed row is a SNAPSHOT."""
        first = self.chains.first
        first_committed = np.append(np.flatnonzero(self.committed), 0)[self.committed_so_far[first] - self.committed[first]]
        begins: Bools = (self.committed_in_chain > 0) & self.snapshots[first_committed]
        return begins

    def newest_close(self, positions: Ints) -> Ints:
        """Closing time of the newest committed row at or before each position; meaningless where its chain has none there."""
        return self.closed[np.maximum(self._last_committed[positions], 0)]

    @cached_property
    def _last_committed(self) -> Ints:
        # It may lie before the chain.
        return np.maximum.accumulate(np.where(self.committed, np.arange(len(self)), -1))

    def _placed(self, rows: Ints, rank: Ints, names: Sequence[str]) -> Refs:
        position = rows if self.order is None else self.positions[rows]
        return Refs(position, np.searchsorted(self.starts, rows, side="right") - 1, rank, names)


def _refs(log: pa.Table, column: str, as_of: int | None) -> tuple[Ints, Ints, Sequence[str]]:
    # Row and rank of each branch or tag, and their sorted names; tags only while they live.
    lists = join_chunks(log[column])
    rows = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    encoded = pc.list_flatten(lists).dictionary_encode()
    index = integers(encoded.indices, -1).astype(np.int64)
    if as_of is not None:
        expires = as_micros(pc.list_flatten(join_chunks(log["tag_expiries"])))
        live = (expires == NEVER) | (expires > as_of)
        rows, index = rows[live], index[live]
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    return rows, inverse(order)[index], encoded.dictionary.take(pa.array(order)).to_pylist()


def in_chain(so_far: Counts, flag: Bools, forest: Chains) -> Counts:
    """Number of flagged rows in each chain, from their running count."""
    return so_far[forest.last] - so_far[forest.first] + flag[forest.first]
