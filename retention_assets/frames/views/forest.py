"""Histories as forests, in arrays: chains, and folds from heads towards roots.

A history is a forest in which each transaction names its parent. Nearly all of it is long runs without a fork, so it is cut
into **chains**: a chain ends where a branch or tag points, or where the history forks. Everything that depends on branches
happens at chain ends, of which there are few; inside a chain a prefix sum does. That makes every fold linear, for one chain
of ten million transactions and for a hundred thousand branches alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from retention_assets.frames.arrays import Bools, Ints, changes, inverse

S = TypeVar("S", bound=np.generic)


def topological(parent: Ints) -> tuple[Ints, Bools]:
    """Order rows with parents before children, as near to the given order as that allows; and flag cycles.

    A row is delayed until all of its ancestors have appeared. Rows on or behind a cycle are flagged; their order means nothing.
    """
    n = len(parent)
    rows = np.arange(n, dtype=np.int64)
    if bool(np.all(parent < rows)):
        return rows, np.zeros(n, dtype=bool)
    latest, depth, jump = rows.copy(), (parent >= 0).astype(np.int64), parent.copy()
    for _ in range(max(n, 2).bit_length() + 1):
        up = np.flatnonzero(jump >= 0)
        if not len(up):
            break
        above = jump[up]
        latest[up] = np.maximum(latest[up], latest[above])
        depth[up] += depth[above]
        jump[up] = jump[above]
    cyclic = jump >= 0
    on_cycle = np.zeros(n, dtype=bool)
    on_cycle[jump[cyclic]] = True
    return np.lexsort((depth, latest)), on_cycle


@dataclass(frozen=True)
class Chains:
    """A forest cut into chains that stand one after the other.

    `order` gives the row at each position, or None when rows already stand in chain order. Chain ids grow from parents to
    children. `link` is the chain that a chain hangs from (always from its end), -1 for a root.
    """

    order: Ints | None
    first: Ints
    length: Ints
    link: Ints
    levels: tuple[Ints, ...]

    @property
    def last(self) -> Ints:
        return self.first + self.length - 1

    def spread(self, per_chain: npt.NDArray[S]) -> npt.NDArray[S]:
        return np.repeat(per_chain, self.length)

    def at(self, positions: Ints) -> Ints:
        return np.searchsorted(self.first, positions, side="right") - 1

    def fold(
        self,
        at_end: npt.NDArray[S],
        at_start: Callable[[Ints, npt.NDArray[Any]], npt.NDArray[Any]],
        merge: np.ufunc,
    ) -> npt.NDArray[S]:
        """Carry values from chain ends to chain starts, children first.

        `at_end` holds the values of the heads at each chain's end; `at_start(chains, values)` turns the value at a chain's end
        into the value at its start; `merge` joins the values of several children. Returns the value at each chain's end.
        """
        value = at_end.copy()
        for level in self.levels:
            merge.at(value, self.link[level], at_start(level, value[level]))
        return value

    def descend(self, at_start: npt.NDArray[S], at_end: Callable[[Ints, npt.NDArray[Any]], npt.NDArray[Any]]) -> npt.NDArray[S]:
        """Carry values from roots to heads. Returns the value at each chain's start, given that of each root."""
        value = at_start.copy()
        for level in reversed(self.levels):
            above = self.link[level]
            value[level] = at_end(above, value[above])
        return value


def chains(parent: Ints, ends: Bools) -> Chains:
    """Cut a forest (parents before children) into chains; `ends` are the rows that a branch or tag points at."""
    n = len(parent)
    rows = np.arange(n, dtype=np.int64)
    roots = parent < 0
    above = np.where(roots, 0, parent)
    children = np.bincount(parent[~roots], minlength=n)
    starts = roots | (children > 1)[above] | ends[above]
    run_starts = np.flatnonzero(starts | (parent != rows - 1))
    order: Ints | None = None
    if bool(np.all(starts[run_starts])):
        first = run_starts
    else:
        order = _chain_order(parent, starts, run_starts)
        first = np.flatnonzero(starts[order])
    length = np.diff(np.append(first, n))
    above_first = parent[first] if order is None else parent[order[first]]
    link = np.full(len(first), -1, dtype=np.int64)
    hanging = above_first >= 0
    at = above_first[hanging]
    if order is not None:
        at = inverse(order)[at]
    link[hanging] = np.searchsorted(first, at, side="right") - 1
    return Chains(order, first, length, link, _levels(link))


def _chain_order(parent: Ints, starts: Bools, run_starts: Ints) -> Ints:
    n = len(parent)
    run_of = np.repeat(np.arange(len(run_starts)), np.diff(np.append(run_starts, n)))
    continues = ~starts[run_starts]
    chain = np.arange(len(run_starts))
    chain[continues] = run_of[parent[run_starts[continues]]]
    while True:
        further = chain[chain]
        if np.array_equal(further, chain):
            break
        chain = further
    return np.argsort(chain[run_of], kind="stable")


def _levels(link: Ints) -> tuple[Ints, ...]:
    depth, jump = (link >= 0).astype(np.int64), link.copy()
    while True:
        up = np.flatnonzero(jump >= 0)
        if not len(up):
            break
        depth[up] += depth[jump[up]]
        jump[up] = jump[jump[up]]
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(1, depth.max(initial=0) + 2))
    return tuple(by_depth[a:b] for a, b in reversed(list(pairwise(cuts.tolist()))))


def subtrees(forest: Chains, positions: Ints) -> tuple[Ints, Ints]:
    """For positions the intervals of their subtrees: an ancestor's interval holds those of its descendants, no others."""
    size = forest.fold(forest.length.copy(), lambda _, value: value, np.add).astype(np.int64)
    start = np.zeros(len(size), dtype=np.int64)
    roots = np.flatnonzero(forest.link < 0)
    start[roots] = np.cumsum(size[roots]) - size[roots]
    for level in reversed(forest.levels):
        siblings = level[np.argsort(forest.link[level], kind="stable")]
        above = forest.link[siblings]
        before = np.cumsum(size[siblings]) - size[siblings]
        opens = changes(above)
        before -= np.repeat(before[opens], np.diff(np.append(np.flatnonzero(opens), len(siblings))))
        start[siblings] = start[above] + forest.length[above] + before
    chain = forest.at(positions)
    return start[chain] + positions - forest.first[chain], (start + size)[chain]


def enclosing(begin: Ints, end: Ints, *groups: Ints) -> Ints:
    """For intervals that are nested or apart, the smallest one with the same groups that encloses each, or -1."""
    order = np.lexsort((begin, *groups))
    begin, end = begin[order], end[order]
    is_first = np.zeros(len(order), dtype=bool)
    for values in groups:
        is_first |= changes(values[order])
    candidate = np.where(is_first, -1, np.arange(len(order)) - 1)
    outside = np.arange(len(order))
    while len(outside):
        outside = outside[(candidate[outside] >= 0) & (end[candidate[outside]] <= begin[outside])]
        candidate[outside] = candidate[candidate[outside]]
    is_inside = candidate >= 0
    above = np.full(len(order), -1, dtype=np.int64)
    above[order[is_inside]] = order[candidate[is_inside]]
    return above


def without_those_below(above: Ints, counts: npt.NDArray[S]) -> npt.NDArray[S]:
    """Count of each row less the counts of the rows right below it; `above` is the row that each is right below, or -1."""
    own = counts.copy()
    np.subtract.at(own, above[above >= 0], counts[above >= 0])
    return own
