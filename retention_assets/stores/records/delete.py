"""Statements for units of work: delete them, set, clear or postpone their expiry, and count what expires.

A time is the same instant in all tables of a unit of work. A column without a zone holds UTC; SQLite holds texts in the form of
its own functions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Select,
    and_,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import Update

from retention_assets.outcomes import Outcome
from retention_assets.stores.records.tables import RecordTables, TableRows
from retention_assets.stores.records.units import RowAction

# columns without fractions round a time, in MySQL to the next second
_ROUNDED = timedelta(seconds=1)


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
        time, mine = _Time.of(rows), rows.key.exactly(ids)
        if rows is tables.root:
            return and_(mine, time.value <= time.bound(within), time.value < time.bound(until))
        return and_(mine, or_(time.column.is_(None), time.value < time.bound(until)))

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
    """A missing column means that nobody ever finished or archived it."""
    found: list[ColumnElement[bool]] = [tables.log_columns["closed_at"].is_(None)]
    if archived_types and "type" in tables.log_columns:
        must = tables.log_columns["type"].in_(sorted(archived_types))
        found.append(and_(must, tables.log_columns["archived_at"].is_(None)) if "archived_at" in tables.log_columns else must)
    return found


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
