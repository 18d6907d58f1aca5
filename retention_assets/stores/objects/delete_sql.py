"""Deletes objects that are rows of a database. A row is named by key and realm, and is the planned one as long as its creation
time and size are the same."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    cast,
    delete,
    null,
    select,
)

from retention_assets.errors import Refused
from retention_assets.outcomes import SweptTarget
from retention_assets.sql.foreign import ForeignDatabase, has_rows, table_of
from retention_assets.sql.foreign_keys import Cascades, DeletedTable
from retention_assets.sql.guarded_delete import SEVERAL, Attempt, GuardedDelete
from retention_assets.sql.streams import batch_of
from retention_assets.stores.objects.notes import ObjectCondition, PlannedObject, present_facts
from retention_assets.stores.objects.source_settings import SqlObjects
from retention_assets.stores.objects.tables import OBJECTS
from retention_assets.stores.places.protocol import DeletionPace
from retention_assets.stores.protocol import Permit
from retention_assets.stores.records.keys import Key
from retention_assets.stores.records.tables import RecordTables, TableRows, attribute_text

ROWS_AT_ONCE = 1_000
_PRESENT = pa.schema([OBJECTS.field(name) for name in ("key", "created_at", "size")])


@dataclass
class ObjectRows:
    """The database table of a store's objects."""

    database: ForeignDatabase
    settings: SqlObjects
    # realm column, if any: a key may exist in several realms
    realm: str | None

    @cached_property
    def table(self) -> Table:
        """Reflected once. Raises Refused if the table does not exist."""
        return table_of(self.database, self.settings.table)

    @cached_property
    def key(self) -> Key:
        return Key(self._column(self.settings.key), self.database.dialect)

    def cascades(self) -> Cascades:
        return Cascades.of(self.database, self.settings.cascades, [DeletedTable(self.table)])

    def delete(
        self, objects: Sequence[PlannedObject], known: Collection[str], permit: Permit, pace: DeletionPace
    ) -> list[SweptTarget]:
        """Delete rows, one outcome for each. Raises Refused if the table forbids deletions."""
        cascades = self.cascades().check()
        swept: list[SweptTarget] = []
        for realm, group in groupby(sorted(objects, key=lambda one: one.realm or ""), key=lambda one: one.realm):
            items = {one.key: one for one in group}
            deletion = _RowDeletion(
                database=self.database,
                table=self.table,
                cascades=cascades,
                permit=permit,
                items=items,
                known=known,
                rows=self,
                realm=realm,
            )
            keys = [*items]
            for at in range(0, len(keys), ROWS_AT_ONCE):
                part = keys[at : at + ROWS_AT_ONCE]
                pace.wait(len(part))
                swept += deletion.run([part], 1)
        return swept

    def facts(self) -> Select[Any]:
        dialect, created = self.database.dialect, self._column(self.settings.created_at)
        time = RecordTables(dialect, TableRows(self.table, self.key), (), {"created_at": created}).time("created_at")
        size = null() if self.settings.size is None else self._column(self.settings.size)
        weight = size if dialect == "sqlite" else cast(size, BigInteger)
        return select(self.key.text.label("key"), time.label("created_at"), weight.label("size"))

    def named(self, realm: str | None, ids: Sequence[str]) -> ColumnElement[bool]:
        if self.realm is None:
            return self.key.exactly(ids)
        column = self._column(self.realm)
        text = attribute_text(column, self.database.dialect)
        return and_(self.key.exactly(ids), column.is_(None) if realm is None else text == realm)

    def _column(self, name: str) -> Column[Any]:
        if name not in self.table.columns:
            raise Refused(
                f"The table {self.table.fullname} of the store {self.database.store} has no column {name}. It has"
                f" {', '.join(self.table.columns.keys())}. Name one of them in the settings, or add it to the table."
            )
        return self.table.columns[name]


@dataclass(kw_only=True)
class _RowDeletion(GuardedDelete[PlannedObject, list[ObjectCondition]]):
    """A batch of rows of one realm. The state of a key is the facts of each row that has it."""

    rows: ObjectRows
    realm: str | None

    def size(self, item: PlannedObject) -> int:
        return item.size

    def freed_before(self, item: PlannedObject) -> int:
        return item.freed_before

    def lock(
        self,
        connection: Connection,
        names: Sequence[str],
        attempt: Attempt,  # noqa: ARG002 - held rows are always skipped
    ) -> tuple[Mapping[str, list[ObjectCondition]], Collection[str]]:
        query = self.rows.facts().where(self.rows.named(self.realm, names))
        present = _read(connection, query.with_for_update(skip_locked=True))
        absent = [name for name in names if name not in present]
        if not absent or self.database.dialect == "sqlite":
            return present, ()
        return present, _read(connection, self.rows.facts().where(self.rows.named(self.realm, absent))).keys()

    def reason_to_spare(self, item: PlannedObject, state: list[ObjectCondition]) -> str | None:
        return SEVERAL if len(state) > 1 else item.change(state[0])

    def delete(self, connection: Connection, going: Sequence[str], gone: Sequence[str], attempt: Attempt) -> None:  # noqa: ARG002 - no row has others
        if going:
            named = self.rows.named(self.realm, going)
            self.delete_exactly(connection, delete(self.table).where(named), len(going), attempt)
            self.cascades.check_gone(connection, lambda: has_rows(connection, self.table, named))


def _read(connection: Connection, query: Select[Any]) -> dict[str, list[ObjectCondition]]:
    present: dict[str, list[ObjectCondition]] = {}
    rows = connection.execute(query).all()
    for row in batch_of(rows, _PRESENT).to_pylist() if rows else ():
        present.setdefault(row["key"], []).append(present_facts(None, row["created_at"], row["size"]))
    return present
