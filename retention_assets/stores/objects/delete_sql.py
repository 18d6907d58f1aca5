"""Deletes objects that are rows of a database: locked, compared and deleted in one transaction. A batch that fails is repeated
in halves until the failing row is alone. A row is named by key and realm, and is the planned one as long as its creation time
and size are the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
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
    literal,
    null,
    select,
)

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import WriteFailed
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.reflection import has_rows, table_of
from retention_assets.sql.streams import stream
from retention_assets.stores.cascades import Cascades, DeletedTable
from retention_assets.stores.objects.notes import PlannedObject, already_gone, present_facts
from retention_assets.stores.objects.source_settings import SqlObjects
from retention_assets.stores.objects.tables import OBJECTS
from retention_assets.stores.places.pace import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget
from retention_assets.stores.records.keys import Key
from retention_assets.stores.records.tables import RecordTables, TableRows, attribute_text

ROWS_AT_ONCE = 1_000
_PRESENT = pa.schema([OBJECTS.field(name) for name in ("key", "created_at", "size")])
_SEVERAL = "Several rows have its key now, so that nobody can say which of them was planned."


@dataclass(frozen=True)
class _Deleting:
    """A batch of one realm. `sent` holds keys that a commit with a lost answer may have deleted."""

    cascades: Cascades
    realm: str | None
    permit: Permit
    sent: set[str] = field(default_factory=set)


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
        return Cascades.of(self.database, self.settings.cascades, [DeletedTable(self.table, self.settings.key)])

    def delete(self, objects: Sequence[PlannedObject], permit: Permit, pace: DeletionPace) -> list[SweptTarget]:
        """Delete rows, one outcome for each. Raises Refused if the table forbids deletions."""
        cascades = self.cascades().check()
        swept: list[SweptTarget] = []
        for realm, mine in groupby(sorted(objects, key=lambda one: one.realm or ""), key=lambda one: one.realm):
            some = list(mine)
            for at in range(0, len(some), ROWS_AT_ONCE):
                part = some[at : at + ROWS_AT_ONCE]
                pace.wait(len(part))
                swept += self._delete_part(_Deleting(cascades, realm, permit), part)
        return swept

    def _delete_part(self, deleting: "_Deleting", part: Sequence[PlannedObject]) -> list[SweptTarget]:
        try:
            return self.database.write(partial(self._delete_in, deleting=deleting, part=part), deleting.permit)
        except Withheld as fault:
            return [SweptTarget(one.key, Outcome.WITHHELD, error=str(fault)) for one in part]
        except WriteFailed as fault:
            if len(part) == 1 or fault.is_lost:
                return [SweptTarget(one.key, Outcome.FAILED, error=str(fault)) for one in part]
        half = len(part) // 2
        return self._delete_part(deleting, part[:half]) + self._delete_part(deleting, part[half:])

    def _delete_in(self, connection: Connection, deleting: "_Deleting", part: Sequence[PlannedObject]) -> list[SweptTarget]:
        """Idempotent, because the transaction may be repeated."""
        ids = [one.key for one in part]
        mine = self._named(deleting.realm, ids)
        # Lock before reading, so that exactly the compared rows are deleted.
        connection.execute(select(literal(1)).select_from(self.table).where(mine).with_for_update()).all()
        found = pa.Table.from_batches(
            stream(connection, self._facts().where(mine), _PRESENT, bytes_too=True), _PRESENT
        ).to_pylist()
        present = {row["key"]: present_facts(None, row["created_at"], row["size"]) for row in found}
        rows = Counter(row["key"] for row in found)
        swept: list[SweptTarget] = []
        going: list[str] = []
        for one in part:
            if (there := present.get(one.key)) is None:
                swept.append(SweptTarget(one.key, Outcome.DELETED, one.size) if one.key in deleting.sent else already_gone(one))
            elif why := _SEVERAL if rows[one.key] > 1 else one.change(there):
                swept.append(SweptTarget(one.key, Outcome.SPARED, error=why))
            else:
                going.append(one.key)
                swept.append(SweptTarget(one.key, Outcome.DELETED, one.size))
        if going:
            named = self._named(deleting.realm, going)
            count = connection.execute(delete(self.table).where(named)).rowcount
            deleting.cascades.check_gone(connection, lambda: has_rows(connection, self.table, named))
            if count < len(going):
                raise WriteFailed(deleting.cascades.about_kept(), is_lost=False, is_transient=False)
            # Only the commit is left: a failure before it deletes nothing.
            deleting.sent.update(going)
        return swept

    def _facts(self) -> Select[Any]:
        dialect, created = self.database.dialect, self._column(self.settings.created_at)
        time = RecordTables(dialect, TableRows(self.table, self.key), (), {"created_at": created}).time("created_at")
        size = null() if self.settings.size is None else self._column(self.settings.size)
        weight = size if dialect == "sqlite" else cast(size, BigInteger)
        return select(self.key.text.label("key"), time.label("created_at"), weight.label("size"))

    def _named(self, realm: str | None, ids: Sequence[str]) -> ColumnElement[bool]:
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
