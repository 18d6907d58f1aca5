"""Acting on units of work: their root rows locked and looked at again, the rows of their children first, the roots last.

Belongs here: the order, and what becomes of a unit of work when part of it fails. Deleting is an act, and so is giving a time.
Does not belong here: what an act does to a table (delete.py), which units of work are meant.

Per part of a batch: lock its root rows, but wait for none that a writer holds; act on the children, all tables at once and
each in a transaction of its own, which are committed when all of them have succeeded; then on the roots, in the transaction
that holds the locks. A part of which anything fails is done again in halves, until what can't be done is alone: it keeps its
root, and the others go. Everything may be done twice. SQLite has one writer at a time, so that there all of a part is one
transaction; so it is where tables of children refer to each other, and where others got in the way.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Executable, Row, select
from sqlalchemy.exc import DBAPIError

from retention_assets.outcomes import Outcome
from retention_assets.sql.engines import LOCK_SECONDS
from retention_assets.sql.errors import WriteFailed, driver_message, is_lock_timeout, is_transient
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets.stores.records.tables import TOLD, RecordTables, TableRows

# Root rows that are locked at once, and the connections that one batch takes at most, if there are not more children than that.
_AT_ONCE, _CONNECTIONS = 1_000, 40
# A writer may hold a row of a child and wait for the root, which no database sees to be a circle: rather let go of the root.
# PostgreSQL forgets it with the transaction; the others are told to.
_PATIENCE = {"postgresql": "SET LOCAL lock_timeout = '1s'", "mysql": "SET innodb_lock_wait_timeout = 1"}
_PATIENCE["mariadb"] = _PATIENCE["mysql"]
_AS_BEFORE = dict.fromkeys(("mysql", "mariadb"), f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}")

_HELD = "A writer holds its root row at this moment."
_NO_NOTE = "It was not there when the sweep was planned, so it is another one of the same key."

Statement = Callable[[TableRows, Sequence[str]], Executable]


class UnitHindered(Exception):
    """A part that was not done. `again`: it may well succeed when it is tried again."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


class RootsHeld(UnitHindered):
    """What is left of a part: its root rows are locked by writers at this moment."""


# A part that others got in the way of is tried again so often before it is cut in two.
RETRY_PART = RetryPolicy(lambda fault: isinstance(fault, UnitHindered) and fault.again, attempts=3, pause=0.1)


def note_of(row: Row[Any]) -> str:
    """What a row of the root says of its unit of work, in the words of the database."""
    said_of = {name: value for name, value in zip(row._fields, row, strict=True) if name in TOLD}
    return json.dumps(said_of, ensure_ascii=False, separators=(",", ":"))


def reason_changed(note: str | None, present: str) -> str | None:
    """How a unit of work differs from what its note says, in a sentence; none if it does not."""
    if note == present:
        return None
    if note is None:
        return _NO_NOTE
    before, now = json.loads(note), json.loads(present)
    if before.get("closed_at") and "closed_at" in now and now["closed_at"] is None:
        return f"It was reopened: closed_at was {before['closed_at']} when the sweep was planned, and is empty now."
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    said_of = ", ".join(f"{name} was {before.get(name) or 'empty'} and is {now.get(name) or 'empty'} now" for name in names)
    return f"It was changed since the sweep was planned: {said_of}."


@dataclass(frozen=True)
class RowAction:
    """What is done to the rows of units of work in any of their tables, and what then became of them."""

    outcome: Outcome
    statement: Statement
    # What is done to rows of children whose root is gone; nothing if none.
    orphans: Statement | None = None
    # Of a unit of work, and what its root says now, why it is left alone; none if it is not.
    needed: Callable[[Target, str], str | None] = lambda target, present: reason_changed(target.note, present)


def apply_action(
    database: ForeignDatabase, tables: RecordTables, targets: Sequence[Target], act: RowAction, parallelism: int
) -> list[SweptTarget]:
    """Act on units of work, in so many parts at once; one outcome for each."""
    parts = equal_parts(targets, 1 if tables.dialect == "sqlite" else parallelism)
    if tables.dialect == "sqlite" or tables.in_turn:
        with ThreadPoolExecutor(min(len(parts), _CONNECTIONS) or 1) as threads:
            return [one for done in threads.map(_Acting(database, tables, act, None).part, parts) for one in done]
    at_once = max(1, min(len(parts), _CONNECTIONS // (1 + len(tables.children))))
    with ThreadPoolExecutor(at_once * len(tables.children) or 1) as children, ThreadPoolExecutor(at_once) as threads:
        acting = _Acting(database, tables, act, children)
        return [one for done in threads.map(acting.part, parts) for one in done]


def present_of(connection: Connection, tables: RecordTables, ids: Sequence[str], locked: bool = False) -> dict[str, str]:
    """What the root says now of each of some units of work that it has. Locked: and that no writer holds."""
    query = select(tables.root.key.text.label("key"), *tables.texts).where(tables.root.key.among(ids))
    if locked and tables.dialect != "sqlite":
        # In one order, so that two who lock the same rows don't wait in a circle.
        query = query.order_by(tables.root.key.column).with_for_update(skip_locked=True)
    wanted = set(ids)
    return {row[0]: note_of(row) for row in connection.execute(query) if row[0] in wanted}


@dataclass(frozen=True)
class _Acting:
    """One act on many parts."""

    database: ForeignDatabase
    tables: RecordTables
    act: RowAction
    # Who acts on all children at once; none: the transaction of the roots does, on one after the other.
    children: Executor | None

    def part(self, targets: Sequence[Target]) -> list[SweptTarget]:
        """The outcomes of one part."""
        chunks = [targets[at : at + _AT_ONCE] for at in range(0, len(targets), _AT_ONCE)]
        return [one for chunk in chunks for one in self._settled(chunk, self.children is not None)]

    def _settled(self, targets: Sequence[Target], at_once: bool) -> list[SweptTarget]:
        """A part as a whole or, if that can't be, in halves. `at_once`: all tables of children are, at the first attempt."""
        settled: list[SweptTarget] = []
        left, first = targets, at_once

        def attempt() -> None:
            nonlocal left, first
            sent, together, first = set[str](), first, False
            try:
                found = self.database.write(lambda connection: self._done(connection, left, sent, together))
            except UnitHindered as fault:
                # One table after the other, it may succeed.
                fault.again |= together
                raise
            held = {one.transaction for one in found if one.outcome is Outcome.FAILED}
            settled.extend(one for one in found if one.transaction not in held)
            left = [one for one in left if one.transaction in held]
            if left:
                raise RootsHeld(_HELD, again=True)

        try:
            retry(attempt, RETRY_PART)
        except WriteFailed as fault:
            # Halves would not find a database either that is lost.
            return settled + (_failed(left, str(fault)) if fault.is_lost else self._apart(left, str(fault)))
        except RootsHeld as fault:
            return settled + _failed(left, str(fault))
        except UnitHindered as fault:
            return settled + self._apart(left, str(fault))
        return settled

    def _apart(self, targets: Sequence[Target], why: str) -> list[SweptTarget]:
        if len(targets) == 1:
            return _failed(targets, why)
        half = len(targets) // 2
        return [one for some in (targets[:half], targets[half:]) for one in self._settled(some, False)]

    def _done(self, connection: Connection, targets: Sequence[Target], sent: set[str], at_once: bool) -> list[SweptTarget]:
        """One transaction. `sent` are those of which an earlier one may have been committed without an answer."""
        present = present_of(connection, self.tables, [one.transaction for one in targets], locked=True)
        absent = [one.transaction for one in targets if one.transaction not in present]
        held = present_of(connection, self.tables, absent) if absent and self.tables.dialect != "sqlite" else {}
        needed = {
            one.transaction: self.act.needed(one, present[one.transaction]) for one in targets if one.transaction in present
        }
        go = [name for name, why in needed.items() if why is None]
        gone = [name for name in absent if name not in held]
        on_children = self._at_once if at_once else partial(self._in_turn, connection)
        if go:
            on_children(self.act.statement, go)
        if self.act.orphans and gone:
            on_children(self.act.orphans, gone)
        if go:
            connection.execute(self.act.statement(self.tables.root, go))
        found = [
            SweptTarget(name, self.act.outcome if why is None else Outcome.SPARED, error=why) for name, why in needed.items()
        ]
        found += [SweptTarget(name, Outcome.FAILED, error=_HELD) for name in held]
        found += [SweptTarget(name, Outcome.DELETED if name in sent else Outcome.ALREADY_GONE) for name in gone]
        if self.act.outcome is Outcome.DELETED:
            sent.update(go)
        return found

    def _in_turn(self, connection: Connection, statement: Statement, ids: Sequence[str]) -> None:
        """Act on the rows of all children in the transaction of the roots, in the order of the settings."""
        with _hindering(), self._impatient(connection):
            for rows in self.tables.children:
                connection.execute(statement(rows, ids))

    def _at_once(self, statement: Statement, ids: Sequence[str]) -> None:
        """Act on the rows of all children, each table in a transaction of its own: on those of all tables, or of none."""
        if self.children is None:
            raise ValueError("nobody is there to act on several tables at once")
        asked = [self.children.submit(self._on_child, statement(rows, ids)) for rows in self.tables.children]
        wait(asked)
        with ExitStack() as stack:
            faults = [fault for one in asked if (fault := one.exception())]
            opened = [stack.enter_context(one.result()) for one in asked if not one.exception()]
            if faults:
                # Leaving the stack undoes what the others did. What would fail again says more than what might not.
                raise min(faults, key=lambda fault: isinstance(fault, UnitHindered) and fault.again)
            for child in opened:
                with _hindering():
                    child.commit()

    def _on_child(self, statement: Executable) -> Connection:
        """A transaction in which it is done, and that is still open."""
        with ExitStack() as stack, _hindering():
            connection = stack.enter_context(self.database.engine.connect())
            with self._impatient(connection):
                connection.execute(statement)
            stack.pop_all()
        return connection

    @contextmanager
    def _impatient(self, connection: Connection) -> Iterator[None]:
        """While open, a statement does not wait for the locks of others as long as elsewhere."""
        if self.tables.dialect in _PATIENCE:
            connection.exec_driver_sql(_PATIENCE[self.tables.dialect])
        try:
            yield
        finally:
            if self.tables.dialect in _AS_BEFORE:
                # A connection that was lost has no patience to get back, and what lost it is on its way to be said.
                with suppress(DBAPIError):
                    connection.exec_driver_sql(_AS_BEFORE[self.tables.dialect])


@contextmanager
def _hindering() -> Iterator[None]:
    try:
        yield
    except DBAPIError as fault:
        # Who waited in vain for a lock would wait again.
        raise UnitHindered(driver_message(fault), is_transient(fault) and not is_lock_timeout(fault)) from fault


def _failed(targets: Sequence[Target], why: str) -> list[SweptTarget]:
    return [SweptTarget(one.transaction, Outcome.FAILED, error=why) for one in targets]
