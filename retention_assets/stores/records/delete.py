"""Acts on units of work: deletes them, sets, clears or postpones their expiry; root rows are locked and read again, children go
first, roots last.

Of a part of a batch at first all tables of children are done at once, each in a transaction of its own; these are committed
when all of them have succeeded, and then the transaction of the roots, which holds the locks. Everything may be done twice. All
of a part is one transaction on SQLite, which has one writer at a time, where tables of children refer to each other, and where
anything failed before.

A time is the same instant in all tables of a unit of work. A column without a zone holds UTC; SQLite holds texts in the form of
its own functions.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Delete,
    Row,
    Select,
    Update,
    and_,
    case,
    delete,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    update,
)

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
_NO_TIME = "Rows of the table {table} do not have the new time: the database kept the old one, so the change was rolled back."
_NO_NOTE = "It did not exist when the sweep was planned, so it is another unit with the same key."

Statement = Callable[[TableRows, Sequence[str]], Delete | Update]
# made once: for each note it would take as long as the note
_NOTE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# columns without fractions round a time, in MySQL to the next second
_ROUNDED = timedelta(seconds=1)


def note_of(row: Row[Any]) -> str:
    values = {name: value for name, value in zip(row._fields, row, strict=True) if name in NOTED}
    return _NOTE.encode(values)


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
        # A trigger, or anything else, may have left rows unchanged.
        if self.action.undone is None:
            looks = (partial(has_rows, connection, rows.table, condition) for rows, condition in undone)
            self.cascades.check_gone(connection, *looks)
        for rows, condition in undone if self.action.undone else ():
            if has_rows(connection, rows.table, condition):
                raise WriteFailed(_NO_TIME.format(table=rows.table.fullname), is_lost=False, is_transient=False)

    def _act_one_by_one(self, connection: Connection, attempt: Attempt, statement: Statement, ids: Sequence[str]) -> None:
        with short_lock_wait(connection, attempt.lock_wait):
            for rows in self.tables.children:
                self.permit()
                connection.execute(statement(rows, ids))

    def _act_at_once(self, children: Executor, statement: Statement, ids: Sequence[str]) -> None:
        # each table in a transaction of its own; commits all or none
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
        with ExitStack() as stack:
            connection = stack.enter_context(self.database.engine.connect())
            stack.callback(clear_limits, connection)
            self.database.set_limits(connection)
            with short_lock_wait(connection):
                self.permit()
                connection.execute(statement(rows, ids))
            if self.action.undone:
                self._check_done(connection, [(rows, self.action.undone(rows, ids))])
            # returned open
            stack.pop_all()
        return connection


def delete_rows(tables: RecordTables) -> RowAction:
    """Delete rows. Orphaned children go as well, unless a root of that key is there again."""

    def orphans(rows: TableRows, ids: Sequence[str]) -> Delete:
        roots = exists(select(literal(1)).select_from(tables.root.table).where(tables.root.key.among(ids)))
        return delete(rows.table).where(rows.key.exactly(ids), ~roots)

    return RowAction(Outcome.DELETED, lambda rows, ids: delete(rows.table).where(rows.key.exactly(ids)), orphans)


def set_expiry(at: datetime) -> RowAction:
    """Let them expire at an instant. An earlier or equal time stays."""

    def later(rows: TableRows, ids: Sequence[str], at: datetime = at) -> ColumnElement[bool]:
        time = _Time.of(rows)
        return and_(rows.key.exactly(ids), or_(time.column.is_(None), time.value > time.bound(at)))

    def statement(rows: TableRows, ids: Sequence[str]) -> Update:
        return _Time.of(rows).becomes(at).where(later(rows, ids))

    return RowAction(Outcome.EXPIRING, statement, undone=lambda rows, ids: later(rows, ids, at + _ROUNDED))


def clear_expiry() -> RowAction:
    """Let them never expire, whatever has become of them since."""

    def timed(rows: TableRows, ids: Sequence[str]) -> ColumnElement[bool]:
        return and_(rows.key.exactly(ids), _Time.of(rows).column.is_not(None))

    def statement(rows: TableRows, ids: Sequence[str]) -> Update:
        return _Time.of(rows).becomes(None).where(timed(rows, ids))

    return RowAction(Outcome.EXPIRING, statement, undone=timed, reason_to_spare=lambda *_: None)


def postpone_expiry(tables: RecordTables, within: datetime, until: datetime) -> RowAction:
    """Postpone what would expire by `within` to `until`. No time becomes earlier."""

    def earlier(rows: TableRows, ids: Sequence[str], until: datetime = until) -> ColumnElement[bool]:
        time, matches = _Time.of(rows), rows.key.exactly(ids)
        if rows is tables.root:
            return and_(matches, time.value <= time.bound(within), time.value < time.bound(until))
        return and_(matches, or_(time.column.is_(None), time.value < time.bound(until)))

    def statement(rows: TableRows, ids: Sequence[str]) -> Update:
        return _Time.of(rows).becomes(until).where(earlier(rows, ids))

    return RowAction(Outcome.EXPIRING, statement, undone=lambda rows, ids: earlier(rows, ids, until - _ROUNDED))


def select_expiring(
    tables: RecordTables, realm: str | None, within: datetime, archived_types: Collection[str], all_: bool
) -> Select[Any]:
    """Select units of work of a realm that expire by an instant: all, or those not done with; `kept` tells the latter.

    Not done with: unfinished, or not archived though the type must be.
    """
    time, kept = _Time.of(tables.root), or_(*_unfinished_conditions(tables, archived_types))
    columns = (tables.root.key.text.label("key"), *tables.texts, case((kept, 1), else_=0).label("kept"))
    query = select(*columns).order_by(tables.root.key.column).where(tables.of_realm(realm), time.value <= time.bound(within))
    return query if all_ else query.where(kept)


def count_expiring(
    tables: RecordTables, realm: str | None, begin: datetime, end: datetime, archived_types: Collection[str]
) -> Select[Any]:
    """Count what expires in an interval, by type, with how many are unfinished or lack their archive."""
    time, kind = _Time.of(tables.root), tables.log_columns.get("type", literal(None))
    counts: list[ColumnElement[Any]] = [
        func.sum(case((which, 1), else_=0)) for which in _unfinished_conditions(tables, archived_types)
    ]
    columns: list[ColumnElement[Any]] = [kind, func.count(), *counts, *([literal(0)] if len(counts) == 1 else [])]
    query: Select[Any] = select(*columns).select_from(tables.root.table)
    query = query.where(tables.of_realm(realm), time.value >= time.bound(begin), time.value < time.bound(end))
    return query.group_by(kind).order_by(kind) if "type" in tables.log_columns else query


def _unfinished_conditions(tables: RecordTables, archived_types: Collection[str]) -> list[ColumnElement[bool]]:
    # a missing column means that nobody ever finished or archived it
    conditions: list[ColumnElement[bool]] = [tables.log_columns["closed_at"].is_(None)]
    if archived_types and "type" in tables.log_columns:
        must = tables.log_columns["type"].in_(sorted(archived_types))
        conditions.append(
            and_(must, tables.log_columns["archived_at"].is_(None)) if "archived_at" in tables.log_columns else must
        )
    return conditions


@dataclass(frozen=True)
class _Time:
    """The time of expiry, as the database compares and writes it."""

    rows: TableRows
    column: Column[Any]

    @classmethod
    def of(cls, rows: TableRows) -> "_Time":
        if rows.expires is None:
            raise ValueError(f"{rows.table.fullname} has no column by which it expires")
        return cls(rows, rows.expires)

    @property
    def value(self) -> ColumnElement[Any]:
        if not self._is_text:
            return self.column
        # SQLite's functions only know milliseconds. Texts in UTC sort by time, apart from a T and a Z.
        utc = func.replace(func.replace(self.column, "T", " "), "Z", "")
        elsewhere = func.substr(self.column, -6, 1).in_(["+", "-"])
        return case((elsewhere, func.strftime("%Y-%m-%d %H:%M:%f", self.column)), else_=utc)

    def bound(self, at: datetime) -> ColumnElement[Any]:
        return literal(self._written(at)) if self._is_text else literal(self._written(at), self.column.type)

    def becomes(self, at: datetime | None) -> Update:
        """Return the update that writes it, still without a condition."""
        return update(self.rows.table).values({self.column: None if at is None else self._written(at)})

    @property
    def _is_text(self) -> bool:
        return self.rows.key.dialect == "sqlite"

    def _written(self, at: datetime) -> datetime | str:
        at = at.astimezone(UTC)
        if self._is_text:
            return at.replace(tzinfo=None).isoformat(sep=" ")
        return at if getattr(self.column.type, "timezone", False) else at.replace(tzinfo=None)
