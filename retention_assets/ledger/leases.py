"""Leases: one sweeper per dataset, by the database's clock; and the runs that hold them: progress, stop requests and paces.

An expired lease is lost even if nobody took it: its holder can't know what changed meanwhile. Each write of a sweep is fenced
in its own transaction. Tasks that sweep parts of a dataset (ranges of names) share its lease; each writes behind the row of its
part, so that they don't wait for each other, and whoever takes the lease or gives it up waits for all these rows.

A task that runs twice joins its part twice; only the newer attempt may write. The older one may be in a batch then: what it
began belongs to nobody else until it says that it ended, or until it believes that the lease is over.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, exists, func, or_, select, true, update
from sqlalchemy.exc import SQLAlchemyError

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.rows import change_rows, put_rows
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.schema import FILE_HOLDS, HOLDS, LEASE_PARTS, LEASES, MARKS, PACES, REALMS, STOPS, TASK_PROGRESS
from retention_assets.ledger.steps import SHOWN_MARKS, is_to_sweep_by
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.engines import identity_of
from retention_assets.sql.transactions import portions

SECONDS = 120.0
# Share of a lease after which a holder that could not extend it begins nothing more. The rest is for work in progress: no
# statement in a store's database takes longer (sql/foreign.py).
PERMITTED = 0.5
# built once: every transaction of a sweep uses it
_LOCKED = (
    select(LEASES, DatabaseTime().label("present"))
    .where(LEASES.c.dataset.in_(bindparam("datasets", expanding=True)))
    .order_by(LEASES.c.dataset)
    .with_for_update()
)
# Prefix of the leases for scanning a store; no dataset has it.
SCAN = "::scan/"
# seconds; the starter of a run watches hold files for its tasks, so they end if it is silent for longer
SILENCE = 60.0
# Task number under which the starter reports.
_STARTER = -1
# Later paces would exceed the largest instant.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


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
    leases: Mapping[str, Lease]
    others: Mapping[str, str]


def running_sweep(connection: Connection) -> str | None:
    """Say who sweeps or scans anything now; None if nobody does."""
    live = and_(~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime())
    row = connection.execute(select(LEASES.c.dataset, LEASES.c.holder, LEASES.c.expires_at).where(live).limit(1)).first()
    return row and f"{row.holder} is at work on {row.dataset} until at least {text_of(row.expires_at)}"


class Leases(LedgerPart):
    @audited
    def take(self, tx: WriteTransaction, datasets: Collection[str], holder: str, seconds: float = SECONDS) -> TakenLeases:
        """Take the free leases; `others` says who has the rest and until when."""
        names = sorted(set(datasets))
        # Datasets without a row get a lease that was given up, so that their first holder finds one too.
        present, column = set[str](), LEASES.c.dataset
        for part in portions(names):
            present |= {*tx.connection.execute(select(column).where(column.in_(part))).scalars()}
        times = dict.fromkeys(("taken_at", "beat_at", "expires_at"), tx.present())
        nobody = {"token": 0, "holder": "", "given_up": True, **times}
        if rows := [{"dataset": name, **nobody} for name in names if name not in present]:
            put_rows(tx.connection, LEASES, rows)
        free: dict[str, Row[Any]] = {}
        refusals: dict[str, str] = {}
        for row in _locked(tx.connection, names):
            if not row.given_up and row.expires_at > row.present:
                refusals[row.dataset] = (
                    f"{row.dataset} is being swept by {row.holder}, whose last sign of life was at {text_of(row.beat_at)} "
                    f"and whose lease ends at {text_of(row.expires_at)}. Wait for that sweep to end. If its program is "
                    "dead, its lease ends by itself."
                )
            else:
                free[row.dataset] = row
        # Wait for the transactions that write for parts of these datasets, and keep others out.
        for part in portions(sorted(free)):
            parts = select(LEASE_PARTS.c.part).where(LEASE_PARTS.c.dataset.in_(part))
            tx.connection.execute(parts.order_by(LEASE_PARTS.c.dataset, LEASE_PARTS.c.part).with_for_update()).all()
        values = {"holder": holder, "taken_at": DatabaseTime(), "given_up": False, "token": LEASES.c.token + 1}
        leased = _extend(tx, sorted(free), seconds, **values)
        taken = [Lease(row.dataset, holder, row.token, row.expires_at) for row in leased]
        for name, before in free.items():
            if not before.given_up:
                detail = {"from": before.holder, "expired_at": text_of(before.expires_at), "token": before.token + 1}
                tx.record(Act(ActType.TAKE_OVER, holder, "The holder's lease had expired.", name, detail=detail))
        return TakenLeases(_with_protections(tx.connection, sorted(taken, key=attrgetter("dataset"))), refusals)

    @audited
    def beat(self, tx: WriteTransaction, leases: Collection[Lease], seconds: float = SECONDS) -> TakenLeases:
        """Extend the leases to `seconds` from now; call it several times in that time. `others` has the reasons of lost ones.

        The result has the current protections, so a sweep notices a new hold without a query.
        """
        lost = fence_all(tx, leases)
        kept = {lease.dataset: lease for lease in leases if lease.dataset not in lost}
        ends = {row.dataset: row.expires_at for row in _extend(tx, sorted(kept), seconds)}
        extended = [replace(lease, expires_at=ends[name]) for name, lease in kept.items()]
        return TakenLeases(_with_protections(tx.connection, extended), lost)

    @audited
    def give_up(self, tx: WriteTransaction, leases: Collection[Lease]) -> None:
        """Make leases free at once. Giving up a lost lease changes nothing."""
        tokens = {lease.dataset: lease.token for lease in leases}
        names = [row.dataset for row in _locked(tx.connection, sorted(tokens)) if row.token == tokens[row.dataset]]
        # A task that joined a part and has not left may be silent and still act under the lease: then it ends by itself.
        of_lease = and_(LEASE_PARTS.c.dataset == LEASES.c.dataset, LEASE_PARTS.c.token == LEASES.c.token)
        is_at_work = exists().where(of_lease, LEASE_PARTS.c.ended < LEASE_PARTS.c.attempt)
        for part in portions(names):
            here = LEASES.c.dataset.in_(part)
            over = update(LEASES).where(here, ~is_at_work).values(expires_at=DatabaseTime(), given_up=True)
            change_rows(tx.connection, over, here)

    def holder_of(self, dataset: str) -> Lease | None:
        return next(iter(self._held(LEASES.c.dataset == dataset)), None)

    def held(self) -> list[Lease]:
        return [lease for lease in self._held() if not lease.dataset.startswith(SCAN)]

    def _held(self, *where: ColumnElement[bool]) -> list[Lease]:
        query = select(LEASES).where(~LEASES.c.given_up, LEASES.c.expires_at > DatabaseTime(), *where)
        rows = self.rows(query.order_by(LEASES.c.dataset))
        return [Lease(row.dataset, row.holder, row.token, row.expires_at) for row in rows]

    def protections(self) -> str:
        """Digest of all protections; it differs after any change of a hold or a realm."""
        with self.database.reading() as connection:
            return _protections(connection)


def _extend(tx: WriteTransaction, datasets: Sequence[str], seconds: float, **values: Any) -> Iterator[Row[Any]]:
    for part in portions(datasets):
        here = LEASES.c.dataset.in_(part)
        extend = update(LEASES).where(here).values(**values, beat_at=DatabaseTime(), expires_at=DatabaseTime(seconds))
        yield from change_rows(tx.connection, extend.returning(LEASES.c.dataset, LEASES.c.token, LEASES.c.expires_at), here)


def _with_protections(connection: Connection, leases: Iterable[Lease]) -> dict[str, Lease]:
    protections, database = _protections(connection), identity_of(connection)
    return {lease.dataset: replace(lease, protections=protections, database=database) for lease in leases}


def _protections(connection: Connection) -> str:
    # over rows, so that changes past the ledger count too
    holds = select(HOLDS.c.id, HOLDS.c.content, HOLDS.c.until).where(HOLDS.c.released_at.is_(None)).order_by(HOLDS.c.id)
    files = select(FILE_HOLDS.c.digest, FILE_HOLDS.c.content).where(FILE_HOLDS.c.gone_at.is_(None))
    realms = select(REALMS.c.name, REALMS.c.status, REALMS.c.act).order_by(REALMS.c.name)
    rows = [tuple(row) for query in (holds, files.order_by(FILE_HOLDS.c.digest), realms) for row in connection.execute(query)]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _locked(connection: Connection, datasets: Sequence[str]) -> Iterator[Row[Any]]:
    # sorted, so that concurrent takers can't deadlock
    for part in portions(datasets):
        yield from connection.execute(_LOCKED, {"datasets": part})


def fence(tx: WriteTransaction, lease: Lease) -> None:
    """Raise LeaseLost unless the lease holds. Its row is locked, so nobody takes it before this transaction ends."""
    if lost := fence_all(tx, [lease]):
        raise LeaseLost(lost[lease.dataset])


def fence_all(tx: WriteTransaction, leases: Collection[Lease]) -> dict[str, str]:
    """Reasons of lost leases by dataset. The others can't be taken before this transaction ends."""
    rows = {row.dataset: row for row in _locked(tx.connection, sorted(lease.dataset for lease in leases if lease.part is None))}
    lost = {}
    for lease in leases:
        row, is_newest = (rows.get(lease.dataset), True) if lease.part is None else _lock_part(tx.connection, lease)
        if row is not None:
            tx.note_present(row.present)
        if row is None or row.token != lease.token or row.given_up or row.expires_at <= row.present:
            taken = row is not None and row.token > lease.token
            whose = f"{row.holder} has taken it since" if row is not None and taken else "nobody has taken it since"
            lost[lease.dataset] = (
                f"{lease.holder} has lost the lease of {lease.dataset} (number {lease.token}), which was valid until "
                f"{text_of(lease.expires_at)} at least; {whose}. Nothing was written. Sweep again: the sweep resumes."
            )
        elif not is_newest:
            lost[lease.dataset] = (
                f"part {lease.part} of {lease.dataset} was begun again by another task of {lease.holder}; this is attempt "
                f"{lease.attempt}. Nothing was written. The other task finishes it."
            )
    return lost


def _lock_part(connection: Connection, lease: Lease) -> tuple[Row[Any] | None, bool]:
    # The lease's row is read after the part is locked: a taker of the lease waits for the part, and whoever comes next sees
    # that it was taken.
    part = connection.execute(select(LEASE_PARTS).where(_is_part(lease)).with_for_update()).one_or_none()
    query = select(LEASES, DatabaseTime().label("present")).where(LEASES.c.dataset == lease.dataset)
    row = connection.execute(query).one_or_none()
    return row, part is not None and (part.token, part.attempt) == (lease.token, lease.attempt)


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
    """A range of the marks of a dataset, and the lease under which they are swept."""

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
    def cut(self, dataset: str, as_of: datetime, marks: int, parts: int, together: str) -> list[NameRange]:
        """Cut a sweep's marks into at most `parts` ranges of names. Names equal up to the first `together` stay together."""
        place = func.row_number().over(order_by=MARKS.c.transaction) - 1
        due = select(MARKS.c.transaction, place.label("place")).select_from(SHOWN_MARKS)
        places = due.where(MARKS.c.dataset == dataset, is_to_sweep_by(as_of)).subquery()
        query = select(places.c.transaction).where(places.c.place % max(1, ceil(marks / parts)) == 0)
        rows = self.rows(query.order_by(places.c.transaction))
        begins = {"".join(name.partition(together)[:2]) if together else name for (name,) in rows}
        bounds: list[str | None] = [*sorted(begins)[1:]]
        return [NameRange(*ends) for ends in zip([None, *bounds], [*bounds, None], strict=True)]

    def policies(self, dataset: str, as_of: datetime) -> set[tuple[str, int]]:
        query = select(MARKS.c.policy, MARKS.c.policy_version).select_from(SHOWN_MARKS).distinct()
        return {(row[0], row[1]) for row in self.rows(query.where(MARKS.c.dataset == dataset, is_to_sweep_by(as_of)))}

    @audited
    def join(self, tx: WriteTransaction, part: DatasetPart) -> JoinedPart:
        """Join a part; from now on no older attempt at it can write. Raises LeaseLost without the lease."""
        lease, number = part.lease, part.number
        # Lock the whole lease, so that nobody takes it or joins the part before this is written.
        whole = replace(lease, part=None, attempt=0)
        fence(tx, whole)
        joining = replace(whole, part=number, attempt=1)
        before = tx.connection.execute(select(LEASE_PARTS).where(_is_part(joining)).with_for_update()).one_or_none()
        older, values = None, {"token": lease.token, "expires_at": tx.present()}
        if before is None:
            row = {"dataset": lease.dataset, "part": number, "attempt": 1, "ended": 0, **values}
            put_rows(tx.connection, LEASE_PARTS, [row])
        else:
            joining = replace(joining, attempt=before.attempt + 1)
            if before.token != lease.token:
                # The lease was taken since, so its earlier holder is gone.
                values |= {"ended": before.attempt}
            elif before.ended < before.attempt:
                older = before.expires_at
                detail = {"lease": lease.token, "part": number, "attempt": joining.attempt}
                why = "Another task had begun this part."
                tx.record(Act(ActType.TAKE_OVER, lease.holder, why, lease.dataset, detail=detail))
            change = update(LEASE_PARTS).where(_is_part(joining)).values(attempt=joining.attempt, **values)
            change_rows(tx.connection, change, _is_part(joining))
        return _beat(tx, joining)._replace(older_until=older)

    def may_begin(self, joined: JoinedPart) -> bool:
        # no older attempt can be at work any more
        if joined.older_until is None:
            return True
        is_over = or_(LEASE_PARTS.c.ended >= joined.lease.attempt - 1, DatabaseTime() > joined.older_until)
        return bool(self.rows(select(LEASE_PARTS.c.part).where(_is_part(joined.lease), is_over)))

    def is_newest(self, lease: Lease) -> bool:
        this = _is_part(lease) & (LEASE_PARTS.c.token == lease.token) & (LEASE_PARTS.c.attempt == lease.attempt)
        return bool(self.rows(select(LEASE_PARTS.c.part).where(this)))

    @audited
    def beat(self, tx: WriteTransaction, joined: JoinedPart) -> JoinedPart:
        """The lease as it is now. Raises LeaseLost if it is over or another attempt joined."""
        return _beat(tx, joined.lease)

    @audited
    def leave(self, tx: WriteTransaction, lease: Lease) -> bool:
        """Record the end of this attempt, so that nobody waits for it. Returns True if it was the newest."""
        this = _is_part(lease) & (LEASE_PARTS.c.token == lease.token)
        row = tx.connection.execute(select(LEASE_PARTS).where(this).with_for_update()).one_or_none()
        if row is None:
            return False
        change_rows(tx.connection, update(LEASE_PARTS).where(this).values(ended=max(row.ended, lease.attempt)), this)
        return bool(row.attempt == lease.attempt)


def _is_part(lease: Lease) -> ColumnElement[bool]:
    return and_(LEASE_PARTS.c.dataset == lease.dataset, LEASE_PARTS.c.part == lease.part)


def _beat(tx: WriteTransaction, lease: Lease) -> JoinedPart:
    fence(tx, lease)
    query = select(LEASES.c.expires_at, DatabaseTime().label("present")).where(LEASES.c.dataset == lease.dataset)
    row, this = tx.connection.execute(query).one(), _is_part(lease)
    change_rows(tx.connection, update(LEASE_PARTS).where(this).values(expires_at=row.expires_at), this)
    extended = _with_protections(tx.connection, [replace(lease, expires_at=row.expires_at)])[lease.dataset]
    return JoinedPart(extended, (row.expires_at - row.present).total_seconds())


class SweepRuns(LedgerPart):
    @audited
    def stop(self, tx: WriteTransaction, run: str, reason: str) -> None:
        put_rows(tx.connection, STOPS, [{"run": run, "reason": reason, "asked_at": tx.present()}])

    def stop_requested(self, run: str) -> str | None:
        with self.database.reading() as connection:
            return _stop_requested(connection, run)

    @audited
    def beat(self, tx: WriteTransaction, run: str) -> None:
        _write_progress(tx, run, _STARTER, "")

    def report(self, run: str, task: int, progress: str) -> str | None:
        """Report a task's progress; return why it has to stop. A restarted task replaces its predecessor's row.

        If the ledger does not answer, the leases decide.
        """

        def work(tx: WriteTransaction) -> str | None:
            _write_progress(tx, run, task, progress)
            return _stop_requested(tx.connection, run)

        try:
            return self.database.write(work)
        except SQLAlchemyError:
            return None

    def progress(self, run: str) -> list[str]:
        of_tasks = (TASK_PROGRESS.c.run == run) & (TASK_PROGRESS.c.task != _STARTER)
        query = select(TASK_PROGRESS.c.progress).where(of_tasks).order_by(TASK_PROGRESS.c.task)
        return [progress for (progress,) in self.rows(query)]

    def abandoned(self, run: str) -> list[str]:
        """Datasets whose lease a run let expire: the task that swept them is gone."""
        expired = ~LEASES.c.given_up & (LEASES.c.expires_at <= DatabaseTime())
        query = select(LEASES.c.dataset).where(LEASES.c.holder == run, expired).order_by(LEASES.c.dataset)
        return [name for (name,) in self.rows(query) if not name.startswith(SCAN)]

    @audited
    def reserve(self, tx: WriteTransaction, takes: Mapping[str, timedelta]) -> timedelta:
        """Reserve the time of a batch for each of its policies; return how long to wait before it starts."""
        names = sorted(takes)
        put_rows(tx.connection, PACES, [{"policy": name, "next_at": tx.present()} for name in names])
        query = select(PACES).where(PACES.c.policy.in_(names)).order_by(PACES.c.policy).with_for_update()
        starts: dict[str, datetime] = {row.policy: row.next_at for row in tx.connection.execute(query)}
        begins = {name: max(starts[name], tx.present()) for name in names}
        ends = [{"policy": name, "next_at": begins[name] + min(takes[name], _LATEST - begins[name])} for name in names]
        put_rows(tx.connection, PACES, ends, ["next_at"])
        return max(begins.values()) - tx.present()


def clear_paces(tx: WriteTransaction, policy: str | None = None) -> None:
    """Drop the reservations of a changed policy, or of all: the next batch may start at once."""
    here = true() if policy is None else PACES.c.policy == policy
    cleared = update(PACES).where(here, PACES.c.next_at > tx.present())
    change_rows(tx.connection, cleared.values(next_at=tx.present()), here & (PACES.c.next_at == tx.present()))


def _write_progress(tx: WriteTransaction, run: str, task: int, progress: str) -> None:
    row = {"run": run, "task": task, "progress": progress, "told_at": tx.present()}
    put_rows(tx.connection, TASK_PROGRESS, [row], ["progress", "told_at"])


def _stop_requested(connection: Connection, run: str) -> str | None:
    asked: str | None = connection.execute(select(STOPS.c.reason).where(STOPS.c.run == run)).scalar_one_or_none()
    if asked is not None:
        return asked
    starter = (TASK_PROGRESS.c.run == run) & (TASK_PROGRESS.c.task == _STARTER)
    is_there = select(TASK_PROGRESS.c.run).where(starter, TASK_PROGRESS.c.told_at > DatabaseTime(-SILENCE))
    if connection.execute(is_there).one_or_none() is None:
        return f"{run} gave no sign of life for {SILENCE:.0f} s, so the holds of policy files are not watched."
    return None
