"""Leases: one sweeper per dataset, by the database's clock. Each write of a sweep is fenced in its own transaction.

An expired lease is lost even if nobody took it: its holder can't know what changed meanwhile. Tasks that sweep parts of a
dataset share its lease; each writes behind the row of its part, so that they don't wait for each other, and whoever takes the
lease or gives it up waits for all these rows.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, bindparam, exists, select, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.state import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import FILE_HOLDS, HOLDS, LEASE_PARTS, LEASES, REALMS
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.identity import identity_of
from retention_assets.sql.transactions import portions

SECONDS = 120.0
# Share of a lease after which a holder that could not extend it begins nothing more. The rest is for work begun by then: no
# statement in a store's database takes longer (sql/foreign.py).
PERMITTED = 0.5
_TIMES = ("taken_at", "beat_at", "expires_at")
# A task joined a part under the lease and has not left.
_PART_AT_WORK = exists().where(
    LEASE_PARTS.c.dataset == LEASES.c.dataset,
    LEASE_PARTS.c.token == LEASES.c.token,
    LEASE_PARTS.c.ended < LEASE_PARTS.c.attempt,
)
# built once: every transaction of a sweep uses it
_LOCKED = (
    select(LEASES, DatabaseTime().label("present"))
    .where(LEASES.c.dataset.in_(bindparam("datasets", expanding=True)))
    .order_by(LEASES.c.dataset)
    .with_for_update()
)
# Prefix of the leases for scanning a store; no dataset has it.
SCAN = "::scan/"


class LeaseLost(Refused):
    """A sweeper wrote after losing its lease. It must stop; the new holder finishes what it began."""


@dataclass(frozen=True)
class Lease:
    """The right to sweep a dataset until a time of the database's clock, and its token."""

    dataset: str
    holder: str
    token: int
    expires_at: datetime
    # At taking or last extension: digest of all protections, and identity of the ledger's database.
    protections: str = field(default="", compare=False)
    database: str = field(default="", compare=False)
    # Part of the dataset, and the number of this attempt at it.
    part: int | None = None
    attempt: int = 0


class TakenLeases(NamedTuple):
    """Leases by dataset, and for the others the reason why there is none."""

    leases: Mapping[str, Lease]
    others: Mapping[str, str]


class Leases(LedgerPart):
    """The leases of a ledger."""

    @audited
    def take(self, tx: WriteTransaction, datasets: Collection[str], holder: str, seconds: float = SECONDS) -> TakenLeases:
        """Take the free leases; `others` says who has the rest and until when."""
        names = sorted(set(datasets))
        # Datasets without a row get a lease that was given up, so that their first holder finds one too.
        known = {
            name
            for some in portions(names)
            for name in tx.connection.execute(select(LEASES.c.dataset).where(LEASES.c.dataset.in_(some))).scalars()
        }
        nobody = {"token": 0, "holder": "", "given_up": True, **dict.fromkeys(_TIMES, tx.present())}
        if rows := [{"dataset": name, **nobody} for name in names if name not in known]:
            put_rows(tx.connection, LEASES, rows)
        free: dict[str, Row[Any]] = {}
        others: dict[str, str] = {}
        for row in _locked(tx.connection, names):
            if not row.given_up and row.expires_at > row.present:
                others[row.dataset] = (
                    f"{row.dataset} is being swept by {row.holder}, who was last heard of at {text_of(row.beat_at)} and has it"
                    f" until {text_of(row.expires_at)}. Wait for that sweep to end; if its program is dead, its lease ends by"
                    " itself then."
                )
            else:
                free[row.dataset] = row
        # Wait for the transactions that write for parts of these datasets, and keep others out.
        for some in portions(sorted(free)):
            parts = select(LEASE_PARTS.c.part).where(LEASE_PARTS.c.dataset.in_(some))
            tx.connection.execute(parts.order_by(LEASE_PARTS.c.dataset, LEASE_PARTS.c.part).with_for_update()).all()
        values = {"holder": holder, "taken_at": DatabaseTime(), "beat_at": DatabaseTime(), "given_up": False}
        taken: list[Lease] = []
        for some in portions(sorted(free)):
            mine = LEASES.c.dataset.in_(some)
            takes = update(LEASES).where(mine).values(**values, expires_at=DatabaseTime(seconds), token=LEASES.c.token + 1)
            found = change_rows(tx.connection, takes.returning(LEASES.c.dataset, LEASES.c.token, LEASES.c.expires_at), mine)
            taken += [Lease(row.dataset, holder, row.token, row.expires_at) for row in found]
        for name, before in free.items():
            if not before.given_up:
                detail = {"from": before.holder, "expired_at": text_of(before.expires_at), "token": before.token + 1}
                tx.record(Act(ActType.TAKE_OVER, holder, "The holder's lease had expired.", name, detail=detail))
        return TakenLeases(_seen(tx.connection, sorted(taken, key=attrgetter("dataset"))), others)

    @audited
    def beat(self, tx: WriteTransaction, leases: Collection[Lease], seconds: float = SECONDS) -> TakenLeases:
        """Extend the leases to `seconds` from now; call it several times in that time. `others` has the reasons of lost ones.

        The result has the current protections, so a sweep notices a new hold without a query.
        """
        lost = fence_all(tx, leases)
        kept = {one.dataset: one for one in leases if one.dataset not in lost}
        ends: dict[str, datetime] = {}
        for some in portions(sorted(kept)):
            values = {"beat_at": DatabaseTime(), "expires_at": DatabaseTime(seconds)}
            mine = LEASES.c.dataset.in_(some)
            extended = update(LEASES).where(mine).values(**values).returning(LEASES.c.dataset, LEASES.c.expires_at)
            ends |= {row.dataset: row.expires_at for row in change_rows(tx.connection, extended, mine)}
        return TakenLeases(_seen(tx.connection, [replace(one, expires_at=ends[name]) for name, one in kept.items()]), lost)

    @audited
    def give_up(self, tx: WriteTransaction, leases: Collection[Lease]) -> None:
        """Let others take them at once. Giving up a lost lease changes nothing."""
        mine = {one.dataset: one.token for one in leases}
        held = [row.dataset for row in _locked(tx.connection, sorted(mine)) if row.token == mine[row.dataset]]
        for some in portions(held):
            # A silent task may still act under a part's lease: then the lease ends by itself.
            those = LEASES.c.dataset.in_(some)
            over = update(LEASES).where(those, ~_PART_AT_WORK).values(expires_at=DatabaseTime(), given_up=True)
            change_rows(tx.connection, over, those)

    def holder_of(self, dataset: str) -> Lease | None:
        return next(iter(self._held(LEASES.c.dataset == dataset)), None)

    def held(self) -> list[Lease]:
        return [one for one in self._held() if not one.dataset.startswith(SCAN)]

    def _held(self, *where: ColumnElement[bool]) -> list[Lease]:
        held = select(LEASES).where(~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime(), *where)
        rows = self.rows(held.order_by(LEASES.c.dataset))
        return [Lease(row.dataset, row.holder, row.token, row.expires_at) for row in rows]

    def protections(self) -> str:
        """Digest of all protections; it differs after any change of a hold or a realm."""
        with self.database.reading() as connection:
            return _protections(connection)


def _seen(connection: Connection, leases: Iterable[Lease]) -> dict[str, Lease]:
    protections, database = _protections(connection), identity_of(connection)
    return {one.dataset: replace(one, protections=protections, database=database) for one in leases}


def _protections(connection: Connection) -> str:
    """Digest of unreleased holds, file holds and realms from their rows, so that it changes whoever wrote them."""
    holds = select(HOLDS.c.id, HOLDS.c.content, HOLDS.c.until).where(HOLDS.c.released_at.is_(None)).order_by(HOLDS.c.id)
    files = (
        select(FILE_HOLDS.c.digest, FILE_HOLDS.c.content).where(FILE_HOLDS.c.gone_at.is_(None)).order_by(FILE_HOLDS.c.digest)
    )
    realms = select(REALMS.c.name, REALMS.c.status, REALMS.c.act).order_by(REALMS.c.name)
    rows = [tuple(row) for query in (holds, files.order_by(FILE_HOLDS.c.digest), realms) for row in connection.execute(query)]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _locked(connection: Connection, datasets: Sequence[str]) -> Iterator[Row[Any]]:
    """Locked in one order, so that two takers of the same leases can't deadlock."""
    for some in portions(datasets):
        yield from connection.execute(_LOCKED, {"datasets": some})


def fence(tx: WriteTransaction, lease: Lease) -> None:
    """Raise LeaseLost unless the lease holds. Its row is locked, so nobody takes it before this transaction ends."""
    if lost := fence_all(tx, [lease]):
        raise LeaseLost(lost[lease.dataset])


def fence_all(tx: WriteTransaction, leases: Collection[Lease]) -> dict[str, str]:
    """Reasons of lost leases by dataset. The others can't be taken before this transaction ends."""
    rows = {row.dataset: row for row in _locked(tx.connection, sorted(one.dataset for one in leases if one.part is None))}
    lost = {}
    for lease in leases:
        row, is_newest = (rows.get(lease.dataset), True) if lease.part is None else _behind_part(tx.connection, lease)
        if row is None or row.token != lease.token or row.given_up or row.expires_at <= row.present:
            taken = row is not None and row.token > lease.token
            whose = f"{row.holder} has taken it since" if row is not None and taken else "nobody has taken it since"
            lost[lease.dataset] = (
                f"{lease.holder} has lost the lease of {lease.dataset} (number {lease.token}), which was good until"
                f" {text_of(lease.expires_at)} at least; {whose}. Nothing was written. Take the lease anew: the sweep resumes."
            )
        elif not is_newest:
            lost[lease.dataset] = (
                f"part {lease.part} of {lease.dataset} was begun once more by another task of {lease.holder} than this one"
                f" (attempt {lease.attempt}). Nothing was written. The other one finishes it."
            )
    return lost


def with_rest(connection: Connection, lease: Lease) -> tuple[Lease, float]:
    """The lease as last extended, with current protections, and the seconds that it has left."""
    query = select(LEASES.c.expires_at, DatabaseTime().label("present")).where(LEASES.c.dataset == lease.dataset)
    row = connection.execute(query).one()
    known = _seen(connection, [replace(lease, expires_at=row.expires_at)])[lease.dataset]
    return known, (row.expires_at - row.present).total_seconds()


def _behind_part(connection: Connection, lease: Lease) -> tuple[Row[Any] | None, bool]:
    """The lease's row, unlocked, and True if its locked part was not begun by another attempt.

    In this order: a taker of the lease waits for the part, and whoever comes next sees that it was taken.
    """
    this = (LEASE_PARTS.c.dataset == lease.dataset) & (LEASE_PARTS.c.part == lease.part)
    part = connection.execute(select(LEASE_PARTS).where(this).with_for_update()).one_or_none()
    query = select(LEASES, DatabaseTime().label("present")).where(LEASES.c.dataset == lease.dataset)
    row = connection.execute(query).one_or_none()
    return row, part is not None and (part.token, part.attempt) == (lease.token, lease.attempt)
