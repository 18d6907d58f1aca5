"""Deleting history rows of DataHub's table: what is written down before, and the statement that checks again.

Belongs here: reading rows, deleting them, in parts, and what became of each target.
Does not belong here: what is due (the engine), why a row is kept (notes.py), connections and what is tried again
(sql/foreign.py).

Every statement that deletes says `version <> 0`, and names the row as its note has it: the same time, the same size. In the
same transaction its urn must still have a current row, and a history that reaches as far as it did when it was planned: after a
rollback of DataHub's, older versions are newer again. A new version does no harm, it only makes the others older.

Whatever the note counts on is never of the same plan: `newest` is the newest history version that the plan leaves alone.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Connection, Text, and_, bindparam, cast, delete, exists, func, or_, select
from sqlalchemy.sql.dml import ReturningDelete

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.reflection import has_rows
from retention_assets.stores.aspects.names import row_of
from retention_assets.stores.aspects.notes import (
    RACED,
    Row,
    RowNote,
    UrnRows,
    WantedRow,
    classify,
    prepared_of,
    reason_for_race,
    reason_to_keep,
)
from retention_assets.stores.aspects.table import AspectsTable
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import Permit, PreparedTarget, Remains, SweptTarget, Target, always

_EMPTY = "The table has no row at all. Is it the right database? Nothing is taken for gone without a sign of the data."
_URNS = 1000
# SQLite refuses an expression of a thousand levels.
_ROWS = 250


@dataclass(frozen=True)
class Deletion:
    """Deleting rows of one dataset."""

    database: ForeignDatabase
    table: AspectsTable
    entity: str
    aspect: str

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
        parts = equal_parts(wanted, 1 if self.table.dialect == "sqlite" else parallelism)
        if len(parts) < 2:
            return swept + [one for part in parts for one in self._delete_part(part, permit)]
        with ThreadPoolExecutor(len(parts)) as threads:
            done = threads.map(lambda part: self._delete_part(part, permit), parts)
            return swept + [one for part in done for one in part]

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
        return {name: Remains.ALL if row in there else Remains.NOTHING for name, row in rows.items()}

    def _delete_part(self, wanted: Sequence[WantedRow], permit: Permit = always) -> list[SweptTarget]:
        """One transaction; if it can't be done because of one row, the others are done without that row."""
        work: Callable[[Connection, Sequence[WantedRow], dict[Row, int]], list[SweptTarget]]
        work = self._delete_at_once if self.table.dialect == "postgresql" else self._lock_and_delete
        sent: dict[Row, int] = {}
        try:
            return self.database.write(lambda connection: self._sure_of(connection, work(connection, wanted, sent)), permit)
        except Withheld as fault:
            return [SweptTarget(one.transaction, Outcome.WITHHELD, error=str(fault)) for one in wanted]
        except WriteFailed as fault:
            if fault.is_lost or fault.is_transient or len(wanted) == 1:
                return [SweptTarget(one.transaction, Outcome.FAILED, error=str(fault)) for one in wanted]
        half = len(wanted) // 2
        return self._delete_part(wanted[:half], permit) + self._delete_part(wanted[half:], permit)

    def _sure_of(self, connection: Connection, swept: list[SweptTarget]) -> list[SweptTarget]:
        """The same, unless the table is empty: then it may be another one, in which nothing can be taken for gone."""
        if all(one.outcome is Outcome.ALREADY_GONE for one in swept) and not has_rows(connection, self.table.table):
            return [SweptTarget(one.transaction, Outcome.FAILED, error=_EMPTY) for one in swept]
        return swept

    def _delete_at_once(self, connection: Connection, wanted: Sequence[WantedRow], sent: dict[Row, int]) -> list[SweptTarget]:
        """One statement on PostgreSQL: what it returns is deleted, and why the rest is not is asked afterwards.

        `sent` are the rows, and their bytes, that an earlier transaction may have deleted without an answer to its commit.
        """
        planned = [one for one in wanted if one.note]
        gone: dict[Row, int] = {}
        if planned:
            rows = connection.execute(self._statement, {"aspect": self.aspect, **_parameters(planned)})
            gone = {(urn, version): size for urn, version, size in rows}
        deleted = [SweptTarget(one.transaction, Outcome.DELETED, gone[one.row]) for one in wanted if one.row in gone]
        rest = [one for one in wanted if one.row not in gone]
        now = self._read_versions(connection, sorted({one.row[0] for one in rest})) if rest else {}
        found = deleted + [reason_to_keep(one, now.get(one.row[0]), sent) or reason_for_race(one) for one in rest]
        # Only the commit is left: what fails before it deletes nothing.
        sent.update(gone)
        return found

    def _lock_and_delete(self, connection: Connection, wanted: Sequence[WantedRow], sent: dict[Row, int]) -> list[SweptTarget]:
        """Elsewhere the rows are locked, then looked at, then deleted as they were seen."""
        swept: list[SweptTarget] = []
        gone: dict[Row, int] = {}
        for first in range(0, len(wanted), _ROWS):
            some = wanted[first : first + _ROWS]
            if self.table.dialect != "sqlite" and any(one.note for one in some):
                # In SQLite, who may write is alone.
                locked = (
                    select(self.table.version).where(self.table.aspect == self.aspect, self._matches(some)).with_for_update()
                )
                connection.execute(locked).all()
            now = self._read_versions(connection, sorted({one.row[0] for one in some}))
            stays = {one.row: answer for one in some if (answer := reason_to_keep(one, now.get(one.row[0]), sent))}
            goes = [one for one in some if one.row not in stays]
            if goes:
                table = self.table
                statement = delete(table.table).where(table.version != 0, table.aspect == self.aspect, self._matches(goes))
                count = connection.execute(statement).rowcount
                if count != len(goes):
                    # Nothing of it is deleted then; one by one it shows which row it was.
                    raise WriteFailed(RACED, is_lost=False, is_transient=False)
            swept += stays.values()
            swept += [SweptTarget(one.transaction, Outcome.DELETED, one.note.bytes) for one in goes if one.note]
            gone |= {one.row: one.note.bytes for one in goes if one.note}
        sent.update(gone)
        return swept

    @cached_property
    def _statement(self) -> ReturningDelete[Any]:
        """On PostgreSQL the one statement that deletes rows of an `aspect`, each named as its note has it by five arrays.

        It finds the current row and the newest of the history in the same state as the row itself.
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
            delete(table.table)
            .where(table.urn == plan.c.urn, table.aspect == aspect, table.version == plan.c.version, table.version != 0)
            .where(table.moment == plan.c.moment, table.size == plan.c.bytes)
            .where(exists().where(same_urn, other.c.version == 0))
            .where(or_(plan.c.newest == 0, exists().where(same_urn, other.c.version >= plan.c.newest)))
            .returning(table.urn, table.version, table.size)
        )

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
        query = select(table.urn, table.version, table.moment, table.size)
        query = query.where(table.aspect == self.aspect, table.urn.in_(urns))
        found: dict[str, dict[int, tuple[int | str, int]]] = {}
        for urn, version, moment, size in connection.execute(query):
            found.setdefault(urn, {})[version] = (moment, size)
        return {urn: UrnRows(versions) for urn, versions in found.items()}


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
