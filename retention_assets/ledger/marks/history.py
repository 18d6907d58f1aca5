"""The story: what the record says of a transaction from its first mark on, and what the ledger knows of time.

Belongs here: marks, steps and the clock's row read back for people, each mark with everything that happened to it, and who did
it when. Nothing here writes.
Does not belong here: what any of it is in words, and marks by the million (marking.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from sqlalchemy import Connection, Select, select, text

from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.schema import AUDIT, CLOCK, MARKS, OPEN, OVER, STEPS, SWEPT
from retention_assets.sql.streams import stream

# Well below what either database takes as parameters of one statement.
_NAMES = 10_000
_MARKED = pa.schema([("id", pa.int64()), ("transaction", pa.string())])
_FIELDS = (
    "id", "transaction", "policy", "policy_version", "reason", "bytes", "marked_at", "due_at", "status", "attempts",
    "last_error", "why", "changed_at", "changed_by",
)  # fmt: skip


@dataclass(frozen=True)
class MarkEvent:
    """A step of a mark: when and by whom it went to a state, with what a sweep did to the bytes, and why."""

    at: datetime
    by: str
    status: str
    outcome: str | None
    bytes: int | None
    why: str | None


@dataclass(frozen=True)
class MarkHistory:
    """A mark as it is, and all that happened to it since it was made."""

    id: int
    transaction: str
    policy: str
    policy_version: int
    reason: str
    bytes: int | None
    marked_at: datetime
    due_at: datetime
    status: str
    attempts: int
    last_error: str | None
    why: str | None
    changed_at: datetime | None
    changed_by: str | None
    events: tuple[MarkEvent, ...] = ()


@dataclass(frozen=True)
class LedgerTimes:
    """What the clock guard goes by."""

    newest_mark_at: datetime | None
    newest_seen_at: datetime | None
    accepted_until: datetime | None


@dataclass(frozen=True)
class MarkHistories:
    """The stories of a ledger."""

    database: LedgerDatabase

    def of(self, dataset: str, transactions: Iterable[str]) -> Mapping[str, tuple[MarkHistory, ...]]:
        """The marks of each transaction that ever had one, oldest first."""
        names, found = sorted(set(transactions)), dict[str, tuple[MarkHistory, ...]]()
        with self.database.reading() as connection:
            for at in range(0, len(names), _NAMES):
                for mark in _marks(connection, dataset, names[at : at + _NAMES]):
                    found[mark.transaction] = (*found.get(mark.transaction, ()), mark)
        return found

    def transactions(self, dataset: str) -> pa.Array:
        """The names of all transactions of a dataset that ever had a mark, in the order of their first one."""
        with self.database.reading() as connection:
            batches = [
                batch for condition in (OPEN, SWEPT, OVER) for batch in stream(connection, _named(dataset, condition), _MARKED)
            ]
        return pa.Table.from_batches(batches, _MARKED).sort_by("id")["transaction"].unique()

    def times(self) -> LedgerTimes:
        """The newest mark, the newest time seen, and until when a person has accepted what the clock says."""
        query = select(CLOCK.c.newest_mark_at, CLOCK.c.newest_seen_at, CLOCK.c.accepted_until)
        with self.database.reading() as connection:
            return LedgerTimes(*connection.execute(query).one())


def _named(dataset: str, condition: str) -> Select[tuple[int, str]]:
    return select(MARKS.c.id, MARKS.c.transaction).where(MARKS.c.dataset == dataset, text(condition))


def _marks(connection: Connection, dataset: str, names: list[str]) -> Iterator[MarkHistory]:
    here = (MARKS.c.dataset == dataset) & MARKS.c.transaction.in_(names)
    columns = [MARKS.c[name] for name in _FIELDS]
    # One after the other, each in the very words of its index.
    rows = [
        row for condition in (OPEN, SWEPT, OVER) for row in connection.execute(select(*columns).where(here, text(condition)))
    ]
    events = _events(connection, [row.id for row in rows])
    for row in sorted(rows, key=lambda row: row.id):
        yield MarkHistory(**row._mapping, events=tuple(events.get(row.id, ())))


def _events(connection: Connection, marks: list[int]) -> dict[int, list[MarkEvent]]:
    """The steps of some marks, each mark's in the order in which they were taken."""
    columns = (AUDIT.c.at, AUDIT.c.actor, STEPS.c.status, STEPS.c.outcome, STEPS.c.bytes, STEPS.c.why)
    found: dict[int, list[MarkEvent]] = {}
    for first in range(0, len(marks), _NAMES):
        mine = STEPS.c.mark.in_(marks[first : first + _NAMES])
        query = select(STEPS.c.mark, *columns).join(AUDIT, AUDIT.c.act == STEPS.c.act).where(mine)
        for mark, *values in connection.execute(query.order_by(AUDIT.c.position)):
            found.setdefault(mark, []).append(MarkEvent(*values))
    return found
