"""The history of marks for people: each step with its time and actor, and sentences about what becomes of a transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, select, text

from retention_assets.ledger.database import LedgerPart
from retention_assets.ledger.mark_rows import OPENED
from retention_assets.ledger.schema import AUDIT, BATCHES, MARKS, OPEN, OVER, PLANNED, STEPS, SWEPT, TAKEN_BACK
from retention_assets.ledger.steps import END, IS_REPLAY, SHOWN, SHOWN_MARKS, STEP
from retention_assets.ledger.trash import GONE
from retention_assets.outcomes import Order
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.model import Hold
from retention_assets.policy.sentences import DeletionMessage, deletion_message, short_actor
from retention_assets.policy.sizes import size_of
from retention_assets.sql.transactions import portions

# outcomes of sweeps that deleted nothing
UNDELETED = ("HIDDEN", "SET_ASIDE")
# what happened after a mark had ended is a second deletion
_STEP = [case((IS_REPLAY, "REPLAYED"), else_=column) if column is STEPS.c.status else column for column in STEP[:-1]]
_CHANGED = "but its record was changed past the ledger: `retention audit verify` names the row"


@dataclass(frozen=True)
class MarkEvent:
    at: datetime
    by: str
    status: str
    outcome: str | None
    bytes: int | None
    why: str | None


@dataclass(frozen=True)
class MarkHistory:
    id: int
    transaction: str
    policy: str
    policy_version: int
    reason: str
    bytes: int | None
    marked_at: datetime
    due_at: datetime
    status: str
    outcome: str | None
    until: datetime | None
    attempts: int
    last_error: str | None
    why: str | None
    changed_at: datetime | None
    changed_by: str | None
    opened_at: datetime | None
    closed_at: datetime | None
    events: tuple[MarkEvent, ...] = ()

    @property
    def is_deleted(self) -> bool:
        return self.status == "SWEPT" and self.outcome not in UNDELETED

    @property
    def state(self) -> str:
        """Status, or the outcome of a sweep that deleted nothing."""
        return self.outcome if self.outcome in UNDELETED else self.status

    @property
    def is_aside(self) -> bool:
        return self.outcome == "SET_ASIDE"

    @property
    def replayed(self) -> MarkEvent | None:
        """Newest time that it was deleted again."""
        return next((event for event in reversed(self.events) if event.status == "REPLAYED" and event.outcome in GONE), None)

    @property
    def set_aside(self) -> MarkEvent | None:
        return next((event for event in self.events if event.outcome == "SET_ASIDE"), None)


class MarkHistories(LedgerPart):
    def of(self, dataset: str, transactions: Iterable[str]) -> Mapping[str, tuple[MarkHistory, ...]]:
        names, histories = sorted(set(transactions)), dict[str, tuple[MarkHistory, ...]]()
        with self.database.reading() as connection:
            for part in portions(names):
                for mark in _marks(connection, dataset, part):
                    histories[mark.transaction] = (*histories.get(mark.transaction, ()), mark)
        return histories


def _marks(connection: Connection, dataset: str, names: Sequence[str]) -> Iterator[MarkHistory]:
    here = (MARKS.c.dataset == dataset) & MARKS.c.transaction.in_(names)
    columns = [SHOWN[field.name] for field in fields(MarkHistory) if field.name != "events"]
    query = select(*columns).select_from(SHOWN_MARKS).where(here)
    # One query per partial index, with the exact text of its condition.
    rows = [row for condition in (OPEN, SWEPT, OVER) for row in connection.execute(query.where(text(condition)))]
    events = _events(connection, [row.id for row in rows])
    for row in sorted(rows, key=lambda row: row.id):
        yield MarkHistory(**row._mapping, events=tuple(events.get(row.id, ())))


def _events(connection: Connection, marks: list[int]) -> dict[int, list[MarkEvent]]:
    events: dict[int, list[MarkEvent]] = {}
    for part in portions(marks):
        failed = connection.execute(select(*_STEP).where(STEPS.c.mark.in_(part)))
        ended = connection.execute(select(*END[:-1]).where(MARKS.c.id.in_(part), MARKS.c.end_seal.is_not(None)))
        happened = [*_begun(connection, part), *failed, *ended]
        acts: dict[int, tuple[int, datetime, str]] = {}
        for these in portions(sorted({act for act, *_ in happened})):
            query = select(AUDIT.c.act, AUDIT.c.position, AUDIT.c.at, AUDIT.c.actor).where(AUDIT.c.act.in_(these))
            acts |= {act: (position, at, actor) for act, position, at, actor in connection.execute(query)}
        recorded = (event for event in happened if event[0] in acts)
        for act, mark, status, outcome, size, _, why in sorted(recorded, key=lambda event: acts[event[0]][0]):
            events.setdefault(mark, []).append(MarkEvent(*acts[act][1:], status, outcome, size, why))
    return events


def _begun(connection: Connection, marks: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    wanted = frozenset(marks)
    plans = connection.execute(select(PLANNED.c.plan).distinct().where(PLANNED.c.mark.in_(marks))).scalars().all()
    near = (BATCHES.c.first <= max(wanted, default=0)) & (BATCHES.c.last >= min(wanted, default=0))
    for part in portions(plans):
        columns = (BATCHES.c.begun, BATCHES.c.ids, BATCHES.c.order_given, AUDIT.c.reason)
        query = select(*columns).join(AUDIT, AUDIT.c.act == BATCHES.c.begun).where(BATCHES.c.plan.in_(part), near)
        for act, ids, order, reason in connection.execute(query):
            status = {Order.RESTORE: "RESTORING", Order.REPLAY: "REPLAYING"}.get(order, "SWEEPING")
            yield from ((act, mark, status, None, None, None, reason) for mark in wanted.intersection(ids))


@dataclass(frozen=True)
class TransactionLife:
    """Everything known about a transaction. Fields that come from the log are None without one."""

    transaction: str
    in_log: bool
    type: str | None = None
    status: str | None = None
    opened_at: datetime | None = None
    closed_at: datetime | None = None
    bytes: int | None = None
    protected_by: str | None = None
    marks: tuple[MarkHistory, ...] = ()
    holds: tuple[str, ...] = ()
    # Deleted, but in the store again.
    there_again: bool = False
    words: str = ""
    said: DeletionMessage | None = None

    @property
    def mark(self) -> MarkHistory | None:
        """Newest mark. A transaction that reuses the id of a swept one has none until it is marked."""
        newest = self.marks[-1] if self.marks else None
        return None if newest and newest.status == "SWEPT" and self.is_another_than(newest) else newest

    def is_another_than(self, mark: MarkHistory) -> bool:
        # under this id (frames/log.py)
        marked = (mark.opened_at, mark.closed_at)
        return self.in_log and marked != (None, None) and marked != (self.opened_at, self.closed_at)

    @property
    def earlier(self) -> tuple[MarkHistory, ...]:
        return tuple(mark for mark in self.marks if mark.status == "SWEPT" and mark is not self.mark)

    @property
    def ended_at(self) -> datetime | None:
        return self.mark.changed_at if self.mark and self.mark.status not in OPENED else None

    def as_dict(self) -> dict[str, Any]:
        mark = self.mark
        return {
            **{name: value for name, value in vars(self).items() if name not in ("marks", "words", "said")},
            "message": self.said.message if self.said else None,
            "details": self.said.details if self.said else None,
            "mark": mark.status if mark else None,
            "replayed_at": mark.replayed.at if mark and mark.replayed else None,
            "policy": f"{mark.policy}@{mark.policy_version}" if mark else None,
            "due_at": mark.due_at if mark and mark.status in OPENED else None,
            "words": self.words,
            "marks": [{**vars(history), "events": [vars(event) for event in history.events]} for history in self.marks],
        }


def life_of(
    dataset: str, life: TransactionLife, holds: Sequence[Hold], as_of: datetime, spared: str | None = None
) -> TransactionLife:
    names = tuple(hold.name or "" for hold in holds if hold.covers(life.transaction))
    over = life.mark is not None and life.mark.status == "SWEPT" and not life.mark.is_aside
    completed = replace(life, holds=() if over else names)
    return replace(completed, words=_sentence(completed, as_of, spared), said=message_about(dataset, completed, as_of, spared))


def message_about(dataset: str, life: TransactionLife, as_of: datetime, spared: str | None = None) -> DeletionMessage | None:
    """Message about a transaction's newest mark; `spared` is the reason why a sweep would spare it."""
    mark = life.mark
    if mark is None:
        return None
    return deletion_message(
        mark.status,
        dataset=dataset,
        transaction=mark.transaction,
        policy=f"{mark.policy}@{mark.policy_version}",
        due_at=mark.due_at,
        changed_at=mark.changed_at,
        as_of=as_of,
        outcome=mark.outcome,
        until=mark.until,
        holds=life.holds,
        spared=spared if mark.status == "MARKED" else None,
        there_again=life.there_again,
    )


def _sentence(life: TransactionLife, as_of: datetime, spared: str | None) -> str:
    parts = [state_of(life.mark, as_of)]
    if life.there_again:
        parts.append("but it is there again")
    if life.mark and life.mark.last_error:
        times = "once" if life.mark.attempts == 1 else f"{life.mark.attempts} times"
        what = "moving or deleting it" if life.mark.set_aside else "deleting it"
        parts.append(f"{what} failed {times}, the last time with: {life.mark.last_error}")
    if life.mark and life.mark.status in OPENED and life.is_another_than(life.mark):
        parts.append("its log has another transaction of this name now, so it is not swept")
    if life.holds:
        stays = ", so it stays set aside" if life.mark and life.mark.is_aside else ", so it is not swept" if life.mark else ""
        parts.append(f"held by {', '.join(life.holds)}{stays}")
    if life.mark and life.mark.status == "MARKED" and spared:
        parts.append(f"the sweep will spare it: {spared}")
    if life.protected_by is not None:
        parts.append(f"protected by {life.protected_by}")
    parts += [f"an earlier transaction of this name was {state_of(mark, as_of)}" for mark in reversed(life.earlier)]
    return "; ".join(parts)


def state_of(mark: MarkHistory | None, as_of: datetime) -> str:
    if mark is None:
        return "not marked"
    before = tuple(event for event in mark.events if event.status not in ("REPLAYING", "REPLAYED"))
    if len(before) < len(mark.events):
        words, last = state_of(replace(mark, events=before), as_of), mark.replayed
        return f"{words}; deleted again ({size_of(last.bytes or 0)}) at {minute_in_utc(last.at)}" if last else words
    policy = f"policy {mark.policy}@{mark.policy_version}"
    since = f"{minute_in_utc(mark.changed_at) or 'an unknown time'} by {short_actor(mark.changed_by)}"
    if mark.status == "MARKED":
        marked = f"marked at {minute_in_utc(mark.marked_at)} by {policy}"
        return f"{'due since' if mark.due_at <= as_of else 'scheduled for deletion at'} {minute_in_utc(mark.due_at)}, {marked}"
    if mark.status == "UNMARKED":
        return f"taken back at {since}: {mark.why}"
    if mark.status == "SPARED":
        kept = next((event for event in mark.events if event.outcome == TAKEN_BACK), None)
        by = f", because the sweep at {minute_in_utc(kept.at)} had deleted nothing of it" if kept else ""
        return f"spared {'' if kept else 'by the sweep '}at {since}{by}; the reason then: {mark.why}"
    if mark.status == "SWEEPING":
        return f"being swept since {since}: its bytes may be gone; {policy} marked it"
    if mark.set_aside is not None:
        return f"{_state_in_trash(mark, mark.set_aside, since)}; {policy} marked it"
    if mark.is_aside or mark.outcome is None:
        return f"{'set aside' if mark.is_aside else mark.status.lower()} at {since}, {_CHANGED}; {policy} marked it"
    freed = mark.events[-1].bytes if mark.events else None
    gone = "deleted" if freed is None else f"deleted ({size_of(freed)})"
    if mark.outcome == "ALREADY_GONE":
        gone = "was already gone"
    elif mark.outcome == "HIDDEN":
        gone = "hidden: its place keeps versions of it, so no space was freed,"
    return f"{gone} at {since}; {policy} marked it"


def _state_in_trash(mark: MarkHistory, aside: MarkEvent, since: str) -> str:
    before = f"set aside at {minute_in_utc(aside.at)} by {short_actor(aside.by)}"
    last = next((event for event in reversed(mark.events) if event.status in ("SWEEPING", "RESTORING")), None)
    if last is None:
        return f"{before}, {_CHANGED}"
    order, because = f"{minute_in_utc(last.at)} by {short_actor(last.by)}", f", because: {last.why}" if last.why else ""
    if mark.status == "RESTORED":
        return f"{before}, and restored at {order}{because}"
    if not mark.is_aside:
        gone = f"deleted for good ({size_of(mark.events[-1].bytes or 0)})"
        gone = "already gone" if mark.outcome == "ALREADY_GONE" else gone
        return f"{before}, and {gone} at {since}{because}"
    if mark.events[-1] is last:
        doing = "restored" if last.status == "RESTORING" else "deleted for good"
        return f"{before}, and being {doing} since {order}{because}"
    return f"{before} until {minute_in_utc(mark.until)}, {size_of(aside.bytes or 0)} not yet freed"
