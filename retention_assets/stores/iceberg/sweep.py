"""Prepares and sweeps one Iceberg table: read, commit, read again, delete.

The commit comes before the deletion, because a reader must never find a snapshot whose files are gone. A sweep killed in
between leaves files that no metadata names; the note from `prepare` names their manifest list, and the next sweep continues
from there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef

from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.commit import (
    CommitConflict,
    CommitUnknown,
    refs_by_snapshot,
    refs_dropped,
    remove_snapshots,
)
from retention_assets.stores.iceberg.delete import Border, RemovedFiles, delete_files_of
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.log import MAX_REF_AGE_PROPERTY, collects_garbage
from retention_assets.stores.iceberg.manifests import ParsedFiles, Unreadable
from retention_assets.stores.iceberg.notes import SnapshotNote, is_there, note_from, notes_of, notes_of_expired, snapshot_id
from retention_assets.stores.iceberg.reachability import OwnedFiles, Reachability, files_of_notes, staying_lists
from retention_assets.stores.protocol import Permit, PreparedTarget, Remains, SweptTarget, Target

GARBAGE_STAYS = "table property gc.enabled is false"
TABLE_MISSING = (
    "the table is not in the catalog: it was dropped, or this is another catalog. The sweep records nothing as "
    "gone, and its files stay"
)
_ANOTHER = "another table has the name now; the files of the earlier table stay"
_COMMITS = 5


class Unloadable(Refused):
    """The catalog or the metadata of a table can't be read, or belongs to another table now."""


@dataclass(frozen=True)
class _Going:
    """A target whose files are to be deleted, and whether this sweep found it in the metadata."""

    transaction: str
    note: SnapshotNote
    was_there: bool
    # refs dropped with it; if it was not in the metadata, refs that were dropped
    drops: Mapping[str, SnapshotRef] = field(default_factory=dict)


@dataclass
class TableSweep:
    """One sweep. A target is in `going` until it has its outcome."""

    # reads the table anew; None if the catalog does not have it
    load: Callable[[], Table | None]
    # Looks at all tables of the catalog and returns which of the files, by identity, another table has, and which one. Raises
    # Refused if that can't be told, and if another name leads to this table's files.
    ask_others: Callable[[Table, Set[str], Executor], Mapping[str, str]]
    parsed: ParsedFiles
    threads: Executor
    permit: Permit
    going: dict[str, _Going] = field(default_factory=dict)
    outcomes: dict[str, SweptTarget] = field(default_factory=dict)
    # manifest lists that are in no metadata and whose files stay
    kept: list[str] = field(default_factory=list)
    # of the table as first read
    uuid: str = ""

    def run(self, targets: Sequence[Target]) -> list[SweptTarget]:
        # all of them: a fault before a target is in `going` must reach it as well
        names = [target.transaction for target in targets]
        try:
            table = self.load()
            if table is None:
                self._settle(names, Outcome.FAILED, TABLE_MISSING)
            elif not collects_garbage(table.metadata):
                self._settle(names, Outcome.SPARED, GARBAGE_STAYS)
            else:
                self.uuid = str(table.metadata.table_uuid)
                self._sweep(table, targets)
        except Withheld as fault:
            self._settle(names, Outcome.WITHHELD, str(fault))
        except Refused as fault:
            # an unavailable catalog is one more way in which a target fails
            self._settle(names, Outcome.FAILED, str(fault))
        except Unreadable as fault:
            why = "nothing was deleted, because it is unknown what other snapshots need"
            self._settle(names, Outcome.FAILED, f"{why}: {fault}")
        return [self.outcomes[name] for name in names]

    def _sweep(self, table: Table, targets: Sequence[Target]) -> None:
        self._find_notes(table, targets)
        reach = Reachability(table.io, self.threads, self.parsed)
        self._commit(table, reach)
        if not self.going:
            return
        # others may have committed after us, and what they wrote must not be deleted either
        newest = self._reload()
        back = notes_of(newest.metadata).keys()
        self._settle([name for name in self.going if int(name) in back], Outcome.FAILED, "it is in the table's metadata again")
        notes = {name: one.note for name, one in self.going.items()}
        owned = files_of_notes(reach, newest.metadata, notes, [*staying_lists(newest.metadata), *self.kept])
        border = Border(table.io, TableFence.of(newest.metadata), self._claims(newest, owned))
        removed = delete_files_of(border, owned, self.threads, self.permit)
        for name, one in list(self.going.items()):
            self._conclude(one, owned[name], removed[name])

    def _find_notes(self, table: Table, targets: Sequence[Target]) -> None:
        notes = notes_of(table.metadata)
        for target in targets:
            name, one = target.transaction, snapshot_id(target.transaction)
            if one in notes:
                self.going[name] = _Going(name, notes[one], True, _refs_to_drop(target))
            elif one is None or target.note is None:
                self._settle([name], Outcome.ALREADY_GONE)
            else:
                self._resume(name, target.note)
        earlier = [one for one in self.going.values() if not one.was_there]
        there = map_concurrently(self.threads, lambda one: is_there(table.io, one.note), earlier)
        self._settle([one.transaction for one, found in zip(earlier, there, strict=True) if not found], Outcome.ALREADY_GONE)

    def _resume(self, name: str, text: str) -> None:
        try:
            note = note_from(text)
        except ValueError as fault:
            self._settle([name], Outcome.FAILED, f"the note of its plan can't be read: {fault}")
            return
        if note.table != self.uuid:
            self._settle([name], Outcome.ALREADY_GONE, _ANOTHER)
            return
        self.going[name] = _Going(name, note, False, note.refs)

    def _commit(self, table: Table, reach: Reachability) -> None:
        # afterwards, what is still going is in no metadata
        refused = ""
        for _ in range(_COMMITS):
            ids = self._spare_referenced(table.metadata)
            if not ids:
                return
            notes = {name: one.note for name, one in self.going.items()}
            staying = staying_lists(table.metadata, (notes[name] for name in ids.values()))
            owned = files_of_notes(reach, table.metadata, notes, staying)
            # expire nothing before it is known that no other name leads to this table, and that other tables can be asked what
            # they need
            self._claims(table, owned)
            loaded, dropping = table.metadata_location, self._dropping()
            self.permit()
            try:
                remove_snapshots(table, ids, dropping)
            except CommitConflict as fault:
                refused, table = str(fault), self._reload()
                continue
            except CommitUnknown as fault:
                table = self._reload()
                there = notes_of(table.metadata)
                left = [name for one, name in ids.items() if one in there]
                self._settle(left, Outcome.FAILED, f"the catalog did not take the commit: {fault}")
                ids = {one: name for one, name in ids.items() if name in self.going}
            self._keep_dropped(table, loaded, ids, dropping)
            return
        why = f"other writers changed the table during each of {_COMMITS} commits; the next sweep tries again"
        late = list(self._spare_referenced(table.metadata).values())
        self._settle(late, Outcome.FAILED, f"{why}; the last was refused: {refused}")

    def _claims(self, table: Table, owned: Mapping[str, OwnedFiles]) -> Mapping[str, str]:
        wanted = {file_identity(file.location) for files in owned.values() for file in files.files}
        return self.ask_others(table, wanted, self.threads)

    def _dropping(self) -> dict[str, SnapshotRef]:
        return {name: ref for one in self.going.values() if one.was_there for name, ref in one.drops.items()}

    def _keep_dropped(self, table: Table, loaded: str, ids: Mapping[int, str], dropping: Mapping[str, SnapshotRef]) -> None:
        try:
            dropped = refs_dropped(table, loaded, ids, dropping)
        except CommitUnknown as fault:
            why = "it is expired, but it is unknown whether a branch or tag was just made on it, so its files stay"
            self.kept += [self.going[name].note.manifest_list for name in ids.values()]
            self._settle(ids.values(), Outcome.SPARED, f"{why}: {fault}")
            return
        for one, ref in dropped.items():
            self.kept.append(self.going[ids[one]].note.manifest_list)
            why = f"{ref} was made on it while it was expired, and the catalog dropped both; its files are left and named in"
            self._settle([ids[one]], Outcome.SPARED, f"{why} {table.metadata.metadata_log[-1].metadata_file}")

    def _spare_referenced(self, metadata: TableMetadata) -> dict[int, str]:
        refs, there = refs_by_snapshot(metadata, self._dropping()), notes_of(metadata)
        for name in [name for name in self.going if int(name) in refs]:
            self._settle([name], Outcome.SPARED, f"{refs[int(name)]} points at it")
        return {int(name): name for name in self.going if int(name) in there}

    def _conclude(self, one: _Going, owned: OwnedFiles, removed: RemovedFiles) -> None:
        name = one.transaction
        # what an earlier sweep deleted together with what it named is expected
        skipped = [fault for fault in owned.unreadable if one.was_there or not fault.missing]
        sentences = [f"what it names was not deleted: {_first_of(skipped)}"] if skipped else []
        sentences += [f"left, {why}: {_first_of(files)}" for why, files in removed.left.items()]
        if removed.withheld:
            self._settle([name], Outcome.WITHHELD, removed.withheld)
        elif removed.failed:
            self._settle([name], Outcome.FAILED, f"could not be deleted: {_first_of(removed.failed)}")
        else:
            sentences += [
                f"{ref.snapshot_ref_type} {label} was dropped with it, because it has ended" for label, ref in one.drops.items()
            ]
            left = sum(not fault.missing for fault in skipped) + sum(map(len, removed.left.values()))
            self._settle([name], Outcome.DELETED, "; ".join(sentences) or None, removed.bytes, left)

    def _reload(self) -> Table:
        table = self.load()
        if table is None:
            raise Unloadable("the table was dropped meanwhile; its files stay")
        if str(table.metadata.table_uuid) != self.uuid:
            raise Unloadable(_ANOTHER)
        return table

    def _settle(self, names: Iterable[str], outcome: Outcome, error: str | None = None, size: int = 0, left: int = 0) -> None:
        # the first outcome of a target stands: a later fault of all does not change it
        for name in names:
            self.going.pop(name, None)
            self.outcomes.setdefault(name, SweptTarget(name, outcome, size, error, left=left))


def _refs_to_drop(target: Target) -> dict[str, SnapshotRef]:
    if not target.ended_refs or target.note is None:
        return {}
    try:
        planned = note_from(target.note).refs
    except ValueError:
        return {}
    # as they were then
    return {name: ref for name, ref in planned.items() if name in target.ended_refs}


def _first_of(things: Sequence[object]) -> str:
    more = f" and {len(things) - 1} more" if len(things) > 1 else ""
    return f"{things[0]}{more}"


# counting bytes reads what the sweep reads again; above this it is not worth the time
_MOST_SNAPSHOTS = 4_000
_MOST_MANIFESTS = 4_000


def prepare_table(table: Table, transactions: Sequence[str], parallelism: int, parsed: ParsedFiles) -> list[PreparedTarget]:
    """Return a note for each snapshot, and the bytes that deleting all of them would free, each file counted once."""
    if not collects_garbage(table.metadata):
        return [PreparedTarget(transaction, 0) for transaction in transactions]
    ids = {transaction: snapshot_id(transaction) for transaction in transactions}
    notes, refs = notes_of(table.metadata), refs_by_snapshot(table.metadata)
    # already expired, by an incomplete sweep or by somebody else
    notes |= notes_of_expired(table, {one for one in ids.values() if one is not None and one not in notes})
    going = {transaction: notes[one] for transaction, one in ids.items() if one in notes and one not in refs}
    sizes = _sizes(table, going, parallelism, parsed)
    always = MAX_REF_AGE_PROPERTY in table.metadata.properties
    ending = {
        one for one, note in notes.items() if note.refs and all(always or ref.max_ref_age_ms for ref in note.refs.values())
    }

    def size_of(name: str, one: int | None) -> int | None:
        if sizes is None or (one in ending and one != table.metadata.current_snapshot_id):
            # its ref may be over and be dropped with it; the planner knows
            return None
        # a snapshot with a ref will be spared, and an unknown one is gone: neither frees anything
        return sizes.get(name, 0)

    return [PreparedTarget(name, size_of(name, one), notes[one].text() if one in notes else None) for name, one in ids.items()]


def _sizes(table: Table, going: Mapping[str, SnapshotNote], parallelism: int, parsed: ParsedFiles) -> dict[str, int] | None:
    if len(table.metadata.snapshots) > _MOST_SNAPSHOTS:
        return None
    with ThreadPoolExecutor(parallelism) as threads:
        reach = Reachability(table.io, threads, parsed)
        try:
            lists = staying_lists(table.metadata, going.values())
            if len(reach.find_manifests(lists)) > _MOST_MANIFESTS:
                return None
            return {name: owned.bytes for name, owned in files_of_notes(reach, table.metadata, going, lists).items()}
        except Unreadable:
            # the sweep will refuse and give the reason; only the number is lost here
            return None


def remains_of(table: Table, target: Target) -> Remains:
    """Tell what is left of a snapshot: its files go after it was expired, its manifest list last."""
    if snapshot_id(target.transaction) in notes_of(table.metadata):
        return Remains.ALL
    try:
        note = note_from(target.note or "")
    except ValueError:
        return Remains.UNKNOWN
    if note.table != str(table.metadata.table_uuid):
        return Remains.UNKNOWN
    return Remains.SOME if is_there(table.io, note) else Remains.NOTHING
