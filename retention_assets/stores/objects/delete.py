"""Deletes objects in any kind of place, after comparing each with its plan. A disk compares at the file itself, a database in
the deleting transaction; a row is named by key and realm. Everywhere else objects are looked up right before each request and
only unchanged ones are deleted: an ETag does not show that the same bytes were written anew."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Select, delete

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.foreign import has_rows
from retention_assets.sql.foreign_keys import Cascades, DeletedTable
from retention_assets.sql.guarded_delete import SEVERAL, Attempt, GuardedDelete
from retention_assets.sql.streams import batch_of
from retention_assets.stores.objects.notes import (
    NO_NOTE,
    ObjectCondition,
    PlannedObject,
    matches_file,
    planned_of,
    present_facts,
)
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources.sql import DatabaseObjects, ObjectColumns
from retention_assets.stores.places import DueObject, Entry, Place, is_on_s3, open_place
from retention_assets.stores.places.local import LocalPlace
from retention_assets.stores.places.protocol import DeletionPace, lost_trash
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text

ROWS_AT_ONCE = 1_000


@dataclass
class ObjectRows:
    """Objects that are rows of a table, which is reflected once."""

    listing: DatabaseObjects

    @cached_property
    def columns(self) -> ObjectColumns:
        return self.listing.columns()

    def cascades(self) -> Cascades:
        return Cascades.of(self.listing.database, self.listing.table.cascades, [DeletedTable(self.columns.table)])

    def is_empty(self) -> bool:
        with self.listing.database.reading() as connection:
            return not has_rows(connection, self.columns.table)

    def delete(
        self, objects: Sequence[PlannedObject], known: Collection[str], permit: Permit, pace: DeletionPace
    ) -> list[SweptTarget]:
        """Delete rows, one outcome for each. Raises Refused if the table forbids deletions."""
        cascades = self.cascades().check()
        swept: list[SweptTarget] = []
        for realm, group in groupby(sorted(objects, key=lambda planned: planned.realm or ""), lambda planned: planned.realm):
            deletion = _RowDeletion(
                database=self.listing.database,
                table=self.columns.table,
                cascades=cascades,
                permit=permit,
                items={planned.key: planned for planned in group},
                known=known,
                columns=self.columns,
                realm=realm,
            )
            keys = [*deletion.items]
            for begin in range(0, len(keys), ROWS_AT_ONCE):
                part = keys[begin : begin + ROWS_AT_ONCE]
                pace.wait(len(part))
                swept += deletion.run([part], 1)
        return swept


@dataclass(kw_only=True)
class _RowDeletion(GuardedDelete[PlannedObject, list[ObjectCondition]]):
    """A batch of rows of one realm. The state of a key is the facts of each row that has it."""

    columns: ObjectColumns
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
        query = self.columns.query.where(self.columns.named(names, self.realm)).with_for_update(skip_locked=True)
        present = self._read(connection, query)
        absent = [name for name in names if name not in present]
        if not absent or self.database.dialect == "sqlite":
            return present, ()
        return present, self._read(connection, self.columns.query.where(self.columns.named(absent, self.realm))).keys()

    def reason_to_spare(self, item: PlannedObject, state: list[ObjectCondition]) -> str | None:
        return SEVERAL if len(state) > 1 else item.change(state[0])

    def delete(self, connection: Connection, going: Sequence[str], gone: Sequence[str], attempt: Attempt) -> None:  # noqa: ARG002 - no row has others
        if going:
            named = self.columns.named(going, self.realm)
            self.delete_exactly(connection, delete(self.table).where(named), len(going), attempt)
            self.cascades.check_gone(connection, lambda: has_rows(connection, self.table, named))

    def _read(self, connection: Connection, query: Select[Any]) -> dict[str, list[ObjectCondition]]:
        present: dict[str, list[ObjectCondition]] = {}
        rows = connection.execute(query).all()
        for row in batch_of(rows, self.columns.schema).to_pylist() if rows else ():
            present.setdefault(row["key"], []).append(present_facts(None, row["created_at"], row.get("size")))
        return present


def is_conditional(settings: ObjectsSettings) -> bool:
    return settings.delete.condition == "auto"


def pace_of(settings: ObjectsSettings, tasks: int) -> DeletionPace:
    return DeletionPace(settings.rates.delete / tasks)


@dataclass(frozen=True)
class ObjectDeletion:
    """Deletion of the objects of one dataset. `find` returns those present under some keys, as rows of `tables.OBJECTS`. `rows`
    is None unless the objects are rows of a table; others have a root, or only a listing is known."""

    settings: ObjectsSettings
    find: Callable[[Sequence[str]], pa.Table]
    rows: ObjectRows | None
    pace: DeletionPace

    def execute(
        self, targets: Sequence[Target], parallelism: int, permit: Permit, order: Order = Order.DELETE
    ) -> list[SweptTarget]:
        """Carry out an order, one outcome for each. Failures become outcomes; nothing is raised for a single target."""
        try:
            # a target that is gone from the trash is answered without a permit
            if order is not Order.DELETE_ASIDE:
                permit()
        except Withheld as fault:
            return [SweptTarget(target.transaction, Outcome.WITHHELD, error=str(fault)) for target in targets]
        swept: list[SweptTarget] = []
        for noted in (False, True):
            part = [target for target in targets if (target.note is not None) == noted]
            try:
                if part:
                    swept += self._execute_noted(part, parallelism, permit, order) if noted else self._unplanned(part)
            # Objects that were deleted anyway are found missing the next time.
            except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
                swept += [SweptTarget(target.transaction, Outcome.FAILED, error=error_text(fault)) for target in part]
        return swept

    def check_place(self, targets: Sequence[Target]) -> None:
        """Raises Refused for an empty folder or table, unless it is known to be the planned one: it looks like an unmounted
        disk or another database, and proves nothing about missing objects."""
        if self.rows is not None:
            if not all(target.place_known for target in targets) and self.rows.is_empty():
                raise Refused(GuardedDelete.empty)
        elif self.settings.data_root is not None and isinstance(self._place, LocalPlace):
            self._place.check_known()

    def is_freed(self, planned: PlannedObject) -> bool:
        """Tell whether an earlier sweep began to delete a missing object, and no version of it is left."""
        if not planned.freed_before:
            return False
        return self.rows is not None or not self._place.may_keep(planned.key, _version_of(planned))

    @cached_property
    def _place(self) -> Place:
        if self.settings.data_root is None:
            raise Refused("The place of the listed objects is unknown. Name it in the settings as `listing.path`.")
        return open_place(self.settings.data_root, self.settings.guarded)

    def _unplanned(self, targets: Sequence[Target]) -> list[SweptTarget]:
        present = set(self.find([target.transaction for target in targets])["key"].to_pylist())
        return [
            SweptTarget(target.transaction, Outcome.SPARED, error=NO_NOTE)
            if target.transaction in present
            else SweptTarget(target.transaction, Outcome.ALREADY_GONE)
            for target in targets
        ]

    @property
    def trash(self) -> Place:
        if fault := self.settings.undo_fault:
            raise Refused(fault)
        return self._place

    def _execute_noted(self, targets: Sequence[Target], parallelism: int, permit: Permit, order: Order) -> list[SweptTarget]:
        trash = None if order is Order.DELETE else self.trash
        if self.rows is not None:
            planned, failed = self._read_notes(targets)
            # first the deletion: if it raises, all targets fail, also those whose note can't be read
            known = {target.transaction for target in targets if target.place_known}
            return (self.rows.delete(planned, known, permit, self.pace) if planned else []) + failed
        root, conditional = self.settings.data_root or "", is_conditional(self.settings)
        if "::" in root:
            # such a place is a copy or an archive: removing there removes elsewhere, or nothing
            raise Refused(f"Objects at {mask_secrets(root)} can't be deleted. Name the file system directly, without ::.")
        by_key, failed = {target.transaction: target for target in targets}, list[SweptTarget]()
        due = [DueObject(key, aside=target.aside) for key, target in by_key.items()]
        if is_on_s3(root):
            planned, failed = self._read_notes(targets)
            facts = [(plan.key, plan.condition or ObjectCondition()) for plan in planned]
            due = [DueObject(key, condition.version, condition.etag) for key, condition in facts]

        def check(present: Entry) -> str | None:
            target, time = by_key[present.key], present.time
            # Most notes match the file literally, and reading one takes longer than deleting its file.
            if conditional and matches_file(target.note, present):
                return None
            if (plan := planned_of(target, conditional)) is None:
                return NO_NOTE
            mtime, created_at = time if present.inode is not None else None, None if time is None else time // 1_000
            return plan.change(
                ObjectCondition(
                    present.version, present.generation, present.etag, mtime, present.size, present.inode, created_at
                )
            )

        act = self._place.delete if trash is None else partial(trash.carry_out, order)
        swept = act(due, check, permit, self.pace, parallelism) if due else []
        if order is Order.SET_ASIDE:
            return swept + failed
        return [self._missing_outcome(order, result, by_key[result.transaction]) for result in swept] + failed

    def _missing_outcome(self, order: Order, result: SweptTarget, target: Target) -> SweptTarget:
        if result.outcome is not Outcome.ALREADY_GONE:
            return result
        if not target.begun_earlier:
            lost = replace(result, outcome=Outcome.FAILED, error=lost_trash(target.aside, self.settings.data_root or ""))
            return lost if order is Order.DELETE_ASIDE else result
        # An earlier sweep may have freed it before it was killed.
        planned = planned_of(target, is_conditional(self.settings))
        return replace(result, bytes=planned.freed_before) if planned and self.is_freed(planned) else result

    def _read_notes(self, targets: Sequence[Target]) -> tuple[list[PlannedObject], list[SweptTarget]]:
        planned: list[PlannedObject] = []
        failed: list[SweptTarget] = []
        for target in targets:
            try:
                if (plan := planned_of(target, is_conditional(self.settings))) is not None:
                    planned.append(plan)
            except Refused as fault:
                failed.append(SweptTarget(target.transaction, Outcome.FAILED, error=str(fault)))
        return planned, failed


def _version_of(planned: PlannedObject) -> str | None:
    return planned.condition.version if planned.condition else None
