"""Deletes objects in any kind of place, after comparing each with its plan. A disk compares at the file itself, a database in
the deleting transaction. Everywhere else objects are looked up right before each request and only unchanged ones are deleted:
an ETag does not show that the same bytes were written anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.objects.delete_sql import ObjectRows
from retention_assets.stores.objects.notes import NO_NOTE, ObjectCondition, PlannedObject, planned_of, says_of_file
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.places import DueObject, Entry, Place, is_on_s3, open_place
from retention_assets.stores.places.local import LocalPlace
from retention_assets.stores.places.protocol import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text


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
