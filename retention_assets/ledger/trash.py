"""Set aside marks: they are SWEPT, and can be restored until an instant; afterwards a sweep deletes them for good.

A person begins to restore them, or to delete them early; whoever sweeps their dataset next gives the order to the store.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, func, literal, select, text

from retention_assets.errors import Refused
from retention_assets.ledger.audit.before_sweep import mark_faults
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.batches import Moved, newest_plans
from retention_assets.ledger.begun_batches import Share, record_begin
from retention_assets.ledger.clock_guard import has_come_by, present_by
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.leases import Lease
from retention_assets.ledger.schema import ASIDE, AUDIT, BATCHES, MARKS, PLANNED, PLANS, STEPS, SWEPT
from retention_assets.ledger.steps import (
    BEGUN_MARKS,
    IS_REPLAY,
    SHOWN_MARKS,
    by_id,
    locking,
    members_of,
    of_datasets,
    open_batches,
)
from retention_assets.ledger.unmarking import place_once
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.model import Hold
from retention_assets.sql.columns import ByteSum, InstantColumn
from retention_assets.sql.transactions import portions

GONE = (Outcome.DELETED.value, Outcome.ALREADY_GONE.value)


@dataclass(frozen=True)
class AskedBy:
    """Person who asks for marks to be restored or deleted early, the reason, and the hold that keeps what comes back."""

    actor: str
    reason: str
    hold: Hold | None = None


class AsideSum(NamedTuple):
    """Set aside marks of a dataset and policy: number, bytes not freed yet, and until when the first and last of them stay."""

    dataset: str
    policy: str
    marks: int
    bytes: int
    until: datetime
    last: datetime


class AsideMark(NamedTuple):
    """A set aside mark, with its bytes that are not freed yet, and the order of a batch that has begun on it."""

    id: int
    dataset: str
    transaction: str
    until: datetime
    bytes: int | None
    order: str | None


class Trash(LedgerPart):
    def sums(self, over_by: datetime | None = None) -> list[AsideSum]:
        alike = (MARKS.c.dataset, MARKS.c.policy)
        amounts = (func.count(), ByteSum(STEPS.c.bytes), func.min(MARKS.c.until), func.max(MARKS.c.until))
        query = select(*alike, *amounts).join(STEPS, and_(STEPS.c.mark == MARKS.c.id, STEPS.c.outcome == "SET_ASIDE"))
        query = query.where(text(f"marks.{ASIDE}")).group_by(*alike).order_by(*alike)
        sums = self.rows(query if over_by is None else query.where(MARKS.c.until <= over_by))
        return [AsideSum(name, policy, int(marks), int(size), *untils) for name, policy, marks, size, *untils in sums]

    def marks(self, datasets: Collection[str], transactions: Collection[str] | None = None) -> list[AsideMark]:
        """Set aside marks of datasets, or of some transactions, in the order in which they were made."""
        columns = (*(MARKS.c[name] for name in AsideMark._fields[:4]), STEPS.c.bytes, BEGUN_MARKS.c.order_given)
        steps = and_(STEPS.c.mark == MARKS.c.id, STEPS.c.outcome == "SET_ASIDE")
        query = select(*columns).select_from(SHOWN_MARKS.outerjoin(STEPS, steps)).where(text(f"marks.{ASIDE}"))
        if transactions is None:
            rows = self.rows_among(query, MARKS.c.dataset, datasets)
        else:
            rows = self.rows_among(query.where(MARKS.c.dataset.in_(sorted(datasets))), MARKS.c.transaction, transactions)
        return sorted(AsideMark(*row) for row in rows)

    def places(self, datasets: Collection[str]) -> list[tuple[str, str]]:
        """Datasets, each with a place where something of it was set aside."""
        query = select(PLANS.c.dataset, PLANS.c.place).distinct().join(PLANNED, PLANNED.c.plan == PLANS.c.id)
        query = query.join(MARKS, MARKS.c.id == PLANNED.c.mark).where(text(f"marks.{ASIDE}"), PLANS.c.place.is_not(None))
        return sorted((name, place) for name, place in self.rows_among(query, PLANS.c.dataset, datasets))

    def swept_datasets(self) -> list[str]:
        return sorted(name for (name,) in self.rows(select(MARKS.c.dataset).distinct().where(text(SWEPT))))

    def replayed(self, marks: Collection[int]) -> dict[int, dict[str, Any]]:
        """The newest replay of each mark that was settled; without an outcome nothing of it went."""
        columns = [STEPS.c[name] for name in ("mark", "outcome", "bytes", "why")]
        query = select(*columns).join(AUDIT, AUDIT.c.act == STEPS.c.act).where(IS_REPLAY).order_by(AUDIT.c.position)
        with self.database.reading() as connection:
            parts = by_id(connection, marks, column=STEPS.c.mark)
            return {row["mark"]: {**row} for part in parts for row in connection.execute(query.where(part)).mappings()}

    def ever_deleted(self, marks: Collection[int]) -> set[int]:
        """Return those of some set aside marks on whose deletion for good a batch has begun, also if it has failed since."""
        near = (BATCHES.c.first <= max(marks, default=0), BATCHES.c.last >= min(marks, default=0))
        members = members_of(BATCHES.c.ids, BATCHES.c.order_given == Order.DELETE_ASIDE, *near)
        return {mark for (mark,) in self.rows(select(members.c.mark))}.intersection(marks)

    @audited
    def begin(
        self,
        tx: WriteTransaction,
        leases: Collection[Lease],
        marks: Collection[int],
        order: Order,
        asked: AskedBy | None = None,
    ) -> Moved:
        """Return the marks of a batch that may now be brought back, be deleted for good or again: those that nobody has begun.

        Unless a person asks for it, their time must have come by the ledger's clock. What is to be deleted again must be as it
        was recorded.
        """
        share, is_replay = Share.fenced(tx, leases), order is Order.REPLAY
        here = and_(MARKS.c.outcome.in_(GONE) if is_replay else text(ASIDE), of_datasets(share.tokens))
        if asked is None:
            present = literal(present_by(tx.connection), InstantColumn())
            here = and_(here, has_come_by(MARKS.c.until, present))
        locked: dict[int, str] = {}
        for where in by_id(tx.connection, marks if share.tokens else (), here):
            locked |= {mark: dataset for mark, dataset in tx.connection.execute(locking(where, MARKS.c.dataset))}  # noqa: C416
        for part in portions(sorted(locked)) if is_replay else ():
            for _, fault in mark_faults(tx.connection, MARKS.c.id.in_(part)):
                raise Refused(f"Nothing was deleted. {fault} `retention audit verify` names every change.")
        begun = {mark for batch in open_batches(tx.connection, set(locked.values()), locked) for mark in batch.marks}
        free = {mark: locked[mark] for mark in sorted(locked.keys() - begun)}
        members: dict[int, tuple[str, list[int]]] = {}
        for mark, plan in newest_plans(tx.connection, free).items():
            members.setdefault(plan, (free[mark], []))[1].append(mark)
        if members:
            act = Act(ActType.BEGIN, asked.actor if asked else share.holder, asked.reason if asked else None)
            record_begin(tx, share, act, members, order)
            if asked and asked.hold:
                return Moved(free, share.lost, *place_once(tx, asked.hold, asked.actor, named=False))
        return Moved(free, share.lost)
