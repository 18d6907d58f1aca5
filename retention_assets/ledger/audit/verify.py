"""Verification: recompute the chain of the audit and compare every table with it.

It can't detect that somebody rewrote the whole chain from some row on. To rule that out, keep `AuditResult.head` (or the
exported lines) elsewhere and pass it as `known` next time; the warehouse keeps one too.

Anything that acts on the ledger's tables (trigger, rule, row filter) is a fault. In a SQLite file any other table, view or
index is one too; in a shared PostgreSQL schema other tables are a remark.
"""

import sqlite3
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select, text
from sqlalchemy.exc import DataError, OperationalError

from retention_assets.ledger.audit.chain import GENESIS, ActType, hash_of
from retention_assets.ledger.audit.database_objects import OTHER_TABLES, foreign_faults, unreadable_values
from retention_assets.ledger.audit.marks import batch_faults, life_faults, single_faults
from retention_assets.ledger.audit.members import Members
from retention_assets.ledger.audit.rows import SEALED, RowFault, detail_in, row_faults, state_faults
from retention_assets.ledger.audit.walk import ChainHead, Walk
from retention_assets.ledger.schema import AUDIT, MARKS, OVER
from retention_assets.ledger.steps import among, marks_of, touched_since
from retention_assets.sql.columns import DatabaseTime

# Runs continue from the last verification, but verify everything this often.
WHOLE_EVERY = timedelta(days=1)
# A ledger that was rewritten wholesale is not listed row by row.
_MOST = 1_000
# Errors of values that somebody wrote past the ledger.
_UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, KeyError, DataError, OperationalError, sqlite3.Error)


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
        return f"{len(self.faults):,} faults: the record was changed."


def verify(connection: Connection, known: ChainHead | None = None, since: ChainHead | None = None) -> AuditResult:
    """Verify everything, or what was appended after the head `since`, in one consistent state."""
    walk = Walk(known, since)
    faults = [*islice(_readable(connection, walk.faults(connection)), _MOST)]
    lives: Sequence[ColumnElement[bool] | None] = [None]
    touched, moved = list[ColumnElement[bool]](), list[int]()
    if since is not None:
        touched = [touched_since(connection, since.position)]
        moved = marks_of(connection, *touched)
        acts = select(AUDIT.c.act).where(AUDIT.c.position > since.position)
        ended_alone = and_(text(f"marks.{OVER}"), MARKS.c.changed_act.in_(acts))
        lives = [among(connection.dialect.name, MARKS.c.id, moved), ended_alone]
    members = Members(walk.acts, since.position if since else None, moved)
    parts = (
        # In a boolean column any text reads as true.
        unreadable_values(connection, only_booleans=True),
        members.faults(connection),
        (fault.sentence for fault in row_faults(connection, SEALED, walk.recorded, only_recorded=since is not None)),
        single_faults(connection, walk.ledger),
        *(life_faults(connection, where) for where in lives),
        batch_faults(connection, *touched),
        state_faults(connection),
        foreign_faults(connection),
    )
    for part in parts:
        faults += islice(_readable(connection, part), max(0, _MOST - len(faults)))
    others = () if connection.dialect.name == "sqlite" else connection.execute(OTHER_TABLES).scalars()
    remarks = tuple(f"The table {name} in the ledger's schema does not belong to the ledger." for name in others)
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
    walk = Walk(None, None)
    deque(walk.faults(connection), maxlen=0)  # verify reports the chain's own faults
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
        yield from (dict(row) for row in acts.mappings() if detail_in(row["detail"]).get("scope") in scopes)


def _head_in(row: Mapping[str, Any]) -> ChainHead:
    detail = detail_in(row["detail"])
    return ChainHead(detail.get("position", 0), detail.get("hash", GENESIS))
