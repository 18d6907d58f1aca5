"""Deletes history rows of DataHub's table, after checking each against its note in the same statement or transaction.

Every statement that deletes says `version <> 0`, and names the row by the time and the size in its note. In the same
transaction its urn must still have a current row, and a history that reaches as far as it did when it was planned: after a
rollback of DataHub's, older versions are newer again. A new version does no harm, it only makes the others older.

Rows that a note relies on are never part of the same plan: `newest` is the newest history version that the plan leaves alone.
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
# SQLite refuses an expression of a thousand levels
_ROWS = 250
# rows; smaller parts cost more by their transaction than by their rows
_LEAST = 250
_MOST_WAITS = 50


@dataclass(frozen=True)
class Deletion:
    """Deletes rows of one dataset."""

    database: ForeignDatabase
    table: AspectsTable
    entity: str
    aspect: str
    # what may keep rows; only needed for deleting
    cascades: Cascades | None = None
    # rows and bytes that a commit without an answer may have deleted
    sent: dict[Row, int] = field(default_factory=dict)

    def prepare(self, transactions: Sequence[str]) -> list[PreparedTarget]:
        """Return the note of each row; None for a row that is not there."""
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
        """Delete rows that match their notes, in equal parts, in parallel where the database allows many writers."""
        swept, wanted = classify(targets, self.entity)
        # one lock order for all writers here
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
        """Retries rows that were locked: a part beside theirs may have held them."""
        locked = {one.transaction for one in found if one.error == LOCKED}
        again = self._tried([one for one in wanted if one.transaction in locked], MOMENT, True, permit) if locked else []
        if isinstance(again, WriteFailed):
            return found
        return [one for one in found if one.transaction not in locked] + again

    def _delete_part(self, wanted: Sequence[WantedRow], permit: Permit, waits: "_LockWaits | None" = None) -> list[SweptTarget]:
        """One transaction; if one row makes it fail, the others are done without it.

        `waits`: how often a piece may still wait for locks of others.
        """
        fault = self._attempt(wanted, waits is None, permit) if waits is None or waits.left else RowsLocked()
        if isinstance(fault, list):
            return fault
        waits = waits or _LockWaits()
        waits.left = max(0, waits.left - isinstance(fault, RowsLocked))
        # pieces would fail too if the database is lost, or a SQLite file has another writer
        as_one = fault.is_lost or (fault.is_transient and self.table.dialect == "sqlite")
        if as_one or len(wanted) == 1 or not waits.left:
            return [failure_of(one, str(fault)) for one in wanted]
        half = len(wanted) // 2
        return self._delete_part(wanted[:half], permit, waits) + self._delete_part(wanted[half:], permit, waits)

    def remains(self, targets: Sequence[Target]) -> dict[str, Remains]:
        """In an empty table the state is unknown."""
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
        found = self._tried(wanted, MOMENT if is_whole else BLINK, False, permit)
        if is_whole and isinstance(found, RowsLocked):
            # in PostgreSQL locking rows needs the right to update them; a user who may only delete goes on in pieces
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
        """In an empty table, which may be another one, nothing counts as gone."""
        if all(one.outcome is Outcome.ALREADY_GONE for one in swept) and not has_rows(connection, self.table.table):
            return [SweptTarget(one.transaction, Outcome.FAILED, error=_EMPTY) for one in swept]
        return swept

    def _check_gone(self, connection: Connection, rows: Collection[Row]) -> None:
        """Raises WriteFailed if any row deleted in this transaction is still there."""

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
        """PostgreSQL: one statement, which returns what it deleted; why the rest stays is asked afterwards.

        It waits for locked rows, or skips them.
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
        # only the commit is left: what fails before it deletes nothing
        self.sent.update(gone)
        return found

    def _lock_and_delete(
        self, connection: Connection, wanted: Sequence[WantedRow], lock_wait: float, skip_locked: bool
    ) -> list[SweptTarget]:
        """Other databases: lock the rows (or those that nobody holds), look at them, then delete them as they were seen."""
        swept: list[SweptTarget] = []
        gone: dict[Row, int] = {}
        # a statement about many rows may look at, and so wait for, other rows
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
                    # nothing is deleted then; one by one it shows which row it was
                    raise WriteFailed(self._why_kept, is_lost=False, is_transient=False)
            swept += stays.values()
            swept += [SweptTarget(one.transaction, Outcome.DELETED, one.note.bytes) for one in goes if one.note]
            gone |= {one.row: one.note.bytes for one in goes if one.note}
        self._check_gone(connection, gone.keys())
        self.sent.update(gone)
        return swept

    def _lock(self, connection: Connection, wanted: Sequence[WantedRow], skip_locked: bool) -> set[Row]:
        """Return rows that are locked and match their notes. In SQLite the writer is alone."""
        if self.table.dialect == "sqlite" or not any(one.note for one in wanted):
            return {one.row for one in wanted}
        query = select(self.table.urn, self.table.version).where(self.table.aspect == self.aspect, self._matches(wanted))
        return {(urn, version) for urn, version in connection.execute(query.with_for_update(skip_locked=skip_locked))}

    @cached_property
    def _statement(self) -> ReturningDelete[Any]:
        """PostgreSQL: delete the rows of an `aspect` that five arrays name as in their notes."""
        table = self.table
        return delete(table.table).where(*self._as_planned).returning(table.urn, table.version, table.size)

    @cached_property
    def _skipping_statement(self) -> ReturningDelete[Any]:
        """Skips locked rows."""
        table = self.table
        free = select(table.urn, table.version).where(*self._as_planned).with_for_update(of=table.table, skip_locked=True)
        mine = free.cte("free")
        same = (table.urn == mine.c.urn, table.aspect == bindparam("aspect", type_=Text), table.version == mine.c.version)
        return delete(table.table).where(*same, table.version != 0).returning(table.urn, table.version, table.size)

    @cached_property
    def _as_planned(self) -> tuple[ColumnElement[bool], ...]:
        """PostgreSQL: the row is as named, with the current row and the newest of the history beside it.

        All is read from one snapshot.
        """
        table = self.table
        kinds = ("urn", "version", "moment", "bytes", "newest")
        # numbers travel as the text of an array, which is built ten times faster
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
        table = self.table
        query = select(table.urn, table.version, table.moment, table.size).where(table.of_urns(urns, self.aspect))
        found: dict[str, dict[int, tuple[int | str, int]]] = {}
        # all at once: fetching rows one by one costs as much as deleting them
        for urn, version, moment, size in connection.execute(query).all():
            found.setdefault(urn, {})[version] = (moment, size)
        return {urn: UrnRows(versions) for urn, versions in found.items()}


@dataclass
class _LockWaits:
    """Limit of lock waits per part: with the whole table locked, each of its pieces would wait."""

    left: int = field(default_factory=lambda: _MOST_WAITS)


def _parameters(planned: Sequence[WantedRow]) -> dict[str, Any]:
    """Urns as they are; numbers as the text of an array."""
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
