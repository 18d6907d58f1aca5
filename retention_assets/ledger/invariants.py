"""Invariants: what is true of every sound ledger, checked by plain SQL over its rows.

Belongs here: one query per invariant, for all datasets or for some. Each gives the datasets in which it does not hold, one
violation for each, and reads only. Nothing of what writes the ledger is used to check it.
Does not belong here: hashes and seals (ledger/audit/verify.py), and what logs and verdicts say (dagster/checks/queries.py).
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    and_,
    case,
    exists,
    false,
    func,
    or_,
    select,
    text,
    true,
)

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.schema import (
    AUDIT,
    CLOCK,
    MARKS,
    OPEN,
    PLANNED,
    PLANS,
    POLICY_VERSIONS,
    PUBLISHED,
    REALMS,
    REPORTS,
    STEPS,
    SWEPT,
    TIMES,
    VISIBILITY,
)
from retention_assets.policy.book import item_of
from retention_assets.policy.durations import parse_duration, parse_instant, text_of
from retention_assets.policy.model import Limits, Policy
from retention_assets.policy.purge import realm_of
from retention_assets.sql.sums import ByteSum
from retention_assets.sql.transactions import portions

# What report counters a mark of the day's set can end in.
_ENDS = ("deleted", "already_gone", "hidden", "spared", "unmarked")


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold in a dataset: how many rows violate it, and one of them in words."""

    dataset: str
    what: str
    times: int = 1


# Checks all datasets, or some; one of what is swept also only what moved after a position of the audit.
SweptInvariant = Callable[[Connection, Sequence[str] | None, int | None], Iterator[Violation]]
Invariant = Callable[[Connection, Sequence[str] | None], Iterator[Violation]]


class _TimeGroup(NamedTuple):
    """Marks of one act that have their times in common."""

    act: int
    marked_at: datetime
    grace: str
    due_at: datetime


def mark_times(connection: Connection, datasets: Sequence[str] | None = None) -> Iterator[Violation]:
    """Mark times never go back, a mark is due when its grace is over, and visibility marks only rise.

    Where a person has reset the clock, mark times begin anew at the newest mark that was right.
    """
    resets = _clock_resets(connection)
    newest: datetime | None = None
    for some in _parts(datasets):
        here, seen, waiting = _is_in(MARKS.c.dataset, some), None, list(resets)
        for position, group in _time_groups(connection, here):
            while waiting and waiting[0][0] < position:
                seen = waiting.pop(0)[1]
            for fault in _time_faults(group, seen):
                mine = and_(here, *(MARKS.c[name] == value for name, value in group._asdict().items()))
                yield from _violations(connection, mine, fault)
            seen = max(filter(None, (seen, group.marked_at)))
        seen = waiting[-1][1] if waiting else seen
        newest = max(filter(None, (newest, seen)), default=None)
    known = connection.execute(select(CLOCK.c.newest_mark_at)).scalar_one()
    # Some of the marks bound the clock from below; only all of them say what it is.
    if known != newest and (datasets is None or (newest and (known is None or known < newest))):
        yield Violation("", f"the clock says that the newest mark is of {_text_of(known)}, and it is of {_text_of(newest)}")
    yield from visibility_rises(connection, datasets)


def _clock_resets(connection: Connection) -> list[tuple[int, datetime | None]]:
    """Where in the audit a person has reset the clock, and the newest mark that was right then."""
    query = select(AUDIT.c.position, AUDIT.c.detail).where(AUDIT.c.deed == ActType.CLOCK).order_by(AUDIT.c.position)
    said = [(row.position, json.loads(row.detail)) for row in connection.execute(query)]
    return [
        (position, parse_instant(detail["newest_mark_at"]) if detail["newest_mark_at"] else None)
        for position, detail in said
        if "reset_to" in detail
    ]


def _time_groups(connection: Connection, here: ColumnElement[bool]) -> list[tuple[int, _TimeGroup]]:
    """Groups in the order of the audit: ids are reserved early, so those of two who mark at once may be the other way round."""
    columns = [MARKS.c[name] for name in _TimeGroup._fields]
    query = (
        select(AUDIT.c.position, *columns)
        .join(AUDIT, AUDIT.c.act == MARKS.c.act)
        .where(here)
        .group_by(*columns, AUDIT.c.position)
    )
    # The later time of an act first: all marks of an act are of one time.
    ordered = query.order_by(AUDIT.c.position, MARKS.c.marked_at.desc(), MARKS.c.due_at)
    return [(position, _TimeGroup(*row)) for position, *row in connection.execute(ordered)]


def _time_faults(group: _TimeGroup, newest: datetime | None) -> Iterator[str]:
    if newest and group.marked_at < newest:
        yield f"was marked as of {text_of(group.marked_at)}, when there was a mark of {text_of(newest)}"
    try:
        due = parse_duration(group.grace).after(group.marked_at)
    except ValueError:
        yield f"has a grace that is none: {group.grace!r}"
        return
    if due != group.due_at:
        yield f"is due at {text_of(group.due_at)}, and its grace of {group.grace} ends at {text_of(due)}"


def visibility_rises(connection: Connection, datasets: Sequence[str] | None = None) -> Iterator[Violation]:
    """Each visibility mark rose from act to act, and is where the last one put it."""
    for some in _parts(datasets):
        risen: dict[str, datetime] = {}
        rows = select(AUDIT.c.dataset, AUDIT.c.detail).where(AUDIT.c.deed == ActType.ADVANCE, _is_in(AUDIT.c.dataset, some))
        for dataset, detail in connection.execute(rows.order_by(AUDIT.c.position)):
            to = parse_instant(json.loads(detail)["to"])
            if dataset in risen and to <= risen[dataset]:
                yield Violation(dataset, f"its visibility mark went from {text_of(risen[dataset])} to {text_of(to)}")
            risen[dataset] = to
        query = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from).where(_is_in(VISIBILITY.c.dataset, some))
        held = {row.dataset: row.visible_from for row in connection.execute(query)}
        for dataset in sorted(risen.keys() | held.keys()):
            last, now_at = risen.get(dataset), held.get(dataset)
            if last != now_at:
                yield Violation(
                    dataset, f"its visibility mark is {_text_of(now_at)}, and the audit raised it to {_text_of(last)}"
                )


def policies_and_reasons(
    connection: Connection, datasets: Sequence[str] | None = None, *, reasons: Collection[str]
) -> Iterator[Violation]:
    """Every open mark was made by a policy version of the book, or by the purge of a realm, for a reason that exists."""
    book = {(row.name, row.version) for row in connection.execute(select(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version))}
    realms = set(connection.execute(select(REALMS.c.name)).scalars())
    columns = (MARKS.c.policy, MARKS.c.policy_version, MARKS.c.reason)
    for some in _parts(datasets):
        here = and_(text(OPEN), _is_in(MARKS.c.dataset, some))
        for kind in connection.execute(select(*columns).where(here).distinct().order_by(*columns)).all():
            mine = and_(here, *(column == value for column, value in zip(columns, kind, strict=True)))
            realm = realm_of(kind.policy)
            if (kind.policy, kind.policy_version) not in book and realm not in realms:
                what = f"was marked by version {kind.policy_version} of policy {kind.policy}, which is not in the policy book"
                yield from _violations(connection, mine, what)
            if kind.reason not in reasons:
                yield from _violations(connection, mine, f"was marked for a reason that does not exist: {kind.reason!r}")


def swept_before_due(
    connection: Connection, datasets: Sequence[str] | None = None, since: int | None = None
) -> Iterator[Violation]:
    """Whatever is swept was in a plan that was made when its grace was over."""
    for some in _parts(datasets):
        columns = (MARKS.c.id, MARKS.c.dataset, MARKS.c.transaction, MARKS.c.due_at)
        swept = select(*columns).where(_is_swept(MARKS, some, since)).cte("swept")
        # Plans of a dataset that were made before anything of it was due say nothing.
        first = select(swept.c.dataset, func.min(swept.c.due_at).label("due_at")).group_by(swept.c.dataset).subquery()
        in_time = and_(PLANS.c.dataset == first.c.dataset, PLANS.c.as_of >= first.c.due_at)
        plans = select(PLANNED.c.mark, func.max(PLANS.c.as_of).label("as_of")).select_from(first)
        plans = plans.join(PLANS, in_time).join(PLANNED, PLANNED.c.plan == PLANS.c.id)
        newest = plans.group_by(PLANNED.c.mark).subquery()
        early = or_(newest.c.as_of.is_(None), newest.c.as_of < swept.c.due_at)
        found = _grouped(swept).select_from(swept.outerjoin(newest, newest.c.mark == swept.c.id)).where(early)
        yield from _rows(connection, found, "was swept, and no plan had it after its grace was over")


def swept_without_mark(
    connection: Connection, datasets: Sequence[str] | None = None, since: int | None = None
) -> Iterator[Violation]:
    """Whatever is swept was marked, and the record says that its deletion began before it says that it was done."""
    for some in _parts(datasets):
        began, done = (func.min(case((STEPS.c.status == status, AUDIT.c.position))) for status in ("SWEEPING", "SWEPT"))
        steps = select(STEPS.c.mark, began.label("began"), done.label("done")).join(AUDIT, AUDIT.c.act == STEPS.c.act)
        swept = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.transaction).where(_is_swept(MARKS, some, since)).cte("swept")
        both = steps.join(swept, swept.c.id == STEPS.c.mark).group_by(STEPS.c.mark).subquery()
        never = or_(both.c.began.is_(None), both.c.done.is_(None), both.c.began >= both.c.done)
        found = _grouped(swept).select_from(swept.outerjoin(both, both.c.mark == swept.c.id)).where(never)
        yield from _rows(connection, found, "is said to be swept, and the record does not say that its deletion began before")
        yield from _swept_twice(connection, some, since)


def _is_swept(marks: FromClause, some: Sequence[str] | None, since: int | None) -> ColumnElement[bool]:
    """The swept marks of some datasets, or those of them that moved after a position of the audit."""
    here = _is_in(marks.c.dataset, some)
    if since is None:
        return and_(text(f"marks.{SWEPT}"), here)
    moved = select(STEPS.c.mark).join(AUDIT, AUDIT.c.act == STEPS.c.act).where(AUDIT.c.position > since)
    # Not in the words of the index of what is swept: SQLite would go through all of that for the few that moved.
    return and_(marks.c.status == "SWEPT", marks.c.id.in_(moved), here)


def _swept_twice(connection: Connection, some: Sequence[str] | None, since: int | None) -> Iterator[Violation]:
    """What was swept is never swept again, unless it was only hidden. An id may be, with another transaction; where nobody
    knows, it was the same.
    """
    if since is None:
        # Hardly ever any is. A server that knows nothing of its tables yet may compare each mark with all of its dataset.
        ids = (MARKS.c.dataset, MARKS.c.transaction)
        often = select(*ids).where(_is_swept(MARKS, some, since)).group_by(*ids).having(func.count() > 1).limit(1)
        if connection.execute(often).first() is None:
            return
    earlier = MARKS.alias("earlier")
    before = and_(
        earlier.c.dataset == MARKS.c.dataset,
        earlier.c.transaction == MARKS.c.transaction,
        earlier.c.id < MARKS.c.id,
        text(f"earlier.{SWEPT}"),
        ~exists().where(STEPS.c.mark == earlier.c.id, STEPS.c.outcome == "HIDDEN"),
    )
    unknown = and_(*(earlier.c[name].is_(None) for name in TIMES))
    same = or_(unknown, and_(*(earlier.c[name].is_not_distinct_from(MARKS.c[name]) for name in TIMES)))
    query = _grouped(MARKS).where(_is_swept(MARKS, some, since), same).select_from(MARKS.join(earlier, before))
    yield from _rows(connection, query, "was swept again, and is no other transaction than the first time")


def over_limits(connection: Connection, actors: Collection[str], sizes: Mapping[str, int]) -> Iterator[Violation]:
    """What each evaluation of some actors newly marked is within the limits of the policy that marked it.

    `sizes` says of the datasets that are checked how many transactions their logs had.
    """
    limits = {version: policy.limits for version, policy in policies(connection).items()}
    # An actor names its run at the end, whoever told it to.
    named = or_(false(), *(AUDIT.c.actor.contains(actor, autoescape=True) for actor in sorted(actors)))
    acts = select(AUDIT.c.act, AUDIT.c.detail).where(AUDIT.c.deed == ActType.MARK, named)
    columns = (MARKS.c.dataset, MARKS.c.policy, MARKS.c.policy_version)
    for act, detail in connection.execute(acts.order_by(AUDIT.c.position)).all():
        ids = json.loads(detail)
        # By the ids, which have an index.
        mine = and_(MARKS.c.id.between(ids["first"], ids["last"]), MARKS.c.act == act)
        size = ByteSum(MARKS.c.bytes)
        for dataset, policy, version, count, taken in connection.execute(
            select(*columns, func.count(), size).where(mine).group_by(*columns).order_by(*columns)
        ):
            limit = limits.get((policy, version))
            if limit and dataset in sizes and _is_over(limit, count, int(taken), sizes[dataset]):
                took = f"{count} of {sizes[dataset]} transactions, {int(taken)} bytes"
                yield Violation(dataset, f"policy {policy} newly marked {took}: over its limits", count)


def open_over_limits(
    connection: Connection, dataset: str, size: int, log_is_complete: bool, known: Mapping[tuple[str, int], Policy]
) -> Iterator[Violation]:
    """What each evaluation marked of a dataset, as far as it is still open, is within the limits of the policy that marked it.

    `size` is how many transactions its log has. Where the log is the data, those that were swept are not in it any more.
    """
    columns = (MARKS.c.act, MARKS.c.policy, MARKS.c.policy_version)
    here = MARKS.c.dataset == dataset
    taken = ByteSum(MARKS.c.bytes).label("taken")
    query = select(*columns, func.count().label("amount"), taken).where(text(OPEN), here).group_by(*columns).order_by(*columns)
    rows = connection.execute(query).all()
    if log_is_complete:
        size += connection.execute(select(func.count()).select_from(MARKS).where(text(SWEPT), here)).scalar_one()
    for row in rows:
        policy = known.get((row.policy, row.policy_version))
        if policy and policy.limits and _is_over(policy.limits, row.amount, int(row.taken), size):
            took = f"{row.amount} of {size} transactions, {int(row.taken)} bytes"
            yield Violation(dataset, f"policy {row.policy} marked {took} at a time: over its limits", row.amount)


def policies(connection: Connection) -> dict[tuple[str, int], Policy]:
    """The policies of the book by their versions."""
    query = select(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version, POLICY_VERSIONS.c.content)
    items = {(row.name, row.version): item_of(row.name, row.content) for row in connection.execute(query)}
    return {version: item for version, item in items.items() if isinstance(item, Policy)}


def _is_over(limits: Limits, count: int, taken: int, size: int) -> bool:
    if limits.transactions is not None and count > limits.transactions:
        return True
    if limits.bytes is not None and taken > limits.bytes:
        return True
    return limits.fraction is not None and count > Fraction(str(limits.fraction)) * size


def may_mark_latest_views(connection: Connection) -> frozenset[tuple[str, int]]:
    """The policy versions of the book that may select in latest views."""
    return frozenset(version for version, policy in policies(connection).items() if policy.latest_view)


def may_drop_refs(connection: Connection) -> frozenset[tuple[str, int]]:
    """The policy versions of the book that drop branches and tags that are over."""
    return frozenset(version for version, policy in policies(connection).items() if policy.drops_refs)


def published_since(connection: Connection, asset: str, than: str) -> frozenset[str]:
    """Datasets of which an asset was published anew after another one that is made of it."""
    older = PUBLISHED.alias()
    made = (PUBLISHED.c.asset == asset) & (older.c.asset == than) & (older.c.dataset == PUBLISHED.c.dataset)
    query = select(PUBLISHED.c.dataset).join(older, made).where(PUBLISHED.c.published_at > older.c.published_at)
    return frozenset(connection.execute(query).scalars())


def reports_add_up(connection: Connection, datasets: Sequence[str] | None = None) -> Iterator[Violation]:
    """What the report that was opened last was to delete has ended or is still open; what an earlier one left counts there."""
    for some in _parts(datasets):
        here = and_(REPORTS.c.due_by.is_not(None), _is_in(REPORTS.c.dataset, some))
        last = select(REPORTS.c.dataset, func.max(REPORTS.c.started_at).label("at")).where(here).group_by(REPORTS.c.dataset)
        newest = last.subquery()
        is_newest = and_(REPORTS.c.dataset == newest.c.dataset, REPORTS.c.started_at == newest.c.at)
        of_set = and_(
            MARKS.c.dataset == REPORTS.c.dataset, MARKS.c.id < REPORTS.c.marks_before, MARKS.c.due_at <= REPORTS.c.due_by
        )
        still_open = select(func.count()).where(text(OPEN), of_set).correlate(REPORTS).scalar_subquery().label("open")
        query = select(REPORTS, still_open).join(newest, is_newest).where(here).order_by(REPORTS.c.dataset)
        for row in connection.execute(query):
            yield from _report_faults(row)


def _report_faults(row: Row[Any]) -> Iterator[Violation]:
    ended, day = sum(getattr(row, name) for name in _ENDS), row.execution_date.isoformat()
    if row.to_delete != ended + row.open:
        what = f"the report of {day} was to delete {row.to_delete}; {ended} have ended and {row.open} are open"
        yield Violation(row.dataset, what)
    classes = json.loads(row.classes)
    others = ("to_delete", "failed", "bytes_to_free", "bytes_freed", "bytes_hidden")
    numbers = {name: getattr(row, name) for name in (*_ENDS, *others)}
    for name, value in {**numbers, **classes}.items():
        if value < 0:
            yield Violation(row.dataset, f"the report of {day} counts {value} as {name}")


def _parts(datasets: Sequence[str] | None) -> Iterator[Sequence[str] | None]:
    """All datasets at once, or some in portions that a statement takes."""
    if datasets is None:
        yield None
        return
    yield from portions(datasets)


def _is_in(column: ColumnElement[str], some: Sequence[str] | None) -> ColumnElement[bool]:
    return true() if some is None else column.in_(some)


def _grouped(marks: FromClause) -> Select[Any]:
    """The datasets of some marks, each with how many they are and one of them."""
    query = select(marks.c.dataset, func.count().label("times"), func.min(marks.c.transaction).label("transaction"))
    return query.group_by(marks.c.dataset).order_by(marks.c.dataset)


def _violations(connection: Connection, where: ColumnElement[bool], what: str) -> Iterator[Violation]:
    yield from _rows(connection, _grouped(MARKS).where(where), what)


def _rows(connection: Connection, query: Select[Any], what: str) -> Iterator[Violation]:
    for row in connection.execute(query).all():
        yield Violation(row.dataset, f"{row.transaction} {what}", row.times)


def _text_of(instant: datetime | None) -> str:
    return text_of(instant) if instant else "none"
