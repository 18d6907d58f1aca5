"""Forecast: walk over coming days, each with one evaluation, which marks, and one sweep of what is due, by the sweep's own
re-check; and sum the days under each set of policies.

Nothing new arrives. Stores that fail, people who act and the other limits in docs/forecast.md are left out.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import NEVER, Ints, as_micros, flags, integers, join_chunks, keys_of
from retention_assets.frames.log import KNOWN_ROWS, LOG, Log, attribute_of, bounds_of, is_in_log
from retention_assets.frames.periods import DAY
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.shared_data import datasets_sharing
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.policy.durations import from_micros, micros, text_of
from retention_assets.policy.model import Sweep
from retention_assets.settings.sections import Price, Prices
from retention_assets.stores.protocol import Capabilities

# name of the policies in force, beside files that are named
IN_FORCE = "today"
# most unsound datasets that are named in words
_MOST_SAID = 20


@dataclass
class ForecastDay:
    """Day after its evaluation and its sweep. `bytes` and `waiting` are what is there then; the others count that day alone."""

    date: date
    transactions: int = 0
    bytes: int = 0
    waiting: int = 0
    bytes_waiting: int = 0
    marked: int = 0
    bytes_marked: int = 0
    # marks whose grace is over when the sweep begins
    due: int = 0
    bytes_due: int = 0
    spared: int = 0
    bytes_spared: int = 0
    deleted: int = 0
    bytes_deleted: int = 0
    # Amounts, where there are prices: a month of what is there, a month of what goes that day, the requests that delete it, and
    # the charge for deleting it early.
    month: float = 0
    saved: float = 0
    requests: float = 0
    early: float = 0

    def add(self, other: "ForecastDay") -> None:
        for one in fields(self):
            if one.name != "date":
                setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


_MONEY = ("month", "saved", "requests", "early")
# shown by a simulation alone
_SIMULATED = {"due", "bytes_due", "bytes_spared"}


@dataclass
class ForecastDays:
    """Days under one set of policies, and what each policy marks and deletes in all of them together."""

    policies: str
    start: ForecastDay
    days: list[ForecastDay]
    datasets: int = 0
    marked: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    bytes_deleted: Counter[str] = field(default_factory=Counter)
    # number of spared marks by reason
    spared_because: Counter[str] = field(default_factory=Counter)

    @classmethod
    def starting(cls, policies: str, as_of: datetime, days: int) -> "ForecastDays":
        dates = [(as_of + timedelta(days=number)).date() for number in range(days)]
        return cls(policies, ForecastDay(as_of.date()), list(map(ForecastDay, dates)))

    def total(self, name: str) -> Any:
        return sum(getattr(day, name) for day in self.days)


@dataclass
class Forecast:
    """Forecast under the policies in force (`in_force`) and under other sets (`others`)."""

    as_of: datetime
    in_force: ForecastDays
    others: tuple[ForecastDays, ...]
    currency: str | None = None
    # by dataset the fault and its place; by store the error
    refused: dict[str, dict[str, str | None]] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[ForecastDays, ...]:
        return (self.in_force, *self.others)

    @property
    def stores_left_out(self) -> list[str]:
        return [f"{name} is left out: {why}" for name, why in self.away.items()]

    @property
    def datasets_left_out(self) -> list[str]:
        refused = [f"{name} is left out, because its log is not sound: {row['fault']}" for name, row in self.refused.items()]
        more = len(refused) - _MOST_SAID
        return [*refused[:_MOST_SAID], *([f"{more:,} more datasets are left out for similar reasons."] if more > 0 else [])]

    @property
    def left_out(self) -> list[str]:
        return [*self.stores_left_out, *self.datasets_left_out]

    def as_dict(self) -> dict[str, Any]:
        data = {"as_of": text_of(self.as_of), **self._set(self.in_force), "others": [self._set(one) for one in self.others]}
        currency = {"currency": self.currency} if self.currency else {}
        return {**data, **currency, "refused": self.refused, "away": self.away}

    def _set(self, one: ForecastDays) -> dict[str, Any]:
        by_policy = {
            name: {"marked": one.marked[name], "deleted": one.deleted[name], "bytes_deleted": one.bytes_deleted[name]}
            for name in sorted(one.marked)
        }
        days = [self._day(day) for day in one.days]
        start = self._day(one.start)
        return {"policies": one.policies, "datasets": one.datasets, "start": start, "days": days, "by_policy": by_policy}

    def _day(self, day: ForecastDay) -> dict[str, Any]:
        data = {name: value for name, value in asdict(day).items() if name not in _SIMULATED} | {"date": day.date.isoformat()}
        for name in _MONEY:
            amount = data.pop(name)
            data |= {name: round(amount, 6)} if self.currency else {}
        return data


_NONE, _MARKED, _SWEPT = 0, 1, 2
_MARK = "mark"
_CLASS = "storage_class"
_LOW = (1 << 31) - 1
# ids of marks that the walk makes: above those of any ledger
_FIRST_ID = 1 << 48


class RecheckResult(Protocol):
    """Ids of the marks that a sweep deletes, and why it spares others. What is in neither waits."""

    @property
    def go(self) -> Collection[int]: ...

    @property
    def spared(self) -> Mapping[int, str]: ...


class Recheck(Protocol):
    """Re-check of a sweep at an instant."""

    def check(self, log: Log, marks: pa.Table, capabilities: Capabilities) -> RecheckResult: ...

    def sweeps_of(self, marks: pa.Table) -> Mapping[int, Sweep]: ...


RecheckAt = Callable[[datetime], Recheck]


@dataclass(frozen=True)
class WalkTerms:
    """Facts that all datasets of a store share."""

    as_of: datetime
    store: str
    can: Capabilities
    prices: Prices
    # a child of a deleted transaction has no parent any more
    begins_anew: bool = False
    # False: sweeps refuse the store, and what is due waits
    is_swept: bool = True


def walk(result: ForecastDays, log: Log, marks: pa.Table, rules: RulesInForce, recheck_at: RecheckAt, terms: WalkTerms) -> None:
    """Add the days of some datasets of one store. `marks` are their open and swept marks in the ledger."""
    begin = micros(terms.as_of)
    datasets = _WalkedDatasets(log, marks, rules, recheck_at, terms)
    result.datasets += int(datasets.remaining.dataset[-1]) + 1
    result.start.add(datasets.stock(result.start.date, datasets.remaining.current()[0]))
    for number, day in enumerate(result.days):
        day.add(datasets.live_through(day.date, begin + number * DAY, result))


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


class _WalkedDatasets:
    """Datasets on their way through the days: rows that are marked, until when and by which policy.

    Rows past those of the log are marks whose transaction it does not have.
    """

    def __init__(self, log: Log, marks: pa.Table, rules: RulesInForce, recheck_at: RecheckAt, terms: WalkTerms) -> None:
        self.remaining = RemainingLog(log.transactions, terms.begins_anew)
        self.datasets, self.rules, self.recheck_at, self.terms = log.datasets, rules, recheck_at, terms
        self.rows = len(log.transactions)
        graces = {policy.name: policy.grace for policy in reversed(rules.policies)}
        names = list(dict.fromkeys(policy.name for policy in rules.policies))
        self.graces = [graces[name] for name in names]
        self.number = {name: number for number, name in enumerate(names)}
        self.needs_known = any(policy.limits for policy in rules.policies) or bool(datasets_sharing(log.datasets))
        # The re-check keeps what such a policy would mark, as the store can't drop branches.
        drops = {policy.name for policy in rules.policies if policy.drops_refs and not terms.can.drops_refs}
        self.drops = np.array([*(name in drops for name in names), False], dtype=bool)
        # Marks that the store should expire and can't are never swept.
        expires = {policy.name for policy in rules.policies if policy.sweep.mode == "ttl" and not terms.can.expiry}
        self.deletes = np.array([name not in expires for name in names], dtype=bool)

        is_swept = pc.equal(marks["status"], "SWEPT")
        swept, self.marks = marks.filter(is_swept), marks.filter(pc.invert(is_swept)).combine_chunks()
        keys = keys_of(log.transactions)
        at = np.array(integers(pc.index_in(keys_of(self.marks), value_set=keys), -1), dtype=np.int64)
        missing = at < 0
        at[missing] = self.rows + np.arange(missing.sum())
        size = self.rows + int(missing.sum())
        self.status = np.full(size, _NONE, dtype=np.int8)
        gone = swept.filter(pa.array(is_in_log(swept, log.transactions)))
        self.status[: self.rows][flags(pc.is_in(keys, value_set=keys_of(gone)))] = _SWEPT
        self.was_swept = self.status[: self.rows] == _SWEPT
        self.status[at] = _MARKED
        self.due, self.marked_at = np.full(size, NEVER), np.full(size, NEVER)
        # A sweep that has begun is continued, whatever the due time.
        self.due[at] = np.where(flags(pc.equal(self.marks["status"], "SWEEPING")), NEVER, as_micros(self.marks["due_at"]))
        # row of the ledger's mark; -1 for marks of the walk
        self.mark, self.policy = np.full(size, -1), np.full(size, -1)
        self.mark[at] = np.arange(len(at))
        self.names = list(dict.fromkeys([*names, *self.marks["policy"].to_pylist()]))
        self.policy[at] = integers(pc.index_in(self.marks["policy"], value_set=pa.array(self.names, pa.string())), -1)
        self.can_go = np.ones(size, dtype=bool)
        if len(at) and not terms.can.expiry:
            sweeps = recheck_at(terms.as_of).sweeps_of(self.marks)
            self.can_go[at] = [sweeps[mark].mode == "delete" for mark in self.marks["id"].to_pylist()]

        self.bytes = np.concatenate([integers(log.transactions["bytes"], 0), integers(self.marks["bytes"], 0)[missing]])
        self.files = np.maximum(integers(log.transactions["files"], 1), 1)
        self.closed = as_micros(log.transactions["closed_at"])
        self.born = np.where(self.closed == NEVER, as_micros(log.transactions["opened_at"]), self.closed)
        self.prices, self.price = _prices(log.transactions, terms)

    def stock(self, day: date, rows: Ints) -> ForecastDay:
        status = self.status[rows]
        there, waiting = rows[status != _SWEPT], rows[status == _MARKED]
        month = sum(price.monthly(self._sum(mine)) for price, mine in self._by_price(there))
        return ForecastDay(day, len(there), self._sum(there), len(waiting), self._sum(waiting), month=month)

    def live_through(self, day: date, instant: int, result: ForecastDays) -> ForecastDay:
        rows, log = self.remaining.current()
        at = from_micros(instant)
        known = None
        if self.needs_known:
            # what the walk deletes does not come back, as what is marked
            known = log.select(KNOWN_ROWS.names[:-1]).append_column("swept", pa.array(self.was_swept[rows]))
            known = known.filter(pa.array(self.status[rows] != _NONE)).cast(KNOWN_ROWS)
        verdicts = candidate_marks(log, self.datasets, self.rules.policies, self.rules.holds, at, known)
        verdict, policy = join_chunks(verdicts["verdict"]), join_chunks(verdicts["policy"])
        is_mark = np.array([word == _MARK for word in verdict.dictionary.to_pylist()], dtype=bool)
        numbers = np.array([*(self.number[name] for name in policy.dictionary.to_pylist()), -1])
        selected, credit = is_mark[integers(verdict.indices, 0)], numbers[integers(policy.indices, -1)]
        is_new = selected & (self.status[rows] == _NONE)
        new = rows[is_new]
        self._mark(new, credit[is_new], instant)
        due = np.flatnonzero((self.status == _MARKED) & (self.due <= instant))
        # The evaluation has just re-checked those marks of the walk that the same policy would make again.
        again = selected & (credit == self.policy[rows]) & ~self.drops[credit]
        again &= (self.mark[rows] < 0) & (self.closed[rows] <= self.marked_at[rows])
        may_go = due[self.can_go[due] & self.terms.is_swept]
        gone, spared = self._sweep(may_go, rows[again], Log(log, self.datasets), at, result)
        for number, name in enumerate(self.names):
            result.marked[name] += int((self.policy[new] == number).sum())
            of_policy = gone[self.policy[gone] == number]
            result.deleted[name] += len(of_policy)
            result.bytes_deleted[name] += self._sum(of_policy)
        after = self.stock(day, rows)
        after.marked, after.bytes_marked = len(new), self._sum(new)
        after.due, after.bytes_due = len(due), self._sum(due)
        after.spared, after.bytes_spared = len(spared), self._sum(spared)
        after.deleted, after.bytes_deleted = len(gone), self._sum(gone)
        self._price(after, gone, instant)
        if self.terms.can.log_is_complete:
            self.remaining.take_out(gone)
        return after

    def _mark(self, rows: Ints, credit: Ints, instant: int) -> None:
        self.status[rows], self.policy[rows], self.mark[rows], self.marked_at[rows] = _MARKED, credit, -1, instant
        self.can_go[rows] = self.deletes[credit]
        for number in np.unique(credit).tolist():
            self.due[rows[credit == number]] = micros(self.graces[number].after(from_micros(instant)))

    def _sweep(self, due: Ints, again: Ints, log: Log, at: datetime, result: ForecastDays) -> tuple[Ints, Ints]:
        is_sure = np.isin(due, again)
        goes, asked = due[is_sure], due[~is_sure]
        spared = asked[:0]
        if len(asked):
            is_of_ledger = self.mark[asked] >= 0
            asked = np.concatenate([asked[is_of_ledger], asked[~is_of_ledger]])
            marks = self._marks_at(asked[: is_of_ledger.sum()], asked[is_of_ledger.sum() :])
            answer = self.recheck_at(at).check(log, marks, self.terms.can)
            ids = marks["id"].to_numpy()
            goes = np.concatenate([goes, asked[np.isin(ids, [*answer.go])]])
            spared = asked[np.isin(ids, [*answer.spared])]
            result.spared_because.update(answer.spared.values())
        self.status[goes], self.status[spared] = _SWEPT, _NONE
        return goes[goes < self.rows], spared

    def _marks_at(self, ledger: Ints, made: Ints) -> pa.Table:
        columns = ["dataset", "transaction", "bytes", "opened_at", "closed_at"]
        rows = self.remaining.rows.select(columns).take(pa.array(made))
        versions = [self.rules.versions.get(name) for name in self.names]
        policy = pa.array(self.policy[made])
        values = {
            **dict(zip(columns, rows.columns, strict=True)),
            "id": pa.array(made + _FIRST_ID),
            "policy": pa.array(self.names, pa.string()).take(policy),
            "policy_version": pa.array(versions, pa.int32()).take(policy),
            "marked_at": pa.array(self.marked_at[made]).cast(MARK_ROWS.field("marked_at").type),
            "status": pa.repeat("MARKED", len(made)),
            "attempts": pa.repeat(0, len(made)),
        }
        marks = [values.get(column.name, pa.nulls(len(made), column.type)) for column in MARK_ROWS]
        of_ledger = self.marks.take(pa.array(self.mark[ledger]))
        return pa.concat_tables([of_ledger, pa.table(marks, MARK_ROWS.names).cast(MARK_ROWS)])

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
        # Sum in two halves: many large sizes overflow 64 bits where each of them fits.
        sizes = self.bytes[rows]
        return (int((sizes >> 31).sum()) << 31) + int((sizes & _LOW).sum())


def _prices(log: pa.Table, terms: WalkTerms) -> tuple[list[Price], Ints]:
    # The distinct prices, and the index of each row's; -1 where it has none.
    classes: list[str | None] = [None]
    index = np.zeros(len(log), dtype=np.int64)
    if terms.prices.classes:
        codes = attribute_of(log, _CLASS).dictionary_encode()
        classes = [*codes.dictionary.to_pylist(), None]
        index = integers(codes.indices, len(classes) - 1).astype(np.int64)
    by_class = [terms.prices.of(terms.store, name) for name in classes]
    prices: list[Price] = []
    for price in by_class:
        if price is not None and price not in prices:
            prices.append(price)
    return prices, np.array([-1 if price is None else prices.index(price) for price in by_class])[index]
