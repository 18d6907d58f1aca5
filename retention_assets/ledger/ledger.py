"""The open ledger: opens it by URL, creates the tables of a new one, gives access to its parts, and compares noted heads.

A ledger that lacks a noted head, the end of its chain as a warehouse or store keeps it, is an older copy that was put back, or
another ledger in its place.
"""

import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, insert, inspect, or_, select, text, update
from sqlalchemy.exc import DBAPIError

from retention_assets import clock
from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import GENESIS, Act, ActType, as_line, rows
from retention_assets.ledger.audit.rows import detail_in, seal_state, state_faults
from retention_assets.ledger.audit.verify import AuditResult, changed_rows_of, last_verified, verified_lately, verify
from retention_assets.ledger.audit.walk import ChainHead
from retention_assets.ledger.batches import Sweeps
from retention_assets.ledger.book import Holds, PolicyBook, Realms, Visibility
from retention_assets.ledger.clock_guard import ClockGuard, present_by
from retention_assets.ledger.database import LedgerDatabase, LedgerPart, WriteTransaction, audited
from retention_assets.ledger.evaluations import Evaluations, Objections, Publications, Violations
from retention_assets.ledger.histories import MarkHistories
from retention_assets.ledger.invariants import SweptInvariant, Violation
from retention_assets.ledger.leases import Leases, Parts, SweepRuns, running_sweep
from retention_assets.ledger.marking import Marks
from retention_assets.ledger.migrations import migrations_from
from retention_assets.ledger.reports import Reports
from retention_assets.ledger.schema import (
    ASIDE,
    AUDIT,
    AUDIT_HEAD,
    BATCHES,
    BEGUN,
    CLOCK,
    FILE_HOLDS,
    HOLDS,
    LEDGER_REVISION,
    MARKS,
    METADATA,
    NOTED_HEADS,
    OPEN,
    PLACES,
    PLANNED,
    PLANS,
    POLICY_VERSIONS,
    REALMS,
    REVISION,
    STEPS,
)
from retention_assets.ledger.states import PendingMarks, States
from retention_assets.ledger.steps import BEGUN_MARKS
from retention_assets.ledger.stores import Scans, StorePlaces
from retention_assets.ledger.trash import Trash
from retention_assets.ledger.unmarking import Keeping, Unmarking
from retention_assets.settings.places import Url
from retention_assets.sql.engines import OpenedFile, ledger_engine, sqlite_file, too_wide
from retention_assets.sql.errors import RETRY_CONFLICTS, code_of, driver_message
from retention_assets.sql.retry import retry
from retention_assets.sql.transactions import PORTION, portions, reading, writing

REMEDY = "If that is intended, run `retention audit accept --head --reason …`. If not, restore the newest backup of the ledger."
T = TypeVar("T")
_LOG = logging.getLogger(__name__)
# Warn once per program, which opens a ledger often.
_WARNED: set[Path] = set()
# Arbitrary advisory lock number, unlikely to clash in the same PostgreSQL database.
_LOCK = 7_268_359_114


class NotedPlace(NamedTuple):
    """A file for heads; `fault` says why the newest could not be noted, `store` is None in a warehouse."""

    place: str
    store: str | None
    noted: bool
    fault: str | None = None


def noted_places(connection: Connection) -> dict[str, NotedPlace]:
    rows = connection.execute(select(*(NOTED_HEADS.c[name] for name in NotedPlace._fields)).order_by(NOTED_HEADS.c.place))
    return {row.place: NotedPlace(*row) for row in rows}


def remember_places(tx: WriteTransaction, places: Sequence[NotedPlace], actor: str) -> None:
    before = noted_places(tx.connection)
    for place in places:
        if before.get(place.place) != place:
            act = Act(ActType.HEAD, actor, place.fault, detail=place._asdict())
            tx.put(act, NOTED_HEADS, **place._asdict(), changed_at=tx.present())


@dataclass(frozen=True)
class LedgerHead:
    ledger: str
    position: int
    hash: str


def head_of(connection: Connection) -> LedgerHead:
    return LedgerHead(*connection.execute(select(AUDIT_HEAD.c.ledger, AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())


def owner_fault(ledger: str, noted: LedgerHead, where: str) -> str | None:
    """Say that a noted head is another ledger's; None if it is not."""
    if noted.ledger == ledger:
        return None
    return (
        f"{where} belongs to ledger {noted.ledger}, but this is ledger {ledger}. Either another ledger writes "
        f"there, or this ledger is a replacement. Give each ledger its own warehouse (the key warehouse). {REMEDY}"
    )


def head_fault(connection: Connection, noted: LedgerHead, where: str) -> str | None:
    """Explain, with a remedy, why a ledger does not contain a noted head; None if it does."""
    present = head_of(connection)
    if fault := owner_fault(present.ledger, noted, where):
        return fault
    there = connection.execute(select(AUDIT.c.hash).where(AUDIT.c.position == noted.position)).scalar_one_or_none()
    if noted.position and there != noted.hash:
        has = "has another row there" if there else f"ends with row {present.position}"
        return (
            f"{where} knows row {noted.position} of the record of ledger {noted.ledger}, which {has}: an older copy of the "
            f"ledger was restored, so it does not know what was taken back or held since. {REMEDY}"
        )
    return None


class Ledger(LedgerPart):
    """An open ledger. Threads may share it; a forked or spawned process opens its own."""

    def __init__(self, database: LedgerDatabase) -> None:
        super().__init__(database)
        self.file = OpenedFile.of(database.engine)
        self.marks = Marks(database)
        self.unmark = Unmarking(database)
        self.sweeps = Sweeps(database)
        self.trash = Trash(database)
        self.leases = Leases(database)
        self.parts = Parts(database)
        self.sweep_runs = SweepRuns(database)
        self.reports = Reports(database)
        self.publications = Publications(database)
        self.objections = Objections(database)
        self.violations = Violations(database)
        self.evaluations = Evaluations(database)
        self.policy_book = PolicyBook(database)
        self.holds = Holds(database)
        self.keep = Keeping(database)
        self.realms = Realms(database)
        self.scans = Scans(database)
        self.visibility = Visibility(database)
        self.places = StorePlaces(database)
        self.clock = ClockGuard(database)
        self.histories = MarkHistories(database)
        self.pending = PendingMarks(database)
        self.states = States(database)

    def verify(self, known: ChainHead | None = None) -> AuditResult:
        with self.database.reading() as connection:
            return verify(connection, known)

    def verify_and_record(self, actor: str, known: ChainHead | None = None, only_new: bool = False) -> AuditResult:
        """Verify everything, or only what is new, and record a verification without faults."""
        with self.database.reading() as connection:
            before = last_verified(connection)
            is_whole = not only_new or before is None
            result = verify(connection, known, None if is_whole else before)
            is_due = is_whole and verified_lately(connection, "all") is None
        is_new = before is None or result.head.position > before.position + 1
        if not result.faults and result.rows and (is_new or is_due):
            self._record_verification(actor, result.head, "all" if is_whole else "new", result.rows)
        return result

    def verify_in_run(self, actor: str) -> AuditResult:
        """Verify what is new, or everything if that has not been done for a day."""
        with self.database.reading() as connection:
            lately = verified_lately(connection, "all")
        return self.verify_and_record(actor, only_new=lately is not None)

    def check_swept(
        self, name: str, invariant: SweptInvariant, actor: str, datasets: Sequence[str] | None, is_whole: bool = False
    ) -> list[Violation]:
        """Check an invariant on what moved since the last complete check without violations, and on everything daily."""
        with self.database.reading() as connection:
            last = None if is_whole else verified_lately(connection, name)
            violations = [*invariant(connection, datasets, last.position if last else None)]
            head = ChainHead(*connection.execute(select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())
        if last is None and datasets is None and not violations and head.position:
            self._record_verification(actor, head, name)
        return violations

    @audited
    def _record_verification(
        self, tx: WriteTransaction, actor: str, head: ChainHead, scope: str, rows: int | None = None
    ) -> None:
        detail = {**asdict(head), "scope": scope, **({} if rows is None else {"rows_verified": rows})}
        tx.record(Act(ActType.VERIFY, actor, detail=detail))

    def accept(
        self,
        actor: str,
        reason: str,
        noted: Mapping[str, Any] | None,
        fault: str | None = None,
        places: Sequence[NotedPlace] = (),
        with_rows: bool = True,
        policies: Mapping[str, Any] | None = None,
    ) -> "Accepted":
        """Record that a person vouches for the ledger with its changed rows. `places`: files for heads, also those given up."""

        def work(tx: WriteTransaction) -> tuple[str, ...]:
            changed = changed_rows_of(tx.connection) if with_rows else []
            remember_places(tx, places, actor)
            sentences = tuple(row.sentence for row in changed)
            detail: dict[str, Any] = {"noted": noted, "fault": fault, "rows": [(*row.key, row.seal) for row in changed]}
            if with_rows:
                sentences += tuple(state_faults(tx.connection))
                seal_state(tx.connection)
                detail["next_mark"] = tx.connection.execute(select(CLOCK.c.next_mark)).scalar_one_or_none()
            detail |= {"faults": sentences, **({"policies": policies} if policies else {})}
            tx.record(Act(ActType.ACCEPT, actor, reason, detail=detail))
            return sentences

        sentences = self.database.write(work)
        with self.database.reading() as connection:
            return Accepted(head_of(connection), sentences)

    def accepted_policies(self) -> list[Any]:
        query = select(AUDIT.c.detail).where(AUDIT.c.deed == ActType.ACCEPT)
        details = [detail_in(detail) for (detail,) in self.rows(query)]
        return [detail["policies"] for detail in details if "policies" in detail]

    @audited
    def confirm(self, tx: WriteTransaction, actor: str, detail: Mapping[str, Any]) -> None:
        tx.record(Act(ActType.CONFIRM, actor, "A person said yes to what the run was about to delete.", detail=detail))

    @property
    def id(self) -> str:
        return str(self.rows(select(AUDIT_HEAD.c.ledger))[0][0])

    def audit_lines(self, after: int = 0) -> Iterator[str]:
        with self.database.reading() as connection:
            for row in rows(connection, after):
                yield as_line(row)

    def close(self) -> None:
        self.database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Accepted:
    """A person's acceptance of the ledger: the head with the act, and the rows that stay as they are."""

    head: LedgerHead
    faults: tuple[str, ...]


def open_ledger(
    url: Url | str,
    tell_witness: Callable[[LedgerDatabase, Sequence[Act]], None] | None = None,
    simulated: bool | None = None,
    upgrades: bool = True,
) -> Ledger:
    """Open a ledger, creating it if there is none, and upgrading it from an earlier release if nobody is sweeping.

    A ledger of any other revision is refused and left unchanged; without `upgrades` one of an earlier release, too.
    `tell_witness` is called after the commit of WITNESSED acts, and without acts once the ledger is created. Raises Refused if
    the ledger's clock is of the other kind than `simulated`.
    """
    engine = ledger_engine(url)
    database = LedgerDatabase(engine, tell_witness)
    try:
        with _reachable(engine):
            _create_or_upgrade(engine, upgrades)
            with reading(engine) as connection:
                is_unused = head_of(connection).position == 0
            if simulated is not None:
                ClockGuard(LedgerDatabase(engine)).settle(simulated)
    except BaseException:
        engine.dispose()
        raise
    _warn_of_rights(sqlite_file(url))
    if tell_witness is not None and is_unused:
        tell_witness(database, ())
    return Ledger(database)


def _warn_of_rights(file: Path | None) -> None:
    if file is None or file in _WARNED:
        return
    for place, mode in too_wide(file):
        _WARNED.add(file)
        private = "700" if place.is_dir() else "600"
        sentence = "%s has the mode %03o: other users can read or change the ledger. Run chmod %s %s"
        _LOG.warning(sentence, place, mode, private, place)


def ledger_is_there(url: Url | str) -> bool:
    file = sqlite_file(url)
    return _ask(url, _revision) is not None if file is None else file.is_file()


def ledger_time(url: Url | str) -> datetime:
    return _ask(url, present_by) if sqlite_file(url) is None else clock.now()


def _ask(url: Url | str, question: Callable[[Connection], T]) -> T:
    engine = ledger_engine(url)
    try:
        with _reachable(engine), reading(engine) as connection:
            return question(connection)
    finally:
        engine.dispose()


@contextmanager
def _reachable(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        shown = engine.url.render_as_string(hide_password=True)
        remedy = "Check the key ledger in the settings, and that it is reachable."
        if code_of(error) == sqlite3.SQLITE_READONLY:
            remedy = "Let the user of this program write the file and its folder, or name another place under the key ledger."
        raise Refused(f"The ledger {shown} cannot be opened: {driver_message(error)}. {remedy}") from error


def _revision(connection: Connection) -> str | None:
    inspector = inspect(connection)
    if inspector.has_table(LEDGER_REVISION.name):
        return str(connection.execute(select(LEDGER_REVISION.c.revision)).scalar_one())
    if inspector.has_table(AUDIT_HEAD.name):
        # Up to 0019, Alembic kept the revision.
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())
    return None


def _create_or_upgrade(engine: Engine, upgrades: bool) -> None:
    with reading(engine) as connection:
        revision = _revision(connection)
    if revision == REVISION:
        return
    is_earlier = revision is not None and bool(migrations_from(revision, REVISION))
    if revision is None or (is_earlier and upgrades):
        revision = retry(lambda: _bring_up(engine), RETRY_CONFLICTS)
    if revision != REVISION:
        remedy = "Start a new ledger under another URL (the key ledger in the settings), or use the version of retention-assets"
        remedy += " that made this one."
        if is_earlier:
            remedy = "A command that only looks does not upgrade a ledger; `retention run` does. Earlier versions can't open it"
            remedy += " from then on."
        raise Refused(
            f"The ledger {engine.url.render_as_string(hide_password=True)} has revision {revision}, but this version of "
            f"retention-assets needs revision {REVISION}. Nothing was changed. {remedy}"
        )


def _bring_up(engine: Engine) -> str:
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            # SQLite needs no lock: the transaction began as a writer.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        revision = _revision(connection)
        if revision is None:
            create_tables(connection)
            return REVISION
        steps = migrations_from(revision, REVISION)
        if steps and (sweeper := running_sweep(connection)):
            raise Refused(
                f"The ledger has revision {revision} and is to be upgraded to {REVISION}, but {sweeper}. Nothing was changed. "
                "Wait for it to end, and run again."
            )
        for step in steps:
            step.upgrade(connection)
            connection.execute(update(LEDGER_REVISION).values(revision=step.REVISION))
        return REVISION if steps else revision


def create_tables(connection: Connection) -> None:
    # An existing table of the same name is another program's, and an error.
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(LEDGER_REVISION).values(revision=REVISION))
    connection.execute(insert(CLOCK).values(id=1, next_mark=1))
    connection.execute(insert(AUDIT_HEAD).values(id=1, position=0, hash=GENESIS, ledger=secrets.token_hex(16)))
    seal_state(connection)


def copy_due_marks(source: Ledger, target: Ledger, datasets: Iterable[str], due_by: datetime, simulated: bool) -> None:
    """Copy into an empty ledger what sweeps of these datasets read up to an instant; in a simulated copy, any day."""
    is_due = or_(MARKS.c.id.in_(select(BEGUN_MARKS.c.mark)), MARKS.c.due_at <= due_by)
    wanted = or_(and_(text(OPEN), is_due), text(ASIDE))
    with source.database.reading() as connection:

        def copy(tx: WriteTransaction) -> None:
            for table in (POLICY_VERSIONS, REALMS, HOLDS, PLACES):
                _copy(connection, tx, table, select(table))
            for part in portions(sorted(set(datasets))):
                _copy_marks(connection, tx, and_(wanted, MARKS.c.dataset.in_(part)))
                _copy(connection, tx, BATCHES, select(BATCHES).where(text(BEGUN), BATCHES.c.dataset.in_(part)))
            clock = connection.execute(select(CLOCK)).mappings().one()
            tx.connection.execute(update(CLOCK).values({**clock, "simulated": simulated}))

        target.database.write(copy)


def copy_times_of_file_holds(source: Ledger, target: Ledger) -> None:
    """Let holds and retain rules of files be as old in a copy as they are in its source."""
    rows = source.holds.rows(select(FILE_HOLDS.c.digest, FILE_HOLDS.c.came_at).where(FILE_HOLDS.c.gone_at.is_(None)))

    def write(tx: WriteTransaction) -> None:
        for digest, came_at in rows:
            tx.connection.execute(update(FILE_HOLDS).where(FILE_HOLDS.c.digest == digest).values(came_at=came_at))

    if rows:
        target.database.write(write)


def _copy_marks(source: Connection, tx: WriteTransaction, where: ColumnElement[bool]) -> None:
    query, last = select(MARKS).where(where).order_by(MARKS.c.id).limit(PORTION), 0
    while marks := _copy(source, tx, MARKS, query.where(MARKS.c.id > last)):
        ids = [mark["id"] for mark in marks]
        last = ids[-1]
        plans = {mark["plan"] for mark in _copy(source, tx, PLANNED, select(PLANNED).where(PLANNED.c.mark.in_(ids)))}
        copied = tx.connection.execute(select(PLANS.c.id)).scalars()
        for part in portions(sorted(plans - set(copied))):
            _copy(source, tx, PLANS, select(PLANS).where(PLANS.c.id.in_(part)))
        # bytes that are set aside
        _copy(source, tx, STEPS, select(STEPS).where(STEPS.c.mark.in_(ids)))


def _copy(source: Connection, tx: WriteTransaction, table: Table, query: Select[Any]) -> Sequence[Mapping[str, Any]]:
    rows = [dict(row) for row in source.execute(query).mappings()]
    for part in portions(rows):
        tx.connection.execute(insert(table), list(part))
    return rows
