"""Deleting history rows of DataHub's table: what is written down before, and the statement that looks again.

Belongs here: looking at rows, deleting them, in parts, and what became of each target.
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
from typing import Any

from sqlalchemy import Connection, and_, delete, or_, select

from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase
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
from retention_assets.stores.protocol import PreparedTarget, SweptTarget, Target

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
                for urn, found in self._look(connection, urns[first : first + _URNS]).items():
                    newest = max((one for one in found.versions if one not in planned[urn]), default=0)
                    for version in planned[urn] & found.versions.keys():
                        notes[urn, version] = RowNote(*found.versions[version], newest)
        return [prepared_of(name, notes.get(rows[name]) if name in rows else None) for name in transactions]

    def sweep(self, targets: Sequence[Target], parallelism: int) -> list[SweptTarget]:
        """Delete what still is what it was, in equal parts at once where the database has many writers."""
        swept, wanted = classify(targets, self.entity)
        # One lock order for all who delete here.
        wanted.sort(key=lambda one: one.row)
        parts = equal_parts(wanted, 1 if self.table.dialect == "sqlite" else parallelism)
        if len(parts) < 2:
            return swept + [one for part in parts for one in self._part(part)]
        with ThreadPoolExecutor(len(parts)) as threads:
            return swept + [one for part in threads.map(self._part, parts) for one in part]

    def _part(self, wanted: Sequence[WantedRow]) -> list[SweptTarget]:
        """One transaction; if it can't be done because of one row, the others are done without that row."""
        work: Callable[[Connection, Sequence[WantedRow], dict[Row, int]], list[SweptTarget]]
        work = self._delete_at_once if self.table.dialect == "postgresql" else self._look_and_delete
        sent: dict[Row, int] = {}
        try:
            return self.database.write(lambda connection: work(connection, wanted, sent))
        except WriteFailed as fault:
            if fault.is_lost or fault.is_transient or len(wanted) == 1:
                return [SweptTarget(one.transaction, Outcome.FAILED, error=str(fault)) for one in wanted]
        half = len(wanted) // 2
        return self._part(wanted[:half]) + self._part(wanted[half:])

    def _delete_at_once(self, connection: Connection, wanted: Sequence[WantedRow], sent: dict[Row, int]) -> list[SweptTarget]:
        """One statement on PostgreSQL: what it returns is deleted, and why the rest is not is asked afterwards.

        `sent` are the rows, and their bytes, that an earlier transaction may have deleted without an answer to its commit.
        """
        planned = [one for one in wanted if one.note]
        gone: dict[Row, int] = {}
        if planned:
            rows = connection.execute(self.table.deletion, {"aspect": self.aspect, **_columns(planned)})
            gone = {(urn, version): size for urn, version, size in rows}
        deleted = [SweptTarget(one.transaction, Outcome.DELETED, gone[one.row]) for one in wanted if one.row in gone]
        rest = [one for one in wanted if one.row not in gone]
        now = self._look(connection, sorted({one.row[0] for one in rest})) if rest else {}
        found = deleted + [reason_to_keep(one, now.get(one.row[0]), sent) or reason_for_race(one) for one in rest]
        # Only the commit is left: what fails before it deletes nothing.
        sent.update(gone)
        return found

    def _look_and_delete(self, connection: Connection, wanted: Sequence[WantedRow], sent: dict[Row, int]) -> list[SweptTarget]:
        """Elsewhere the rows are locked, then looked at, then deleted as they were seen."""
        swept: list[SweptTarget] = []
        gone: dict[Row, int] = {}
        for first in range(0, len(wanted), _ROWS):
            some = wanted[first : first + _ROWS]
            if self.table.dialect != "sqlite" and any(one.note for one in some):
                # In SQLite, who may write is alone.
                locked = select(self.table.version).where(self.table.aspect == self.aspect, self._are(some)).with_for_update()
                connection.execute(locked).all()
            now = self._look(connection, sorted({one.row[0] for one in some}))
            stays = {one.row: answer for one in some if (answer := reason_to_keep(one, now.get(one.row[0]), sent))}
            goes = [one for one in some if one.row not in stays]
            if goes:
                mine = self.table
                statement = delete(mine.table).where(mine.version != 0, mine.aspect == self.aspect, self._are(goes))
                count = connection.execute(statement).rowcount
                if count != len(goes):
                    # Nothing of it is deleted then; one by one it shows which row it was.
                    raise WriteFailed(RACED, is_lost=False, is_transient=False)
            swept += stays.values()
            swept += [SweptTarget(one.transaction, Outcome.DELETED, one.note.bytes) for one in goes if one.note]
            gone |= {one.row: one.note.bytes for one in goes if one.note}
        sent.update(gone)
        return swept

    def _are(self, wanted: Iterable[WantedRow]) -> Any:
        """A row is one of these, as its note has it."""
        mine = self.table
        return or_(
            *(
                and_(
                    mine.urn == one.row[0],
                    mine.version == one.row[1],
                    mine.moment == one.note.moment,
                    mine.size == one.note.bytes,
                )
                for one in wanted
                if one.note
            )
        )

    def _look(self, connection: Connection, urns: Sequence[str]) -> dict[str, UrnRows]:
        """All versions of some urns."""
        mine = self.table
        asked = select(mine.urn, mine.version, mine.moment, mine.size).where(mine.aspect == self.aspect, mine.urn.in_(urns))
        found: dict[str, dict[int, tuple[int | str, int]]] = {}
        for urn, version, moment, size in connection.execute(asked):
            found.setdefault(urn, {})[version] = (moment, size)
        return {urn: UrnRows(versions) for urn, versions in found.items()}


def _columns(planned: Sequence[WantedRow]) -> dict[str, Any]:
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
