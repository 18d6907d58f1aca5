"""Reports: what a day was to delete of a dataset, and what became of it, counted in the transaction that writes it.

A report's set is fixed when it opens: the open marks that are due by then. On that day `to_delete` equals deleted, already
gone, hidden, set aside, spared and unmarked ones plus those of the set that are still open; what a later day
does to them counts on that day. Marks that become due later are swept as well, and count in the next day's report on both
sides.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import compress
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, exists, func, or_, select, text, true, union, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.rows import mapping_in, stored
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import AUDIT, CLOCK, DAYS, EVALUATIONS, MARKS, OPEN, PLANS, REPORTS
from retention_assets.ledger.steps import report_columns
from retention_assets.sql.columns import ByteSum, DatabaseTime, fit, plus
from retention_assets.sql.transactions import insert_or_skip, portions

COUNTERS = (
    "to_delete", "deleted", "already_gone", "failed", "spared", "unmarked", "hidden", "left", "set_aside", "restored",
    "replayed", "bytes_to_free", "bytes_freed", "bytes_hidden", "bytes_set_aside",
)  # fmt: skip
_DAY = timedelta(days=1)
# Reports of 0.2.0 have a column of their own for transactions that lost nothing; they count as spared (migrations/r0025.py).
SPARED = (REPORTS.c.spared + REPORTS.c.kept_readable).label("spared")
_REPLAYED = func.coalesce(REPORTS.c.replayed, 0).label("replayed")
_COLUMNS = [{"spared": SPARED, "replayed": _REPLAYED}.get(column.name, column) for column in REPORTS.columns]
# A row without a set holds counts for a day that has not begun.
_HAS_OPENED = REPORTS.c.due_by.is_not(None)
# Also late work of the day before if the day itself never begins.
_IS_SHOWN = or_(_HAS_OPENED, *(REPORTS.c[name] > 0 for name in ("to_delete", "failed", "restored", "replayed", "bytes_freed")))


@dataclass(frozen=True)
class OpenedReport:
    """Values fixed when a report opens; `classes` partitions the transactions of the log."""

    policies: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    terminal_only: bool | None = None
    archived_types: tuple[str, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    # Age behind each bound, as an ISO 8601 duration such as P2Y.
    periods: Mapping[str, str] = field(default_factory=dict)


class DaySpan(NamedTuple):
    """The report's set: marks with a lower id that are due by then."""

    due_by: datetime | None
    marks_before: int | None

    def has(self, mark: "ReportCounts") -> bool:
        return self.due_by is not None and mark.mark < (self.marks_before or 0) and mark.due_at <= self.due_by


class ReportCounts(NamedTuple):
    """A mark's contribution to a counter; its due time decides in which report."""

    mark: int
    due_at: datetime
    counter: str
    bytes: int | None
    freed: int = 0
    hidden: int = 0
    left: int = 0
    aside: int = 0


class Taken(NamedTuple):
    transactions: int = 0
    bytes: int = 0

    def plus(self, other: "Taken") -> "Taken":
        return Taken(self.transactions + other.transactions, self.bytes + other.bytes)


class DayLook(NamedTuple):
    as_of: datetime
    looked_at: datetime
    judged_at: datetime | None
    datasets: int
    due: int


class Reports(LedgerPart):
    @audited
    def open(
        self,
        tx: WriteTransaction,
        execution_date: date,
        openings: Mapping[str, OpenedReport],
        as_of: datetime,
        actor: str,
        logs: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Open a day's missing reports over what is due by now; return their datasets.

        Raises Refused unless the classes sum to the sizes in `logs`.
        """
        for dataset, size in (logs or {}).items():
            if (amount := sum(openings[dataset].classes.values())) != size:
                raise Refused(f"The classes of {dataset} add up to {amount}, but its log has {size} transactions.")
        if not openings:
            return []
        act = Act(ActType.REPORT, actor)
        _add_rows(tx, act, execution_date, openings)
        waiting = [name for name, span in _spans(tx, execution_date, openings, locked=True).items() if span.due_by is None]
        if not waiting:
            return []
        due = dict.fromkeys(waiting, (0, 0))
        for part in portions(waiting):
            amounts = select(MARKS.c.dataset, func.count(), ByteSum(MARKS.c.bytes)).group_by(MARKS.c.dataset)
            amounts = amounts.where(text(OPEN), MARKS.c.dataset.in_(part), MARKS.c.due_at <= as_of)
            due |= {name: (int(amount), int(size)) for name, amount, size in tx.connection.execute(amounts)}
            tx.seal(REPORTS, (REPORTS.c.execution_date == execution_date) & REPORTS.c.dataset.in_(part), act)
        values = {
            **{name: bindparam(name) for name in (*_JSON, "terminal_only")},
            "to_delete": REPORTS.c.to_delete + bindparam("amount"),
            "bytes_to_free": plus(REPORTS.c.bytes_to_free, bindparam("size", type_=BigInteger)),
            "due_by": as_of,
            "marks_before": select(CLOCK.c.next_mark).scalar_subquery(),
            # Late work of the day before may have been everything.
            "finished_at": None,
            "started_at": DatabaseTime(),
            "act": act.id,
        }
        this = (REPORTS.c.execution_date == execution_date) & (REPORTS.c.dataset == bindparam("name"))
        rows = [
            {"name": name, "amount": amount, "size": size, **_columns(openings[name])} for name, (amount, size) in due.items()
        ]
        tx.connection.execute(update(REPORTS).where(this).values(values), rows)
        act.dataset = only_one(waiting)
        act.detail = {"date": execution_date.isoformat(), "to_delete": sum(amount for amount, _ in due.values())}
        tx.record(act)
        return waiting

    def opened(self, execution_date: date, datasets: Collection[str]) -> set[str]:
        query = select(REPORTS.c.dataset).where(REPORTS.c.execution_date == execution_date, _HAS_OPENED)
        return {name for (name,) in self.rows_among(query, REPORTS.c.dataset, datasets)}

    @audited
    def finish_done(self, tx: WriteTransaction, actor: str, datasets: Collection[str] | None = None) -> list[tuple[date, str]]:
        """Finish the reports without an open mark in their set; return them."""
        finished: list[tuple[date, str]] = []
        for part in [None] if datasets is None else portions(sorted(datasets)):
            finished += _finish_some(tx, actor, true() if part is None else REPORTS.c.dataset.in_(part))
        return sorted(finished)

    def of(self, execution_date: date, dataset: str | None = None) -> list[Mapping[str, Any]]:
        query = select(*_COLUMNS).where(REPORTS.c.execution_date == execution_date, _IS_SHOWN).order_by(REPORTS.c.dataset)
        rows = self.rows(query if dataset is None else query.where(REPORTS.c.dataset == dataset))
        return [_report_of(dict(row._mapping)) for row in rows]

    @audited
    def note_look(self, tx: WriteTransaction, as_of: datetime, actor: str, due: int) -> None:
        """Record a look and the due marks, unless the day has a look with a later `as_of`."""
        day = as_of.astimezone(UTC).date()
        this = DAYS.c.execution_date == day
        if tx.connection.execute(select(DAYS.c.as_of).where(this, DAYS.c.as_of >= as_of)).one_or_none():
            return
        act = Act(ActType.REPORT, actor, detail={"date": day.isoformat(), "looked": True})
        datasets, judged_at = tx.connection.execute(select(func.count(), func.max(EVALUATIONS.c.looked_at))).one()
        row = {"as_of": as_of, "looked_at": DatabaseTime(), "datasets": datasets, "judged_at": judged_at, "due": due}
        tx.put(act, DAYS, execution_date=day, **row)

    def look(self, execution_date: date) -> DayLook | None:
        columns = [DAYS.c[name] for name in DayLook._fields]
        rows = self.rows(select(*columns).where(DAYS.c.execution_date == execution_date))
        return DayLook(*rows[0]) if rows else None

    def days(self) -> list[date]:
        reported = select(REPORTS.c.execution_date).where(_IS_SHOWN)
        return sorted((day for (day,) in self.rows(union(reported, select(DAYS.c.execution_date)))), reverse=True)

    def ordered_by(self, first: date, last: date) -> dict[str, tuple[str, ...]]:
        begin, end = datetime.combine(first, time(), UTC), datetime.combine(last, time.max, UTC)
        query = select(PLANS.c.dataset, AUDIT.c.actor).distinct().join(AUDIT, AUDIT.c.act == PLANS.c.act)
        query = query.where(PLANS.c.as_of.between(begin, end)).order_by(PLANS.c.dataset, AUDIT.c.actor)
        actors: dict[str, tuple[str, ...]] = {}
        for dataset, actor in self.rows(query):
            actors[dataset] = (*actors.get(dataset, ()), actor)
        return actors

    def taken_by_day(self, store: str, first: date, last: date) -> dict[date, Taken]:
        transactions = func.sum(REPORTS.c.deleted + REPORTS.c.hidden + REPORTS.c.set_aside + _REPLAYED)
        size = (ByteSum(REPORTS.c[name]) for name in ("bytes_freed", "bytes_hidden", "bytes_set_aside"))
        here = REPORTS.c.dataset.startswith(f"{store}/", autoescape=True), REPORTS.c.execution_date.between(first, last)
        query = select(REPORTS.c.execution_date, transactions, *size).where(*here).group_by(REPORTS.c.execution_date)
        rows = self.rows(query.having(transactions > 0))
        # Bytes that are set aside are counted again, as freed, once they are deleted for good.
        return {day: Taken(int(count), max(int(freed), int(aside)) + int(hidden)) for day, count, freed, hidden, aside in rows}


_MAPPINGS = ("policies", "bounds", "classes")
_JSON = (*_MAPPINGS, "archived_types")


def _columns(opening: OpenedReport) -> dict[str, Any]:
    periods = opening.periods
    bounds = {name: [bound, periods[name]] if name in periods else bound for name, bound in opening.bounds.items()}
    values = {**vars(opening), "bounds": bounds}
    return {"terminal_only": opening.terminal_only, **{name: json.dumps(values[name], sort_keys=True) for name in _JSON}}


def _report_of(row: Mapping[str, Any]) -> dict[str, Any]:
    where = f"{row['dataset']} in reports"
    report = {
        **row,
        "archived_types": stored(where, row["archived_types"], json.loads),
        **{name: stored(where, row[name], mapping_in) for name in _MAPPINGS},
    }
    with_period = {name: value for name, value in report["bounds"].items() if isinstance(value, list)}
    bounds = {**report["bounds"], **{name: bound for name, (bound, _) in with_period.items()}}
    return {**report, "bounds": bounds, "periods": {name: period for name, (_, period) in with_period.items()}}


def only_one(datasets: Collection[str]) -> str | None:
    return next(iter(datasets)) if len(datasets) == 1 else None


def _add_rows(tx: WriteTransaction, act: Act, execution_date: date, datasets: Iterable[str]) -> None:
    nothing = {name: json.dumps(getattr(OpenedReport(), name)) for name in _JSON}
    row = {"execution_date": execution_date, "to_delete": 0, "bytes_to_free": 0, "act": act.id, **nothing}
    rows = [{**row, "dataset": name, "started_at": tx.present()} for name in sorted(datasets)]
    tx.connection.execute(insert_or_skip(tx.connection, REPORTS), rows)


def count(tx: WriteTransaction, act: Act, execution_date: date, counted: Mapping[str, Iterable[ReportCounts]]) -> None:
    """Count in a day's reports, in the transaction that writes the marks; what fell due later counts in a later report."""
    waiting, day = {name: list(marks) for name, marks in counted.items()}, execution_date
    while waiting := {name: marks for name, marks in waiting.items() if marks}:
        spans = _spans(tx, day, waiting)
        if missing := sorted(waiting.keys() - spans.keys()):
            if day == execution_date:
                raise ValueError(f"no report of {missing[0]} is open for {execution_date}")
            _add_rows(tx, act, day, missing)
        added: dict[str, dict[str, int]] = {}
        for name, marks in waiting.items():
            span = spans.get(name, DaySpan(None, None))
            if span.due_by is None:
                # On a day that has not begun, both `to_delete` and the outcome are counted.
                done = [mark.bytes or 0 for mark in marks if mark.counter != "failed"]
                added[name], waiting[name] = {"to_delete": len(done), "bytes_to_free": sum(done), **_sums(marks)}, []
            else:
                inside = [*map(span.has, marks)]
                added[name] = _sums([*compress(marks, inside)])
                waiting[name] = [mark for mark, is_inside in zip(marks, inside, strict=True) if not is_inside]
        _add(tx, act, day, added)
        day += _DAY


def count_later(tx: WriteTransaction, act: Act, execution_date: date, added: Mapping[str, Mapping[str, int]]) -> None:
    """Count what became of things that were set aside, or were there again: `to_delete` had them on an earlier day."""
    _add_rows(tx, act, execution_date, added)
    _add(tx, act, execution_date, added)


def count_unmarked(tx: WriteTransaction, act: Act, marks: Mapping[int, str]) -> None:
    """Count marks (id to dataset) that people took back, each in its newest unfinished report that has it."""
    columns = (REPORTS.c.dataset, REPORTS.c.execution_date, REPORTS.c.due_by, REPORTS.c.marks_before)
    unfinished = select(*columns).where(_HAS_OPENED, REPORTS.c.finished_at.is_(None)).order_by(REPORTS.c.execution_date)
    newest = {name: (day, DaySpan(*span)) for name, day, *span in tx.connection.execute(unfinished)}
    counted: dict[date, dict[str, list[ReportCounts]]] = {}
    for mark, dataset, size, due_at in report_columns(tx, [mark for mark, name in marks.items() if name in newest]):
        (day, span), amount = newest[dataset], ReportCounts(mark, due_at, "unmarked", size)
        if span.has(amount):
            counted.setdefault(day, {}).setdefault(dataset, []).append(amount)
    for day, amounts in counted.items():
        _add(tx, act, day, {dataset: _sums(taken) for dataset, taken in amounts.items()})


def _spans(tx: WriteTransaction, day: date, datasets: Iterable[str], locked: bool = False) -> dict[str, DaySpan]:
    spans: dict[str, DaySpan] = {}
    for part in portions(sorted(datasets)):
        query = select(REPORTS.c.dataset, REPORTS.c.due_by, REPORTS.c.marks_before).order_by(REPORTS.c.dataset)
        query = query.where(REPORTS.c.execution_date == day, REPORTS.c.dataset.in_(part))
        rows = tx.connection.execute(query.with_for_update() if locked else query)
        spans |= {row.dataset: DaySpan(row.due_by, row.marks_before) for row in rows}
    return spans


def _sums(counted: Sequence[ReportCounts]) -> dict[str, int]:
    return {
        **Counter(mark.counter for mark in counted),
        "bytes_freed": sum(mark.freed for mark in counted),
        "bytes_hidden": sum(mark.hidden for mark in counted),
        "left": sum(mark.left for mark in counted),
        "bytes_set_aside": sum(mark.aside for mark in counted),
    }


def _add(tx: WriteTransaction, act: Act, day: date, added: Mapping[str, Mapping[str, int]]) -> None:
    changed = {name: sums for name, sums in sorted(added.items()) if any(sums.values())}
    if not changed:
        return
    for names in portions([*changed]):
        tx.seal(REPORTS, (REPORTS.c.execution_date == day) & REPORTS.c.dataset.in_(names), act)
    this = (REPORTS.c.execution_date == day) & (REPORTS.c.dataset == bindparam("name"))
    counters = sorted({counter for sums in changed.values() for counter in sums})
    values = {name: plus(func.coalesce(REPORTS.c[name], 0), bindparam(f"more_{name}", type_=BigInteger)) for name in counters}
    rows = [{"name": name, **{f"more_{key}": fit(sums.get(key, 0)) for key in counters}} for name, sums in changed.items()]
    tx.connection.execute(update(REPORTS).where(this).values(**values, act=act.id), rows)


def _finish_some(tx: WriteTransaction, actor: str, here: ColumnElement[bool]) -> list[tuple[date, str]]:
    # `+ 0` keeps PostgreSQL from using the index of ids, which would scan all marks for each dataset.
    before = MARKS.c.id + 0 < REPORTS.c.marks_before
    in_set = and_(MARKS.c.dataset == REPORTS.c.dataset, before, MARKS.c.due_at <= REPORTS.c.due_by)
    unfinished = and_(here, _IS_SHOWN, REPORTS.c.finished_at.is_(None))
    done = select(REPORTS.c.execution_date, REPORTS.c.dataset).where(unfinished, ~exists().where(in_set, text(OPEN)))
    finished = tx.connection.execute(done.order_by(REPORTS.c.dataset).with_for_update(of=REPORTS)).all()
    by_day: dict[date, list[str]] = {}
    for day, name in finished:
        by_day.setdefault(day, []).append(name)
    for day, names in sorted(by_day.items()):
        act = Act(ActType.REPORT, actor, dataset=only_one(names), detail={"date": day.isoformat(), "finished": True})
        for part in portions(names):
            this = (REPORTS.c.execution_date == day) & REPORTS.c.dataset.in_(part)
            tx.change(act, REPORTS, this, finished_at=DatabaseTime())
    return [(day, name) for day, name in finished]
