"""The `files` store: histories in the exchange format, the data of each transaction in a folder of its own.

Belongs here: the answers to the protocol, and the order in which a sweep asks its questions: is the name plainly a folder of
this transaction and of no other, does the log know it, do readers know that it goes; then it goes. Each target for itself.
Does not belong here: any of those answers (paths.py, ownership.py, tombstones.py), reading (log.py), and the deletion itself
(delete.py).
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.errors import BadInput, Refused, Withheld, quote
from retention_assets.frames.log import LINES
from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.files.delete import TransactionFolders
from retention_assets.stores.files.delete_remote import Removed
from retention_assets.stores.files.file_systems import server_time
from retention_assets.stores.files.folder_notes import FolderChanged, FolderNote
from retention_assets.stores.files.log import FilesLog
from retention_assets.stores.files.ownership import FolderOwnership
from retention_assets.stores.files.paths import Folder, FolderLayout
from retention_assets.stores.files.root_file import leave_identity, place_of_root
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.files.tombstones import append_tombstones, tombstones_for
from retention_assets.stores.files.witness import RootSigns
from retention_assets.stores.protocol import (
    KNOWN_BY,
    Capabilities,
    FindData,
    Permit,
    PreparedTarget,
    Remains,
    SweptTarget,
    Target,
    always,
    error_text,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTINGS_AT_ONCE = 8
# A folder of some files on a local disk takes less; over a network one request takes more.
_QUICK = 0.005


@dataclass(frozen=True)
class FilesStore:
    """A store of kind `files`, on any file system that fsspec knows."""

    settings: FilesSettings

    @property
    def name(self) -> str:
        """What the names of its datasets begin with."""
        return self.settings.name

    @property
    def capabilities(self) -> Capabilities:
        """Tasks may delete folders side by side; what is in a latest view goes one by one, as readers are told."""
        return Capabilities(parts_at="")

    @property
    def log(self) -> FilesLog:
        """Its histories."""
        return FilesLog(self.settings.name, self.settings.log)

    def datasets(self) -> list[str]:
        """The names of all datasets, sorted."""
        return self.log.datasets()

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """The datasets of the same files together."""
        return self.log.shares(datasets)

    def read(self, datasets: Sequence[str]) -> pa.Table:
        """The lines of some datasets. Raises BadInput if a file cannot be read: it might speak of any of them."""
        lines, layout = self.log.lines(datasets), FolderLayout.of(self.settings)
        there = pc.unique(lines["dataset"]).to_pylist()
        faults = [{"dataset": name, "fault": fault} for name in there if (fault := layout.fault_of(name))]
        return pa.concat_tables([lines, pa.Table.from_pylist(faults, LINES)]) if faults else lines

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """A hash of the files that speak of each; another one once versions are deleted, so that what was hidden is marked."""
        found = self.log.tokens(datasets)
        return {name: f"{token}+versions" for name, token in found.items()} if self.settings.deletes_versions else found

    def present(self) -> datetime | None:
        """What the object store that the data is in says."""
        return server_time(self.settings.data_root)

    def warnings(self) -> list[str]:
        """A root that is missing, or in which no transaction has its folder: it may be mistyped."""
        layout = FolderLayout.of(self.settings)
        try:
            index = self.log.index()
            signs = [RootSigns(self._open_folders(layout), layout, index, name) for name in islice(index.files, 1)]
        except Refused as fault:
            return [str(fault)]
        except (BadInput, OSError):
            # Reading the log says it.
            return []
        return [root.fault() for root in signs if not root.holds_transactions()]

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """The bytes that are there; unknown where they cannot be listed, of which the sweep will say why.

        Raises Refused where the root is missing, or shows no sign of the data.
        """
        layout = FolderLayout.of(self.settings)
        folders = self._open_folders(layout)
        notes = _try_each(lambda name: folders.measure(layout.folder(dataset, name)), transactions, _LISTINGS_AT_ONCE)
        if all(note is None for note in notes):
            signs = RootSigns(folders, layout, self.log.recent_index(dataset), dataset)
            if not signs.holds_transactions():
                raise Refused(signs.fault())
        # The note is what there was to delete: only that goes, and a sweep that is resumed tells whether anything is gone.
        noted = [FolderNote(0, 0, 0, 0) if note is None else note for note in notes]
        return [
            PreparedTarget(name, note.freed, note.text) if isinstance(note, FolderNote) else PreparedTarget(name)
            for name, note in zip(transactions, noted, strict=True)
        ]

    def place(self, dataset: str, claim: bool = False) -> str:
        """The root, and by what it is known. Claimed: that is left in it, where data of the dataset is."""
        layout = FolderLayout.of(self.settings)
        if claim:
            # Where the root or the log is not as it should be the sweep will say it.
            with suppress(BadInput, OSError, Refused):
                if RootSigns(self._open_folders(layout), layout, self.log.recent_index(dataset), dataset).holds_data():
                    leave_identity(layout.root)
        return place_of_root(layout.root)

    def store_place(self, claim: bool = False) -> str:
        """The root. Claimed: by the data of its first dataset."""
        found = place_of_root(self.settings.data_root)
        with suppress(BadInput, OSError, Refused):
            if claim and KNOWN_BY not in found and (names := self.datasets()):
                found = self.place(names[0], claim=True)
        return found

    def data_finder(self, dataset: str) -> FindData:
        """Find folders by the names in that of the dataset."""
        layout = FolderLayout.of(self.settings)
        folders, above = self._open_folders(layout), layout.parent(dataset)
        names = folders.names_in(above)

        def has(transaction: str) -> bool:
            with suppress(OSError, Refused):
                folder = layout.folder(dataset, transaction)
                return folder[len(above)] in names and (len(folder) == len(above) + 1 or folders.has(folder))
            return False

        return lambda transactions: list(filter(has, transactions))

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """What is left of folders, by what they were when they were planned."""
        layout = FolderLayout.of(self.settings)
        try:
            folders = self._open_folders(layout)
            is_known = RootSigns(folders, layout, self.log.index(), dataset).is_known()
        except (BadInput, OSError, Refused):
            return {}
        found = _try_each(lambda one: folders.measure(layout.folder(dataset, one.transaction)), targets, _LISTINGS_AT_ONCE)
        gone = Remains.UNKNOWN if not is_known else Remains.NOTHING if folders.may_hide else Remains.FREED
        return {one.transaction: _remains(one, note, gone) for one, note in zip(targets, found, strict=True)}

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """Delete the folders of some transactions, once readers of a latest view can learn of it."""
        layout = FolderLayout.of(self.settings)
        [folders] = _try_each(self._open_folders, [layout], 1)
        if isinstance(folders, Exception):
            return [_failed(target, folders) for target in targets]
        try:
            owners = FolderOwnership.of(self.log, layout, dataset, [target.transaction for target in targets])
        except (BadInput, OSError, Refused) as fault:
            return [_failed(target, fault) for target in targets]
        going, swept = _check_ownership(owners, targets)
        if visible := [target for target in going if target.in_latest_view]:
            try:
                permit()
                self._append_tombstones(dataset, [target.transaction for target in visible])
            except (BadInput, OSError, Refused) as fault:
                swept += [_failed(target, fault) for target in visible]
                going = {target: folder for target, folder in going.items() if not target.in_latest_view}

        is_known = cache(RootSigns(folders, layout, owners.index, dataset).is_known)

        def remove(target: Target) -> Removed | None:
            permit()
            if not owners.knows(target.transaction) and folders.measure(going[target]) is not None:
                raise Refused(f"The log does not know {quote(target.transaction)} in {dataset}: its folder may be another's.")
            freed = folders.remove_folder(going[target], permit, partial(_check_planned, target))
            if freed is None and not is_known():
                raise Refused(
                    f"Neither {'/'.join(going[target])} nor any other folder of {dataset} is in {mask_secrets(layout.root)}. Is"
                    " it the right disk, the right bucket? Nothing is taken for gone without a sign of the data."
                )
            return freed

        found = _try_each(remove, list(going), parallelism)
        return swept + [_outcome(target, one) for target, one in zip(going, found, strict=True)]

    def _open_folders(self, layout: FolderLayout) -> TransactionFolders:
        return TransactionFolders.of(layout, self.settings.deletes_versions, self.settings.guarded)

    def _append_tombstones(self, dataset: str, transactions: Sequence[str]) -> None:
        """Add to the log what readers have to know. Raises if it cannot be said, and then nothing may go."""
        log = sound_log(self.read([dataset]))
        if fault := next((fault for fault in log.datasets["fault"].to_pylist() if fault), None):
            raise Refused(f"The history of {dataset} is not sound, so what is in a latest view cannot go: {fault}")
        if lines := tombstones_for(log, dataset, transactions, now()):
            append_tombstones(self.settings.log, lines)


def _check_ownership(owners: FolderOwnership, targets: Sequence[Target]) -> tuple[dict[Target, Folder], list[SweptTarget]]:
    """The targets that may go, each with its folder; and what became of the others."""
    going, refused = {}, []
    for target in targets:
        try:
            going[target] = owners.folder(target.transaction)
        except Refused as fault:
            refused.append(_failed(target, fault))
    return going, refused


def _try_each(act: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result | Exception]:
    """The answer for each, or whatever was raised instead."""

    def attempt(one: Item) -> Result | Exception:
        try:
            return act(one)
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and one fails alone
            return fault

    pool = ThreadPoolExecutor(max(1, at_once))
    try:
        return map_concurrently(pool, attempt, items, _QUICK)
    finally:
        # Whoever interrupts a sweep does not wait for what has not begun.
        pool.shutdown(cancel_futures=True)


def _check_planned(target: Target, note: FolderNote) -> None:
    """Raises FolderChanged for a folder that is not what the plan of a target says."""
    why = note.change(FolderNote.parse(target.note), target.begun_earlier) if target.note else None
    if why is not None:
        raise FolderChanged(why)


def _remains(target: Target, note: FolderNote | Exception | None, gone: Remains) -> Remains:
    if note is None:
        return gone
    if isinstance(note, Exception) or target.note is None:
        return Remains.UNKNOWN
    planned = FolderNote.parse(target.note)
    return Remains.ALL if planned.freed == note.freed and note.change(planned, begun=False) is None else Remains.SOME


def _outcome(target: Target, found: Removed | Exception | None) -> SweptTarget:
    if isinstance(found, FolderChanged):
        return SweptTarget(target.transaction, Outcome.SPARED, error=str(found))
    if isinstance(found, Exception):
        return _failed(target, found)
    # What a sweep that was killed had deleted of it is nowhere else counted.
    freed_before = FolderNote.parse(target.note).freed if target.begun_earlier and target.note else 0
    if found is None:
        return SweptTarget(target.transaction, Outcome.ALREADY_GONE, freed_before)
    if found.hidden is not None:
        return SweptTarget(target.transaction, Outcome.HIDDEN, bytes_hidden=found.hidden)
    return SweptTarget(target.transaction, Outcome.DELETED, max(found.freed, freed_before))


def _failed(target: Target, fault: Exception) -> SweptTarget:
    if isinstance(fault, Withheld):
        return SweptTarget(target.transaction, Outcome.WITHHELD, error=str(fault))
    return SweptTarget(target.transaction, Outcome.FAILED, error=error_text(fault))
