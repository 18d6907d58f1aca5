"""Leases: one sweeper per dataset, by the database's clock.

Belongs here: taking, extending and giving up a lease, and the fence that every write of a sweep passes in its own transaction.
A lease that expired is lost, whether or not somebody else took it: its holder can't know what has changed meanwhile.
Does not belong here: what a sweeper writes (sweeps.py).
"""

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import LEASES
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.upserts import insert_or_skip

SECONDS = 120.0


class LeaseLost(Refused):
    """A sweeper wrote after it had lost its lease. It has to stop; who holds the lease now finishes what it began."""


@dataclass(frozen=True)
class Lease:
    """The right to sweep a dataset until a moment by the database's clock, and the token that proves it."""

    dataset: str
    holder: str
    token: int
    expires_at: datetime


@dataclass(frozen=True)
class Leases:
    """The leases of a ledger."""

    database: LedgerDatabase

    def take(self, dataset: str, holder: str, seconds: float = SECONDS) -> Lease:
        """Take the lease of a dataset, or refuse with who has it and until when."""
        return self.database.write(lambda tx: _take(tx, dataset, holder, seconds))

    def beat(self, lease: Lease, seconds: float = SECONDS) -> Lease:
        """Extend the lease: it runs for so long from now. To be called several times in that while."""
        values = {"beat_at": DatabaseTime(), "expires_at": DatabaseTime(seconds)}
        extended = update(LEASES).where(LEASES.c.dataset == lease.dataset).values(**values).returning(LEASES.c.expires_at)

        def work(tx: WriteTransaction) -> Lease:
            fence(tx, lease)
            return replace(lease, expires_at=tx.connection.execute(extended).scalar_one())

        return self.database.write(work)

    def give_up(self, lease: Lease) -> None:
        """Let the next one take it at once. Giving up a lease that was lost changes nothing."""
        mine = (LEASES.c.dataset == lease.dataset) & (LEASES.c.token == lease.token)
        over = update(LEASES).where(mine).values(expires_at=DatabaseTime(), given_up=True)
        self.database.write(lambda tx: tx.connection.execute(over).rowcount)

    def holder_of(self, dataset: str) -> Lease | None:
        """Who sweeps a dataset at the moment, if anybody."""
        query = select(LEASES).where(LEASES.c.dataset == dataset, ~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime())
        with self.database.reading() as connection:
            found = connection.execute(query).one_or_none()
        return Lease(found.dataset, found.holder, found.token, found.expires_at) if found else None

    def held(self) -> list[Lease]:
        """The leases that are held right now, by dataset."""
        query = select(LEASES).where(~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime()).order_by(LEASES.c.dataset)
        with self.database.reading() as connection:
            return [Lease(row.dataset, row.holder, row.token, row.expires_at) for row in connection.execute(query)]


def _take(tx: WriteTransaction, dataset: str, holder: str, seconds: float) -> Lease:
    # So that the first holder of a dataset, too, finds a lease that somebody gave up.
    nobody = {"dataset": dataset, "token": 0, "holder": "", "given_up": True}
    nobody |= dict.fromkeys(("taken_at", "beat_at", "expires_at"), DatabaseTime())
    tx.connection.execute(insert_or_skip(tx.connection, LEASES).values(**nobody))
    before = tx.connection.execute(
        select(LEASES, DatabaseTime().label("present")).where(LEASES.c.dataset == dataset).with_for_update()
    ).one()
    if not before.given_up and before.expires_at > before.present:
        raise Refused(
            f"{dataset} is being swept by {before.holder}, who was last heard of at {text_of(before.beat_at)} and has it until"
            f" {text_of(before.expires_at)}. Wait for that sweep to end; if its program is dead, its lease ends by itself then."
        )
    values = {
        "holder": holder,
        "token": before.token + 1,
        "taken_at": DatabaseTime(),
        "beat_at": DatabaseTime(),
        "given_up": False,
    }
    taken = update(LEASES).where(LEASES.c.dataset == dataset, LEASES.c.token == before.token)
    row = tx.connection.execute(taken.values(**values, expires_at=DatabaseTime(seconds)).returning(LEASES.c.expires_at)).one()
    if not before.given_up:
        detail = {"from": before.holder, "expired_at": text_of(before.expires_at), "token": before.token + 1}
        tx.record(Act(ActType.TAKE_OVER, holder, "The holder's lease had expired.", dataset, detail=detail))
    return Lease(dataset, holder, before.token + 1, row.expires_at)


def fence(tx: WriteTransaction, lease: Lease) -> None:
    """Stop here unless the lease still holds. It can't be taken by another before this transaction ends: its row is locked."""
    query = select(LEASES, DatabaseTime().label("present")).where(LEASES.c.dataset == lease.dataset).with_for_update()
    row = tx.connection.execute(query).one_or_none()
    if row is not None and row.token == lease.token and not row.given_up and row.expires_at > row.present:
        return
    whose = f"{row.holder} has taken it since" if row is not None and row.token > lease.token else "nobody has taken it since"
    raise LeaseLost(
        f"{lease.holder} has lost the lease of {lease.dataset} (number {lease.token}), which was good until"
        f" {text_of(lease.expires_at)} at least; {whose}. Nothing was written. Take the lease anew: the sweep resumes."
    )
