"""Deletes objects in any kind of place, after comparing each with its plan. A disk compares at the file itself, a database in
the deleting transaction; a row is named by key and realm. Everywhere else objects are looked up right before each request and
only unchanged ones are deleted: an ETag does not show that the same bytes were written anew."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.foreign import ForeignDatabase, has_rows, table_of
from retention_assets.sql.foreign_keys import Cascades, DeletedTable
from retention_assets.sql.guarded_delete import SEVERAL, Attempt, GuardedDelete
from retention_assets.sql.streams import batch_of
from retention_assets.stores.objects.notes import (
    NO_NOTE,
    ObjectCondition,
    PlannedObject,
    planned_of,
    present_facts,
    says_of_file,
)
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import SqlObjects
from retention_assets.stores.objects.tables import OBJECTS
from retention_assets.stores.places import DueObject, Entry, Place, is_on_s3, open_place
from retention_assets.stores.places.local import LocalPlace
from retention_assets.stores.places.protocol import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text
from retention_assets.stores.records.tables import Key, RecordTables, TableRows, attribute_text

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


def is_conditional(settings: ObjectsSettings) -> bool:
    return settings.delete.condition == "auto"


def pace_of(settings: ObjectsSettings, tasks: int) -> DeletionPace:
    return DeletionPace(settings.rates.delete / tasks)


@dataclass(frozen=True)
class ObjectDeletion:
    """Deletion of the objects of one dataset. `find` returns those present under some keys, as `tables.OBJECTS`."""

    # Either root or rows; neither if only a listing is known.
    root: str | None
    find: Callable[[Sequence[str]], pa.Table]
    rows: ObjectRows | None
    conditional: bool
    pace: DeletionPace
    # places of other stores, where a removal stops
    guarded: Sequence[str] = ()

    def execute(self, targets: Sequence[Target], parallelism: int, permit: Permit) -> list[SweptTarget]:
        """Delete targets, one outcome for each. Failures become outcomes; nothing is raised for a single target."""
        try:
            permit()
        except Withheld as fault:
            return [SweptTarget(target.transaction, Outcome.WITHHELD, error=str(fault)) for target in targets]
        noted = [target for target in targets if target.note is not None]
        unplanned = [target for target in targets if target.note is None]
        swept = self._attempt(unplanned, lambda: self._say_of_unplanned(unplanned))
        return swept + self._attempt(noted, lambda: self._delete_noted(noted, parallelism, permit))

    def check_root(self) -> None:
        """Raises Refused for an empty folder: it looks like an unmounted disk and proves nothing about missing objects."""
        if self.rows is None and self.root is not None and isinstance(self._place, LocalPlace):
            self._place.check_known()

    def freed(self, gone: Sequence[PlannedObject]) -> list[str]:
        """Keys of missing objects that an earlier sweep began to delete and that exist in no version either."""
        return [planned.key for planned in gone if self._is_freed(planned)]

    def _is_freed(self, planned: PlannedObject) -> bool:
        if not planned.freed_before:
            return False
        return self.rows is not None or not self._place.may_keep(planned.key, _version_of(planned))

    @cached_property
    def _place(self) -> Place:
        if self.root is None:
            raise Refused("Nobody said where the objects are that are listed. Name it in the settings as `listing.path`.")
        return open_place(self.root, self.guarded)

    def _attempt(self, targets: Sequence[Target], act: Callable[[], list[SweptTarget]]) -> list[SweptTarget]:
        """Run an action. If it raises, all targets fail: objects that were deleted anyway are found missing the next time."""
        try:
            return act() if targets else []
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            return [SweptTarget(target.transaction, Outcome.FAILED, error=error_text(fault)) for target in targets]

    def _say_of_unplanned(self, targets: Sequence[Target]) -> list[SweptTarget]:
        there = set(self.find([target.transaction for target in targets])["key"].to_pylist())
        return [
            SweptTarget(target.transaction, Outcome.SPARED, error=NO_NOTE)
            if target.transaction in there
            else SweptTarget(target.transaction, Outcome.ALREADY_GONE)
            for target in targets
        ]

    def _delete_noted(self, targets: Sequence[Target], parallelism: int, permit: Permit) -> list[SweptTarget]:
        if self.rows is not None:
            planned, failed = self._read_notes(targets)
            # first the deletion: if it raises, all targets fail, also those whose note can't be read
            known = {target.transaction for target in targets if target.place_known}
            return (self.rows.delete(planned, known, permit, self.pace) if planned else []) + failed
        root = self.root or ""
        if "::" in root:
            # such a place is a copy or an archive: removing there removes elsewhere, or nothing
            raise Refused(f"Objects at {mask_secrets(root)} cannot be removed. Name the file system itself, without ::.")
        by_key, failed = {target.transaction: target for target in targets}, list[SweptTarget]()
        due = [DueObject(key) for key in by_key]
        if is_on_s3(root):
            planned, failed = self._read_notes(targets)
            due = [DueObject(plan.key, _version_of(plan), plan.condition.etag if plan.condition else None) for plan in planned]

        def check(present: Entry) -> str | None:
            target = by_key[present.key]
            # Most notes match the file literally, and reading one takes longer than deleting its file.
            if self.conditional and says_of_file(target.note, present):
                return None
            plan = planned_of(target, self.conditional)
            return NO_NOTE if plan is None else plan.change(_facts_of(present))

        swept = self._place.delete(due, check, permit, self.pace, parallelism) if due else []
        return [self._counted(result, by_key[result.transaction]) for result in swept] + failed

    def _counted(self, result: SweptTarget, target: Target) -> SweptTarget:
        """Add what an earlier sweep freed before it was killed."""
        if result.outcome is not Outcome.ALREADY_GONE or not target.begun_earlier:
            return result
        planned = planned_of(target, self.conditional)
        return replace(result, bytes=planned.freed_before) if planned and self._is_freed(planned) else result

    def _read_notes(self, targets: Sequence[Target]) -> tuple[list[PlannedObject], list[SweptTarget]]:
        planned: list[PlannedObject] = []
        failed: list[SweptTarget] = []
        for target in targets:
            try:
                if (plan := planned_of(target, self.conditional)) is not None:
                    planned.append(plan)
            except Refused as fault:
                failed.append(SweptTarget(target.transaction, Outcome.FAILED, error=str(fault)))
        return planned, failed


def _version_of(planned: PlannedObject) -> str | None:
    return planned.condition.version if planned.condition else None


def _facts_of(entry: Entry) -> ObjectCondition:
    created_at = None if entry.time is None else entry.time // 1_000
    mtime = entry.time if entry.inode is not None else None
    return ObjectCondition(entry.version, entry.generation, entry.etag, mtime, entry.size, entry.inode, created_at)
