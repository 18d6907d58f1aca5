"""Objects of a bucket that are set aside: versions behind delete markers, and whole folders with a manifest."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.places.delete_s3 import DeleteRequest, Result, Verdict, check_done, due_of, parts_of, send_all
from retention_assets.stores.places.protocol import (
    ANOTHER,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderChanged,
    ObjectCheck,
    RemovedFolder,
)
from retention_assets.stores.places.s3_bucket import AT_ONCE, Answer, Bucket, Stack, Stacks
from retention_assets.stores.protocol import Permit, error_text

NOT_THERE = (Outcome.DELETED, Outcome.ALREADY_GONE)


@dataclass
class VersionTrash:
    """Versions behind delete markers."""

    bucket: Bucket
    permit: Permit
    check: ObjectCheck = lambda _: None
    pace: DeletionPace | None = None
    # delete markers by key: over versions that are set aside, and those of them that this call placed
    noted: dict[str, str] = field(default_factory=dict)
    placed: dict[str, str | None] = field(default_factory=dict)
    # versions that were hidden or deleted, by key
    present: dict[str, Entry] = field(default_factory=dict)

    def carry_out(self, order: Order, objects: Sequence[DueObject], parallelism: int = 1) -> list[Result]:
        look, settle = partial(self._look, order), partial(self._settle, order)
        requests = [DeleteRequest(self.bucket, part, self.permit, look, self.pace, settle) for part in parts_of(objects)]
        return send_all(requests, parallelism)

    def _stacks(self, keys: Sequence[str]) -> Stacks:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            read = zip(keys, threads.map(self.bucket.stacks, keys), strict=True)
            return defaultdict(Stack, {key: stacks[key] for key, stacks in read})

    def _look(self, order: Order, wanted: Sequence[DueObject]) -> Iterator[tuple[DueObject, Verdict]]:
        stacks = self._stacks(list({due.key for due in wanted}))
        judge = {Order.SET_ASIDE: self._judge_hiding, Order.RESTORE: self._judge_showing}.get(order, self._judge_deleting)
        for due in wanted:
            stack = stacks[due.key]
            # without a version the newest that fits is meant
            fits = due.version or next((entry.version for entry in stack.versions if not self.check(entry)), None)
            yield due, judge(due._replace(version=fits), stack)

    def _judge_hiding(self, due: DueObject, stack: Stack) -> Verdict:
        if stack.is_hidden and stack.newest == due.version:
            self.present[due.key], self.noted[due.key] = stack.versions[0], str(stack.markers[0].version)
            return Outcome.SET_ASIDE, None
        if (marker := self.placed.get(due.key)) and stack.find(marker):
            # it hides a version that was written after the look
            return DueObject(due.key, marker)
        if stack.shows(due.version):
            if due.key in self.placed:
                return Outcome.FAILED, "its delete marker was removed at once"
            why = self.check(stack.versions[0])
            return (Outcome.SPARED, why) if why else DueObject(due.key)
        is_replaced = stack.find(due.version) or (stack.versions and not stack.is_hidden)
        return (Outcome.SPARED, ANOTHER) if is_replaced else (Outcome.ALREADY_GONE, None)

    def _judge_showing(self, due: DueObject, stack: Stack) -> Verdict:
        entry, marker = stack.find(due.version), self.bucket.marker_over(due.key, due.version, stack)
        if entry is None:
            return Outcome.FAILED, f"its version {due.version} is gone"
        if why := self.check(entry):
            return Outcome.FAILED, why
        if marker and self.noted.get(due.key, marker) == marker:
            return DueObject(due.key, marker)
        if stack.shows(due.version):
            return Outcome.RESTORED, None
        latest = f"delete marker {stack.markers[0].version}" if stack.is_hidden else f"version {stack.versions[0].version}"
        return Outcome.FAILED, f"the {latest} is newer"

    def _judge_deleting(self, due: DueObject, stack: Stack) -> Verdict:
        entry = stack.find(due.version)
        # a marker stays while it hides a version that stays
        if entry is None or (stack.is_hidden and stack.versions and entry == stack.markers[0]):
            # the answer to the first request may have been lost
            seen = self.present.get(due.key)
            return Outcome.DELETED if seen and seen.version == due.version else Outcome.ALREADY_GONE, None
        if entry in stack.markers:
            return due
        if why := "it is in sight again" if stack.shows(due.version) else self.check(entry):
            return Outcome.SPARED, why
        self.present[due.key] = entry
        if due.key not in self.noted and (marker := self.bucket.marker_over(due.key, due.version, stack)):
            self.noted[due.key] = marker
        return due

    def _settle(self, order: Order, due: DueObject, outcome: Outcome, answer: Answer) -> Outcome | None:
        if order is Order.SET_ASIDE and outcome is not Outcome.FAILED:
            self.placed[due.key] = answer.get("DeleteMarkerVersionId")
            return None
        if outcome is Outcome.FAILED and due.key in self.placed:
            return Outcome.WITHHELD  # its marker may hide another version
        return Outcome.RESTORED if order is Order.RESTORE else outcome


@dataclass(kw_only=True)
class FolderTrash(VersionTrash):
    """A folder behind delete markers, listed in a manifest in the trash of its root. It is hidden or shown whole."""

    root: Bucket
    manifest: str
    folder: Folder
    # files that were in sight; and all other versions and markers, if these are deleted as well
    current: Sequence[Entry] = ()
    older: Sequence[Entry] = ()
    is_listed: bool = False

    def read(self) -> None:
        """Read the manifest if there is one, also if a lifecycle rule has hidden it."""
        if versions := self.root.stacks(self.manifest)[self.manifest].versions:
            place = f"{self.root.name}/{self.root.prefix}{self.manifest}"
            # without `start` the driver asks for the size of what is in sight
            text = self.root.fs.cat_file(place, version_id=versions[0].version, start=0)
            self.noted, current, older, *folder = json.loads(text)
            self.is_listed = True
            self.current, self.older = ([Entry(*file) for file in part] for part in (current, older))
            self.folder = tuple(*folder) or self.folder

    def list_present(self, is_every: bool) -> None:
        stacks = self.bucket.stacks().values()
        self.current = [stack.versions[0] for stack in stacks if not stack.is_hidden]
        if is_every:
            self.older = [file for stack in stacks for file in (*stack.versions[not stack.is_hidden :], *stack.markers)]

    def write(self) -> None:
        self.permit()
        body = json.dumps([self.noted, self.current, self.older, self.folder]).encode()
        self.root.fs.call_s3("put_object", Bucket=self.root.name, Key=self.root.prefix + self.manifest, Body=body)

    def remove(self) -> None:
        stack = self.root.stacks(self.manifest)[self.manifest]
        request = DeleteRequest(self.root, due_of([*stack.versions, *stack.markers]), self.permit)
        check_done(self.root, request.send(), *NOT_THERE)

    def carry_out(self, order: Order, objects: Sequence[DueObject], parallelism: int = 1) -> list[Result]:
        settled = [(due, *verdict) for due, verdict in self._look(order, objects) if not isinstance(verdict, DueObject)]
        if any(outcome not in (NOT_THERE if order.deletes else (order.done,)) for _, outcome, _ in settled):
            return settled
        return super().carry_out(order, objects, parallelism)

    def _stacks(self, keys: Sequence[str]) -> Stacks:
        return self.bucket.stacks(*keys)

    def hide(self) -> RemovedFolder:
        if not self.is_listed:
            # first, so that a killed call can be finished
            self.write()
        try:
            check_done(self.bucket, self.carry_out(Order.SET_ASIDE, due_of(self.current)), Outcome.SET_ASIDE)
            if visible := self.bucket.files(versions=False):
                raise FolderChanged(f"{quote(self.bucket.prefix + visible[0].key, 200)} was written since it was planned.")
            self.write()
        except Withheld:
            raise
        except Exception as fault:
            try:
                self._bring_back([file for file in self.current if file.key in self.present])
            except Exception as second:
                raise Withheld(f"{error_text(fault)} A part of it stays hidden for now: {error_text(second)}") from second
            raise
        return RemovedFolder(sum(file.size or 0 for file in (*self.current, *self.older)))

    def show(self) -> RemovedFolder:
        if self.is_listed:
            visible = {file.key for file in self.bucket.files(versions=False)}
            if strange := visible - {file.key for file in self.current}:
                raise Refused(f"{quote(self.bucket.prefix + min(strange), 200)} was written in its place. Move it away first.")
            self._bring_back(self.current)
        return RemovedFolder(0)

    def _bring_back(self, files: Sequence[Entry]) -> None:
        results = self.carry_out(Order.RESTORE, due_of(files))
        try:
            check_done(self.bucket, results, Outcome.RESTORED)
            self.remove()
        except OSError as fault:
            if any(outcome is Outcome.RESTORED for _, outcome, _ in results):
                raise Withheld(f"A part of it is back: {error_text(fault)}") from fault
            raise

    def delete(self) -> RemovedFolder | None:
        """Delete the versions, then the markers, so that nothing comes into sight."""
        sizes = {due: file.size for file in (*self.current, *self.older) for due in due_of([file])}
        results = self.carry_out(Order.DELETE_ASIDE, [due for due, size in sizes.items() if size is not None])
        check_done(self.bucket, results, *NOT_THERE)
        markers = [due for due, size in sizes.items() if size is None] + [DueObject(*noted) for noted in self.noted.items()]
        check_done(self.bucket, self.carry_out(Order.DELETE_ASIDE, markers), *NOT_THERE)
        self.remove()
        freed = [sizes[due] or 0 for due, outcome, _ in results if outcome is Outcome.DELETED]
        return RemovedFolder(sum(freed)) if freed else None
