"""Parts of a dataset: ranges of transaction names that tasks sweep in parallel under one lease.

A task that runs twice joins twice; only the newer attempt may write. The older one may be in a batch then: what it began
belongs to nobody else until it says that it ended, or until it believes that the lease is over.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Row, and_, func, or_, select, true, update

from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.marks.steps import to_sweep_by
from retention_assets.ledger.schema import LEASE_PARTS, MARKS
from retention_assets.ledger.sweeps.leases import Lease, fence, with_rest
from retention_assets.sql.columns import DatabaseTime


class NameRange(NamedTuple):
    """Transactions by name in byte order, from `first` up to but without `end`. None: no bound."""

    first: str | None = None
    end: str | None = None

    def condition(self) -> ColumnElement[bool]:
        name = MARKS.c.transaction
        begun = true() if self.first is None else name >= self.first
        return and_(begun, true() if self.end is None else name < self.end)

    def of(self, rows: pa.Table) -> pa.Table:
        for bound, compare in ((self.first, pc.greater_equal), (self.end, pc.less)):
            rows = rows if bound is None else rows.filter(compare(rows["transaction"], bound))
        return rows


ALL_NAMES = NameRange()


@dataclass(frozen=True)
class DatasetPart:
    """Some marks of a dataset, and the lease under which they are swept."""

    lease: Lease
    number: int
    names: NameRange
    # approximate number
    marks: int

    @property
    def dataset(self) -> str:
        return self.lease.dataset


class JoinedPart(NamedTuple):
    """The lease of this attempt, the seconds that it has left, and until when an older attempt may be at work."""

    lease: Lease
    seconds: float
    older_until: datetime | None = None


class Parts(LedgerPart):
    """The parts of a ledger."""

    def cut(self, dataset: str, as_of: datetime, marks: int, parts: int, together: str) -> list[NameRange]:
        """Cut a sweep's marks into at most `parts` ranges of names. Names equal up to the first `together` stay together."""
        place = func.row_number().over(order_by=MARKS.c.transaction) - 1
        mine = (
            select(MARKS.c.transaction, place.label("place")).where(MARKS.c.dataset == dataset, to_sweep_by(as_of)).subquery()
        )
        query = select(mine.c.transaction).where(mine.c.place % max(1, ceil(marks / parts)) == 0)
        rows = self.rows(query.order_by(mine.c.transaction))
        begins = {"".join(name.partition(together)[:2]) if together else name for (name,) in rows}
        bounds: list[str | None] = [*sorted(begins)[1:]]
        return [NameRange(*ends) for ends in zip([None, *bounds], [*bounds, None], strict=True)]

    def policies(self, dataset: str, as_of: datetime) -> set[tuple[str, int]]:
        query = select(MARKS.c.policy, MARKS.c.policy_version).distinct().where(MARKS.c.dataset == dataset, to_sweep_by(as_of))
        return {(row[0], row[1]) for row in self.rows(query)}

    @audited
    def join(self, tx: WriteTransaction, part: DatasetPart) -> JoinedPart:
        """Join a part; from now on no older attempt at it can write. Raises LeaseLost without the lease."""
        lease, number = part.lease, part.number
        # Lock the whole lease, so that nobody takes it or joins the part before this is written.
        whole = replace(lease, part=None, attempt=0)
        fence(tx, whole)
        mine = replace(whole, part=number, attempt=1)
        query = select(LEASE_PARTS, (LEASE_PARTS.c.ended < LEASE_PARTS.c.attempt).label("is_at_work"))
        before: Row[tuple[object, ...]] | None = tx.connection.execute(query.where(_this(mine)).with_for_update()).one_or_none()
        older = None
        values = {"token": lease.token, "expires_at": tx.present()}
        if before is None:
            row = {"dataset": lease.dataset, "part": number, "attempt": 1, "ended": 0, **values}
            put_rows(tx.connection, LEASE_PARTS, [row])
        else:
            mine = replace(mine, attempt=before.attempt + 1)
            if before.token != lease.token:
                # The lease was taken since, so its earlier holder is gone.
                values |= {"ended": before.attempt}
            elif before.is_at_work:
                older = before.expires_at
                detail = {"lease": lease.token, "part": number, "attempt": mine.attempt}
                why = "Another task had begun this part."
                tx.record(Act(ActType.TAKE_OVER, lease.holder, why, lease.dataset, detail=detail))
            change = update(LEASE_PARTS).where(_this(mine)).values(attempt=mine.attempt, **values)
            change_rows(tx.connection, change, _this(mine))
        return _beat(tx, mine)._replace(older_until=older)

    def may_begin(self, joined: JoinedPart) -> bool:
        """No older attempt can be at work any more."""
        if joined.older_until is None:
            return True
        is_over = or_(LEASE_PARTS.c.ended >= joined.lease.attempt - 1, DatabaseTime() > joined.older_until)
        return bool(self.rows(select(LEASE_PARTS.c.part).where(_this(joined.lease), is_over)))

    def is_newest(self, lease: Lease) -> bool:
        """No other attempt has joined the part since, under this lease or another."""
        this = _this(lease) & (LEASE_PARTS.c.token == lease.token) & (LEASE_PARTS.c.attempt == lease.attempt)
        return bool(self.rows(select(LEASE_PARTS.c.part).where(this)))

    @audited
    def beat(self, tx: WriteTransaction, joined: JoinedPart) -> JoinedPart:
        """The lease as it is now. Raises LeaseLost if it is over or another attempt joined."""
        return _beat(tx, joined.lease)

    @audited
    def leave(self, tx: WriteTransaction, lease: Lease) -> bool:
        """Record the end of this attempt, so that nobody waits for it. Returns True if it was the newest."""
        this = _this(lease) & (LEASE_PARTS.c.token == lease.token)
        row = tx.connection.execute(select(LEASE_PARTS).where(this).with_for_update()).one_or_none()
        if row is None:
            return False
        change_rows(tx.connection, update(LEASE_PARTS).where(this).values(ended=max(row.ended, lease.attempt)), this)
        return bool(row.attempt == lease.attempt)


def _this(lease: Lease) -> ColumnElement[bool]:
    return and_(LEASE_PARTS.c.dataset == lease.dataset, LEASE_PARTS.c.part == lease.part)


def _beat(tx: WriteTransaction, lease: Lease) -> JoinedPart:
    fence(tx, lease)
    known, seconds = with_rest(tx.connection, lease)
    this = _this(lease)
    change_rows(tx.connection, update(LEASE_PARTS).where(this).values(expires_at=known.expires_at), this)
    return JoinedPart(known, seconds)
