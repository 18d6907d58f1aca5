"""Acts on units of work (deleting, setting a time): root rows are locked and read again, children go first, roots last.

Of a part of a batch at first all tables of children are done at once, each in a transaction of its own; these are committed
when all of them have succeeded, and then the transaction of the roots, which holds the locks. Everything may be done twice. All
of a part is one transaction on SQLite, which has one writer at a time, where tables of children refer to each other, and where
anything failed before.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Delete, Row, Update, false, or_, select

from retention_assets.outcomes import Outcome, SweptTarget
from retention_assets.sql.errors import WriteFailed, is_transient
from retention_assets.sql.foreign import ForeignDatabase, clear_limits, has_rows
from retention_assets.sql.foreign_keys import Cascades
from retention_assets.sql.guarded_delete import Attempt, GuardedDelete, short_lock_wait
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import Permit, Remains, Target
from retention_assets.stores.records.tables import NOTED, RecordTables, TableRows

# root rows locked at once; connections of one batch at most, unless there are more children than that
_AT_ONCE, _CONNECTIONS = 1_000, 40
_NO_TIME = "Rows of the table {table} do not have the time that was set: the database kept what they were, and it is undone."
_NO_NOTE = "It was not there when the sweep was planned, so it is another one of the same key."

Statement = Callable[[TableRows, Sequence[str]], Delete | Update]


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
    parts = equal_parts([one.transaction for one in targets], 1 if tables.dialect == "sqlite" else parallelism)
    alone = tables.dialect == "sqlite" or tables.one_by_one
    at_once = max(1, min(len(parts), _CONNECTIONS if alone else _CONNECTIONS // (1 + len(tables.children))))
    pieces = [part[at : at + _AT_ONCE] for part in parts for at in range(0, len(part), _AT_ONCE)]
    with ThreadPoolExecutor(at_once * len(tables.children) or 1) as children:
        run = UnitRun(
            database=database,
            table=tables.root.table,
            cascades=cascades,
            permit=permit,
            items={one.transaction: one for one in targets},
            known=[one.transaction for one in targets if one.place_known],
            outcome=action.outcome,
            tables=tables,
            action=action,
            children=None if alone else children,
        )
        return run.run(pieces, at_once)


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


@dataclass(kw_only=True)
class UnitRun(GuardedDelete[Target, str]):
    """One action on a batch of units of work."""

    empty: ClassVar[str] = GuardedDelete.empty.replace("The table", "The root table")
    # a row of a child that somebody holds is only found by halves
    most_waits: ClassVar[int] = 500

    tables: RecordTables
    action: RowAction
    # runs all children at once; None: the transaction of the roots does one after the other
    children: Executor | None

    def lock(
        self,
        connection: Connection,
        names: Sequence[str],
        attempt: Attempt,  # noqa: ARG002 - held roots are always skipped
    ) -> tuple[Mapping[str, str], Collection[str]]:
        present = present_of(connection, self.tables, names, locked=True)
        absent = [name for name in names if name not in present]
        return present, present_of(connection, self.tables, absent) if absent and self.tables.dialect != "sqlite" else ()

    def reason_to_spare(self, item: Target, state: str) -> str | None:
        return self.action.reason_to_spare(item, state)

    def delete(self, connection: Connection, going: Sequence[str], gone: Sequence[str], attempt: Attempt) -> None:
        at_once = self.children if attempt is Attempt.FIRST and len(going) + len(gone) > 1 else None
        on_children = (
            partial(self._act_one_by_one, connection, attempt) if at_once is None else partial(self._act_at_once, at_once)
        )
        if going:
            on_children(self.action.statement, going)
        if self.action.orphans and gone:
            on_children(self.action.orphans, gone)
        if going:
            self.permit()
            statement = self.action.statement(self.tables.root, going)
            if isinstance(statement, Delete):
                self.delete_exactly(connection, statement, len(going), attempt)
            else:
                with short_lock_wait(connection, attempt.lock_wait):
                    connection.execute(statement)
        tables = (self.tables.root, *(() if at_once else self.tables.children))
        self._check_done(connection, [(rows, self._undone(rows, going, gone)) for rows in tables])

    def _undone(self, rows: TableRows, going: Sequence[str], gone: Sequence[str]) -> ColumnElement[bool]:
        condition = self.action.undone or (lambda rows, ids: rows.key.exactly(ids))
        orphans = self.action.orphans(rows, gone).whereclause if self.action.orphans and rows is not self.tables.root else None
        return or_(condition(rows, going) if going else false(), false() if orphans is None or not gone else orphans)

    def _check_done(self, connection: Connection, undone: Sequence[tuple[TableRows, ColumnElement[bool]]]) -> None:
        """Raise WriteFailed where a trigger, or anything else, left rows unchanged."""
        if self.action.undone is None:
            looks = (partial(has_rows, connection, rows.table, condition) for rows, condition in undone)
            self.cascades.check_gone(connection, *looks)
        for rows, condition in undone if self.action.undone else ():
            if has_rows(connection, rows.table, condition):
                raise WriteFailed(_NO_TIME.format(table=rows.table.fullname), is_lost=False, is_transient=False)

    def _act_one_by_one(self, connection: Connection, attempt: Attempt, statement: Statement, ids: Sequence[str]) -> None:
        """In the transaction of the roots, in the order of the settings."""
        with short_lock_wait(connection, attempt.lock_wait):
            for rows in self.tables.children:
                self.permit()
                connection.execute(statement(rows, ids))

    def _act_at_once(self, children: Executor, statement: Statement, ids: Sequence[str]) -> None:
        """Each table in a transaction of its own; commits all or none."""
        futures = [children.submit(self._act_on_child, statement, rows, ids) for rows in self.tables.children]
        wait(futures)
        with ExitStack() as stack:
            faults = [fault for one in futures if (fault := one.exception())]
            opened = [stack.enter_context(one.result()) for one in futures if not one.exception()]
            for child in opened:
                stack.callback(clear_limits, child)
            if faults:
                # Leaving the stack rolls the others back. A permanent fault tells more than one that may pass.
                raise min(faults, key=lambda fault: isinstance(fault, Exception) and is_transient(fault))
            for child in opened:
                self.permit()
                child.commit()

    def _act_on_child(self, statement: Statement, rows: TableRows, ids: Sequence[str]) -> Connection:
        """Returns the transaction, still open."""
        with ExitStack() as stack:
            connection = stack.enter_context(self.database.engine.connect())
            stack.callback(clear_limits, connection)
            self.database.set_limits(connection)
            with short_lock_wait(connection):
                self.permit()
                connection.execute(statement(rows, ids))
            if self.action.undone:
                self._check_done(connection, [(rows, self.action.undone(rows, ids))])
            stack.pop_all()
        return connection
