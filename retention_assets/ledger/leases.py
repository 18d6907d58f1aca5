"""Leases: one sweeper per dataset, by the database's clock.

Belongs here: taking, extending and giving up a lease, and the fence that every write of a sweep passes in its own transaction.
A lease that expired is lost, whether or not somebody else took it: its holder can't know what has changed meanwhile.
Does not belong here: what a sweeper writes (sweeps.py).
"""

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection, select, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import HOLDS, LEASES, REALMS
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.identity import identity_of
from retention_assets.sql.upserts import insert_or_skip

SECONDS = 120.0
# The share of a lease after which who could not extend it begins nothing more. The rest is for what was begun by then: no
# statement in a store's database takes longer (sql/foreign.py).
PERMITTED = 0.5


class LeaseLost(Refused):
    """A sweeper wrote after it had lost its lease. It has to stop; who holds the lease now finishes what it began."""


@dataclass(frozen=True)
class Lease:
    """The right to sweep a dataset until a moment by the database's clock, and the token that proves it."""

    dataset: str
    holder: str
    token: int
    expires_at: datetime
    # When it was taken, or extended last: what then protected anything, as a digest, and in which database that was.
    protections: str = field(default="", compare=False)
    database: str = field(default="", compare=False)


@dataclass(frozen=True)
class Leases:
    """The leases of a ledger."""

    database: LedgerDatabase

    def take(self, dataset: str, holder: str, seconds: float = SECONDS) -> Lease:
        """Take the lease of a dataset, or refuse with who has it and until when."""
        return self.database.write(lambda tx: _take(tx, dataset, holder, seconds))

    def beat(self, lease: Lease, seconds: float = SECONDS) -> Lease:
        """Extend the lease: it runs for so long from now. To be called several times in that while.

        The answer also says what protects anything by now, so that a sweep learns of a hold without asking for it.
        """
        values = {"beat_at": DatabaseTime(), "expires_at": DatabaseTime(seconds)}
        extended = update(LEASES).where(LEASES.c.dataset == lease.dataset).values(**values).returning(LEASES.c.expires_at)

        def work(tx: WriteTransaction) -> Lease:
            fence(tx, lease)
            return _seen(tx.connection, replace(lease, expires_at=tx.connection.execute(extended).scalar_one()))

        return self.database.write(work)

    def give_up(self, lease: Lease) -> None:
        """Let the next one take it at once. Giving up a lease that was lost changes nothing."""
        mine = (LEASES.c.dataset == lease.dataset) & (LEASES.c.token == lease.token)
        over = update(LEASES).where(mine).values(expires_at=DatabaseTime(), given_up=True)
        self.database.write(lambda tx: tx.connection.execute(over).rowcount)

    def holder_of(self, dataset: str) -> Lease | None:
        """Who sweeps a dataset at the moment, if anybody."""
        return next((lease for lease in self.held() if lease.dataset == dataset), None)

    def held(self) -> list[Lease]:
        """The leases that are held at the moment: the datasets that are being swept, by name, and who sweeps them."""
        query = select(LEASES).where(~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime()).order_by(LEASES.c.dataset)
        with self.database.reading() as connection:
            return [Lease(row.dataset, row.holder, row.token, row.expires_at) for row in connection.execute(query)]

    def protections(self) -> str:
        """What protects anything now, as a lease says it: another text after any change of a hold or a realm."""
        with self.database.reading() as connection:
            return _protections(connection)


def _seen(connection: Connection, lease: Lease) -> Lease:
    return replace(lease, protections=_protections(connection), database=identity_of(connection))


def _protections(connection: Connection) -> str:
    """A digest of the holds that nobody has released and of the realms, rows as they are: whoever wrote them, it changes."""
    holds = select(HOLDS.c.id, HOLDS.c.content, HOLDS.c.until).where(HOLDS.c.released_at.is_(None)).order_by(HOLDS.c.id)
    realms = select(REALMS.c.name, REALMS.c.status, REALMS.c.act).order_by(REALMS.c.name)
    rows = [tuple(row) for query in (holds, realms) for row in connection.execute(query)]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


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
    return _seen(tx.connection, Lease(dataset, holder, before.token + 1, row.expires_at))


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
