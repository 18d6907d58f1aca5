"""The `files` store: histories in the exchange format, the data of each transaction in a folder of its own.

A sweep checks each target by itself: its name is plainly a folder of this transaction alone, the log has the transaction, and
readers know that it goes. Only then the folder is deleted.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.errors import BadInput, Refused, Withheld, quote
from retention_assets.exchange import ADDED
from retention_assets.frames.log import LINES
from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import Duration, micros
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.files.folders import FolderLayout, FolderOwnership, RootSigns
from retention_assets.stores.files.log import FilesLog
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.files.tombstones import append_tombstones, tombstones_for
from retention_assets.stores.places import Folder, FolderChanged, FolderNote, Place, RemovedFolder, open_place
from retention_assets.stores.places.file_systems import server_time
from retention_assets.stores.places.own_files import leave_identity, place_of_root
from retention_assets.stores.places.protocol import lost_trash
from retention_assets.stores.protocol import (
    KNOWN_BY,
    FindData,
    Only,
    Permit,
    PreparedTarget,
    Remains,
    Store,
    SweptTarget,
    Target,
    always,
    error_text,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTINGS_AT_ONCE = 8
# seconds; a small local folder takes less, a network request more
_QUICK = 0.005
# if the log has DELETE transactions of sweeps
_UNSEEN = f"Readers of a latest view do not see files that a DELETE of its log names ({ADDED}…) while the log holds it."


class FilesStore(Store):
    """A store of kind `files`, on any file system that fsspec knows."""

    settings: FilesSettings
    # Targets in a latest view go one by one, as readers must learn of each.
    parts_at = ""

    @property
    def log(self) -> FilesLog:
        return FilesLog(self.settings.name, self.settings.log)

    def datasets(self) -> list[str]:
        return self.log.datasets()

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return self.log.shares(datasets)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - it is read whole
        """Raises BadInput if a file can't be read: it might mention any dataset."""
        lines, layout = self.log.lines(datasets), FolderLayout.of(self.settings)
        there = pc.unique(lines["dataset"]).to_pylist()
        faults = [{"dataset": name, "fault": fault} for name in there if (fault := layout.fault_of(name))]
        return pa.concat_tables([lines, pa.Table.from_pylist(faults, LINES)]) if faults else lines

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Hash the files that mention each dataset, and `versions: delete`, by which hidden transactions are marked again."""
        tokens = self.log.tokens(datasets)
        return {name: f"{token}+versions" for name, token in tokens.items()} if self.settings.deletes_versions else tokens

    def present(self) -> datetime | None:
        return server_time(self.settings.data_root)

    def warnings(self) -> list[str]:
        """Warn of a root that is missing or has no transaction's folder: it may be mistyped."""
        layout = FolderLayout.of(self.settings)
        try:
            index = self.log.index()
            signs = [RootSigns(self._open_folders(layout), layout, index, name) for name in islice(index.files, 1)]
        except Refused as fault:
            return [str(fault)]
        except (BadInput, OSError):
            # reading the log reports it
            return []
        return [root.fault() for root in signs if not root.holds_transactions()]

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """Measure what is there; None where it can't be listed, for which the sweep will give the reason.

        Raises Refused where the root is missing or shows no sign of the data.
        """
        layout = FolderLayout.of(self.settings)
        folders = self._open_folders(layout)
        notes = _try_each(lambda name: folders.measure(layout.folder(dataset, name)), transactions, _LISTINGS_AT_ONCE)
        if all(note is None for note in notes):
            signs = RootSigns(folders, layout, self.log.recent_index(dataset), dataset)
            if not signs.holds_transactions():
                raise Refused(signs.fault())
        # The note holds what there was to delete: only that goes, and a resumed sweep can tell whether anything is gone.
        noted = [FolderNote(0, 0, 0, 0) if note is None else note for note in notes]
        return [
            PreparedTarget(name, note.freed, note.text) if isinstance(note, FolderNote) else PreparedTarget(name)
            for name, note in zip(transactions, noted, strict=True)
        ]

    def place(self, dataset: str, claim: bool = False) -> str:
        """Return the root with its identity. `claim` writes an identity if data of the dataset is there."""
        layout = FolderLayout.of(self.settings)
        if claim:
            # the sweep reports a faulty root or log
            with suppress(BadInput, OSError, Refused):
                if RootSigns(self._open_folders(layout), layout, self.log.recent_index(dataset), dataset).holds_data():
                    leave_identity(layout.root)
        return place_of_root(layout.root)

    def store_place(self, claim: bool = False) -> str:
        """Return the root. `claim` uses the data of the store's first dataset."""
        place = place_of_root(self.settings.data_root)
        with suppress(BadInput, OSError, Refused):
            if claim and KNOWN_BY not in place and (names := self.datasets()):
                place = self.place(names[0], claim=True)
        return place

    def data_finder(self, dataset: str) -> FindData:
        layout = FolderLayout.of(self.settings)
        folders, above = self._open_folders(layout), layout.parent(dataset)
        names = {name.rstrip("/") for name in folders.names_in(above)}

        def has(transaction: str) -> bool:
            with suppress(OSError, Refused):
                folder = layout.folder(dataset, transaction)
                return folder[len(above)] in names and (len(folder) == len(above) + 1 or folders.has(folder))
            return False

        return lambda transactions: list(filter(has, transactions))

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        layout = FolderLayout.of(self.settings)
        try:
            folders = self._open_folders(layout)
            is_known = RootSigns(folders, layout, self.log.index(), dataset).is_known()
        except (BadInput, OSError, Refused):
            return {}
        notes = _try_each(lambda one: folders.measure(layout.folder(dataset, one.transaction)), targets, _LISTINGS_AT_ONCE)
        gone = Remains.UNKNOWN if not is_known else Remains.NOTHING if folders.may_hide else Remains.FREED
        return {one.transaction: _remains(one, note, gone) for one, note in zip(targets, notes, strict=True)}

    def undo_fault(self) -> str | None:
        return self.settings.undo_fault or self._trash().undo_fault()

    def undo_warnings(self, undo: Duration) -> list[str]:
        return self._trash().lifecycle_warnings(undo)

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Delete folders, once readers of a latest view can learn of it; move them into the trash or back, delete them there.

        What the log says of their files stays.
        """
        layout = FolderLayout.of(self.settings)
        try:
            # Everything may be set aside: then the root looks empty.
            folders = self._open_folders(layout) if order is Order.DELETE else self._trash()
            is_kept = order is Order.DELETE_ASIDE and folders.may_hide
            # The log may have lost what is set aside.
            names = [target.transaction for target in targets]
            owners = None if order.starts_in_trash else FolderOwnership.of(self.log, layout, dataset, names)
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            return [_failed(target, fault) for target in targets]
        going: dict[Target, Folder] = {}
        swept = []
        for target in targets:
            try:
                find = owners.folder if owners else partial(layout.folder, dataset)
                going[target] = find(target.transaction)
            except Refused as fault:
                swept.append(_failed(target, fault))
        if visible := [target for target in going if target.in_latest_view and not order.starts_in_trash]:
            try:
                permit()
                self._append_tombstones(dataset, [target.transaction for target in visible])
            except (BadInput, OSError, Refused) as fault:
                swept += [_failed(target, fault) for target in visible]
                going = {target: folder for target, folder in going.items() if not target.in_latest_view}

        is_known = cache(lambda: RootSigns(folders, layout, self.log.recent_index(dataset), dataset).is_known())

        def act(target: Target) -> RemovedFolder | None:
            if order is not Order.DELETE_ASIDE:
                # in the trash each file has its own, and whether anything is there may be asked without one
                permit()
            if owners and not owners.knows(target.transaction) and folders.measure(going[target]) is not None:
                raise Refused(
                    f"The log does not know {quote(target.transaction)} in {dataset}: its folder may belong to something else."
                )
            check = partial(_check_planned, target, order)
            if order is Order.DELETE:
                removed = folders.delete_tree(going[target], permit, check)
            else:
                removed = folders.carry_out_tree(order, going[target], target.aside, permit, check)
            if removed is None and order is Order.DELETE_ASIDE and not target.begun_earlier:
                raise Refused(lost_trash(target.aside, layout.root))
            if removed is None and not is_known():
                raise Refused(
                    f"Neither {'/'.join(going[target])} nor any other folder of {dataset} is in "
                    f"{mask_secrets(layout.root)}. Is it the right disk, the right bucket? The sweep records nothing as "
                    "gone while there is no sign of the data."
                )
            return removed

        results = _try_each(act, list(going), parallelism)
        swept += [_outcome(order, target, result, is_kept) for target, result in zip(going, results, strict=True)]
        if order is Order.RESTORE:
            with suppress(BadInput, OSError):
                if pc.any(pc.starts_with(self.log.recent_index(dataset).transactions(dataset), ADDED)).as_py():
                    return [replace(one, error=_UNSEEN) if one.outcome is Outcome.RESTORED else one for one in swept]
        return swept

    def _trash(self) -> Place:
        if fault := self.settings.undo_fault:
            raise Refused(fault)
        return open_place(self.settings.data_root, self.settings.guarded, self.settings.deletes_versions)

    def _open_folders(self, layout: FolderLayout) -> Place:
        if "::" in layout.root:
            # such a place is a copy or an archive: removing there removes elsewhere, or nowhere
            raise Refused(f"Data at {mask_secrets(layout.root)} can't be deleted. Name the file system directly, without ::.")
        place = open_place(layout.root, self.settings.guarded, self.settings.deletes_versions)
        place.check_root()
        return place

    def _append_tombstones(self, dataset: str, transactions: Sequence[str]) -> None:
        log = sound_log(self.read([dataset]))
        if fault := next((fault for fault in log.datasets["fault"].to_pylist() if fault), None):
            raise Refused(f"The history of {dataset} is not sound, so data of a latest view can't be deleted: {fault}")
        if lines := tombstones_for(log, dataset, transactions, now()):
            append_tombstones(self.settings.log, lines)


def _try_each(act: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result | Exception]:

    def attempt(one: Item) -> Result | Exception:
        try:
            return act(one)
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and one fails alone
            return fault

    pool = ThreadPoolExecutor(max(1, at_once))
    try:
        return map_concurrently(pool, attempt, items, _QUICK)
    finally:
        # an interrupted sweep doesn't wait for tasks that have not begun
        pool.shutdown(cancel_futures=True)


def _check_planned(target: Target, order: Order, note: FolderNote) -> None:
    planned = _planned(target) if target.note else note
    # a copy of a root that was accepted has the trash in other folders
    present = note._replace(inode=None) if order.starts_in_trash else note
    if why := present.change(planned, (target.begun_earlier or target.has_failed) and order.deletes):
        raise FolderChanged(why)


def _planned(target: Target) -> FolderNote:
    note = FolderNote.parse(target.note or "")
    return note._replace(newest=micros(target.again) * 1_000, inode=None) if target.again else note


def _remains(target: Target, note: FolderNote | Exception | None, gone: Remains) -> Remains:
    if note is None:
        # what is set aside has freed nothing
        return Remains.NOTHING if target.aside and gone is Remains.FREED else gone
    if isinstance(note, Exception) or target.note is None:
        return Remains.UNKNOWN
    planned = _planned(target)
    if target.again:
        return Remains.NOTHING if note.change(planned, begun=True) else Remains.ALL
    return Remains.ALL if planned.freed == note.freed and note.change(planned, begun=False) is None else Remains.SOME


def _outcome(order: Order, target: Target, removed: RemovedFolder | Exception | None, is_kept: bool) -> SweptTarget:
    if isinstance(removed, Exception):
        return _failed(target, removed)
    # what a killed sweep deleted of it is counted nowhere else
    freed_before = 0
    if target.begun_earlier and target.note and order.deletes:
        note = FolderNote.parse(target.note)
        # a sweep of a bucket that keeps versions frees nothing
        freed_before = note.size if is_kept else note.freed
    if removed is None:
        return SweptTarget(target.transaction, Outcome.ALREADY_GONE, freed_before)
    if removed.hidden is not None:
        return SweptTarget(target.transaction, Outcome.HIDDEN, bytes_hidden=removed.hidden)
    return SweptTarget(target.transaction, order.done, max(removed.freed, freed_before))


def _failed(target: Target, fault: Exception) -> SweptTarget:
    outcome = Outcome.WITHHELD if isinstance(fault, Withheld) else Outcome.FAILED
    if isinstance(fault, FolderChanged):
        outcome = Outcome.SPARED
    return SweptTarget(target.transaction, outcome, error=error_text(fault))
