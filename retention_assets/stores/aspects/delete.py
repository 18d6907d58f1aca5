"""Deleting history rows of DataHub's table: what is written down before, and the statement that checks again.

Belongs here: reading rows, deleting them, in parts, and what became of each target.
Does not belong here: what is due (the engine), why a row is kept (notes.py), connections and what is tried again
(sql/foreign.py).

Every statement that deletes says `version <> 0`, and names the row as its note has it: the same time, the same size. In the
same transaction its urn must still have a current row, and a history that reaches as far as it did when it was planned: after a
rollback of DataHub's, older versions are newer again. A new version does no harm, it only makes the others older.

Whatever the note counts on is never of the same plan: `newest` is the newest history version that the plan leaves alone.
"""

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.sql.dml import ReturningDelete

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.locks import BLINK, LOCKED, MOMENT, RowsLocked, short_lock_wait
from retention_assets.sql.reflection import has_rows
from retention_assets.stores.aspects.names import row_of
from retention_assets.stores.aspects.notes import (
    RACED,
    Row,
    RowNote,
    UrnRows,
    WantedRow,
    classify,
    failure_of,
    prepared_of,
    reason_to_keep,
)
from retention_assets.stores.aspects.table import AspectsTable
from retention_assets.stores.cascades import Cascades
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import Permit, PreparedTarget, Remains, SweptTarget, Target

_EMPTY = "The table has no row at all. Is it the right database? Nothing is taken for gone without a sign of the data."
_URNS = 1000
# SQLite refuses an expression of a thousand levels.
_ROWS = 250
# A part of fewer rows costs more by its transaction than by them.
_LEAST = 250
_MOST_WAITS = 50


@dataclass(frozen=True)
class Deletion:
    """Deleting rows of one dataset."""

    database: ForeignDatabase
    table: AspectsTable
    entity: str
    aspect: str
    # What may keep rows. Only who deletes has to know.
    cascades: Cascades | None = None
    # The rows, and their bytes, of what a commit may have deleted whose answer was lost.
    sent: dict[Row, int] = field(default_factory=dict)

    def prepare(self, transactions: Sequence[str]) -> list[PreparedTarget]:
        """The note of each row that is there; nothing to note of one that is not."""
        rows = {name: row for name in transactions if (row := row_of(name, self.entity)) is not None}
        planned: dict[str, set[int]] = {}
        for urn, version in rows.values():
            planned.setdefault(urn, set()).add(version)
        notes: dict[Row, RowNote] = {}
        urns = sorted(planned)
        with self.database.reading() as connection:
            for first in range(0, len(urns), _URNS):
                for urn, found in self._read_versions(connection, urns[first : first + _URNS]).items():
                    newest = max((one for one in found.versions if one not in planned[urn]), default=0)
                    for version in planned[urn] & found.versions.keys():
                        notes[urn, version] = RowNote(*found.versions[version], newest)
        return [prepared_of(name, notes.get(rows[name]) if name in rows else None) for name in transactions]

    def delete_rows(self, targets: Sequence[Target], parallelism: int, permit: Permit) -> list[SweptTarget]:
        """Delete what still is what it was, in equal parts at once where the database has many writers."""
        swept, wanted = classify(targets, self.entity)
        # One lock order for all who delete here.
        wanted.sort(key=lambda one: one.row)
        parts = equal_parts(wanted, 1 if self.table.dialect == "sqlite" else min(parallelism, -(-len(wanted) // _LEAST)))
        if len(parts) < 2:
            found = [one for part in parts for one in self._delete_part(part, permit)]
        else:
            with ThreadPoolExecutor(len(parts)) as threads:
                done = threads.map(lambda part: self._delete_part(part, permit), parts)
                found = [one for part in done for one in part]
        return swept + self._delete_locked(wanted, found, permit)

    def _delete_locked(self, wanted: Sequence[WantedRow], found: list[SweptTarget], permit: Permit) -> list[SweptTarget]:
        """What became of all, once those that somebody held are tried again: it may have been a part beside theirs."""
        locked = {one.transaction for one in found if one.error == LOCKED}
        again = self._tried([one for one in wanted if one.transaction in locked], MOMENT, True, permit) if locked else []
        if isinstance(again, WriteFailed):
            return found
        return [one for one in found if one.transaction not in locked] + again

    def _delete_part(self, wanted: Sequence[WantedRow], permit: Permit, waits: "_LockWaits | None" = None) -> list[SweptTarget]:
        """One transaction; if it can't be done because of one row, the others are done without that row.

        `waits`: of a piece, what is left of the patience with the locks of others.
        """
        fault = self._attempt(wanted, waits is None, permit) if waits is None or waits.left else RowsLocked()
        if isinstance(fault, list):
            return fault
        waits = waits or _LockWaits()
        waits.left = max(0, waits.left - isinstance(fault, RowsLocked))
        # Pieces would not find a database either that is lost, nor a SQLite file that others write to.
        as_one = fault.is_lost or (fault.is_transient and self.table.dialect == "sqlite")
        if as_one or len(wanted) == 1 or not waits.left:
            return [failure_of(one, str(fault)) for one in wanted]
        half = len(wanted) // 2
        return self._delete_part(wanted[:half], permit, waits) + self._delete_part(wanted[half:], permit, waits)

    def remains(self, targets: Sequence[Target]) -> dict[str, Remains]:
        """Whether the row of each target is there. In a table without any row that is not known."""
        rows = {one.transaction: row for one in targets if (row := row_of(one.transaction, self.entity)) is not None}
        with self.database.reading() as connection:
            if not has_rows(connection, self.table.table):
                return {}
            urns = sorted({urn for urn, _ in rows.values()})
            found: dict[str, UrnRows] = {}
            for first in range(0, len(urns), _URNS):
                found |= self._read_versions(connection, urns[first : first + _URNS])
        there = {(urn, version) for urn, one in found.items() for version in one.versions}
        noted = {one.transaction for one in targets if one.note}
        return {
            name: Remains.ALL if row in there else Remains.FREED if name in noted else Remains.NOTHING
            for name, row in rows.items()
        }

    def _attempt(self, wanted: Sequence[WantedRow], is_whole: bool, permit: Permit) -> list[SweptTarget] | WriteFailed:
        """What became of a part, or why it could not be done."""
        found = self._tried(wanted, MOMENT if is_whole else BLINK, False, permit)
        if is_whole and isinstance(found, RowsLocked):
            # On PostgreSQL to lock rows takes the right to update them; who has only that to delete goes on in pieces.
            skipped = self._tried(wanted, MOMENT, True, permit)
            return found if isinstance(skipped, WriteFailed) else skipped
        return found

    def _tried(
        self, wanted: Sequence[WantedRow], lock_wait: float, skip_locked: bool, permit: Permit
    ) -> list[SweptTarget] | WriteFailed:
        work = self._delete_at_once if self.table.dialect == "postgresql" else self._lock_and_delete
        try:
            return self.database.write(
                lambda connection: self._sure_of(connection, work(connection, wanted, lock_wait, skip_locked)), permit
            )
        except Withheld as fault:
            return [SweptTarget(one.transaction, Outcome.WITHHELD, error=str(fault)) for one in wanted]
        except WriteFailed as fault:
            return fault

    def _sure_of(self, connection: Connection, swept: list[SweptTarget]) -> list[SweptTarget]:
        """The same, unless the table is empty: then it may be another one, in which nothing can be taken for gone."""
        if all(one.outcome is Outcome.ALREADY_GONE for one in swept) and not has_rows(connection, self.table.table):
            return [SweptTarget(one.transaction, Outcome.FAILED, error=_EMPTY) for one in swept]
        return swept

    def _check_gone(self, connection: Connection, rows: Collection[Row]) -> None:
        """Raises WriteFailed if any of some rows is there that was deleted in this transaction."""

        def is_left() -> bool:
            there = self._read_versions(connection, sorted({urn for urn, _ in rows}))
            return any(urn in there and version in there[urn].versions for urn, version in rows)

        if rows and self.cascades:
            self.cascades.check_gone(connection, is_left)

    @property
    def _why_kept(self) -> str:
        return self.cascades.about_kept() if self.cascades and self.cascades.may_keep else RACED

    def _delete_at_once(
        self, connection: Connection, wanted: Sequence[WantedRow], lock_wait: float, skip_locked: bool
    ) -> list[SweptTarget]:
        """One statement on PostgreSQL: what it returns is deleted, and why the rest is not is asked afterwards.

        It waits for rows that somebody holds, or leaves them alone.
        """
        planned = [one for one in wanted if one.note]
        gone: dict[Row, int] = {}
        if planned:
            statement = self._skipping_statement if skip_locked else self._statement
            with short_lock_wait(connection, lock_wait):
                rows = connection.execute(statement, {"aspect": self.aspect, **_parameters(planned)}).all()
            gone = {(urn, version): size for urn, version, size in rows}
            self._check_gone(connection, gone.keys())
        deleted = [SweptTarget(one.transaction, Outcome.DELETED, gone[one.row]) for one in wanted if one.row in gone]
        rest = [one for one in wanted if one.row not in gone]
        now = self._read_versions(connection, sorted({one.row[0] for one in rest})) if rest else {}
        why = LOCKED if skip_locked else self._why_kept
        found = deleted + [reason_to_keep(one, now.get(one.row[0]), self.sent) or failure_of(one, why) for one in rest]
        # Only the commit is left: what fails before it deletes nothing.
        self.sent.update(gone)
        return found

    def _lock_and_delete(
        self, connection: Connection, wanted: Sequence[WantedRow], lock_wait: float, skip_locked: bool
    ) -> list[SweptTarget]:
        """Elsewhere the rows, or those that nobody holds, are locked, then looked at, then deleted as they were seen."""
        swept: list[SweptTarget] = []
        gone: dict[Row, int] = {}
        # A statement about many rows may look at, and so wait for, rows that it is not about.
        step = 1 if skip_locked else _ROWS
        for first in range(0, len(wanted), step):
            some = wanted[first : first + step]
            with short_lock_wait(connection, lock_wait):
                mine = self._lock(connection, some, skip_locked)
            now = self._read_versions(connection, sorted({one.row[0] for one in some}))
            stays = {one.row: answer for one in some if (answer := reason_to_keep(one, now.get(one.row[0]), self.sent))}
            why = LOCKED if skip_locked else RACED
            stays |= {one.row: failure_of(one, why) for one in some if one.row not in stays and one.row not in mine}
            goes = [one for one in some if one.row not in stays]
            if goes:
                table = self.table
                statement = delete(table.table).where(table.version != 0, table.aspect == self.aspect, self._matches(goes))
                with short_lock_wait(connection, lock_wait):
                    count = connection.execute(statement).rowcount
                if count != len(goes):
                    # Nothing of it is deleted then; one by one it shows which row it was.
                    raise WriteFailed(self._why_kept, is_lost=False, is_transient=False)
            swept += stays.values()
            swept += [SweptTarget(one.transaction, Outcome.DELETED, one.note.bytes) for one in goes if one.note]
            gone |= {one.row: one.note.bytes for one in goes if one.note}
        self._check_gone(connection, gone.keys())
        self.sent.update(gone)
        return swept

    def _lock(self, connection: Connection, wanted: Sequence[WantedRow], skip_locked: bool) -> set[Row]:
        """Which rows are locked now, as they were planned. In SQLite, who may write is alone."""
        if self.table.dialect == "sqlite" or not any(one.note for one in wanted):
            return {one.row for one in wanted}
        query = select(self.table.urn, self.table.version).where(self.table.aspect == self.aspect, self._matches(wanted))
        return {(urn, version) for urn, version in connection.execute(query.with_for_update(skip_locked=skip_locked))}

    @cached_property
    def _statement(self) -> ReturningDelete[Any]:
        """On PostgreSQL the one statement that deletes rows of an `aspect`, each named as its note has it by five arrays."""
        table = self.table
        return delete(table.table).where(*self._as_planned).returning(table.urn, table.version, table.size)

    @cached_property
    def _skipping_statement(self) -> ReturningDelete[Any]:
        """The same, without the rows that somebody holds."""
        table = self.table
        free = select(table.urn, table.version).where(*self._as_planned).with_for_update(of=table.table, skip_locked=True)
        mine = free.cte("free")
        same = (table.urn == mine.c.urn, table.aspect == bindparam("aspect", type_=Text), table.version == mine.c.version)
        return delete(table.table).where(*same, table.version != 0).returning(table.urn, table.version, table.size)

    @cached_property
    def _as_planned(self) -> tuple[ColumnElement[bool], ...]:
        """On PostgreSQL: a row is one that is named, and the current row and the newest of the history are there beside it.

        All of it is found in the same state.
        """
        table = self.table
        kinds = ("urn", "version", "moment", "bytes", "newest")
        # Numbers come as the text of an array, which is made ten times faster than an array is.
        numbers = (cast(bindparam(name, type_=Text), ARRAY(BigInteger)) for name in kinds[1:])
        arrays = (bindparam("urn", type_=ARRAY(Text)), *numbers)
        plan = func.unnest(*arrays).table_valued(*kinds, name="plan").render_derived()
        other, aspect = table.table.alias("other"), bindparam("aspect", type_=Text)
        same_urn = and_(other.c.urn == plan.c.urn, other.c.aspect == aspect)
        return (
            table.urn == plan.c.urn, table.aspect == aspect, table.version == plan.c.version, table.version != 0,
            table.moment == plan.c.moment, table.size == plan.c.bytes,
            exists().where(same_urn, other.c.version == 0),
            or_(plan.c.newest == 0, exists().where(same_urn, other.c.version >= plan.c.newest)),
        )  # fmt: skip

    def _matches(self, wanted: Iterable[WantedRow]) -> Any:
        """A row is one of these, as its note has it."""
        table = self.table
        return or_(
            *(
                and_(
                    table.urn == one.row[0],
                    table.version == one.row[1],
                    table.moment == one.note.moment,
                    table.size == one.note.bytes,
                )
                for one in wanted
                if one.note
            )
        )

    def _read_versions(self, connection: Connection, urns: Sequence[str]) -> dict[str, UrnRows]:
        """All versions of some urns."""
        table = self.table
        query = select(table.urn, table.version, table.moment, table.size).where(table.of_urns(urns, self.aspect))
        found: dict[str, dict[int, tuple[int | str, int]]] = {}
        # All at once: each row for itself costs as much as its deletion.
        for urn, version, moment, size in connection.execute(query).all():
            found.setdefault(urn, {})[version] = (moment, size)
        return {urn: UrnRows(versions) for urn, versions in found.items()}


@dataclass
class _LockWaits:
    """How often a part waits for locks of others at most: with a lock on the whole table, each of its pieces would."""

    left: int = field(default_factory=lambda: _MOST_WAITS)


def _parameters(planned: Sequence[WantedRow]) -> dict[str, Any]:
    """What the deletion on PostgreSQL takes: the urns as they are, numbers as the text of an array."""
    notes = [one.note for one in planned if one.note]
    return {
        "urn": [one.row[0] for one in planned],
        "version": _array(one.row[1] for one in planned),
        "moment": _array(note.moment for note in notes),
        "bytes": _array(note.bytes for note in notes),
        "newest": _array(note.newest for note in notes),
    }


def _array(numbers: Iterable[int | str]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
