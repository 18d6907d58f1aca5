"""The `delta` store: tables of Delta Lake, each a dataset, each version a transaction.

A dataset is called by the folder of its table. A store is told which versions were swept, because a log goes on listing them.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

import pyarrow as pa

from retention_assets.clock import moment
from retention_assets.errors import Refused, quote
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Order
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Policy
from retention_assets.stores.delta.announcements import Announcer
from retention_assets.stores.delta.delete import TableFiles
from retention_assets.stores.delta.folder import LogFile, TableFolder, find_folders, shown_place
from retention_assets.stores.delta.log import Line, Pins, TableReader, lines_of, token_of
from retention_assets.stores.delta.needs import (
    Needs,
    Swept,
    TableState,
    VersionNote,
    check_names,
    claimed_files,
    is_missing,
    number_of,
    prepare_versions,
    remains_of,
    strays_of,
    wanted_again,
)
from retention_assets.stores.delta.promises import clone_warnings, pin_warnings, promise_warnings
from retention_assets.stores.delta.readers import OtherTables, Streams, find_clones, read_streams
from retention_assets.stores.delta.second_reader import check_needs
from retention_assets.stores.delta.settings import DeltaSettings
from retention_assets.stores.delta.sweep import VersionsOrder
from retention_assets.stores.delta.table import Table
from retention_assets.stores.delta.trash import TrashNotes, empty_trash, gone_from_trash
from retention_assets.stores.places import Entry, Place, open_place
from retention_assets.stores.places.file_systems import server_time
from retention_assets.stores.places.own_files import holds_anything, leave_identity, place_of_root
from retention_assets.stores.protocol import (
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

_THREADS = 8
# seconds for which a listing counts where nothing is deleted by it
_LATELY = 5.0


@dataclass(frozen=True)
class _Folders:
    """Folders that the globs of a store match, by the name of the dataset and by canonical path. Not all are tables."""

    by_dataset: Mapping[str, Sequence[TableFolder]]
    by_folder: Mapping[str, Sequence[TableFolder]]
    # other stores of this kind, by the folders that they match
    owners: Mapping[str, str]

    @classmethod
    def find(cls, settings: DeltaSettings) -> Self:
        by_dataset, by_folder = dict[str, list[TableFolder]](), dict[str, list[TableFolder]]()
        for location in (location for glob in settings.tables for location in find_folders(glob)):
            folder = TableFolder(location)
            by_dataset.setdefault(f"{settings.name}/{folder.shown.rpartition('/')[2]}", []).append(folder)
            by_folder.setdefault(folder.canonical, []).append(folder)
        owners: dict[str, str] = {}
        for name, glob in settings.other_globs:
            with suppress(Refused):
                owners |= {TableFolder(location).canonical: name for location in find_folders(glob)}
        return cls(by_dataset, by_folder, owners)


class DeltaStore(Store):
    """A store over folders. Travels as its settings; remembers the tables it read."""

    settings: DeltaSettings
    shares_data = True

    def __init__(self, settings: DeltaSettings) -> None:
        super().__init__(settings)
        self._reader = TableReader(settings.times)
        self._others = OtherTables(self._reader, self._all_tables, lambda: find_clones(settings.also_read))
        self._swept: dict[str, Swept] = {}
        self._lock = threading.Lock()
        self._found = _Folders({}, {}, {})
        self._looked_at = float("-inf")
        # logs as listed to find out which folders are tables, until they are asked for
        self._listed: dict[str, tuple[float, Sequence[LogFile]]] = {}

    def datasets(self) -> list[str]:
        self._looked_at = float("-inf")
        named = self._folders().by_dataset
        with ThreadPoolExecutor(_THREADS) as threads:
            has_log = threads.map(lambda folders: any([*map(self._may_hold_log, folders)]), named.values())
            return sorted(name for name, is_table in zip(named, has_log, strict=True) if is_table)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - it is read whole
        streams, folders = self._streams(), self._folders().by_dataset if datasets else {}
        with ThreadPoolExecutor(_THREADS) as threads:
            read = threads.map(lambda name: self._lines_of(name, folders.get(name, ()), streams), datasets)
            return pa.concat_tables([LINES.empty_table(), *read])

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Hash the listing of each log, with what else decides about its lines."""
        streams, folders = self._streams(), self._folders().by_dataset if datasets else {}

        def token(name: str) -> str | None:
            try:
                listed = [self._listed_lately(folder) for folder in folders.get(name, ())]
                claims = [self._claims_lately(folder) for folder in folders.get(name, ())]
            except (Refused, OSError):
                return None
            claimed = [sorted(own.items()) for own in claims if own]
            facts = (listed, streams, self.settings.times, self.settings.window_below_table, *claimed)
            return token_of(*facts) if any(listed) else None

        with ThreadPoolExecutor(_THREADS) as threads:
            tokens = zip(datasets, threads.map(token, datasets), strict=True)
            return {name: text for name, text in tokens if text is not None}

    def present(self) -> datetime | None:
        """Return the time of the first object store among its places."""
        return next(filter(None, map(server_time, dict.fromkeys(self.settings.places.values()))), None)

    def warnings(self) -> list[str]:
        """Name explicit tables that are not there, clones that are not known, and pins of versions that are not there."""
        explicit = [TableFolder(glob) for glob in self.settings.tables if find_folders(glob) == [glob]]
        streams, folders, tables = self._streams(), self._folders(), self._readable_tables()
        known, about_clones = {*folders.by_folder, *folders.owners}, list[str]()
        try:
            clones = {shown_place(glob): [*find_clones([glob])] for glob in self.settings.also_read}
            about_clones += (f"{glob} matches no table: no clone is known there." for glob, own in clones.items() if not own)
            known |= {TableFolder(location).canonical for own in clones.values() for location in own}
            self._others.look()
        except (Refused, OSError) as fault:
            about_clones.append(f"{error_text(fault)}.")
        return [
            *(f"{folder.shown} has no _delta_log: no table is there." for folder in explicit if not folder.list_log()),
            *([f"The stream {streams.fault}: every version of every table stays."] if streams.fault else []),
            *(f"{glob} matches no folder: no stream is known there." for glob in streams.empty),
            *about_clones,
            *clone_warnings(tables, known),
            *pin_warnings(tables),
        ]

    def policy_warnings(self, policies: Sequence[Policy]) -> list[str]:
        spares = self.settings.window_below_table == "spare"
        return promise_warnings(self._readable_tables(), policies, spares)

    def know_swept(self, dataset: str, deleted: Collection[str], aside: Collection[str], kept: Collection[str]) -> None:
        self._swept[dataset] = Swept(*(frozenset(map(number_of, names)) for names in (deleted, aside, kept)))

    def check_needs(self, dataset: str, going: Sequence[str], retained: Sequence[str]) -> Mapping[str, str]:
        """Ask the second reader of the log."""
        if (folder := self._only(dataset, self._folders().by_dataset.get(dataset, ()))) is None:
            return {}
        faults = check_needs(folder, [*map(number_of, going)], [*map(number_of, retained)])
        return {str(number): why for number, why in faults.items()}

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:
        """Name the versions of some that pins, streams, clones or other versions need."""
        if (opened := self._open(dataset)) is None:
            return {}
        folder, table = opened
        versions = {number_of(name) for name in transactions} & table.versions.keys()
        return {str(number): why for number, why in wanted_again(self._state(dataset, folder, table), versions).items()}

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        if (opened := self._open(dataset)) is None:
            return [PreparedTarget(transaction) for transaction in transactions]
        return prepare_versions(self._state(dataset, *opened), transactions)

    def undo_fault(self) -> str | None:
        return self.settings.undo_fault or next((place.undo_fault() for place in self._trash()), None)

    def undo_warnings(self, undo: Duration) -> list[str]:
        return [text for place in self._trash() for text in place.lifecycle_warnings(undo)]

    def _trash(self) -> Iterator[Place]:
        # the place of one table: the others are below the same folders or in the same bucket
        for name in self.datasets()[:1]:
            if opened := self._open(name):
                yield self._place(opened[0])

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Delete files that no other version needs, move them to the trash of their table or back, or delete them there."""
        try:
            emptied = self._empty_trash_of_others(dataset, targets, parallelism, permit) if order is Order.DELETE_ASIDE else []
            if emptied:
                names = {answer.transaction for answer in emptied}
                rest = [target for target in targets if target.transaction not in names]
                return [*emptied, *(self.carry_out(order, dataset, rest, parallelism, permit) if rest else ())]
            if (opened := self._open(dataset)) is None:
                raise Refused(f"there is no table {quote(dataset)} in the settings' folders. Nothing is recorded as gone")
            folder, table = opened
            files = TableFiles(self._place(folder), permit, parallelism)
            if order is Order.SET_ASIDE and (fault := files.place.undo_fault()):
                raise Refused(fault)
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            outcome = order.failed(in_doubt=any(target.begun_earlier for target in targets))
            return [SweptTarget(target.transaction, outcome, error=error_text(fault)) for target in targets]

        def load() -> tuple[Table, Pins]:
            present = self._reader.read(folder)
            if present is None or table_id not in present.ids:
                raise Refused("another table has the name now, or none; the files of the earlier table stay")
            return present, self._pins(present)

        table_id, announcer = table.id, Announcer(folder, self.settings.announce)
        claims, swept, notes = partial(self._others.claims, folder), self._swept_of(dataset), TrashNotes(folder)
        answers = VersionsOrder(order, permit, files, load, notes, claims, swept, announcer).run(targets)
        if order.starts_in_trash:
            notes.remove_ended(targets, answers)
        return answers

    def _empty_trash_of_others(
        self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit
    ) -> list[SweptTarget]:
        # targets of an earlier table, which another one has replaced, or which is not there any more
        folder = self._only(dataset, self._folders().by_dataset.get(dataset, ()))
        table = self._reader.read(folder) if folder else None
        ids = table.ids if table else frozenset()
        others = [target for target in targets if target.note and VersionNote.parse(target.note).table not in ids]
        if folder is None:
            return [gone_from_trash(target, dataset) for target in others]  # its parent folder was listed
        if others and not folder.is_there():
            raise Refused(f"{folder.shown} is not there. Check that its disk is mounted")
        return empty_trash(TrashNotes(folder), TableFiles(self._place(folder), permit, parallelism), others) if others else []

    def place(self, dataset: str, claim: bool = False) -> str | None:  # noqa: ARG002 - a table has an identity of its own
        """Return the id of the table and its folder. None without a table: the sweep reports that."""
        if (opened := self._open(dataset)) is None:
            return None
        folder, table = opened
        return f"table {table.id} in {shown_place(folder.canonical)}"

    def store_place(self, claim: bool = False) -> str | None:
        """Return the folder that holds all tables, with its identity."""
        if (root := self.settings.data_root) is None:
            return None
        if claim and holds_anything(root):
            leave_identity(root)
        return place_of_root(root)

    def data_finder(self, dataset: str) -> FindData:
        if (opened := self._open(dataset)) is None:
            return lambda _: []
        folder, table = opened
        missing = is_missing(table, self._files(folder).listing())

        def find(transactions: Sequence[str]) -> list[str]:
            numbers = {number: name for name in transactions if (number := number_of(name)) in table.versions}
            lost = table.counts(numbers, missing)
            return [name for number, name in numbers.items() if not (lost[number] or table.versions[number].is_empty)]

        return find

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        if (opened := self._open(dataset)) is None:
            return {}
        folder, table = opened
        listing = self._files(folder).listing()
        numbers = [number_of(target.transaction) for target in targets]
        return remains_of(Needs.of(self._state(dataset, folder, table, listing), numbers), targets, listing)

    def explain_needs(self, dataset: str, transaction: str) -> list[str]:
        opened, number = self._open(dataset), number_of(transaction)
        if opened is None or number not in opened[1].versions:
            return []
        state = self._state(dataset, *opened)
        return Needs.of(state, [number]).explanation(number, number in state.swept.deleted)

    def _lines_of(self, dataset: str, folders: Sequence[TableFolder], streams: Streams) -> pa.Table:
        lines: list[Line] = []
        try:
            if (opened := self._open_one(dataset, folders)) is None:
                return LINES.empty_table()
            folder, table = opened
            listing = self._files(folder).listing()
            check_names(table, listing)
            pins = Pins.of(table, streams.of(table.id))
            spares = self.settings.window_below_table == "spare"
            stays = dict.fromkeys(table.elsewhere, "another folder")
            stays |= claimed_files(table, self._claims_lately(folder) or {})
            lines += lines_of(dataset, table, pins, spares, strays_of(table, listing), stays, is_missing(table, listing))
            return pa.Table.from_pylist(lines, schema=LINES)
        except Exception as fault:  # noqa: BLE001 - a log may hold anything
            text = error_text(fault).encode(errors="replace").decode()
            return pa.Table.from_pylist([{"dataset": dataset, "fault": text}], schema=LINES)

    def _claims_lately(self, folder: TableFolder) -> Mapping[str, str] | None:
        # None if they are unknown: nothing is swept then, but versions are judged
        with suppress(Refused):
            return self._others.claims(folder, _LATELY)
        return None

    def _only(self, dataset: str, folders: Sequence[TableFolder]) -> TableFolder | None:
        if len({folder.canonical for folder in folders}) > 1:
            folders = [folder for folder in folders if folder.list_log()]
        if len({folder.canonical for folder in folders}) > 1:
            raise Refused(f"{len(folders)} tables have the name {dataset}: {' and '.join(one.shown for one in folders[:2])}")
        for folder in folders:
            if len(same := self._folders().by_folder[folder.canonical]) > 1:
                raise Refused(f"{' and '.join(other.shown for other in same)} are one table. Name it once")
            if other := self._folders().owners.get(folder.canonical):
                raise Refused(f"{folder.shown} is also a table of the store {other}. Give it to one of them")
        return folders[0] if folders else None

    def _open(self, dataset: str) -> tuple[TableFolder, Table] | None:
        return self._open_one(dataset, self._folders().by_dataset.get(dataset, ()))

    def _open_one(self, dataset: str, folders: Sequence[TableFolder]) -> tuple[TableFolder, Table] | None:
        folder = self._only(dataset, folders)
        table = self._reader.read(folder) if folder else None
        return (folder, table) if folder and table else None

    def _folders(self) -> "_Folders":
        with self._lock:
            if moment().running - self._looked_at > _LATELY:
                self._found = _Folders.find(self.settings)
                self._looked_at = moment().running
            return self._found

    def _all_tables(self) -> Iterator[str]:
        folders = _Folders.find(self.settings)
        yield from (folder.location for same in folders.by_folder.values() for folder in same)
        yield from (location.rstrip("/") for location in folders.owners)

    def _readable_tables(self) -> dict[str, Table]:
        tables: dict[str, Table] = {}
        for name in self.datasets():
            with suppress(Refused):
                if opened := self._open(name):
                    tables[name] = opened[1]
        return tables

    def _may_hold_log(self, folder: TableFolder) -> bool:
        try:
            listed = folder.list_log()
        except (Refused, OSError):
            return True  # reading it says why
        self._listed[folder.canonical] = moment().running, listed
        return bool(listed)

    def _listed_lately(self, folder: TableFolder) -> Sequence[LogFile]:
        # `datasets` has just listed it; used once
        listed_at, listed = self._listed.pop(folder.canonical, (float("-inf"), ()))
        return listed if moment().running - listed_at < _LATELY else folder.list_log()

    def _files(self, folder: TableFolder) -> TableFiles:
        return TableFiles(self._place(folder), always, _THREADS)

    def _state(self, dataset: str, folder: TableFolder, table: Table, listing: Mapping[str, Entry] | None = None) -> TableState:
        claims, listing = self._others.claims(folder), self._files(folder).listing() if listing is None else listing
        return TableState(table, self._pins(table), self._swept_of(dataset), claims, is_missing(table, listing))

    def _place(self, folder: TableFolder) -> Place:
        return open_place(folder.location, self.settings.guarded)

    def _pins(self, table: Table) -> Pins:
        return Pins.of(table, self._streams().of(table.id))

    def _streams(self) -> Streams:
        return read_streams(self.settings.streams)

    def _swept_of(self, dataset: str) -> Swept:
        return self._swept.get(dataset, Swept())
