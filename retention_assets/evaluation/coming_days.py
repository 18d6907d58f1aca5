"""Forecast of some datasets, by the functions that mark and sweep: one evaluation and one sweep a day.

Nothing new arrives. Stores that fail, people who act and the other limits in docs/forecast.md are left out; the rest is
exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.forecast import ForecastDay, ForecastDays
from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import NEVER, Bools, Ints, flags, integers, join_chunks, keys_of
from retention_assets.frames.grouping import bounds_of
from retention_assets.frames.lives import TIMES, is_in_log, is_same_life
from retention_assets.frames.log import LOG, Log
from retention_assets.frames.verdicts.candidate_marks import candidate_marks, columns_for
from retention_assets.policy.durations import from_micros, micros
from retention_assets.policy.model import Policy
from retention_assets.settings.prices import Price, Prices
from retention_assets.stores.protocol import Capabilities

DAY = 86_400_000_000
_NONE, _MARKED, _SWEPT = 0, 1, 2
_MARK = "mark"
_CLASS = "storage_class"
_LOW = (1 << 31) - 1


@dataclass(frozen=True)
class MarkRule:
    """Policy that made a mark, as it was then: the sweep asks it and what is in force. A mark without one is spared."""

    policy: str
    checked_by: tuple[Policy, ...]
    # False: no sweep can delete what it marks.
    is_swept: bool = True

    @classmethod
    def of(cls, policy: str, made_by: Sequence[Policy], can: Capabilities) -> "MarkRule":
        """Follow the sweep's check: limits bound marks, not deletions; a branch that the store can't drop stays."""
        checked = [one.model_copy(update={"limits": None}) for one in made_by]
        if not can.drops_refs:
            kept = {"expired_refs": None}
            checked = [one.model_copy(update={"select": one.select.model_copy(update=kept)}) for one in checked]
        return cls(policy, tuple(checked), can.expiry or all(one.sweep.mode == "delete" for one in made_by))


@dataclass(frozen=True)
class ForecastRules:
    """Policies in force, and the rule behind each mark of the ledger."""

    in_force: RulesInForce
    of_marks: Mapping[tuple[str, int], MarkRule] = field(default_factory=dict)


@dataclass(frozen=True)
class ForecastTerms:
    """Facts that all datasets of a store share."""

    as_of: datetime
    days: int
    store: str
    can: Capabilities
    prices: Prices
    # a child of a deleted transaction has no parent any more
    begins_anew: bool = False

    @property
    def counted_columns(self) -> tuple[str, ...]:
        return ("bytes", "files", "opened_at", *(("attributes",) if self.prices.classes else ()))


def add_forecast(result: ForecastDays, log: Log, marks: pa.Table, rules: ForecastRules, terms: ForecastTerms) -> None:
    """Add the days of some datasets of one store. `marks` are their open and swept marks in the ledger."""
    if not len(log.transactions):
        return
    begin = micros(terms.as_of)
    columns = {*columns_for(rules.in_force.policies, log.datasets), *terms.counted_columns}
    for made_by in rules.of_marks.values():
        columns |= set(columns_for(made_by.checked_by))
    remaining = RemainingLog(log.transactions.select([name for name in LOG.names if name in columns]), terms.begins_anew)
    result.datasets += int(remaining.dataset[-1]) + 1
    some = _SomeDatasets(remaining, log.datasets, rules, terms)
    some.note_marks(log.transactions, marks)
    result.start.add(some.stock(result.start.date, remaining.current()[0]))
    for number, day in enumerate(result.days):
        day.add(some.live_through(day.date, begin + number * DAY, result))


class RemainingLog:
    """Whole datasets of a sound log without the transactions that were deleted so far."""

    def __init__(self, rows: pa.Table, begins_anew: bool = False) -> None:
        bounds = bounds_of(rows)
        starts = np.repeat(bounds[:-1], np.diff(bounds))
        parent = integers(rows["parent_ordinal"], -1).astype(np.int64)
        self.rows = rows
        # History begins anew at a gap, instead of joining what is left.
        self.begins_anew = begins_anew
        self.dataset = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        self._parent = np.where(parent < 0, -1, parent + starts)
        self._present = np.ones(len(rows), dtype=bool)
        self._table: pa.Table | None = None

    def take_out(self, rows: Ints) -> None:
        """Remove deleted transactions, by their row in the whole log."""
        if len(rows):
            self._present[rows] = False
            self._table = None

    def current(self) -> tuple[Ints, pa.Table]:
        """Return the log as it is now, and the row of each of its rows in the whole log."""
        if self._table is None:
            self._table = self.rows if self._present.all() else self._without_deleted()
        return np.flatnonzero(self._present), self._table

    def _without_deleted(self) -> pa.Table:
        rows = np.flatnonzero(self._present)
        place = np.cumsum(self._present) - 1
        dataset = self.dataset[rows]
        starts = np.searchsorted(dataset, dataset)
        parent = self._remaining_parents()[rows]
        table = self.rows.take(pa.array(rows)).combine_chunks()
        columns = {
            "ordinal": np.arange(len(rows)) - starts,
            "parent_ordinal": np.where(parent < 0, -1, place[parent] - starts),
        }
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), LOG.field(name), pa.array(column.astype(np.int32)))
        return table

    def _remaining_parents(self) -> Ints:
        if self.begins_anew:
            return np.where((self._parent >= 0) & self._present[self._parent], self._parent, -1)
        # -1 stands at the end, and leads to itself
        up = np.append(np.where(self._present, np.arange(len(self._present)), self._parent), -1)
        while not np.array_equal(further := up[up], up):
            up = further
        return up[self._parent]


class _SomeDatasets:
    """Datasets on their way through the days: rows that are marked, until when and by which rule."""

    def __init__(self, remaining: RemainingLog, datasets: pa.Table, rules: ForecastRules, terms: ForecastTerms) -> None:
        self.remaining, self.datasets, self.rules, self.terms = remaining, datasets, rules, terms
        policies = rules.in_force.policies
        names = list(dict.fromkeys(policy.name for policy in policies))
        self.known = [MarkRule.of(name, [one for one in policies if one.name == name], terms.can) for name in names]
        self.number = {name: number for number, name in enumerate(names)}
        self.graces = [next(one.grace for one in policies if one.name == name) for name in names]
        unlimited = [one for rule in self.known for one in rule.checked_by]
        # the rule with the shortest grace gets the credit
        self.justifying = sorted(unlimited, key=lambda one: one.grace.after(terms.as_of))
        self.limited = any(policy.limits for policy in policies)
        rows = len(remaining.rows)
        self.status = np.full(rows, _NONE, dtype=np.int8)
        self.due = np.full(rows, NEVER)
        self.rule = np.full(rows, -1)
        # set for marks of the ledger; NEVER for marks of the forecast
        self.marked_at = np.full(rows, NEVER)
        # another transaction has the id of the one that was marked
        self.replaced = np.zeros(rows, dtype=bool)
        self.bytes = integers(remaining.rows["bytes"], 0)
        self.files = np.maximum(integers(remaining.rows["files"], 1), 1)
        self.closed = _times(remaining.rows, "closed_at")
        self.born = np.where(self.closed == NEVER, _times(remaining.rows, "opened_at"), self.closed)
        self.prices, self.price = _prices(remaining.rows, terms)

    def note_marks(self, log: pa.Table, marks: pa.Table) -> None:
        """Begin with the ledger's marks; those whose transaction is in no log any more can't be deleted."""
        if not len(marks):
            return
        swept = flags(pc.equal(marks["status"], "SWEPT"))
        gone = marks.filter(pa.array(swept)).filter(pa.array(is_in_log(marks.filter(pa.array(swept)), log)))
        self.status[flags(pc.is_in(keys_of(log), value_set=keys_of(gone)))] = _SWEPT
        still = marks.filter(pa.array(~swept))
        at = pc.index_in(keys_of(still), value_set=keys_of(log))
        still, here = still.filter(at.is_valid()), at.drop_null()
        row, now = here.to_numpy(), log.select([*TIMES, "bytes"]).take(here)
        self.status[row] = _MARKED
        self.marked_at[row] = integers(join_chunks(still["marked_at"]).view(pa.int64()), 0)
        begun = flags(pc.or_(pc.equal(still["status"], "SWEEPING"), pc.greater(still["attempts"], 0)))
        sweeping = flags(pc.equal(still["status"], "SWEEPING"))
        # A sweep that has begun is continued, whatever the due time.
        self.due[row] = np.where(sweeping, NEVER, integers(join_chunks(still["due_at"]).view(pa.int64()), 0))
        resized = flags(pc.not_equal(still["bytes"], now["bytes"])) & ~begun
        self.replaced[row] = ~is_same_life(still, now) | resized | flags(pc.greater(now["closed_at"], still["marked_at"]))
        versions, in_force = still.select(["policy", "policy_version"]).to_pylist(), self.rules.in_force.versions
        numbers: dict[tuple[str, int], int] = {}
        for version in dict.fromkeys((one["policy"], one["policy_version"]) for one in versions):
            if in_force.get(version[0]) == version[1] and version[0] in self.number:
                numbers[version] = self.number[version[0]]
            else:
                numbers[version] = len(self.known)
                self.known.append(self.rules.of_marks.get(version, MarkRule(version[0], ())))
        self.rule[row] = [numbers[one["policy"], one["policy_version"]] for one in versions]

    def stock(self, day: date, rows: Ints) -> ForecastDay:
        status = self.status[rows]
        there, waiting = rows[status != _SWEPT], rows[status == _MARKED]
        month = sum(price.monthly(self._sum(mine)) for price, mine in self._by_price(there))
        return ForecastDay(
            day,
            transactions=len(there),
            bytes=self._sum(there),
            waiting=len(waiting),
            bytes_waiting=self._sum(waiting),
            month=month,
        )

    def live_through(self, day: date, instant: int, result: ForecastDays) -> ForecastDay:
        rows, log = self.remaining.current()
        at = from_micros(instant)
        rules = self.rules.in_force
        known = _names(log, self.status[rows] != _NONE) if self.limited else None
        verdicts = candidate_marks(log, self.datasets, rules.policies, rules.holds, at, known)
        marks, credit = self._marks_of(verdicts)
        new = rows[marks & (self.status[rows] == _NONE)]
        self._mark(new, credit[marks & (self.status[rows] == _NONE)], at)
        gone, spared = self._sweep(rows, log, marks, credit, at)
        for number, rule in enumerate(self.known):
            result.marked[rule.policy] += int((self.rule[new] == number).sum())
            mine = gone[self.rule[gone] == number]
            result.deleted[rule.policy] += len(mine)
            result.bytes_deleted[rule.policy] += self._sum(mine)
        found = self.stock(day, rows)
        found.marked, found.bytes_marked, found.spared = len(new), self._sum(new), spared
        found.deleted, found.bytes_deleted = len(gone), self._sum(gone)
        self._price(found, gone, instant)
        if self.terms.can.log_is_complete:
            self.remaining.take_out(gone)
        return found

    def _marks_of(self, verdicts: pa.Table) -> tuple[Bools, Ints]:
        verdict, policy = join_chunks(verdicts["verdict"]), join_chunks(verdicts["policy"])
        is_mark = np.array([word == _MARK for word in verdict.dictionary.to_pylist()], dtype=bool)
        numbers = np.array([*(self.number[name] for name in policy.dictionary.to_pylist()), -1])
        return is_mark[integers(verdict.indices, 0)], numbers[integers(policy.indices, -1)]

    def _mark(self, rows: Ints, credit: Ints, at: datetime) -> None:
        self.status[rows], self.rule[rows] = _MARKED, credit
        # An id that closes only later counts as another transaction's from then on.
        self.replaced[rows] = self.closed[rows] > micros(at)
        for number in np.unique(credit).tolist():
            self.due[rows[credit == number]] = micros(self.graces[number].after(at))

    def _sweep(self, rows: Ints, log: pa.Table, marks: Bools, credit: Ints, at: datetime) -> tuple[Ints, int]:
        rule = self.rule[rows]
        can = np.array([*(one.is_swept for one in self.known), False], dtype=bool)
        due = (self.status[rows] == _MARKED) & (self.due[rows] <= micros(at)) & can[rule]
        # A version that is no longer in force needs a policy that is, and waits out its grace too.
        is_old = rule >= len(self.graces)
        today = np.ones(len(rows), dtype=bool)
        if (due & is_old).any():
            today, by = self._marks_of(candidate_marks(log, self.datasets, self.justifying, self.rules.in_force.holds, at))
            for row in np.flatnonzero(due & is_old & today).tolist():
                ends = self.graces[by[row]].after(from_micros(int(self.marked_at[rows[row]])))
                due[row] = ends <= at
        # The check drops what the policy alone would mark today, unless the policy drops branches and the store can't.
        drops = {one.name for one in self.rules.in_force.policies if one.drops_refs and not self.terms.can.drops_refs}
        kept = np.array([*(one.policy in drops for one in self.known), False], dtype=bool)
        goes = due & marks & (credit == rule) & ~kept[rule]
        for number in np.unique(rule[due & ~goes]).tolist():
            mine = due & (rule == number)
            goes[mine] |= (self._is_justified(log, rows, mine, self.known[number], at) & (today | ~is_old))[mine]
        goes &= ~self.replaced[rows]
        self.status[rows[goes]] = _SWEPT
        self.status[rows[due & ~goes]] = _NONE
        return rows[goes], int((due & ~goes).sum())

    def _is_justified(self, log: pa.Table, rows: Ints, mine: Bools, rule: MarkRule, at: datetime) -> Bools:
        found = np.zeros(len(rows), dtype=bool)
        if rule.checked_by:
            dataset = self.remaining.dataset[rows]
            about = np.isin(dataset, np.unique(dataset[mine]))
            part = log.filter(pa.array(about)).combine_chunks()
            verdicts = candidate_marks(part, self.datasets, rule.checked_by, self.rules.in_force.holds, at)
            found[about] = flags(pc.equal(join_chunks(verdicts["verdict"]).cast(pa.string()), _MARK))
        return found

    def _price(self, day: ForecastDay, gone: Ints, instant: int) -> None:
        for price, mine in self._by_price(gone):
            day.saved += price.monthly(self._sum(mine))
            day.requests += price.deleting(int(self.files[mine].sum()))
            ages = (instant - self.born[mine]) / DAY
            early = mine[ages < price.minimum_days]
            sizes = self.bytes[early].tolist()
            day.early += sum(map(price.ending_early, sizes, ages[ages < price.minimum_days].tolist()))

    def _by_price(self, rows: Ints) -> list[tuple[Price, Ints]]:
        return [(price, rows[self.price[rows] == number]) for number, price in enumerate(self.prices)]

    def _sum(self, rows: Ints) -> int:
        """Sum in two halves: many large sizes overflow 64 bits where each of them fits."""
        sizes = self.bytes[rows]
        return (int((sizes >> 31).sum()) << 31) + int((sizes & _LOW).sum())


def _names(log: pa.Table, which: Bools) -> pa.Table:
    names = log.select(["dataset", "transaction"]).filter(pa.array(which))
    return names.set_column(0, "dataset", names["dataset"].cast(pa.string()))


def _times(log: pa.Table, name: str) -> Ints:
    return integers(join_chunks(log[name]).view(pa.int64()), int(NEVER))


def _prices(log: pa.Table, terms: ForecastTerms) -> tuple[list[Price], Ints]:
    """The distinct prices, and the index of each row's; -1 where it has none."""
    said: list[str | None] = [None]
    which = np.zeros(len(log), dtype=np.int64)
    if terms.prices.classes:
        words = pc.map_lookup(join_chunks(log["attributes"]), pa.scalar(_CLASS), "first").dictionary_encode()
        said = [*words.dictionary.to_pylist(), None]
        which = integers(words.indices, len(said) - 1).astype(np.int64)
    found: list[Price] = []
    numbers = []
    for one in said:
        price = terms.prices.of(terms.store, one)
        if price is not None and price not in found:
            found.append(price)
        numbers.append(-1 if price is None else found.index(price))
    return found, np.array(numbers)[which]
