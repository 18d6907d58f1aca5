"""Verification: recompute the chain of the audit and compare every table with it; before each sweep, only what it rests on.

It can't detect that somebody rewrote the whole chain from some row on. To rule that out, keep `AuditResult.head` (or the
exported lines) elsewhere and pass it as `known` next time; the warehouse keeps one too. The checks before a sweep compare rule
rows and due marks with their newest acts, at a cost that does not grow with the chain.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from sqlalchemy import Boolean, Connection, and_, func, or_, select, text
from sqlalchemy.exc import DataError, OperationalError

from retention_assets.ledger.audit.chain import GENESIS, ActType, hash_of, rows
from retention_assets.ledger.audit.faults import (
    BulkAct,
    Members,
    acting_faults,
    foreign_faults,
    life_faults,
    other_tables,
    single_faults,
    unreadable_values,
    unsealed_marks,
)
from retention_assets.ledger.audit.rows import (
    INITIAL,
    SEALED,
    Recorded,
    RowFault,
    RowKey,
    detail_in,
    row_faults,
    rows_in,
    state_faults,
)
from retention_assets.ledger.marking import MARK_ROWS
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, MARKS, OPEN, STEPS
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

# Runs continue from the last verification, but verify everything this often.
WHOLE_EVERY = timedelta(days=1)
# A ledger that was rewritten wholesale is not listed row by row.
_MOST = 1_000
_AROUND = 1_000
# Errors of values that somebody wrote past the ledger.
_UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, KeyError, DataError, OperationalError, sqlite3.Error)
# Each evaluation appends one of these acts; only the newest per dataset, or of all, matters.
_NEWEST_BY_DATASET = (ActType.ADVANCE,)
_NEWEST = (ActType.MARK, ActType.CLOCK)


@dataclass(frozen=True)
class ChainHead:
    position: int
    hash: str


@dataclass(frozen=True)
class AuditResult:
    """How much was verified, and its faults: sentences that each name a row."""

    rows: int
    members: int
    head: ChainHead
    faults: tuple[str, ...]
    # Harmless objects beside the ledger.
    remarks: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return f"{len(self.faults):,} faults: the record does not say what was written."


def verify(connection: Connection, known: ChainHead | None = None, since: ChainHead | None = None) -> AuditResult:
    """Verify everything, or what was appended after the head `since`, in one consistent state."""
    walk = _Chain(known, since)
    faults = [*islice(_readable(connection, walk.faults(connection)), _MOST)]
    members = Members(walk.acts, only=since is not None)
    moved = select(STEPS.c.mark).join(AUDIT, AUDIT.c.act == STEPS.c.act)
    parts = (
        # In a boolean column any text reads as true.
        unreadable_values(connection, Boolean),
        members.faults(connection),
        (fault.sentence for fault in row_faults(connection, SEALED, walk.recorded, only_recorded=since is not None)),
        single_faults(connection, walk.ledger),
        life_faults(connection, None if since is None else MARKS.c.id.in_(moved.where(AUDIT.c.position > since.position))),
        state_faults(connection),
        foreign_faults(connection),
    )
    for part in parts:
        faults += islice(_readable(connection, part), max(0, _MOST - len(faults)))
    remarks = tuple(other_tables(connection))
    return AuditResult(walk.count, sum(members.counted.values()), walk.last, tuple(dict.fromkeys(faults)), remarks)


def _readable(connection: Connection, faults: Iterator[str]) -> Iterator[str]:
    # if rows can't be read, the unreadable values are named instead
    try:
        yield from faults
    except _UNREADABLE as error:
        unreadable = [*unreadable_values(connection)]
        # An unreachable database is no fault of the record.
        if isinstance(error, OperationalError | sqlite3.Error) and not unreadable:
            raise
        yield from unreadable or [f"A row of the ledger can't be read: {error}."]


def changed_rows_of(connection: Connection) -> list[RowFault]:
    walk = _Chain(None, None)
    for _ in walk.faults(connection):
        """The chain's own faults are verify's."""
    return [*row_faults(connection, SEALED, walk.recorded)]


def last_verified(connection: Connection) -> ChainHead | None:
    row = next(_verifications(connection, ("all", "new")), None)
    return _head_in(row) if row else None


def verified_lately(connection: Connection, scope: str) -> ChainHead | None:
    """Head of the last verification of `scope` without a fault, if it is less than a day old by the ledger's clock."""
    row = next(_verifications(connection, (scope,)), None)
    # An act that was changed past the ledger, or dated in the future, would postpone the whole verification.
    if row is None or hash_of(row) != row["hash"]:
        return None
    age = connection.execute(select(DatabaseTime())).scalar_one() - row["at"]
    return _head_in(row) if timedelta(0) <= age < WHOLE_EVERY else None


def _verifications(connection: Connection, scopes: Collection[str]) -> Iterator[Mapping[str, Any]]:
    query = select(AUDIT).where(AUDIT.c.deed == ActType.VERIFY).order_by(AUDIT.c.position.desc())
    with connection.execute(query, execution_options={"yield_per": 20}) as acts:
        yield from (dict(row) for row in acts.mappings() if json.loads(row["detail"])["scope"] in scopes)


def _head_in(row: Mapping[str, Any]) -> ChainHead:
    detail = json.loads(row["detail"])
    return ChainHead(detail["position"], detail["hash"])


@dataclass
class _Chain:
    """A walk along the chain that collects acts with members and the newest seal of each row."""

    known: ChainHead | None
    since: ChainHead | None
    last: ChainHead = ChainHead(0, GENESIS)
    count: int = 0
    acts: dict[int, BulkAct] = field(default_factory=dict)
    recorded: dict[RowKey, Recorded] = field(default_factory=dict)
    ledger: str | None = None

    def __post_init__(self) -> None:
        if self.since is None:
            self.recorded = {**INITIAL}
        else:
            self.last = self.since

    def faults(self, connection: Connection) -> Iterator[str]:
        if self.since is not None:
            here = select(AUDIT.c.hash).where(AUDIT.c.position == self.since.position)
            if self.since.position and connection.execute(here).scalar_one_or_none() != self.since.hash:
                yield f"Row {self.since.position} of the audit is not the one up to which the record was verified."
        for row in rows(connection, self.last.position):
            yield from self._at(row)
            self.last, self.count = ChainHead(row["position"], row["hash"]), self.count + 1
        head = ChainHead(*connection.execute(select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())
        if head.position > self.last.position:
            yield _missing(self.last.position + 1, head.position)
        elif head != self.last:
            yield f"The head of the audit says that it ends with row {head.position}; it ends with row {self.last.position}."
        if self.known and self.known.position > head.position:
            yield f"Row {self.known.position} of the audit was noted before, and the audit ends with row {head.position}."

    def _at(self, row: Mapping[str, Any]) -> Iterator[str]:
        position = row["position"]
        if position > self.last.position + 1:
            yield _missing(self.last.position + 1, position - 1)
        if hash_of(row) != row["hash"]:
            near = range(max(1, position - _AROUND), position + _AROUND)
            was = next((place for place in near if hash_of({**row, "position": place}) == row["hash"]), None)
            end = f"moved: it was written as row {was}." if was else "changed: it has not the hash of what it says."
            yield f"Row {position} of the audit ({row['deed']}) was {end}"
        elif position == self.last.position + 1 and row["previous"] != self.last.hash:
            yield f"Row {position} of the audit ({row['deed']}) does not follow the row before it: one of them was replaced."
        if self.known and position == self.known.position and row["hash"] != self.known.hash:
            yield f"Row {position} of the audit is not the one that was noted before: the audit was written anew."
        self._note(row)

    def _note(self, row: Mapping[str, Any]) -> None:
        detail = detail_in(row["detail"])
        try:
            seals = [*rows_in(detail)]
        except (ValueError, TypeError, AttributeError):
            detail, seals = {}, []
        self.recorded |= {key: Recorded(seal, row["position"]) for key, seal in seals}
        self.ledger = detail.get("ledger", self.ledger)
        if row["digest"] is not None:
            ids = {name: detail.get(name) for name in ("first", "last")} if row["deed"] == ActType.MARK else {}
            made = detail.get("plans") or [detail.get("plan")] if row["deed"] == ActType.PLAN else []
            plans = tuple(plan for plan in made if plan is not None)
            self.acts[row["act"]] = BulkAct(row["position"], row["deed"], row["members"], row["digest"], **ids, plans=plans)


def _missing(first: int, last: int) -> str:
    return f"Row {first} of the audit is missing." if first == last else f"Rows {first} to {last} of the audit are missing."


def rule_faults(connection: Connection) -> Iterator[tuple[str, str]]:
    """Faults in holds, realms, policies, visibility, clock and objections, as (dataset, sentence); "" means all datasets."""
    rules = {table: sealing for table, sealing in SEALED.items() if sealing.is_rule}
    writers = {deed for sealing in rules.values() for deed in sealing.writers} | {ActType.ACCEPT}
    all_of = sorted(writers - {*_NEWEST_BY_DATASET, *_NEWEST})
    by_dataset = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST_BY_DATASET)).group_by(AUDIT.c.dataset)
    newest = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST)).group_by(AUDIT.c.deed)
    wanted = or_(AUDIT.c.deed.in_(all_of), AUDIT.c.position.in_(by_dataset), AUDIT.c.position.in_(newest))
    acts = select(AUDIT).where(wanted).order_by(AUDIT.c.position)
    recorded = {**INITIAL}
    for row in map(dict, connection.execute(acts, execution_options={"yield_per": 1_000}).mappings()):
        if hash_of(row) != row["hash"]:
            yield "", f"Row {row['position']} of the audit ({row['deed']}) was changed: it has not the hash of what it says."
            continue
        recorded |= {key: Recorded(seal, row["position"]) for key, seal in rows_in(json.loads(row["detail"]))}
    changed = (fault.sentence for fault in row_faults(connection, rules, recorded))
    yield from (("", sentence) for sentence in chain(changed, single_faults(connection, None), acting_faults(connection)))


def due_mark_faults(connection: Connection, datasets: Sequence[str], as_of: datetime) -> Iterator[tuple[str, str]]:
    """Faults of due or SWEEPING marks, each with its dataset."""
    for some in portions(sorted(set(datasets))):
        due = text(f"marks.{OPEN}"), MARKS.c.dataset.in_(some), or_(MARKS.c.due_at <= as_of, MARKS.c.status == "SWEEPING")
        query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).where(*due).order_by(MARKS.c.dataset, MARKS.c.id)
        for batch in stream(connection, query, MARK_ROWS):
            yield from unsealed_marks(pa.Table.from_batches([batch]))
        yield from _unmade_marks(connection, due)
        yield from (("", sentence) for sentence in life_faults(connection, and_(*due[:2])))


def _unmade_marks(connection: Connection, due: Sequence[Any]) -> Iterator[tuple[str, str]]:
    # no marking act reserved their ids
    ends = (func.min(MARKS.c.id).label("first"), func.max(MARKS.c.id).label("last"), func.min(MARKS.c.dataset).label("dataset"))
    groups = select(MARKS.c.act, *ends).where(*due).group_by(MARKS.c.act).subquery()
    query = select(groups, AUDIT.c.deed, AUDIT.c.detail, AUDIT.c.position).outerjoin(AUDIT, AUDIT.c.act == groups.c.act)
    for row in connection.execute(query):
        detail = json.loads(row.detail) if row.deed == ActType.MARK else {}
        if not (detail and detail["first"] <= row.first and row.last <= detail["last"]):
            marks = f"Marks {row.first} to {row.last} ({row.dataset} among others)"
            yield row.dataset, f"{marks} were added past the ledger: no act made them."
