"""Reports: what a day's execution was to delete of a dataset, and what became of it so far.

Belongs here: opening a day's report once, counting in the transaction that wrote what is counted, finishing, reading, summing;
and that somebody looked on a day, also where nothing was due.
Does not belong here: showing a report (render).

The set of a report is fixed when it opens: the open marks that are due by then. On that day `to_delete` is what was deleted,
already gone, hidden, spared and unmarked, plus what of the set is still open; what a later day does to those counts on that
day. What becomes due later is swept all the same, and counts in the report of the next day, on both sides.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, text, true, union, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import CLOCK, DAYS, EVALUATIONS, MARKS, OPEN, REPORTS
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.sums import ByteSum, plus
from retention_assets.sql.upserts import insert_or_skip, insert_or_update

COUNTERS = (
    "to_delete", "deleted", "already_gone", "failed", "spared", "unmarked", "hidden", "left", "bytes_to_free", "bytes_freed",
    "bytes_hidden",
)  # fmt: skip
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class OpenedReport:
    """What is known, and from then on fixed, when a day's report of a dataset opens.

    `classes` says of every transaction of the log which one class it is in; together they are the log.
    """

    policies: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    terminal_only: bool | None = None
    archived_types: tuple[str, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    # The age behind each bound, in ISO 8601: P2Y.
    periods: Mapping[str, str] = field(default_factory=dict)


class DaySpan(NamedTuple):
    """The set of a report: the marks that were made before and are due by then."""

    due_by: datetime | None
    marks_before: int | None

    def has(self, one: "ReportCounts") -> bool:
        """Whether a mark is in the set."""
        return self.due_by is not None and one.mark < (self.marks_before or 0) and one.due_at <= self.due_by


class ReportCounts(NamedTuple):
    """What one mark adds to a counter; since when it was due decides in which report."""

    mark: int
    due_at: datetime
    counter: str
    bytes: int | None
    freed: int = 0
    hidden: int = 0
    # Files of it that stay.
    left: int = 0


class DayLook(NamedTuple):
    """That somebody looked on a day: as of when, when that was, how many datasets had ever been judged, as of when the last one
    was, and how many marks were due.
    """

    as_of: datetime
    looked_at: datetime
    judged_at: datetime | None
    datasets: int
    due: int


@dataclass(frozen=True)
class Reports:
    """The reports of a ledger."""

    database: LedgerDatabase

    def open(
        self, execution_date: date, dataset: str, opening: OpenedReport, as_of: datetime, actor: str, log: int | None = None
    ) -> bool:
        """Open the report of a day over what is due by now; false, and nothing changes, if it is open already."""
        if log is not None and sum(opening.classes.values()) != log:
            raise Refused(
                f"The classes of {dataset} sum to {sum(opening.classes.values())}, and its log has {log} transactions."
            )
        return self.database.write(lambda tx: _open(tx, execution_date, dataset, opening, as_of, actor))

    def finish_done(self, actor: str, dataset: str | None = None) -> list[tuple[date, str]]:
        """Finish every report, or those of a dataset, whose set has no open mark any more; which were finished."""
        return self.database.write(lambda tx: _finish_done(tx, actor, dataset))

    def of(self, execution_date: date, dataset: str | None = None) -> list[Mapping[str, Any]]:
        """The reports of a day, by dataset."""
        query = select(REPORTS).where(REPORTS.c.execution_date == execution_date, _is_shown()).order_by(REPORTS.c.dataset)
        with self.database.reading() as connection:
            found = connection.execute(query if dataset is None else query.where(REPORTS.c.dataset == dataset)).mappings()
            return [_report_of(dict(row)) for row in found]

    def note_look(self, as_of: datetime, actor: str) -> None:
        """Note that somebody looked, unless somebody did as of later on the same day."""
        self.database.write(lambda tx: _note_look(tx, as_of, actor))

    def look(self, execution_date: date) -> DayLook | None:
        """The last look on a day; none if nobody looked."""
        columns = [DAYS.c[name] for name in DayLook._fields]
        with self.database.reading() as connection:
            row = connection.execute(select(*columns).where(DAYS.c.execution_date == execution_date)).one_or_none()
        return DayLook(*row) if row else None

    def days(self) -> list[date]:
        """The days that have a report, or on which somebody looked and nothing was due, newest first."""
        reported = select(REPORTS.c.execution_date).where(_is_shown())
        with self.database.reading() as connection:
            found = connection.execute(union(reported, select(DAYS.c.execution_date))).scalars()
            return sorted(found, reverse=True)

    def newest(self) -> date | None:
        """The last day on which a sweep had something to do."""
        query = select(func.max(REPORTS.c.execution_date)).where(_is_shown())
        with self.database.reading() as connection:
            day: date | None = connection.execute(query).scalar_one()
        return day

    def sum_of(self, first: date, last: date) -> Mapping[str, int]:
        """The counters of some days added up."""
        totals = [ByteSum(REPORTS.c[name]).label(name) for name in COUNTERS]
        query = select(*totals).where(REPORTS.c.execution_date.between(first, last), _is_shown())
        with self.database.reading() as connection:
            return {name: int(value) for name, value in connection.execute(query).mappings().one().items()}


def _note_look(tx: WriteTransaction, as_of: datetime, actor: str) -> None:
    day = as_of.astimezone(UTC).date()
    this = DAYS.c.execution_date == day
    if tx.connection.execute(select(DAYS.c.as_of).where(this, DAYS.c.as_of >= as_of)).one_or_none():
        return
    act = Act(ActType.REPORT, actor, detail={"date": day.isoformat(), "looked": True})
    tx.seal(act, DAYS, this)
    judged = tx.connection.execute(select(func.count(), func.max(EVALUATIONS.c.looked_at))).one()
    due = tx.connection.execute(select(func.count()).where(text(OPEN), MARKS.c.due_at <= as_of)).scalar_one()
    row = {"as_of": as_of, "datasets": judged[0], "judged_at": judged[1], "due": due, "act": act.id}
    write = insert_or_update(tx.connection, DAYS, ("execution_date",), ("looked_at", *row))
    tx.connection.execute(write.values(execution_date=day, looked_at=DatabaseTime(), **row))
    tx.record(act)


_JSON = ("policies", "bounds", "archived_types", "classes")


def _json_columns(opening: OpenedReport) -> dict[str, str]:
    """The columns of a report that hold JSON. A bound stands with the period that it comes from, where there is one."""
    periods = opening.periods
    bounds = {name: [bound, periods[name]] if name in periods else bound for name, bound in opening.bounds.items()}
    return {name: json.dumps(bounds if name == "bounds" else getattr(opening, name), sort_keys=True) for name in _JSON}


def _report_of(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {**row, **{name: json.loads(row[name]) for name in _JSON}}
    # Reports of earlier releases know the bound alone.
    with_period = {name: value for name, value in found["bounds"].items() if isinstance(value, list)}
    bounds = {**found["bounds"], **{name: bound for name, (bound, _) in with_period.items()}}
    return {**found, "bounds": bounds, "periods": {name: period for name, (_, period) in with_period.items()}}


def _has_opened() -> ColumnElement[bool]:
    """A row without a set holds what counts for a day that has not begun."""
    return REPORTS.c.due_by.is_not(None)


def _is_shown() -> ColumnElement[bool]:
    """A report that people see: also of what was swept late the day before, should the day itself never begin."""
    return or_(_has_opened(), REPORTS.c.to_delete > 0, REPORTS.c.failed > 0)


def _open(tx: WriteTransaction, execution_date: date, dataset: str, opening: OpenedReport, as_of: datetime, actor: str) -> bool:
    this = (REPORTS.c.execution_date == execution_date) & (REPORTS.c.dataset == dataset)
    act = Act(ActType.REPORT, actor, dataset=dataset)
    if tx.connection.execute(select(REPORTS.c.dataset).where(this, _has_opened())).one_or_none():
        return False
    tx.seal(act, REPORTS, this)
    _add_row(tx, act, execution_date, dataset)
    due = select(func.count(), ByteSum(MARKS.c.bytes))
    due = due.where(text(OPEN), MARKS.c.dataset == dataset, MARKS.c.due_at <= as_of)
    amount, size = (int(value) for value in tx.connection.execute(due).one())
    values = {
        **_json_columns(opening),
        "terminal_only": opening.terminal_only,
        "to_delete": REPORTS.c.to_delete + amount,
        "bytes_to_free": plus(REPORTS.c.bytes_to_free, size),
        "due_by": as_of,
        "marks_before": select(CLOCK.c.next_mark).scalar_subquery(),
        # What was swept late the day before may have been all that there was.
        "finished_at": None,
    }
    opened = update(REPORTS).where(this, ~_has_opened()).values(**values, started_at=DatabaseTime(), act=act.id)
    if not tx.connection.execute(opened).rowcount:
        return False
    act.detail = {"date": execution_date.isoformat(), "to_delete": amount}
    tx.record(act)
    return True


def _add_row(tx: WriteTransaction, act: Act, execution_date: date, dataset: str) -> None:
    """A report that has not begun, if there is none of that day."""
    nothing = {name: json.dumps(getattr(OpenedReport(), name)) for name in _JSON}
    row = {"execution_date": execution_date, "dataset": dataset, "to_delete": 0, "bytes_to_free": 0, "act": act.id, **nothing}
    tx.connection.execute(insert_or_skip(tx.connection, REPORTS).values(**row, started_at=DatabaseTime()))


def count(tx: WriteTransaction, act: Act, execution_date: date, dataset: str, counted: Iterable[ReportCounts]) -> None:
    """Add to the counters of a day's report, in the transaction that wrote what is counted; what came later counts later."""
    waiting, day = list(counted), execution_date
    while waiting:
        span = _span(tx, day, dataset)
        if span is None and day == execution_date:
            raise ValueError(f"no report of {dataset} is open for {execution_date}")
        if span is None or span.due_by is None:
            # A day that has not begun: both what was to be deleted and what became of it.
            _add_row(tx, act, day, dataset)
            done = [one for one in waiting if one.counter != "failed"]
            sums = {"to_delete": len(done), "bytes_to_free": sum(one.bytes or 0 for one in done)}
            _add(tx, act, day, dataset, waiting, sums)
            return
        _add(tx, act, day, dataset, [one for one in waiting if span.has(one)], {})
        waiting = [one for one in waiting if not span.has(one)]
        day += _DAY


def count_unmarked(tx: WriteTransaction, act: Act, marks: Iterable[tuple[str, ReportCounts]]) -> None:
    """Count marks that people took back, each in the newest report of its dataset that is not finished and has it."""
    by_dataset: dict[str, list[ReportCounts]] = {}
    for dataset, one in marks:
        by_dataset.setdefault(dataset, []).append(one)
    unfinished = select(REPORTS.c.dataset, REPORTS.c.execution_date, REPORTS.c.due_by, REPORTS.c.marks_before)
    unfinished = unfinished.where(_has_opened(), REPORTS.c.finished_at.is_(None)).order_by(REPORTS.c.execution_date)
    newest = {row.dataset: row for row in tx.connection.execute(unfinished) if row.dataset in by_dataset}
    for dataset, report in newest.items():
        span = DaySpan(report.due_by, report.marks_before)
        mine = [one for one in by_dataset[dataset] if span.has(one)]
        _add(tx, act, report.execution_date, dataset, mine, {})


def _span(tx: WriteTransaction, day: date, dataset: str) -> DaySpan | None:
    query = select(REPORTS.c.due_by, REPORTS.c.marks_before)
    query = query.where(REPORTS.c.execution_date == day, REPORTS.c.dataset == dataset)
    row = tx.connection.execute(query).one_or_none()
    return DaySpan(row.due_by, row.marks_before) if row else None


def _add(
    tx: WriteTransaction, act: Act, day: date, dataset: str, counted: Iterable[ReportCounts], sums: dict[str, int]
) -> None:
    for one in counted:
        sums[one.counter] = sums.get(one.counter, 0) + 1
        sums["bytes_freed"] = sums.get("bytes_freed", 0) + one.freed
        sums["bytes_hidden"] = sums.get("bytes_hidden", 0) + one.hidden
        sums["left"] = sums.get("left", 0) + one.left
    if any(sums.values()):
        this = (REPORTS.c.execution_date == day) & (REPORTS.c.dataset == dataset)
        added = {name: plus(REPORTS.c[name], amount) for name, amount in sums.items()}
        tx.seal(act, REPORTS, this)
        tx.connection.execute(update(REPORTS).where(this).values(**added, act=act.id))


def _finish_done(tx: WriteTransaction, actor: str, dataset: str | None) -> list[tuple[date, str]]:
    mine = and_(MARKS.c.dataset == REPORTS.c.dataset, MARKS.c.id < REPORTS.c.marks_before, MARKS.c.due_at <= REPORTS.c.due_by)
    here = true() if dataset is None else REPORTS.c.dataset == dataset
    unfinished = and_(here, _is_shown(), REPORTS.c.finished_at.is_(None))
    done = select(REPORTS.c.execution_date, REPORTS.c.dataset).where(unfinished, ~exists().where(mine, text(OPEN)))
    found = tx.connection.execute(done.with_for_update(of=REPORTS)).all()
    finished = sorted((row.execution_date, row.dataset) for row in found)
    for day, name in finished:
        act = Act(ActType.REPORT, actor, dataset=name, detail={"date": day.isoformat(), "finished": True})
        this = (REPORTS.c.execution_date == day) & (REPORTS.c.dataset == name)
        tx.seal(act, REPORTS, this)
        tx.connection.execute(update(REPORTS).where(this).values(finished_at=DatabaseTime(), act=act.id))
        tx.record(act)
    return finished
