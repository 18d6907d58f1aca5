"""Counts of a policy: the newest transactions, those within a size, and the newest of each calendar period.

Counted rows form sequences, oldest first: the rows of one chain or line, apart for each combination of the `per` attributes.
Each sequence is first judged by itself, as if nothing followed its end. That is the answer for lines and for histories without
a fork. Where chains hang together it leaves few rows, and these are judged again along the paths of the branches.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import NEVER, Bools, Ints, changes, from_micros, integers, places_from_end
from retention_assets.frames.log import attribute_of
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.frames.views.forest import chains, enclosing, subtrees, without_those_below
from retention_assets.frames.views.history import DELETE, History
from retention_assets.frames.views.scope import Line, ScopeColumns, up_to_their_views
from retention_assets.policy.selection import PERIODS, Newest

HOUR, DAY = 3_600_000_000, 86_400_000_000
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_REASONS = {"transactions": Reason.WITHIN_TRANSACTIONS, "bytes": Reason.WITHIN_BYTES}


class Kept(NamedTuple):
    """Rows that one key of `counts` keeps. The `roots` are counted; the others belong to their states, which stay readable."""

    counts: Newest
    key: str
    reason: Reason
    rows: Bools
    roots: Bools


def rows_kept(counts: Newest, scope: ScopeColumns, line: Line, history: History) -> Iterator[Kept]:
    """Rows that each key of `beyond`, or of `newest` in a retain rule, keeps. Views are not among these keys."""
    wanted = {key: most for key in counts.counts if (most := getattr(counts, key))}
    if not wanted:
        return
    counter = _Counter(counts, scope, line, history)
    for key, most in wanted.items():
        reason = _REASONS.get(key, Reason.WITHIN_PERIODS)
        roots = np.zeros(len(history), dtype=bool)
        roots[counter.newest_of_periods(key, most) if key in PERIODS else counter.newest_within(key, most)] = True
        as_states = counts.keeps_states or key in PERIODS
        yield Kept(counts, key, reason, roots | up_to_their_views(history, roots & scope.held) if as_states else roots, roots)


class _Counter:
    """Sequences of the rows that count: their positions `at`, and the places in `at` at which a sequence starts.

    The first `branched` rows lie on branches, the others on lines.
    """

    def __init__(self, counts: Newest, scope: ScopeColumns, line: Line, history: History) -> None:
        self._counts, self._scope, self._history = counts, scope, history
        counted = history.column(evaluate(counts.where, history.log)) if counts.where else np.ones(len(history), dtype=bool)
        on_branches = np.flatnonzero(counted & scope.held & (history.type != DELETE))
        on_lines, line_starts = line.ordered(counted & line.data)
        self.branched = len(on_branches)
        self.at = np.concatenate([on_branches, on_lines])
        starts = np.unique(np.searchsorted(on_branches, history.chains.first))
        self.starts = np.append(starts[starts < self.branched], line_starts + self.branched)
        # the combination of each sequence
        self._combination = np.zeros(len(self.starts), dtype=np.int64)
        if counts.per:
            values, sequence = _combinations(counts.per, history)[self.at], np.repeat(np.arange(len(self.starts)), self._sizes)
            order = np.lexsort((values, sequence))
            self.at, values = self.at[order], values[order]
            self.starts = np.flatnonzero(changes(sequence) | changes(values))
            self._combination = values[self.starts]

    @property
    def _sizes(self) -> Ints:
        return np.diff(np.append(self.starts, len(self.at)))

    @cached_property
    def _is_joined(self) -> Bools:
        # Sequences on chains that hang together with others.
        forest = self._history.chains
        hanging = forest.link >= 0
        hanging[forest.link[hanging]] = True
        joined = self.starts < self.branched
        joined[joined] = hanging[forest.at(self.at[self.starts[joined]])]
        return joined

    def newest_within(self, key: str, most: int) -> Ints:
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
            fits[nodes] = _within_on_paths(self._tree(nodes), weights[nodes], most)
        return self.at[fits]

    def newest_of_periods(self, key: str, most: int) -> Ints:
        """Positions of the newest row of each of the newest periods."""
        ends, hour_or_day = self._ends_of_finest
        starts, period = np.searchsorted(ends, self.starts), hour_or_day
        if key != "hourly":
            period = period_of_day(hour_or_day // 24 if self._counts.hourly else hour_or_day, PERIODS[key])
        newest = _newest(period, starts, most)
        is_joined = self._is_joined[np.searchsorted(starts, newest, side="right") - 1]
        stays = ~is_joined
        if is_joined.any():
            nodes = newest[is_joined]
            stays[is_joined] = _newest_on_paths(self._tree(ends[nodes]), period[nodes], most)
        return self.at[ends[newest[stays]]]

    @cached_property
    def _ends_of_finest(self) -> tuple[Ints, Ints]:
        # Places of rows that end an hour, or a day if hours are not counted, and its number: longer periods end with one.
        hour_or_day = local_times(self._history.closed[self.at], self._counts.zone) // (HOUR if self._counts.hourly else DAY)
        ends = _ends(hour_or_day, self.starts)
        return ends, hour_or_day[ends]

    def _tree(self, places: Ints) -> "_Tree":
        forest = self._history.chains
        begin, end = subtrees(forest, self.at[places])
        heads = np.sort(subtrees(forest, self._scope.refs.position)[0])
        inside = np.searchsorted(heads, end) - np.searchsorted(heads, begin)
        # Each combination is counted in a copy of the forest.
        copy = self._combination[np.searchsorted(self.starts, places, side="right") - 1] * len(self._history)
        above = enclosing(begin + copy, end + copy)
        return _Tree(begin + copy, end + copy, above, without_those_below(above, inside) > 0)


class _Tree(NamedTuple):
    """Rows of forked histories and the intervals of their subtrees.

    `above` is the nearest row on the path to the root, or -1. `is_tip`: on some branch no row is newer.
    """

    begin: Ints
    end: Ints
    above: Ints
    is_tip: Bools


def _within_on_paths(tree: _Tree, weights: Ints, most: int) -> Bools:
    # A row stays if some branch has little enough on its path from there on. Parents are before their children.
    forest = chains(tree.above, tree.is_tip)
    order = np.arange(len(weights)) if forest.order is None else forest.order
    sums = _sums_to_end(weights[order], forest.first, most)
    whole = sums[forest.first]
    at_end = np.where(tree.is_tip[order[forest.last]], 0, most + 1)
    least = forest.fold(at_end, lambda at, value: np.minimum(value + whole[at], most + 1), np.minimum)
    stays = np.zeros(len(weights), dtype=bool)
    stays[order] = sums + forest.spread(least) <= most
    return stays


def _newest_on_paths(tree: _Tree, period: Ints, most: int) -> Bools:
    """Rows that on the path to some tip are the newest of their period, where this is one of the `most` newest periods."""
    rank = np.unique(period, return_inverse=True)[1].reshape(-1)
    same = enclosing(tree.begin, tree.end, rank)
    # In the order of intervals a period is on the path from the begin of its first row on, up to the end of that one.
    first = same < 0
    edges, is_end = np.concatenate([tree.begin[first], tree.end[first]]), np.repeat([False, True], first.sum())
    order = np.argsort(edges, kind="stable")
    on_path = _Ranks(np.tile(rank[first], 2)[order], np.where(is_end, -1, 1)[order])
    # the oldest period that each path keeps, or -1
    tips = np.sort(tree.begin[tree.is_tip])
    oldest = on_path.nth_largest(np.searchsorted(edges[order], tips, side="right"), most)
    # For each row the paths that keep its period, less those on which a newer row has it.
    keeping = _Ranks(oldest + 1, np.ones(len(oldest), dtype=np.int64))
    number = keeping.at_most(np.searchsorted(tips, tree.begin), np.searchsorted(tips, tree.end), rank + 1)
    stays: Bools = without_those_below(same, number) > 0
    return stays


class _Ranks:
    """Count and rank the small values in many parts of a sequence at once; `signs` of -1 take earlier values back.

    It is a wavelet matrix: a level for each bit, highest first, on which values without the bit come before those with it.
    """

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
        order = np.lexsort((period, sequence))
        last = _ends(period[order], starts)
        ends, starts = ends[order[last]], np.searchsorted(last, starts)
    return ends[places_from_end(starts, len(ends)) <= most]


def _ends(period: Ints, starts: Ints) -> Ints:
    # Places of rows that are followed by another period or by another sequence.
    begins = changes(period)
    begins[starts] = True
    return np.flatnonzero(np.append(begins, True)[1:])


def _combinations(keys: tuple[str, ...], history: History) -> Ints:
    # A number for each combination of attributes; an absent one is a value.
    combination = np.zeros(len(history), dtype=np.int64)
    for key in keys:
        encoded = attribute_of(history.log, key).dictionary_encode()
        combination = combination * (len(encoded.dictionary) + 1) + integers(encoded.indices, -1) + 1
        if len(keys) > 1:
            combination = np.unique(combination, return_inverse=True)[1].reshape(-1)
    return history.column(combination)


def local_times(times: Ints, zone: str | None) -> Ints:
    """Microseconds as the clocks of the zone showed them: an hour that they showed twice is one."""
    if zone is None:
        return times
    try:
        shown = pc.local_timestamp(from_micros(times).cast(pa.timestamp("us", tz=zone)))
    except pa.ArrowInvalid:
        raise Refused(f"The time zone {zone} is not known on this machine. Install its time zones (tzdata).") from None
    local: Ints = integers(shown.view(pa.int64()), int(NEVER))
    return local


def period_of_day(day: Ints, period: str) -> Ints:
    """Number of the day, ISO week, month, quarter or year of each day since 1970."""
    if period == "day":
        return day
    if period == "week":
        # 1970-01-01 was a Thursday.
        return (day + 3) // 7
    months: Ints = day.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return months // _MONTHS[period]


def period_start(times: Ints, period: str, later: int = 0) -> Ints:
    """Start in UTC of the period of each time, or of one that many periods later."""
    number = period_of_day(times // DAY, period) + later
    if period in _MONTHS:
        start: Ints = (number * _MONTHS[period]).astype("M8[M]").astype("M8[us]").astype(np.int64)
        return start
    return (number if period == "day" else number * 7 - 3) * DAY
