"""Deletes history rows of DataHub's table, after comparing each with its note in the same statement or transaction.

Every statement that deletes says `version <> 0`, and names the row by the time and the size in its note. In the same
transaction its urn must still have a current row, and a history that reaches as far as it did when it was planned: after a
rollback of DataHub's, older versions are newer again. A new version does no harm, it only makes the others older.

Rows that a note relies on are never part of the same plan: `newest` is the newest history version that the plan leaves alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

from retention_assets.outcomes import Outcome, SweptTarget
from retention_assets.sql.columns import array_text
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.foreign_keys import Cascades
from retention_assets.sql.guarded_delete import Attempt, GuardedDelete, short_lock_wait
from retention_assets.stores.aspects.rows import RACED, UrnRows, WantedRow, classify, reason_to_spare
from retention_assets.stores.aspects.table import AspectsTable
from retention_assets.stores.concurrency import equal_parts
from retention_assets.stores.protocol import Permit, Target

# SQLite refuses an expression of a thousand levels
_ROWS = 250
# rows; smaller parts cost more by their transaction than by their rows
_LEAST = 250


def delete_versions(
    database: ForeignDatabase,
    rows: AspectsTable,
    key: tuple[str, str],
    targets: Sequence[Target],
    parallelism: int,
    permit: Permit,
    cascades: Cascades,
) -> list[SweptTarget]:
    """Delete rows that match their notes, in equal parts, in parallel where the database allows many writers."""
    entity, aspect = key
    swept, wanted = classify(targets, entity)
    # one lock order for all writers here
    items = {one.transaction: one for one in sorted(wanted, key=lambda one: one.row)}
    at_once = 1 if rows.dialect == "sqlite" else min(parallelism, -(-len(items) // _LEAST))
    deletion = VersionDeletion(
        database=database, table=rows.table, cascades=cascades, permit=permit, items=items, rows=rows, aspect=aspect
    )
    return swept + deletion.run(equal_parts([*items], at_once), at_once)


@dataclass(kw_only=True)
class VersionDeletion(GuardedDelete[WantedRow, UrnRows]):
    """A batch of rows of one dataset."""

    rows: AspectsTable
    aspect: str

    def size(self, item: WantedRow) -> int:
        return item.note.bytes if item.note else 0

    def freed_before(self, item: WantedRow) -> int:
        return item.note.bytes if item.note and item.begun_earlier else 0

    @property
    def why_kept(self) -> str:
        return self.cascades.about_kept() if self.cascades.may_keep else RACED

    def reason_to_spare(self, item: WantedRow, state: UrnRows) -> str | None:
        return reason_to_spare(item, state)

    def act(self, connection: Connection, names: Sequence[str], attempt: Attempt) -> list[SweptTarget]:
        """PostgreSQL: one statement, which returns what it deleted; why the rest stays is asked afterwards."""
        if self.rows.dialect != "postgresql" or attempt is Attempt.SKIPPING:
            return super().act(connection, names, attempt)
        planned = [name for name in names if self.items[name].note]
        deleted = set[tuple[Any, ...]]()
        if planned:
            with short_lock_wait(connection, attempt.lock_wait):
                deleted = set(map(tuple, connection.execute(self._statement, self._parameters(planned))))
        done = [name for name in planned if self.items[name].row in deleted]
        self._check_gone(connection, done)
        rest = [name for name in names if self.items[name].row not in deleted]
        present = self._read(connection, rest)
        others = {
            name: SweptTarget(name, Outcome.SPARED, error=why)
            if (why := self.reason_to_spare(self.items[name], urn))
            else SweptTarget(name, Outcome.FAILED, error=self.why_kept)
            for name, urn in present.items()
        }
        gone = self.surely_gone(connection, [name for name in rest if name not in present], bool(done or present))
        return self.outcomes(names, done, gone, others, ())

    def lock(
        self, connection: Connection, names: Sequence[str], attempt: Attempt
    ) -> tuple[Mapping[str, UrnRows], Collection[str]]:
        noted = [name for name in names if self.items[name].note]
        free = set(noted) if self.rows.dialect == "sqlite" else set[str]()
        with short_lock_wait(connection, attempt.lock_wait):
            for part in () if self.rows.dialect == "sqlite" else _pieces(noted, _ROWS):
                is_any = or_(*(self._is(self.items[name]) for name in part))
                query = select(self.rows.urn, self.rows.version).where(self.rows.aspect == self.aspect, is_any)
                locked = set(map(tuple, connection.execute(query.with_for_update(skip_locked=attempt is Attempt.SKIPPING))))
                free.update(name for name in part if self.items[name].row in locked)
        present = self._read(connection, names)
        held = {name for name in noted if name in present and name not in free}
        return {name: urn for name, urn in present.items() if name not in held}, held

    def delete(self, connection: Connection, going: Sequence[str], gone: Sequence[str], attempt: Attempt) -> None:  # noqa: ARG002 - no row has others
        # MariaDB: a statement about many rows may look at, and so wait for, other rows
        one_by_one = attempt is Attempt.SKIPPING and self.rows.dialect != "postgresql"
        for part in _pieces(going, 1 if one_by_one else _ROWS):
            table = self.rows
            noted = or_(
                *(
                    and_(self._is(one), table.moment == one.note.moment, table.size == one.note.bytes)
                    for one in (self.items[name] for name in part)
                    if one.note
                )
            )
            statement = delete(table.table).where(table.version != 0, table.aspect == self.aspect, noted)
            self.delete_exactly(connection, statement, len(part), attempt)
        self._check_gone(connection, going)

    def _check_gone(self, connection: Connection, names: Sequence[str]) -> None:
        if names:
            self.cascades.check_gone(connection, lambda: bool(self._read(connection, names)))

    def _read(self, connection: Connection, names: Iterable[str]) -> dict[str, UrnRows]:
        rows = {name: self.items[name].row for name in names}
        urns = self.rows.read_versions(connection, sorted({urn for urn, _ in rows.values()}), self.aspect)
        return {name: urns[urn] for name, (urn, version) in rows.items() if urn in urns and version in urns[urn].versions}

    def _is(self, one: WantedRow) -> ColumnElement[bool]:
        return and_(self.rows.urn == one.row[0], self.rows.version == one.row[1])

    @cached_property
    def _statement(self) -> ReturningDelete[Any]:
        """PostgreSQL: delete the rows of an `aspect` that five arrays name as in their notes.

        Each has the current row and the newest of the history beside it. All is read from one snapshot.
        """
        table = self.rows
        kinds = ("urn", "version", "moment", "bytes", "newest")
        # numbers travel as the text of an array, which is built ten times faster
        numbers = (cast(bindparam(name, type_=Text), ARRAY(BigInteger)) for name in kinds[1:])
        arrays = (bindparam("urn", type_=ARRAY(Text)), *numbers)
        plan = func.unnest(*arrays).table_valued(*kinds, name="plan").render_derived()
        other, aspect = table.table.alias("other"), bindparam("aspect", type_=Text)
        same_urn = and_(other.c.urn == plan.c.urn, other.c.aspect == aspect)
        return (
            delete(table.table)
            .where(
                table.urn == plan.c.urn, table.aspect == aspect, table.version == plan.c.version, table.version != 0,
                table.moment == plan.c.moment, table.size == plan.c.bytes,
                exists().where(same_urn, other.c.version == 0),
                or_(plan.c.newest == 0, exists().where(same_urn, other.c.version >= plan.c.newest)),
            )
            .returning(table.urn, table.version)
        )  # fmt: skip

    def _parameters(self, names: Sequence[str]) -> dict[str, Any]:
        planned = [self.items[name] for name in names]
        notes = [one.note for one in planned if one.note]
        return {
            "aspect": self.aspect,
            "urn": [one.row[0] for one in planned],
            "version": array_text(one.row[1] for one in planned),
            "moment": array_text(note.moment for note in notes),
            "bytes": array_text(note.bytes for note in notes),
            "newest": array_text(note.newest for note in notes),
        }


def _pieces(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[at : at + size] for at in range(0, len(names), size)]
