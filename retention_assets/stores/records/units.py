"""Acts on units of work (deleting, setting a time): root rows are locked and read again, children go first, roots last.

Per part of a batch: lock its root rows, but wait for none that a writer holds; act on the children, all tables at once and each
in a transaction of its own, which are committed when all of them have succeeded; then on the roots, in the transaction that
holds the locks. A part of which anything fails is done again in halves, until what can't be done is alone: it keeps its root,
and the others go. Parts of one batch get in each other's way as well, where a database locks gaps between rows: what failed for
such a reason is done once more when all parts are done. Everything may be done twice. All of a part is one transaction on
SQLite, which has one writer at a time, where tables of children refer to each other, and where others got in the way.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import Any

from sqlalchemy import ColumnElement, Connection, Delete, Row, Update, false, or_, select
from sqlalchemy.exc import DBAPIError

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import WriteFailed, is_transient
from retention_assets.sql.foreign import ForeignDatabase, clear_limits
from retention_assets.sql.locks import BLINK, LOCKED, MOMENT, RowsLocked, short_lock_wait
from retention_assets.sql.reflection import has_rows
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.cascades import Cascades
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import Permit, Remains, SweptTarget, Target
from retention_assets.stores.records.tables import NOTED, RecordTables, TableRows

# root rows locked at once; connections of one batch at most, unless there are more children than that
_AT_ONCE, _CONNECTIONS = 1_000, 40
_EMPTY = "The root table has no row at all. Is it the right database? Nothing is taken for gone without a sign of the data."
_NO_TIME = "Rows of the table {table} do not have the time that was set: the database kept what they were, and it is undone."
_NO_NOTE = "It was not there when the sweep was planned, so it is another one of the same key."

Statement = Callable[[TableRows, Sequence[str]], Delete | Update]


class UnitBlocked(Exception):
    """A part that was not done. `retry`: trying again may succeed. `by_others`: others were in its way."""

    def __init__(self, why: str, retry: bool, by_others: bool) -> None:
        super().__init__(why)
        self.retry, self.by_others = retry, by_others


class RootsHeld(UnitBlocked):
    """The rest of a part, whose root rows writers have locked."""


# attempts at a part blocked by others before it is cut in two
RETRY_PART = RetryPolicy(lambda fault: isinstance(fault, UnitBlocked) and fault.retry, attempts=3, pause=0.1)


def note_of(row: Row[Any]) -> str:
    values = {name: value for name, value in zip(row._fields, row, strict=True) if name in NOTED}
    return _NOTE.encode(values)


# made once: for each note it would take as long as the note
_NOTE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def reason_changed(note: str | None, present: str) -> str | None:
    """Say how a unit of work differs from its note; None if it does not."""
    if note == present:
        return None
    if note is None:
        return _NO_NOTE
    before, now = json.loads(note), json.loads(present)
    if before.get("closed_at") and "closed_at" in now and now["closed_at"] is None:
        return f"It was reopened: closed_at was {before['closed_at']} when the sweep was planned, and is empty now."
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    values = ", ".join(f"{name} was {before.get(name) or 'empty'} and is {now.get(name) or 'empty'} now" for name in names)
    return f"It was changed since the sweep was planned: {values}."


@dataclass(frozen=True)
class RowAction:
    """An action on rows of units of work in any of their tables, and its outcome."""

    outcome: Outcome
    statement: Statement
    # action on children without a root; None: no action
    orphans: Statement | None = None
    # rows on which the action had no effect; None: the rows still there after a deletion
    undone: Callable[[TableRows, Sequence[str]], ColumnElement[bool]] | None = None
    # why to leave a unit of work alone, given what its root says now; None to act
    reason_to_spare: Callable[[Target, str], str | None] = lambda target, present: reason_changed(target.note, present)


def apply_action(
    database: ForeignDatabase,
    tables: RecordTables,
    targets: Sequence[Target],
    action: RowAction,
    parallelism: int,
    permit: Permit,
    cascades: Cascades,
) -> list[SweptTarget]:
    """Act on units of work in parallel parts; one outcome for each."""
    parts = equal_parts(targets, 1 if tables.dialect == "sqlite" else parallelism)
    if tables.dialect == "sqlite" or tables.one_by_one:
        with ThreadPoolExecutor(min(len(parts), _CONNECTIONS) or 1) as threads:
            return _run_parts(_UnitRunner(database, tables, action, permit, cascades, None), parts, threads)
    at_once = max(1, min(len(parts), _CONNECTIONS // (1 + len(tables.children))))
    with ThreadPoolExecutor(at_once * len(tables.children) or 1) as children, ThreadPoolExecutor(at_once) as threads:
        return _run_parts(_UnitRunner(database, tables, action, permit, cascades, children), parts, threads)


def _run_parts(runner: "_UnitRunner", parts: Sequence[Sequence[Target]], threads: Executor) -> list[SweptTarget]:
    """Runs parts at once, and then alone what other parts or writers blocked."""
    found = {one.transaction: one for done in threads.map(runner.part, parts) for one in done}
    if runner.blocked and len(parts) > 1:
        again = [one for part in parts for one in part if one.transaction in runner.blocked]
        found |= {one.transaction: one for one in replace(runner, children=None).part(again)}
    return [*found.values()]


def present_of(connection: Connection, tables: RecordTables, ids: Sequence[str], locked: bool = False) -> dict[str, str]:
    """Read the present root row of each. With `locked`, lock them and skip rows that a writer holds."""
    query = select(tables.root.key.text.label("key"), *tables.texts).where(tables.root.key.among(ids))
    if locked and tables.dialect != "sqlite":
        # in one order, so that two who lock the same rows don't deadlock
        query = query.order_by(tables.root.key.column).with_for_update(skip_locked=True)
    wanted = set(ids)
    # all at once: fetching rows one by one costs as much as deleting them
    return {row[0]: note_of(row) for row in connection.execute(query).all() if row[0] in wanted}


def remains_of(connection: Connection, tables: RecordTables, ids: Sequence[str], place_known: bool) -> dict[str, Remains]:
    """Tell what is left. Where children go in transactions of their own, only the root tells."""
    there = present_of(connection, tables, ids)
    if not (there or place_known or has_rows(connection, tables.root.table)):
        return {}
    at_once = tables.dialect == "sqlite" or tables.one_by_one or not tables.children
    return {one: Remains.NOTHING if one not in there else Remains.ALL if at_once else Remains.UNKNOWN for one in ids}


@dataclass(frozen=True)
class _UnitRunner:
    """One action on many parts."""

    database: ForeignDatabase
    tables: RecordTables
    action: RowAction
    permit: Permit
    cascades: Cascades
    # runs all children at once; None: the transaction of the roots does one after the other
    children: Executor | None
    # A writer may hold a child row and wait for the root, a circle that no database detects: so the root is released.
    lock_wait: float = MOMENT
    # failed because of others
    blocked: set[str] = field(default_factory=set)
    # may have been deleted by a commit without an answer
    sent: set[str] = field(default_factory=set)
    # set once any part of the batch has seen a row of the root: another part may have deleted the last one since
    root_seen: Event = field(default_factory=Event)

    def part(self, targets: Sequence[Target]) -> list[SweptTarget]:
        chunks = [targets[at : at + _AT_ONCE] for at in range(0, len(targets), _AT_ONCE)]
        return [one for chunk in chunks for one in self._run(chunk, self.children is not None)]

    def _run(self, targets: Sequence[Target], at_once: bool) -> list[SweptTarget]:
        """Runs a part as a whole or, if that fails, in halves. `at_once`: all child tables at once, on the first attempt."""
        settled: list[SweptTarget] = []
        left, first = targets, at_once

        def attempt() -> None:
            nonlocal left, first
            together, first = first, False
            try:
                found = self.database.write(lambda connection: self._run_once(connection, left, together), self.permit)
            except UnitBlocked as fault:
                # one table after the other, it may succeed
                fault.retry |= together
                raise
            held = {one.transaction for one in found if one.error == LOCKED}
            settled.extend(one for one in found if one.transaction not in held)
            left = [one for one in left if one.transaction in held]
            if left:
                raise RootsHeld(LOCKED, retry=True, by_others=True)

        try:
            retry(attempt, RETRY_PART)
        except Withheld as fault:
            return settled + [SweptTarget(one.transaction, Outcome.WITHHELD, error=str(fault)) for one in left]
        except WriteFailed as fault:
            # halves would fail too if the database is lost, or a SQLite file has another writer
            as_one = fault.is_lost or (fault.is_transient and self.tables.dialect == "sqlite")
            by_others = fault.is_transient or isinstance(fault, RowsLocked)
            return settled + (_failed(left, str(fault)) if as_one else self._run_halves(left, str(fault), by_others))
        except RootsHeld as fault:
            return settled + _failed(left, str(fault))
        except UnitBlocked as fault:
            return settled + self._run_halves(left, str(fault), fault.by_others)
        return settled

    def _run_halves(self, targets: Sequence[Target], why: str, by_others: bool) -> list[SweptTarget]:
        if len(targets) == 1:
            if by_others:
                self.blocked.add(targets[0].transaction)
            return _failed(targets, why)
        half = len(targets) // 2
        hurried = replace(self, lock_wait=BLINK)
        return [one for some in (targets[:half], targets[half:]) for one in hurried._run(some, False)]

    def _run_once(self, connection: Connection, targets: Sequence[Target], at_once: bool) -> list[SweptTarget]:
        """One transaction."""
        present = present_of(connection, self.tables, [one.transaction for one in targets], locked=True)
        absent = [one.transaction for one in targets if one.transaction not in present]
        held = present_of(connection, self.tables, absent) if absent and self.tables.dialect != "sqlite" else {}
        reasons = {
            one.transaction: self.action.reason_to_spare(one, present[one.transaction])
            for one in targets
            if one.transaction in present
        }
        go = [name for name, why in reasons.items() if why is None]
        missing = [name for name in absent if name not in held]
        known = {one.transaction for one in targets if one.place_known} | self.sent
        if present:
            self.root_seen.set()
        is_right = not missing or known.issuperset(missing) or self._has_roots(connection)
        # in an empty table, which may be another one, nothing counts as gone and no child as an orphan
        gone = missing if is_right else [name for name in missing if name in known]
        on_children = self._act_at_once if at_once else partial(self._act_one_by_one, connection)
        if go:
            on_children(self.action.statement, go)
        if self.action.orphans and gone:
            on_children(self.action.orphans, gone)
        if go:
            self.permit()
            with short_lock_wait(connection, self.lock_wait):
                count = connection.execute(self.action.statement(self.tables.root, go)).rowcount
            if self.action.outcome is Outcome.DELETED and count < len(go):
                raise WriteFailed(self.cascades.about_kept(), is_lost=False, is_transient=False)
        tables = (self.tables.root, *(() if at_once else self.tables.children))
        self._check_done(connection, [(rows, self._undone(rows, go, gone)) for rows in tables if go or gone])
        found = [
            SweptTarget(name, self.action.outcome if why is None else Outcome.SPARED, error=why)
            for name, why in reasons.items()
        ]
        found += [SweptTarget(name, Outcome.FAILED, error=LOCKED) for name in held]
        found += [SweptTarget(name, Outcome.DELETED if name in self.sent else Outcome.ALREADY_GONE) for name in gone]
        found += [SweptTarget(name, Outcome.FAILED, error=_EMPTY) for name in missing if name not in gone]
        if self.action.outcome is Outcome.DELETED:
            self.sent.update(go)
        return found

    def _undone(self, rows: TableRows, go: Sequence[str], gone: Sequence[str]) -> ColumnElement[bool]:
        condition = self.action.undone or (lambda rows, ids: rows.key.exactly(ids))
        orphans = self.action.orphans(rows, gone).whereclause if self.action.orphans and rows is not self.tables.root else None
        return or_(condition(rows, go) if go else false(), false() if orphans is None or not gone else orphans)

    def _check_done(self, connection: Connection, undone: Sequence[tuple[TableRows, ColumnElement[bool]]]) -> None:
        """Raise WriteFailed where a trigger, or anything else, left rows unchanged."""
        if self.action.undone is None:
            looks = (partial(has_rows, connection, rows.table, condition) for rows, condition in undone)
            self.cascades.check_gone(connection, *looks)
        for rows, condition in undone if self.action.undone else ():
            if has_rows(connection, rows.table, condition):
                raise WriteFailed(_NO_TIME.format(table=rows.table.fullname), is_lost=False, is_transient=False)

    def _has_roots(self, connection: Connection) -> bool:
        """Also true if there were rows when this batch began."""
        # rows first: a part that deletes the last one has already set the event
        return has_rows(connection, self.tables.root.table) or self.root_seen.is_set()

    def _act_one_by_one(self, connection: Connection, statement: Statement, ids: Sequence[str]) -> None:
        """In the transaction of the roots, in the order of the settings."""
        with _raise_blocked(self.database), short_lock_wait(connection, self.lock_wait):
            for rows in self.tables.children:
                self.permit()
                connection.execute(statement(rows, ids))

    def _act_at_once(self, statement: Statement, ids: Sequence[str]) -> None:
        """Each table in a transaction of its own; commits all or none."""
        if self.children is None:
            raise ValueError("nobody is there to act on several tables at once")
        futures = [self.children.submit(self._act_on_child, statement, rows, ids) for rows in self.tables.children]
        wait(futures)
        with ExitStack() as stack:
            faults = [fault for one in futures if (fault := one.exception())]
            opened = [stack.enter_context(one.result()) for one in futures if not one.exception()]
            for child in opened:
                stack.callback(clear_limits, child)
            if faults:
                # Leaving the stack rolls the others back. A permanent fault tells more than one that may pass.
                raise min(faults, key=lambda fault: isinstance(fault, UnitBlocked) and fault.retry)
            for child in opened:
                self.permit()
                with _raise_blocked(self.database):
                    child.commit()

    def _act_on_child(self, statement: Statement, rows: TableRows, ids: Sequence[str]) -> Connection:
        """Returns the transaction, still open."""
        with ExitStack() as stack, _raise_blocked(self.database):
            connection = stack.enter_context(self.database.engine.connect())
            stack.callback(clear_limits, connection)
            self.database.set_limits(connection)
            with short_lock_wait(connection, self.lock_wait):
                self.permit()
                connection.execute(statement(rows, ids))
            if self.action.undone:
                self._check_done(connection, [(rows, self.action.undone(rows, ids))])
            stack.pop_all()
        return connection


@contextmanager
def _raise_blocked(database: ForeignDatabase) -> Iterator[None]:
    try:
        yield
    except WriteFailed as fault:
        raise UnitBlocked(str(fault), retry=False, by_others=isinstance(fault, RowsLocked)) from fault
    except DBAPIError as fault:
        raise UnitBlocked(database.message(fault), is_transient(fault), is_transient(fault)) from fault


def _failed(targets: Sequence[Target], why: str) -> list[SweptTarget]:
    return [SweptTarget(one.transaction, Outcome.FAILED, error=why) for one in targets]
