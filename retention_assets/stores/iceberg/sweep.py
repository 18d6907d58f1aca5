"""Prepares, sweeps, sets aside and restores snapshots of one Iceberg table: read, commit, read again, delete.

The commit comes before the deletion, because a reader must never find a snapshot whose files are gone. A sweep killed in
between leaves files that no metadata names; the note from `prepare` names their manifest list, and the next sweep continues
from there.

Setting aside and restoring are one commit each, which moves a snapshot between the table's snapshots and its properties.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef

from retention_assets.errors import Refused
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.commit import (
    RESTORED,
    CommitConflict,
    CommitUnknown,
    put_back,
    refs_by_snapshot,
    refs_dropped,
    remove_snapshots,
)
from retention_assets.stores.iceberg.delete import Border, RemovedFiles, delete_files_of
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.log import MAX_REF_AGE_PROPERTY, collects_garbage
from retention_assets.stores.iceberg.manifests import ParsedFiles, Unreadable
from retention_assets.stores.iceberg.notes import (
    ASIDE,
    AsideSnapshot,
    SnapshotNote,
    asides_of,
    is_there,
    note_from,
    notes_of,
    notes_of_expired,
    snapshot_id,
    with_asides,
)
from retention_assets.stores.iceberg.reachability import OwnedFiles, Reachability, files_of_notes, staying_lists
from retention_assets.stores.protocol import PreparedTarget, Remains, Target
from retention_assets.stores.table_order import ATTEMPTS, TableOrder

_MISSING = "the table is not in the catalog: it was dropped, or this is another catalog. Nothing is recorded as gone"
_ANOTHER = "another table has the name now; the files of the earlier table stay"
_GARBAGE_STAYS = "table property gc.enabled is false"
_BACK = "it is in the table's metadata again"
FORGET = "Bring it back, or say by `retention trash forget` that it is gone"


class Unloadable(Refused):
    """The catalog or the metadata of a table can't be read, or belongs to another table now."""


@dataclass(frozen=True)
class _Going:
    """A target that is to leave the table, and whether this order found it in the metadata."""

    transaction: str
    note: SnapshotNote
    was_there: bool
    # refs dropped with it; if it was not in the metadata, refs that were dropped
    drops: Mapping[str, SnapshotRef] = field(default_factory=dict)
    aside: str = ""


@dataclass
class SnapshotsOrder(TableOrder):
    """An order about snapshots of one table. A target that is to leave it is in `going` until it has its outcome."""

    # reads the table anew; None if the catalog does not have it
    load: Callable[[], Table | None]
    # Looks at all tables of the catalog and returns which of the files, by identity, another table has, and which one. Raises
    # Refused if that can't be told, and if another name leads to this table's files.
    ask_others: Callable[[Table, Set[str], Executor], Mapping[str, str]]
    parsed: ParsedFiles
    threads: Executor
    going: dict[str, _Going] = field(default_factory=dict, init=False)
    # manifest lists that are in no metadata and whose files stay
    kept: dict[str, bool] = field(default_factory=dict, init=False)
    # uuid of the table as first read
    uuid: str = field(default="", init=False)
    # the table as it was looked at, and what is to leave its metadata, by snapshot
    table: Table = field(init=False)
    ids: Mapping[int, str] = field(init=False)
    reach: Reachability = field(init=False)
    # the last refusal of a commit
    refused: str = field(default="", init=False)

    def decide(self, targets: Sequence[Target]) -> bool:
        is_first = not self.uuid
        if not self._look(targets):
            return False
        if is_first:
            if self.order.deletes and not collects_garbage(self.table.metadata):
                self.settle([target.transaction for target in targets], Outcome.SPARED, _GARBAGE_STAYS)
                return False
            self.reach = Reachability(self.table.io, self.threads, self.parsed)
            self._find_notes(self.table, targets)
        self.ids = self._unfinished(self.table.metadata)
        return bool(self.ids)

    def _look(self, targets: Sequence[Target]) -> bool:
        table = self._reload() if self.uuid else self.load()
        if table is None:
            self.settle([target.transaction for target in targets], Outcome.FAILED, _MISSING)
            return False
        self.table, self.uuid = table, str(table.metadata.table_uuid)
        return True

    def commit(self) -> bool:
        # after it, targets still in `going` are in no metadata, or set aside as ordered
        table, ids = self.table, self.ids
        notes = {name: one.note for name, one in self.going.items()}
        staying = staying_lists(table.metadata, (notes[name] for name in ids.values()))
        owned = files_of_notes(self.reach, table.metadata, notes, staying)
        # expire nothing before it is known that no other name leads to this table, and that other tables can be asked what
        # they need
        self._claims(table, owned)
        loaded, metadata, dropping = table.metadata_location, table.metadata, self._dropping()
        asides = {one: self.going[name].aside for one, name in ids.items()} if self.order is Order.SET_ASIDE else {}
        self.permit()
        self.in_doubt = True
        try:
            remove_snapshots(table, ids, dropping, asides)
        except CommitConflict as fault:
            self.refused = str(fault)
            return False
        except CommitUnknown as fault:
            table = self._reload()
            unfinished = self._unfinished(table.metadata)
            self.settle(unfinished.values(), Outcome.FAILED, f"the catalog did not take the commit: {fault}")
            ids = {one: name for one, name in ids.items() if name in self.going}
        if (kept := self._keep_dropped(table, loaded, ids, dropping)) and self.order is Order.DELETE:
            # otherwise the next sweep would delete files that they share; if the catalog refuses, these files stay for now
            with suppress(CommitConflict, CommitUnknown):
                put_back(self._reload(), {one: AsideSnapshot.of(metadata, one, "") for one in kept})
        return True

    def give_up(self) -> None:
        why = f"other writers changed the table during each of {ATTEMPTS} commits; the next sweep tries again"
        late = self._unfinished(self._reload().metadata)
        self.settle(late.values(), Outcome.FAILED, f"{why}; the last was refused: {self.refused}")

    def act(self) -> None:
        # others may have committed after this order, and their files must not be deleted either
        newest = self._reload()
        self.settle(self._unfinished(newest.metadata).values(), Outcome.FAILED, _BACK)
        if self.order is Order.SET_ASIDE:
            lost = self.going.keys() - map(str, asides_of(newest.metadata))
            self.settle(lost, Outcome.ALREADY_GONE, "it was expired before it could be set aside")
        notes = {name: one.note for name, one in self.going.items()}
        staying = staying_lists(newest.metadata, notes.values() if self.order is Order.SET_ASIDE else ()) | self.kept
        owned = files_of_notes(self.reach, newest.metadata, notes, staying)
        if self.order is Order.SET_ASIDE:
            removed = {name: RemovedFiles(files.bytes) for name, files in owned.items()}
        else:
            border = Border(newest.io, TableFence.of(newest.metadata), self._claims(newest, owned))
            removed = delete_files_of(border, owned, self.threads, self.permit)
        for name, one in list(self.going.items()):
            self._conclude(one, owned[name], removed[name])

    def why(self, fault: Exception) -> str:
        # an unavailable catalog is one more way in which a target fails
        if isinstance(fault, Unreadable):
            return f"nothing was deleted, because it is unknown what other snapshots need: {fault}"
        return str(fault) if isinstance(fault, Refused) else super().why(fault)

    def _find_notes(self, table: Table, targets: Sequence[Target]) -> None:
        notes, in_metadata = notes_of(with_asides(table.metadata)), notes_of(table.metadata).keys()
        for target in targets:
            name, one, planned = target.transaction, snapshot_id(target.transaction), note_from(target.note)
            # refs as they were when it was planned
            refs = planned.refs if planned else {}
            if one in notes:
                ended = {label: refs[label] for label in target.ended_refs if label in refs}
                self.going[name] = _Going(name, notes[one], one in in_metadata, ended, target.aside)
            elif one is None or target.note is None:
                self.settle([name], Outcome.ALREADY_GONE)
            elif planned is None:
                self.settle([name], Outcome.FAILED, "the note of its plan can't be read")
            elif planned.table != self.uuid:
                self.settle([name], Outcome.ALREADY_GONE, _ANOTHER)
            else:
                self.going[name] = _Going(name, planned, False, refs)
        earlier = [one for one in self.going.values() if int(one.transaction) not in notes]
        are_there = map_concurrently(self.threads, lambda one: is_there(table.io, one.note), earlier)
        missing = {one.transaction for one, found in zip(earlier, are_there, strict=True) if not found}
        lost = {target.transaction for target in targets if self.order is Order.DELETE_ASIDE and not target.begun_earlier}
        self.settle(missing & lost, Outcome.FAILED, f"its manifest list is gone, and no sweep has begun to delete it. {FORGET}")
        self.settle(missing - lost, Outcome.ALREADY_GONE)

    def _claims(self, table: Table, owned: Mapping[str, OwnedFiles]) -> Mapping[str, str]:
        wanted = {file_identity(file.location) for files in owned.values() for file in files.files}
        return self.ask_others(table, wanted, self.threads)

    def _dropping(self) -> dict[str, SnapshotRef]:
        return {name: ref for one in self.going.values() if one.was_there for name, ref in one.drops.items()}

    def _keep_dropped(self, table: Table, loaded: str, ids: Mapping[int, str], dropping: Mapping[str, SnapshotRef]) -> Set[int]:
        outcome = Outcome.SET_ASIDE if self.order is Order.SET_ASIDE else Outcome.SPARED
        try:
            dropped = refs_dropped(table, loaded, ids, dropping)
            why = "was made on it while it was expired, and the catalog dropped both; its files are left and named in"
            errors = {one: f"{ref} {why} {table.metadata.metadata_log[-1].metadata_file}" for one, ref in dropped.items()}
        except CommitUnknown as fault:
            why = "it is expired, but it is unknown whether a branch or tag was just made on it, so its files stay"
            errors = dict.fromkeys(ids, f"{why}: {fault}")
        for one, error in errors.items():
            self.kept[self.going[ids[one]].note.manifest_list] = True
            self.settle([ids[one]], outcome, error)
        return errors.keys()

    def _unfinished(self, metadata: TableMetadata) -> dict[int, str]:
        """Return what is to be removed yet, and settle what must stay."""
        in_metadata, asides = notes_of(metadata).keys(), asides_of(metadata)
        refs = refs_by_snapshot(metadata, self._dropping())
        for name, going in list(self.going.items()):
            one, aside = int(name), asides.get(int(name))
            if self.order is Order.DELETE_ASIDE and one in in_metadata:
                self.settle([name], Outcome.ALREADY_GONE, _BACK)
            elif one in refs:
                self.settle([name], Outcome.SPARED, f"{refs[one]} points at it")
            elif one in in_metadata and not collects_garbage(metadata):
                self.settle([name], Outcome.SPARED, _GARBAGE_STAYS)
            elif aside and aside.aside != going.aside:
                self.settle([name], Outcome.ALREADY_GONE, f"it is set aside already, by another order ({aside.aside})")
        # a deletion also removes properties of snapshots that are set aside
        removable = in_metadata if self.order is Order.SET_ASIDE else in_metadata | asides.keys()
        return {int(name): name for name in self.going if int(name) in removable}

    def _conclude(self, one: _Going, owned: OwnedFiles, removed: RemovedFiles) -> None:
        name = one.transaction
        # a manifest may be missing that an earlier sweep deleted with the files that it named
        skipped = [fault for fault in owned.unreadable if one.was_there or not fault.missing]
        sentences = [f"what it names was not deleted: {_first_of(skipped)}"] if skipped else []
        sentences += [f"left, {why}: {_first_of(files)}" for why, files in removed.left.items()]
        if removed.withheld:
            self.settle([name], Outcome.WITHHELD, removed.withheld)
        elif removed.failed:
            self.settle([name], Outcome.FAILED, f"could not be deleted: {_first_of(removed.failed)}")
        else:
            sentences += [
                f"{ref.snapshot_ref_type} {label} was dropped with it, because it has ended" for label, ref in one.drops.items()
            ]
            left = sum(not fault.missing for fault in skipped) + sum(map(len, removed.left.values()))
            self.settle([name], self.order.done, "; ".join(sentences) or None, removed.bytes, left)

    def _reload(self) -> Table:
        table = self.load()
        if table is None:
            raise Unloadable("the table was dropped meanwhile; its files stay")
        if str(table.metadata.table_uuid) != self.uuid:
            raise Unloadable(_ANOTHER)
        return table

    def settle(self, names: Iterable[str], outcome: Outcome, error: str | None = None, size: int = 0, left: int = 0) -> None:
        names = [*names]
        for name in names:
            self.going.pop(name, None)
        super().settle(names, outcome, error, size, left)


@dataclass
class RestoreOrder(SnapshotsOrder):
    """An order to put snapshots back that are set aside. What came back is seen by the next look."""

    targets: Sequence[Target] = field(default=(), init=False)
    # records of the snapshots that can be put back, by snapshot
    asides: Mapping[int, AsideSnapshot] = field(init=False)

    def decide(self, targets: Sequence[Target]) -> bool:
        self.asides = self._find_asides(self.table, targets) if self._look(targets) else {}
        self.targets = targets
        return bool(self.asides)

    def commit(self) -> bool:
        self.permit()
        self.in_doubt = True
        try:
            put_back(self.table, self.asides)
        except (CommitConflict, CommitUnknown) as fault:
            self.refused = str(fault)
        return False

    def give_up(self) -> None:
        unfinished = map(str, self._find_asides(self._reload(), self.targets))
        self.settle(unfinished, Outcome.FAILED, f"the catalog did not take the commit: {self.refused}")

    def _find_asides(self, table: Table, targets: Sequence[Target]) -> dict[int, AsideSnapshot]:
        """Return what can be put back. Settles what is back, and what can't come back."""
        in_metadata, asides, whole = notes_of(table.metadata).keys(), asides_of(table.metadata), dict[int, AsideSnapshot]()
        for target in (target for target in targets if target.transaction not in self.outcomes):
            name, one, planned = target.transaction, snapshot_id(target.transaction) or 0, note_from(target.note)
            aside, tag, refusal = asides.get(one), f"{RESTORED}{one}", None
            if planned and planned.table != self.uuid:
                refusal = _ANOTHER
            elif one in in_metadata:
                self.settle([name], Outcome.RESTORED)
            elif aside is None or aside.aside != target.aside:
                refusal = f"the table has no property {ASIDE}{name} of this order, by which it could be put back"
            elif tag in table.metadata.refs:
                refusal = f"the table has a branch or tag {tag} already; rename or drop it"
            elif missing := self._missing(table, aside):
                refusal = f"{_first_of(missing)}. Another engine's expiry or removal of orphans may have taken it"
            else:
                whole[one] = aside
            if refusal:
                self.settle([name], Outcome.FAILED, refusal)
        return whole

    def _missing(self, table: Table, aside: AsideSnapshot) -> list[str]:
        reach = Reachability(table.io, self.threads, self.parsed)
        statistics = [file.statistics_path for file in (*aside.statistics, *aside.partition_statistics)]
        try:
            manifests = reach.find_manifests({aside.snapshot.manifest_list: True})
            live = map_concurrently(self.threads, reach.staying_files, list(manifests.values()))
            locations = statistics + [file.location for files in live for file in files.values()]
            are_there = map_concurrently(self.threads, lambda location: table.io.new_input(location).exists(), locations)
            used = {manifest.partition_spec_id for manifest in aside.snapshot.manifests(table.io)}
        # file systems raise anything; an error means unknown, not absent
        except Exception as fault:  # noqa: BLE001
            return [f"{type(fault).__name__}: {fault}"]
        # other engines also remove schemas and specs that no snapshot in the metadata has
        schemas = {schema.schema_id for schema in table.metadata.schemas} | {None}
        specs = {spec.spec_id for spec in table.metadata.partition_specs}
        return [
            *(f"{location} is not there" for location, exists in zip(locations, are_there, strict=True) if not exists),
            *(f"the table no longer has schema {schema}" for schema in {aside.snapshot.schema_id} - schemas),
            *(f"the table no longer has partition spec {spec}" for spec in sorted(used - specs)),
        ]


def _first_of(things: Sequence[object]) -> str:
    more = f" and {len(things) - 1} more" if len(things) > 1 else ""
    return f"{things[0]}{more}"


# above these, counting bytes is not worth the time: the sweep reads the same files again
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

    texts: dict[int | None, str] = {one: notes[one].text() for one in ids.values() if one in notes}
    return [PreparedTarget(name, size_of(name, one), texts.get(one)) for name, one in ids.items()]


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
    note = None if snapshot_id(target.transaction) in asides_of(table.metadata) else note_from(target.note)
    if note is None or note.table != str(table.metadata.table_uuid):
        return Remains.UNKNOWN
    return Remains.SOME if is_there(table.io, note) else Remains.NOTHING
