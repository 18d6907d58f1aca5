"""Invariants of every sound ledger, checked by plain SQL that shares only the reading of batches with what writes."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    and_,
    false,
    func,
    null,
    or_,
    select,
    text,
    true,
    union_all,
)

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.audit.rows import detail_in, mapping_in, stored
from retention_assets.ledger.schema import (
    AUDIT,
    BATCHES,
    CLOCK,
    MARKS,
    OPEN,
    PLANNED,
    PLANS,
    POLICY_VERSIONS,
    PUBLISHED,
    REALMS,
    REPORTS,
    SWEPT,
    TIMES,
    VISIBILITY,
)
from retention_assets.ledger.steps import among, marks_of, members_of, touched_since
from retention_assets.policy.book import item_of
from retention_assets.policy.durations import parse_duration, parse_instant, text_of
from retention_assets.policy.model import Limits, Policy
from retention_assets.policy.realms import realm_of
from retention_assets.policy.sentences import count
from retention_assets.sql.columns import ByteSum
from retention_assets.sql.transactions import portions

# violations that are shown, and that a sentence names
_MOST_SHOWN, _NAMED = 1_000, 3
_ENDS = ("deleted", "already_gone", "hidden", "set_aside", "kept_readable", "spared", "unmarked")


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold in a dataset: the number of violating rows, and one of them in words."""

    dataset: str
    what: str
    times: int = 1

    @property
    def words(self) -> str:
        return f"{self.dataset}: {self.what}" if self.dataset else self.what


@dataclass(frozen=True)
class CheckResult:
    """Violations by dataset, one for each with the times of all; under "" one that is about no dataset."""

    expected: str
    # kind of the names: dataset or store
    noun: str
    by_dataset: Mapping[str, Violation]
    # the first violations, for people
    shown: tuple[Violation, ...]
    # times of violations that the ledger knows
    since: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        return sum(violation.times for violation in self.by_dataset.values())

    @property
    def passed(self) -> bool:
        return not self.by_dataset

    @property
    def actual(self) -> str:
        if self.passed:
            return "No violation."
        first = "; ".join(map(self._sentence, self.shown[:_NAMED]))
        more = " …" if len(self.by_dataset) > _NAMED else ""
        return f"{count(self.violations, 'violation')} in {count(len(self.by_dataset), self.noun)}. {first}{more}"

    def _sentence(self, violation: Violation) -> str:
        since = self.since.get(violation.dataset)
        return f"{violation.words}, since {since:%Y-%m-%d %H:%M} UTC" if since else violation.words


def check_result(violations: Iterable[Violation], expected: str = "", noun: str = "dataset") -> CheckResult:
    """Group violations; no more of them are kept than are shown."""
    by_dataset, shown = dict[str, Violation](), list[Violation]()
    for violation in violations:
        first = by_dataset.get(violation.dataset)
        by_dataset[violation.dataset] = replace(first, times=first.times + violation.times) if first else violation
        if len(shown) < _MOST_SHOWN:
            shown.append(violation)
    return CheckResult(expected, noun, by_dataset, tuple(shown))


# Checks all datasets (None) or some; a swept invariant also only what moved after an audit position.
_Datasets = Sequence[str] | None
SweptInvariant = Callable[[Connection, _Datasets, int | None], Iterator[Violation]]
Invariant = Callable[[Connection, _Datasets], Iterator[Violation]]


# Marks of one act with equal times.
class _TimeGroup(NamedTuple):
    act: int
    marked_at: datetime
    grace: str
    due_at: datetime


def mark_times(connection: Connection, datasets: _Datasets = None) -> Iterator[Violation]:
    """Mark times never go back (after a reset: start anew), marks are due when their grace ends, and visibility only rises."""
    query = select(AUDIT.c.position, AUDIT.c.detail).where(AUDIT.c.deed == ActType.CLOCK).order_by(AUDIT.c.position)
    acts = ((position, detail_in(detail)) for position, detail in connection.execute(query))
    stood = ((position, detail["newest_mark_at"]) for position, detail in acts if "reset_to" in detail)
    resets = [(position, parse_instant(at) if at else None) for position, at in stood]
    newest: datetime | None = None
    for part in _parts(datasets):
        here, seen, waiting = _is_in(MARKS.c.dataset, part), None, list(resets)
        for position, group in _time_groups(connection, here):
            while waiting and waiting[0][0] < position:
                seen = waiting.pop(0)[1]
            for fault in _time_faults(group, seen):
                faulty = and_(here, *(MARKS.c[name] == value for name, value in group._asdict().items()))
                yield from _rows(connection, _grouped(MARKS).where(faulty), fault)
            seen = max(filter(None, (seen, group.marked_at)))
        seen = waiting[-1][1] if waiting else seen
        newest = max(filter(None, (newest, seen)), default=None)
    recorded = connection.execute(select(CLOCK.c.newest_mark_at)).scalar_one()
    # Some datasets only give a lower bound of the clock; all of them give its value.
    if recorded != newest and (datasets is None or (newest and (recorded is None or recorded < newest))):
        yield Violation(
            "", f"the clock names {_text_of(recorded)} as the time of the newest mark, but it is {_text_of(newest)}"
        )
    yield from visibility_rises(connection, datasets)


def _time_groups(connection: Connection, here: ColumnElement[bool]) -> list[tuple[int, _TimeGroup]]:
    # in the order of the audit: ids are reserved early, so ids of concurrent markers may be out of order
    columns = (AUDIT.c.position, *(MARKS.c[name] for name in _TimeGroup._fields))
    query = select(*columns).join(AUDIT, AUDIT.c.act == MARKS.c.act).where(here).group_by(*columns)
    # Latest time first: all marks of an act must have one time.
    ordered = query.order_by(AUDIT.c.position, MARKS.c.marked_at.desc(), MARKS.c.due_at)
    return [(position, _TimeGroup(*row)) for position, *row in connection.execute(ordered)]


def _time_faults(group: _TimeGroup, newest: datetime | None) -> Iterator[str]:
    if newest and group.marked_at < newest:
        yield f"was marked as of {text_of(group.marked_at)}, after a mark of {text_of(newest)}"
    try:
        due = parse_duration(group.grace).after(group.marked_at)
    except ValueError:
        yield f"has an invalid grace: {group.grace!r}"
        return
    if due != group.due_at:
        yield f"is due at {text_of(group.due_at)}, but its grace of {group.grace} ends at {text_of(due)}"


def visibility_rises(connection: Connection, datasets: _Datasets = None) -> Iterator[Violation]:
    """Each visibility mark rises from act to act and equals its last act."""
    for part in _parts(datasets):
        risen: dict[str, datetime] = {}
        rows = select(AUDIT.c.dataset, AUDIT.c.detail).where(AUDIT.c.deed == ActType.ADVANCE, _is_in(AUDIT.c.dataset, part))
        for dataset, detail in connection.execute(rows.order_by(AUDIT.c.position)):
            to = stored(f"An act about {dataset}", detail, lambda text: parse_instant(json.loads(text)["to"]))
            if dataset in risen and to <= risen[dataset]:
                yield Violation(dataset, f"its visibility mark went from {text_of(risen[dataset])} to {text_of(to)}")
            risen[dataset] = to
        query = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from).where(_is_in(VISIBILITY.c.dataset, part))
        present = {row.dataset: row.visible_from for row in connection.execute(query)}
        for dataset in sorted(risen.keys() | present.keys()):
            last, now_at = _text_of(risen.get(dataset)), _text_of(present.get(dataset))
            if last != now_at:
                yield Violation(dataset, f"its visibility mark is {now_at}, but the audit raised it to {last}")


def policies_and_reasons(
    connection: Connection, datasets: _Datasets = None, *, reasons: Collection[str]
) -> Iterator[Violation]:
    """Every open mark names a policy version of the book or a realm purge, and an existing reason."""
    book = {(row.name, row.version) for row in connection.execute(select(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version))}
    realms = set(connection.execute(select(REALMS.c.name)).scalars())
    columns = (MARKS.c.policy, MARKS.c.policy_version, MARKS.c.reason)
    for part in _parts(datasets):
        here = and_(text(OPEN), _is_in(MARKS.c.dataset, part))
        for kind in connection.execute(select(*columns).where(here).distinct().order_by(*columns)).all():
            of_kind = _grouped(MARKS).where(here, *(column == value for column, value in zip(columns, kind, strict=True)))
            realm = realm_of(kind.policy)
            if (kind.policy, kind.policy_version) not in book and realm not in realms:
                what = f"was marked by version {kind.policy_version} of policy {kind.policy}, which is not in the policy book"
                yield from _rows(connection, of_kind, what)
            if kind.reason not in reasons:
                yield from _rows(connection, of_kind, f"was marked for a reason that does not exist: {kind.reason!r}")


def swept_before_due(connection: Connection, datasets: _Datasets = None, since: int | None = None) -> Iterator[Violation]:
    """Everything swept was in a plan made after its grace ended."""
    moved = None if since is None else marks_of(connection, touched_since(connection, since))
    for part in _parts(datasets):
        columns = (MARKS.c.id, MARKS.c.dataset, MARKS.c.transaction, MARKS.c.due_at)
        swept = select(*columns).where(_is_swept(connection, part, moved)).cte("swept")
        # Plans made before anything of the dataset was due prove nothing.
        first = select(swept.c.dataset, func.min(swept.c.due_at).label("due_at")).group_by(swept.c.dataset).subquery()
        in_time = and_(PLANS.c.dataset == first.c.dataset, PLANS.c.as_of >= first.c.due_at)
        plans = select(PLANNED.c.mark, func.max(PLANS.c.as_of).label("as_of")).select_from(first)
        plans = plans.join(PLANS, in_time).join(PLANNED, PLANNED.c.plan == PLANS.c.id)
        newest = plans.group_by(PLANNED.c.mark).subquery()
        early = or_(newest.c.as_of.is_(None), newest.c.as_of < swept.c.due_at)
        query = _grouped(swept).select_from(swept.outerjoin(newest, newest.c.mark == swept.c.id)).where(early)
        yield from _rows(connection, query, "was swept, but no plan had it after its grace was over")


def swept_without_mark(connection: Connection, datasets: _Datasets = None, since: int | None = None) -> Iterator[Violation]:
    """Everything swept was marked, and its deletion began before it was recorded as done."""
    touched = true() if since is None else touched_since(connection, since)
    moved = None if since is None else marks_of(connection, touched)
    for part in _parts(datasets):
        members = members_of(BATCHES.c.ids, touched, _is_in(BATCHES.c.dataset, part))
        began = select(members.c.mark, AUDIT.c.position.label("began"), null().label("done"), null(), null())
        done = select(MARKS.c.id, null(), AUDIT.c.position, MARKS.c.dataset, MARKS.c.transaction)
        done = done.outerjoin(AUDIT, AUDIT.c.act == MARKS.c.changed_act).where(_is_swept(connection, part, moved))
        # A mark that was set aside before `since` may have a newer batch. Its first one is not read, so its end is not either.
        done = done.where(or_(AUDIT.c.position.is_(None), AUDIT.c.position > (since or 0)))
        # Grouped, not joined: a PostgreSQL without statistics may compare each mark with each.
        began = began.join(AUDIT, AUDIT.c.act == members.c.begun)
        mark, begins, ends, dataset, transaction = union_all(done, began).subquery().c
        never = or_(func.min(begins).is_(None), func.max(ends).is_(None), func.min(begins) >= func.max(ends))
        names = (func.max(dataset).label("dataset"), func.max(transaction).label("transaction"))
        wrong = select(*names).group_by(mark).having(func.max(dataset).is_not(None), never).subquery()
        what = "was swept, but the record does not have the begin of its deletion"
        yield from _rows(connection, _grouped(wrong), what)
        yield from _swept_twice(connection, part, moved)


def _is_swept(connection: Connection, part: _Datasets, moved: Sequence[int] | None) -> ColumnElement[bool]:
    here = _is_in(MARKS.c.dataset, part)
    if moved is None:
        return and_(text(f"marks.{SWEPT}"), here)
    # Not the text of the swept index: SQLite would scan all swept marks for the few that moved.
    return and_(MARKS.c.status == "SWEPT", among(connection.dialect.name, MARKS.c.id, moved), here)


def _swept_twice(connection: Connection, part: _Datasets, moved: Sequence[int] | None) -> Iterator[Violation]:
    # Nothing is swept twice unless it was only hidden. An id may be reused by another transaction; without known times it
    # counts as the same.
    if moved is None:
        # Usually there is none.
        ids = (MARKS.c.dataset, MARKS.c.transaction)
        often = select(*ids).where(_is_swept(connection, part, moved)).group_by(*ids).having(func.count() > 1).limit(1)
        if connection.execute(often).first() is None:
            return
    earlier = MARKS.alias("earlier")
    of_name = and_(earlier.c.dataset == MARKS.c.dataset, earlier.c.transaction == MARKS.c.transaction)
    deleted = and_(text(f"earlier.{SWEPT}"), earlier.c.outcome.is_distinct_from("HIDDEN"))
    unknown = and_(*(earlier.c[name].is_(None) for name in TIMES))
    same = or_(unknown, and_(*(earlier.c[name].is_not_distinct_from(MARKS.c[name]) for name in TIMES)))
    # Counted, not joined: a PostgreSQL without statistics may compare each mark with all of its dataset.
    times = select(func.count()).where(of_name, earlier.c.id < MARKS.c.id, deleted, same).scalar_subquery()
    query = _grouped(MARKS).where(_is_swept(connection, part, moved), times > 0)
    yield from _rows(connection, query, "was swept twice, and is the same transaction")


def over_limits(connection: Connection, actors: Collection[str], sizes: Mapping[str, int]) -> Iterator[Violation]:
    """Marks that these actors added stay within their policy's limits. `sizes`: number of transactions in each log."""
    by_version = policies(connection)
    # An actor ends with the name of its run.
    named = or_(false(), *(AUDIT.c.actor.contains(actor, autoescape=True) for actor in sorted(actors)))
    acts = select(AUDIT.c.act, AUDIT.c.detail).where(AUDIT.c.deed == ActType.MARK, named)
    for act, detail in connection.execute(acts.order_by(AUDIT.c.position)).all():
        first, last = stored(f"Act {act}", detail, lambda text: itemgetter("first", "last")(json.loads(text)))
        new_marks = and_(MARKS.c.id.between(first, last), MARKS.c.act == act)
        for row, took in _rows_over_limits(connection, new_marks, by_version, sizes):
            yield Violation(row.dataset, f"policy {row.policy} newly marked {took}: over its limits", row.amount)


def open_over_limits(
    connection: Connection, dataset: str, size: int, log_is_complete: bool, known: Mapping[tuple[str, int], Policy]
) -> Iterator[Violation]:
    """Open marks stay within their policy's limits. `size`: transactions in the log; without swept ones if it is the data."""
    here = MARKS.c.dataset == dataset
    if log_is_complete:
        size += connection.execute(select(func.count()).select_from(MARKS).where(text(SWEPT), here)).scalar_one()
    for row, took in _rows_over_limits(connection, and_(text(OPEN), here), known, {dataset: size}):
        yield Violation(dataset, f"policy {row.policy} marked {took} at a time: over its limits", row.amount)


def _rows_over_limits(
    connection: Connection, marks: ColumnElement[bool], known: Mapping[tuple[str, int], Policy], sizes: Mapping[str, int]
) -> Iterator[tuple[Row[Any], str]]:
    columns = (MARKS.c.act, MARKS.c.dataset, MARKS.c.policy, MARKS.c.policy_version)
    amounts = (func.count().label("amount"), ByteSum(MARKS.c.bytes).label("taken"))
    for row in connection.execute(select(*columns, *amounts).where(marks).group_by(*columns).order_by(*columns)).all():
        policy, taken = known.get((row.policy, row.policy_version)), int(row.taken)
        if policy and policy.limits and row.dataset in sizes and _is_over(policy.limits, row.amount, taken, sizes[row.dataset]):
            yield row, f"{row.amount} of {sizes[row.dataset]} transactions, {taken} bytes"


def policies(connection: Connection) -> dict[tuple[str, int], Policy]:
    query = select(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version, POLICY_VERSIONS.c.content)
    items = {(row.name, row.version): item_of(row.name, row.content) for row in connection.execute(query)}
    return {version: item for version, item in items.items() if isinstance(item, Policy)}


def _is_over(limits: Limits, count: int, taken: int, size: int) -> bool:
    if limits.transactions is not None and count > limits.transactions:
        return True
    if limits.bytes is not None and taken > limits.bytes:
        return True
    return limits.fraction is not None and count > Fraction(str(limits.fraction)) * size


def published_since(connection: Connection, asset: str, than: str) -> frozenset[str]:
    """Datasets in which `asset` was published after `than`, which is derived from it."""
    older = PUBLISHED.alias()
    same_dataset = (PUBLISHED.c.asset == asset) & (older.c.asset == than) & (older.c.dataset == PUBLISHED.c.dataset)
    query = select(PUBLISHED.c.dataset).join(older, same_dataset).where(PUBLISHED.c.published_at > older.c.published_at)
    return frozenset(connection.execute(query).scalars())


def reports_add_up(connection: Connection, datasets: _Datasets = None) -> Iterator[Violation]:
    """In the newest report, `to_delete` equals what ended plus what is still open; leftovers of earlier reports count there."""
    for part in _parts(datasets):
        here = and_(REPORTS.c.due_by.is_not(None), _is_in(REPORTS.c.dataset, part))
        last = select(REPORTS.c.dataset, func.max(REPORTS.c.started_at).label("at")).where(here).group_by(REPORTS.c.dataset)
        newest = last.subquery()
        is_newest = and_(REPORTS.c.dataset == newest.c.dataset, REPORTS.c.started_at == newest.c.at)
        of_set = and_(text(OPEN), MARKS.c.dataset == REPORTS.c.dataset, MARKS.c.id < REPORTS.c.marks_before)
        still_open = select(func.count()).where(of_set, MARKS.c.due_at <= REPORTS.c.due_by).correlate(REPORTS)
        query = select(REPORTS, still_open.scalar_subquery().label("open")).join(newest, is_newest).where(here)
        for row in connection.execute(query.order_by(REPORTS.c.dataset)):
            yield from _report_faults(row)


def _report_faults(row: Row[Any]) -> Iterator[Violation]:
    ended, day = sum(getattr(row, name) for name in _ENDS), row.execution_date.isoformat()
    if row.to_delete != ended + row.open:
        sums = f"{ended} have ended and {row.open} are open"
        yield Violation(row.dataset, f"the report of {day} was to delete {row.to_delete}; {sums}")
    names = (*_ENDS, "to_delete", "failed", "bytes_to_free", "bytes_freed", "bytes_hidden")
    classes = stored(f"{row.dataset} in reports", row.classes, mapping_in)
    for name, value in {**{name: getattr(row, name) for name in names}, **classes}.items():
        if value < 0:
            yield Violation(row.dataset, f"the report of {day} counts {value} as {name}")


def _parts(datasets: _Datasets) -> Iterator[_Datasets]:
    yield from [None] if datasets is None else portions(datasets)


def _is_in(column: ColumnElement[str], part: _Datasets) -> ColumnElement[bool]:
    return true() if part is None else column.in_(part)


def _grouped(marks: FromClause) -> Select[Any]:
    query = select(marks.c.dataset, func.count().label("times"), func.min(marks.c.transaction).label("transaction"))
    return query.group_by(marks.c.dataset).order_by(marks.c.dataset)


def _rows(connection: Connection, query: Select[Any], what: str) -> Iterator[Violation]:
    for row in connection.execute(query).all():
        yield Violation(row.dataset, f"{row.transaction} {what}", row.times)


def _text_of(instant: datetime | None) -> str:
    return text_of(instant) if instant else "none"
