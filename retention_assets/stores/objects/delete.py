"""Deletes objects in any kind of place, after comparing each with its plan. A disk compares at the file itself, a database in
the deleting transaction. Everywhere else objects are looked up right before each request and only unchanged ones are deleted:
an ETag does not show that the same bytes were written anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import identities_of
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.objects.delete_local import check_root, delete_files
from retention_assets.stores.objects.delete_remote import delete_places
from retention_assets.stores.objects.delete_s3 import delete_keys, not_kept
from retention_assets.stores.objects.delete_sql import ObjectRows
from retention_assets.stores.objects.notes import NO_NOTE, PlannedObject, Seen, planned_of, present_of
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.places.file_systems import is_local, is_s3, open_file_system
from retention_assets.stores.places.pace import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text


def is_conditional(settings: ObjectsSettings) -> bool:
    return settings.delete.condition == "auto"


def pace_of(settings: ObjectsSettings, tasks: int) -> DeletionPace:
    return DeletionPace(settings.rates.delete / tasks)


@dataclass(frozen=True)
class ObjectDeletion:
    """Place in which objects are deleted. `find` and `look` return the objects present under some keys, as `tables.OBJECTS`.
    `find` is limited to one dataset; `look` may ignore datasets and is used for planned objects."""

    # Either root or rows; neither if only a listing is known.
    root: str | None
    find: Callable[[Sequence[str]], pa.Table]
    look: Callable[[Sequence[str]], pa.Table]
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
            return [SweptTarget(one.transaction, Outcome.WITHHELD, error=str(fault)) for one in targets]
        noted = [one for one in targets if one.note is not None]
        unplanned = [one for one in targets if one.note is None]
        swept = self._attempt(unplanned, lambda: self._say_of_unplanned(unplanned))
        return swept + self._attempt(noted, lambda: self._delete_noted(noted, parallelism, permit))

    def check_root(self) -> None:
        """Raises Refused for an empty folder: it looks like an unmounted disk and proves nothing about missing objects."""
        if self.rows is None and self.root is not None:
            fs, root = open_file_system(self.root)
            if is_local(fs):
                check_root(root)

    def freed(self, gone: Sequence[PlannedObject]) -> list[str]:
        """Keys of missing objects that an earlier sweep began to delete and that exist in no version either."""
        freed = [one for one in gone if one.freed_before]
        if freed and self.rows is None:
            fs, root = open_file_system(self.root or "")
            freed = [] if not (is_local(fs) or is_s3(fs)) else freed if is_local(fs) else not_kept(fs, root, freed)
        return [one.key for one in freed]

    def _attempt(self, targets: Sequence[Target], act: Callable[[], list[SweptTarget]]) -> list[SweptTarget]:
        """Run an action. If it raises, all targets fail: objects that were deleted anyway are found missing the next time."""
        try:
            return act() if targets else []
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            return [SweptTarget(one.transaction, Outcome.FAILED, error=error_text(fault)) for one in targets]

    def _say_of_unplanned(self, targets: Sequence[Target]) -> list[SweptTarget]:
        there = set(self.find([one.transaction for one in targets])["key"].to_pylist())
        return [
            SweptTarget(one.transaction, Outcome.SPARED, error=NO_NOTE)
            if one.transaction in there
            else SweptTarget(one.transaction, Outcome.ALREADY_GONE)
            for one in targets
        ]

    def _delete_noted(self, targets: Sequence[Target], parallelism: int, permit: Permit) -> list[SweptTarget]:
        if self.rows is not None:
            rows, known = self.rows, {one.transaction for one in targets if one.place_known}
            return self._with_plans(targets, lambda objects: rows.delete(objects, known, permit, self.pace))
        if self.root is None:
            raise Refused("Nobody said where the objects are that are listed. Name it in the settings as `listing.path`.")
        if "::" in self.root:
            # Such a place is a copy or an archive: removing there removes elsewhere, or nothing.
            raise Refused(f"Objects at {mask_secrets(self.root)} cannot be removed. Name the file system itself, without ::.")
        fs, root = open_file_system(self.root)
        if is_local(fs):
            guarded = identities_of(self.guarded)
            return delete_files(root, targets, self.conditional, parallelism, permit, self.pace, guarded)
        delete = delete_keys if is_s3(fs) else delete_places
        return self._with_plans(targets, lambda objects: delete(fs, root, objects, self._look, parallelism, permit, self.pace))

    def _with_plans(
        self, targets: Sequence[Target], delete: Callable[[Sequence[PlannedObject]], list[SweptTarget]]
    ) -> list[SweptTarget]:
        planned: list[PlannedObject] = []
        swept: list[SweptTarget] = []
        for target in targets:
            try:
                if (one := planned_of(target, self.conditional)) is not None:
                    planned.append(one)
            except Refused as fault:
                swept.append(SweptTarget(target.transaction, Outcome.FAILED, error=str(fault)))
        # delete() first: if it raises, all targets fail, also those counted here
        return swept + (delete(planned) if planned else [])

    def _look(self, objects: Sequence[PlannedObject]) -> Seen:
        present = present_of(self.look([one.key for one in objects]).to_pylist())
        seen = Seen([], [], [])
        for one in objects:
            if (found := present.get(one.key)) is None:
                seen.gone.append(one)
            elif why := one.change(found):
                seen.spared.append(SweptTarget(one.key, Outcome.SPARED, error=why))
            else:
                seen.same.append(one)
        return seen
