"""Counts of a policy: the newest transactions, those within a size, and the newest of each calendar period.

Counted rows form sequences, oldest first: the rows of one chain or line, apart for each combination of the `per` attributes.
The end of a sequence decides what of it can be kept at all, and most histories are one chain. What remains of forked ones is
few, and is joined over the forest, where every branch sees its own path.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from retention_assets.frames.arrays import Bools, Ints, changes, integers, places_from_end
from retention_assets.frames.log import attribute_of
from retention_assets.frames.periods import DAY, HOUR, local_times, period_of_day
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.frames.views.forest import chains, enclosing, subtrees
from retention_assets.frames.views.history import DELETE, History
from retention_assets.frames.views.scope import Line, ScopeColumns, up_to_their_views
from retention_assets.policy.model import Beyond, Newest

_PERIODS = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}


class Kept(NamedTuple):
    """Rows that one key keeps. The `roots` are counted; the others belong to their states, which stay readable."""

    key: str
    reason: Reason
    rows: Bools
    roots: Bools


def rows_kept(counts: Beyond | Newest, scope: ScopeColumns, line: Line, history: History) -> Iterator[Kept]:
    """Rows that each key of `beyond`, or of `newest` in a retain rule, keeps. Views are not among these keys."""
    budgets: dict[str, tuple[Reason, int]] = {}
    if counts.transactions:
        budgets["transactions"] = Reason.WITHIN_TRANSACTIONS, counts.transactions
    if isinstance(counts, Beyond) and counts.bytes is not None:
        budgets["bytes"] = Reason.WITHIN_BYTES, counts.bytes
    if not budgets and not counts.periods:
        return
    counter = _Counter(counts, scope, line, history)
    for key, (reason, most) in budgets.items():
        yield counter.kept(key, reason, counter.within(key, most), as_states=isinstance(counts, Newest))
    for key, roots in counter.newest_of_periods():
        yield counter.kept(key, Reason.WITHIN_PERIODS, roots, as_states=True)


class _Counter:
    """Sequences of the rows that count: positions `at`, and the place among them where each sequence starts.

    `group` numbers the combinations of dataset and `per` of the sequences: what is counted together on a path. The first
    `branched` rows lie on branches, the others on lines.
    """

    def __init__(self, counts: Beyond | Newest, scope: ScopeColumns, line: Line, history: History) -> None:
        self._counts, self._scope, self._history = counts, scope, history
        counted = history.column(evaluate(counts.where, history.log)) if counts.where else np.ones(len(history), dtype=bool)
        on_branches = np.flatnonzero(counted & scope.held & (history.type != DELETE))
        on_lines, line_starts = line.ordered(counted & line.data)
        self.branched = len(on_branches)
        self.at = np.concatenate([on_branches, on_lines])
        starts = np.unique(np.searchsorted(on_branches, history.chains.first))
        self.starts = np.append(starts[starts < self.branched], line_starts + self.branched)
        values = np.zeros(len(self.starts), dtype=np.int64)
        if counts.per:
            values = self._split(_combinations(counts.per, history))
        dataset = np.searchsorted(history.starts, self.at[self.starts], side="right") - 1
        group = dataset * (values.max(initial=0) + 1) + values
        self.group: Ints = np.unique(group, return_inverse=True)[1].reshape(-1) if counts.per else group

    def _split(self, combination: Ints) -> Ints:
        # Sequences apart for each combination; returns that of each.
        values, sequence = combination[self.at], np.repeat(np.arange(len(self.starts)), self._sizes)
        order = np.lexsort((values, sequence))
        self.at, values, sequence = self.at[order], values[order], sequence[order]
        self.starts = np.flatnonzero(changes(sequence) | changes(values))
        first: Ints = values[self.starts]
        return first

    @property
    def _sizes(self) -> Ints:
        return np.diff(np.append(self.starts, len(self.at)))

    def kept(self, key: str, reason: Reason, roots: Ints, as_states: bool) -> Kept:
        is_root = np.zeros(len(self._history), dtype=bool)
        is_root[roots] = True
        rows = is_root | up_to_their_views(self._history, is_root & self._scope.held) if as_states else is_root
        return Kept(key, reason, rows, is_root)

    def within(self, key: str, most: int) -> Ints:
        """Positions of the newest rows that together have at most this number, or these bytes."""
        if key == "bytes":
            weights = np.minimum(self._history.column(integers(self._history.log["bytes"], 0))[self.at], most + 1)
            fits = _sums_to_end(weights, self.starts, most) <= most
        else:
            weights = np.broadcast_to(np.int64(1), len(self.at))
            fits = places_from_end(self.starts, len(self.at)) <= most
        if self._is_joined.any():
            # The newest that does not fit stands for all that is older.
            is_last = np.append(fits, True)[1:]
            is_last[self.starts[1:] - 1] = True
            nodes = np.flatnonzero((fits | is_last) & np.repeat(self._is_joined, self._sizes))
            tree = self._tree(nodes)
            nodes = nodes[tree.order]
            fits[nodes] = _within_on_paths(tree, weights[nodes], most)
        return self.at[fits]

    def newest_of_periods(self) -> Iterator[tuple[str, Ints]]:
        """For each key of periods, the positions of the newest row of each of the newest periods."""
        wanted = self._counts.periods
        if not (wanted and len(self.at)):
            return
        times = local_times(self._history.closed[self.at], self._counts.zone)
        by_hour = "hourly" in wanted
        finest = times // (HOUR if by_hour else DAY)
        # Every period ends with one of the finest.
        ends = _ends(finest, self.starts)
        starts, finest = np.searchsorted(ends, self.starts), finest[ends]
        for key, most in wanted.items():
            period = finest if key == "hourly" else period_of_day(finest // 24 if by_hour else finest, _PERIODS[key])
            newest = _newest(period, starts, most)
            is_joined = self._is_joined[np.searchsorted(starts, newest, side="right") - 1]
            if is_joined.any():
                nodes = newest[is_joined]
                tree = self._tree(ends[nodes])
                nodes = nodes[tree.order]
                stays = _newest_on_paths(tree, period[nodes], most)
                newest = np.concatenate([newest[~is_joined], nodes[stays]])
            yield key, self.at[ends[newest]]

    @cached_property
    def _is_joined(self) -> Bools:
        # Sequences on chains that hang together with others.
        forest = self._history.chains
        hanging = forest.link >= 0
        hanging[forest.link[hanging]] = True
        joined = self.starts < self.branched
        joined[joined] = hanging[forest.at(self.at[self.starts[joined]])]
        return joined

    def _tree(self, nodes: Ints) -> "_Tree":
        forest, position = self._history.chains, self.at[nodes]
        begin, end = subtrees(forest, position)
        group = self.group[np.searchsorted(self.starts, nodes, side="right") - 1]
        order = np.lexsort((begin, group))
        begin, end, group = begin[order], end[order], group[order]
        above = enclosing(begin, end, changes(group))
        heads = np.sort(subtrees(forest, self._scope.refs.position)[0])
        inside = np.searchsorted(heads, end) - np.searchsorted(heads, begin)
        # heads whose nearest row that counts this is
        own = inside.copy()
        np.subtract.at(own, above[above >= 0], inside[above >= 0])
        return _Tree(order, begin, end, group, above, own > 0)


class _Tree(NamedTuple):
    """Rows of forked histories, sorted by group with parents before children, and their intervals in the forest.

    `above` is the nearest row of the group on the path; `seen` tells if that path is the one of some branch.
    """

    order: Ints
    begin: Ints
    end: Ints
    group: Ints
    above: Ints
    seen: Bools


def _within_on_paths(tree: _Tree, weights: Ints, most: int) -> Bools:
    # A row stays if some branch has little enough on its path from there on.
    forest = chains(tree.above, tree.seen)
    order = np.arange(len(weights)) if forest.order is None else forest.order
    sums = _sums_to_end(weights[order], forest.first, most)
    whole = sums[forest.first]
    at_end = np.where(tree.seen[order[forest.last]], 0, most + 1)
    least = forest.fold(at_end, lambda at, value: np.minimum(value + whole[at], most + 1), np.minimum)
    stays = np.zeros(len(weights), dtype=bool)
    stays[order] = sums + forest.spread(least) <= most
    return stays


def _newest_on_paths(tree: _Tree, period: Ints, most: int) -> Bools:
    """Rows that are the newest of their period, one of the newest `most`, on the path of some branch.

    The oldest of these periods is a bound of the path. Counted are, below each row, the paths whose bound its period reaches:
    more than lie below newer rows of its period.
    """
    rank = np.unique(period, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((tree.begin, rank, tree.group))
    same = np.empty(len(rank), dtype=np.int64)
    begin, end = tree.begin[order], tree.end[order]
    above = enclosing(begin, end, changes(tree.group[order]) | changes(rank[order]))
    same[order] = np.where(above < 0, -1, order[above])
    first = same < 0
    width = np.int64(tree.end.max(initial=0) + 1)
    opens, closes = (tree.group[first] * width + edge[first] for edge in (tree.begin, tree.end))
    edges = np.argsort(both := np.concatenate([opens, closes]), kind="stable")
    signs = np.repeat(np.array([1, -1]), len(opens))[edges]
    here = tree.group * width + tree.begin
    up_to = np.searchsorted(both[edges], here[tree.seen], side="right")
    bound = _Ranks(np.tile(rank[first], 2)[edges], signs).nth_largest(up_to, most)
    paths = _Ranks(bound + 1, np.ones(len(bound), dtype=np.int64))
    low = np.append(0, np.cumsum(tree.seen))
    reaching = paths.at_most(low[:-1], low[np.searchsorted(here, tree.group * width + tree.end)], rank + 1)
    hidden = np.zeros(len(rank), dtype=np.int64)
    np.add.at(hidden, same[~first], reaching[~first])
    stays: Bools = reaching > hidden
    return stays


class _Ranks:
    """Small values of a sequence as a wavelet matrix: a level for each bit, highest first. Values count by their signs."""

    def __init__(self, values: Ints, signs: Ints) -> None:
        # bit, and before each place of its level the number of values without it and the sum of signs of those with it
        self._levels: list[tuple[int, Ints, Ints]] = []
        self._sums = np.append(0, np.cumsum(signs))
        for bit in reversed(range(max(1, int(values.max(initial=0)).bit_length()))):
            high = values >> bit & 1
            self._levels.append((bit, np.append(0, np.cumsum(1 - high)), np.append(0, np.cumsum(signs * high))))
            order = np.argsort(high, kind="stable")
            values, signs = values[order], signs[order]

    def nth_largest(self, ends: Ints, nth: int) -> Ints:
        """Nth largest value before each end; -1 where there are fewer."""
        low, high, left, value = np.zeros_like(ends), ends, np.full(len(ends), nth), np.zeros_like(ends)
        for bit, lows, highs in self._levels:
            above = highs[high] - highs[low]
            is_high = above >= left
            left = np.where(is_high, left, left - above)
            value |= is_high.astype(np.int64) << bit
            low, high = (np.where(is_high, lows[-1] + at - lows[at], lows[at]) for at in (low, high))
        return np.where(self._sums[ends] < nth, -1, value)

    def at_most(self, low: Ints, high: Ints, most: Ints) -> Ints:
        """Number of values from `low` up to `high` that are at most this large, whatever their signs."""
        most = np.minimum(most, (1 << len(self._levels)) - 1)
        number = np.zeros(len(low), dtype=np.int64)
        for bit, lows, _ in self._levels:
            is_high = most >> bit & 1 == 1
            number += np.where(is_high, lows[high] - lows[low], 0)
            low, high = (np.where(is_high, lows[-1] + at - lows[at], lows[at]) for at in (low, high))
        return number + high - low


def _sums_to_end(weights: Ints, starts: Ints, most: int) -> Ints:
    """Sum from each row to the end of its sequence; `most + 1` where it is more. No weight is more than that."""
    if not len(weights):
        return weights
    sizes = np.diff(np.append(starts, len(weights)))
    # Unsigned, because it may wrap: from the end back, the first sum that is too large is still exact.
    total = np.cumsum(weights.astype(np.uint64))
    sums = np.repeat(total[starts + sizes - 1], sizes) - total + weights.astype(np.uint64)
    rows = np.arange(len(weights))
    last_over = np.maximum.reduceat(np.where(sums > np.uint64(most), rows, -1), starts)
    return np.where(rows > np.repeat(last_over, sizes), sums.astype(np.int64), most + 1)


def _newest(period: Ints, starts: Ints, most: int) -> Ints:
    """Places of the last row of each of the `most` newest periods of each sequence."""
    ends = _ends(period, starts)
    starts, period = np.searchsorted(ends, starts), period[ends]
    rises = period[1:] > period[:-1]
    rises[starts[1:] - 1] = True
    if not rises.all():
        # Where time goes back, a period ends more than once.
        sequence = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(ends))))
        order = np.lexsort((ends, period, sequence))
        ends, period, sequence = ends[order], period[order], sequence[order]
        last = np.append((changes(period) | changes(sequence))[1:], True)
        ends, starts = ends[last], np.flatnonzero(changes(sequence[last]))
    return ends[places_from_end(starts, len(ends)) <= most]


def _ends(period: Ints, starts: Ints) -> Ints:
    # Places of rows that are followed by another period or by another sequence.
    begins = changes(period)
    begins[starts] = True
    return np.flatnonzero(np.append(begins[1:], True))


def _combinations(keys: tuple[str, ...], history: History) -> Ints:
    # A number for each combination of attributes; an absent one is a value.
    combination = np.zeros(len(history), dtype=np.int64)
    for key in keys:
        encoded = attribute_of(history.log, key).dictionary_encode()
        combination = combination * (len(encoded.dictionary) + 1) + integers(encoded.indices, -1) + 1
        if len(keys) > 1:
            combination = np.unique(combination, return_inverse=True)[1].reshape(-1)
    return history.column(combination)
