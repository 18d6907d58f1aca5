"""Batches as they begin: the leases that still hold, the marks that may begin, and the rows that name them."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Self

from sqlalchemy import BindParameter, Select, and_, bindparam, func, insert, select, text

from retention_assets import clock
from retention_assets.ledger.audit.chain import BATCH_SEALED, Act, batch_seals
from retention_assets.ledger.clock_guard import has_come_by
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.leases import Lease, fence_all
from retention_assets.ledger.reports import only_one
from retention_assets.ledger.schema import BATCHES, BEGUN, MARKS, PLANNED, PLANS
from retention_assets.ledger.steps import among, by_id, locking, members_of
from retention_assets.outcomes import Order
from retention_assets.sql.columns import DatabaseTime, InstantColumn
from retention_assets.sql.transactions import portions


@dataclass(frozen=True)
class Share:
    """The leases that still hold in one transaction."""

    holder: str
    tokens: Mapping[str, int]
    lost: Mapping[str, str]
    parts: Mapping[str, Mapping[str, int]]

    @classmethod
    def fenced(cls, tx: WriteTransaction, leases: Collection[Lease]) -> Self:
        """Check and lock the leases: nobody takes them before the transaction ends."""
        lost = fence_all(tx, leases)
        tokens = {lease.dataset: lease.token for lease in leases if lease.dataset not in lost}
        parts = {lease.dataset: {"part": lease.part, "attempt": lease.attempt} for lease in leases if lease.part is not None}
        return cls(next((lease.holder for lease in leases), ""), tokens, lost, parts)

    def describe(self, act: Act, datasets: Collection[str], plans: Iterable[int] = ()) -> Act:
        names, ids = sorted(datasets), sorted(plans)
        act.dataset = only_one(names)
        if len(names) == 1:
            act.detail = {"lease": self.tokens[names[0]], **self.parts.get(names[0], {}), **({"plan": ids[0]} if ids else {})}
        else:
            act.detail = {"leases": {name: self.tokens[name] for name in names}, **({"plans": ids} if ids else {})}
        return act


def record_begin(
    tx: WriteTransaction,
    share: Share,
    act: Act,
    members: Mapping[int, tuple[str, Sequence[int]]],
    order: Order,
    until: datetime | None = None,
) -> None:
    act.at = tx.present()
    share.describe(act, {name for name, _ in members.values()}, members)
    act.detail = {**act.detail, "order": order, "marks": sum(len(ids) for _, ids in members.values())}
    rows = [
        (act.id, plan, name, act.at, act.actor, ids[0], ids[-1], ids, order.value, until)
        for plan, (name, ids) in sorted(members.items())
    ]
    seals = batch_seals(rows)
    act.members, act.digest = len(rows), hashlib.sha256("".join(seals).encode()).hexdigest()
    names = (*BATCH_SEALED, "open_ids", "seal")
    written = [dict(zip(names, (*row, row[7], seal), strict=True)) for row, seal in zip(rows, seals, strict=True)]
    tx.connection.execute(insert(BATCHES), written)
    tx.record(act)


def lock_due_marks(tx: WriteTransaction, plans: Mapping[str, int], marks: Sequence[int]) -> dict[int, str]:
    """Return the marks that may begin, with their datasets. Who takes one back waits, and then sees the batch."""
    begin: list[int] = []
    name = tx.connection.dialect.name
    parameters = {"datasets": sorted(plans), "plans": sorted(plans.values())}
    for part in portions(marks):
        arguments = {**parameters, "ids": part, "first": part[0], "last": part[-1]}
        if name == "sqlite":
            arguments["present"] = clock.now()
        lock = _due_lock(name)
        # normally all may begin: counting them takes half the time of naming them
        if set(tx.connection.execute(lock.count, arguments).one()) == {len(part)}:
            begin += part
        else:
            planned = tx.connection.execute(lock.planned, arguments).scalars().all()
            begin += tx.connection.execute(lock.due, {**arguments, "ids": planned}).scalars()
    if len(plans) == 1:
        return dict.fromkeys(begin, next(iter(plans)))
    datasets: dict[int, str] = {}
    for where in by_id(tx.connection, begin):
        datasets |= {row[0]: row[1] for row in tx.connection.execute(select(MARKS.c.id, MARKS.c.dataset).where(where))}
    return datasets


@dataclass(frozen=True)
class DueLock:
    """Statements about some marks of a plan."""

    # how many are planned, and how many of them are due; locks these
    count: Select[Any]
    # ids of those that are planned
    planned: Select[Any]
    # ids of those that are due; locks them
    due: Select[Any]


@cache
def _due_lock(name: str) -> DueLock:
    # In a plan, due as of it (all plans of a share have one instant) and by the ledger's own clock, and in no open batch: one
    # that is tried again has begun.
    plans: BindParameter[int] = bindparam("plans", expanding=True)
    here: BindParameter[str] = bindparam("datasets", expanding=True)
    as_of = select(func.min(PLANS.c.as_of)).where(PLANS.c.id.in_(plans)).scalar_subquery()
    present = bindparam("present", type_=InstantColumn()) if name == "sqlite" else DatabaseTime()
    is_due = and_(MARKS.c.due_at <= as_of, has_come_by(MARKS.c.due_at, present))
    near = (BATCHES.c.first <= bindparam("last"), BATCHES.c.last >= bindparam("first"), BATCHES.c.dataset.in_(here))
    begun = select(members_of(BATCHES.c.open_ids, text(BEGUN), *near).c.mark)
    may_begin = and_(among(name, MARKS.c.id), MARKS.c.status == "MARKED", is_due, MARKS.c.id.not_in(begun))
    locked = locking(may_begin).subquery()
    # Two counts, not a join: PostgreSQL would choose a nested loop. They are of the plan's dataset; asked for that, SQLite
    # would read all its marks.
    in_plan = PLANNED.c.plan.in_(plans), among(name, PLANNED.c.mark)
    planned = select(func.count()).select_from(PLANNED).where(*in_plan).scalar_subquery()
    count = select(planned, func.count()).select_from(locked)
    return DueLock(count, select(PLANNED.c.mark).where(*in_plan), select(locked.c.id))
