"""The `objects` store: implements the protocol of stores. An object is a transaction of type OBJECT, named by its key. Its note
records the object as the sweep's second look saw it: only that very object is deleted."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.errors import Refused, quote
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Order
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Keeper
from retention_assets.sql.foreign import ForeignDatabase, location_of
from retention_assets.sql.references import kind_of
from retention_assets.stores.concurrency import OpenPlace, Tasks, open_local
from retention_assets.stores.objects.classes import log_lines
from retention_assets.stores.objects.delete import ObjectDeletion, ObjectRows, is_conditional, pace_of
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.hits import GivenKeys, in_purging_realms, within_realms
from retention_assets.stores.objects.judge import Scan
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.look import ObjectsLook, look_here, look_in
from retention_assets.stores.objects.notes import notes_of, planned_of, present_of
from retention_assets.stores.objects.scan import scan_here
from retention_assets.stores.objects.scan_result import ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import SqlEdges, SqlReferences
from retention_assets.stores.objects.sources import ObjectListing, Pace
from retention_assets.stores.objects.sources.finished import FinishedListing
from retention_assets.stores.objects.sources.sql import DatabaseObjects
from retention_assets.stores.objects.tables import NAMED, OBJECTS, constant_dataset, realms_of_keys, with_names
from retention_assets.stores.places.file_systems import server_time
from retention_assets.stores.places.own_files import holds_anything, leave_identity, place_of_root
from retention_assets.stores.protocol import (
    KNOWN_BY,
    DueTransactions,
    Only,
    Permit,
    PreparedTarget,
    Reads,
    Remains,
    Store,
    SweptTarget,
    Target,
    always,
    never,
)


class ObjectsStore(Store):
    """A store of single objects. Pickled as its settings."""

    settings: ObjectsSettings
    log_is_complete = True
    reads = Reads.SOME
    guards = True
    parts_at = ""

    def __init__(self, settings: ObjectsSettings, tasks: int = 1) -> None:
        super().__init__(settings)
        self._pace = pace_of(settings, tasks)
        # keys that were asked for, and the objects among them, by dataset
        self._read: dict[str, tuple[pa.Array, pa.Table]] = {}
        self._look: ObjectsLook | None = None
        self._only = Only({})

    def among(self, tasks: int) -> "ObjectsStore":
        if tasks == 1:
            return self
        store = ObjectsStore(self.settings, tasks)
        store.answer_by(self._look)
        return store

    @cached_property
    def listing(self) -> ObjectListing:
        return open_listing(self.settings)

    def datasets(self) -> list[str]:
        """Datasets of the store, unless a sweep would be refused; may have to list all objects."""
        if self._rows is not None:
            self._rows.cascades().check()
        if (datasets := self.listing.distinct_names(self.settings)) is not None:
            return datasets
        names, pace = set[str](), Pace(self.settings.rates.scan)
        for share in self.listing.shares(1):
            for batch in self.listing.read(share):
                pace.take(len(batch))
                names.update(pc.unique(with_names(batch, self.settings)["dataset"]).to_pylist())
        return sorted(names)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """A single share: one scan reads all datasets."""
        return [tuple(sorted(set(datasets)))] if datasets else []

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        """Read the log by a scan in this process, or some of it by a look. Raises Refused if a source is not whole."""
        if only is not None:
            return self._read_some(only)
        if not datasets:
            return LINES.empty_table()
        with scan_here(Scan.of(self.settings)) as (result, folder):
            lines = log_lines(folder, result, self.settings, datasets)
        return lines.take(pc.sort_indices(lines, [("dataset", "ascending"), ("transaction", "ascending")]))

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Digest of settings and day: only a scan can detect changes, so there is one per day."""
        text = f"{self.settings.model_dump_json()} {now().date().isoformat()}"
        token = hashlib.sha256(text.encode()).hexdigest()[:32]
        only, prefix = constant_dataset(self.settings), f"{self.name}/"
        own = {only} if only else {name for name in datasets if name.startswith(prefix)}
        return {name: token for name in datasets if name in own}

    def present(self) -> datetime | None:
        if self._rows is not None:
            return self._rows.listing.database.present()
        root = self.settings.data_root
        return server_time(root) if root is not None else None

    def warnings(self) -> list[str]:
        warnings = []
        if not self.settings.references:
            warnings.append(
                f"Nothing refers to the objects of the store {self.name} (`references: none`): only age decides what goes."
            )
        if not is_conditional(self.settings):
            warnings.append(
                f"The store {self.name} deletes without a condition: an object that is rewritten under its key during a "
                "sweep is deleted too. Remove `delete.condition: none` from its settings if its place supports conditions."
            )
        if self.settings.rewrites:
            warnings.append(
                f"Writers of the store {self.name} reuse existing objects (`rewrites`). Each must touch or rewrite an "
                "object before referring to it, or the bucket must keep versions. Policies need a grace."
            )
        rows = self._rows
        questions: list[Callable[[], list[str]]] = [] if rows is None else [lambda: rows.cascades().warnings()]
        questions += [
            partial(self._view_warnings, source)
            for source in (*self.settings.references, *self.settings.edges)
            if isinstance(source, SqlReferences | SqlEdges)
        ]
        for ask in questions:
            try:
                warnings += ask()
            except Refused as fault:
                warnings.append(str(fault))
        return warnings

    def _view_warnings(self, source: SqlReferences | SqlEdges) -> list[str]:
        if (kind := kind_of(ForeignDatabase(source.sql, self.name), source.table)) is None:
            return []
        return [
            f"The source {source.table} of the store {self.name} is {kind}, which may hide rows: objects with references "
            "only in hidden rows are deleted. Name the table that holds the rows."
        ]

    def accepted_cascades(self) -> str | None:
        return self._rows.cascades().foreseen if self._rows else None

    def _read_some(self, only: Only) -> pa.Table:
        self._only = only
        keys = {dataset: pa.array(names, pa.string()) for dataset, names in only.transactions.items()}
        present = self._find(pc.unique(pa.chunked_array(list(keys.values()), pa.string())).to_pylist())
        for dataset, asked in keys.items():
            rows = pc.and_(pc.equal(present["dataset"], dataset), pc.is_in(present["key"], asked))
            self._read[dataset] = asked, present.filter(rows)
        objects = pa.concat_tables([self._read[dataset][1] for dataset in keys] or [NAMED.empty_table()])
        due = GivenKeys(objects["key"].filter(pa.array(~within_realms(objects["realm"], only.purging))))
        looking = look_here(self._scan_of(due, only.purging, only.holds)) if self._look is None else nullcontext(self._look)
        with looking as look:
            return look.judge(self.settings, objects, list(keys), only.purging)

    @property
    def has_looked(self) -> bool:
        return self._look is not None

    def look(
        self,
        due: DueTransactions,
        purging: Collection[str],
        last: str | None,
        tasks: Tasks,
        folder: str,
        opened: OpenPlace = open_local,
        is_stopped: Callable[[], bool] = never,
        holds: Sequence[Keeper] = (),
    ) -> ObjectsLook:
        last_result = ScanResult.from_json(last) if last else None
        scan = self._scan_of(due, purging, holds, last=last_result, is_stopped=is_stopped)
        return look_in(tasks, scan, ScanFolder(folder, opened))

    def answer_by(self, look: object) -> None:
        assert look is None or isinstance(look, ObjectsLook)
        self._look = look

    def was_looked_at(self, transactions: pa.Array, purging: Collection[str]) -> pa.Array:
        """Mask of transactions that the look covers, or that go with their realm."""
        assert self._look is not None
        return pa.array(self._look.covers(transactions) | in_purging_realms(transactions, self.settings, purging))

    def wanted_again(self, dataset: str, transactions: Collection[str]) -> Mapping[str, str]:
        """Return the set aside objects that something refers to now, each with its witness in a sentence. If a key is in sight
        again, its reference leads to another object."""
        names = pa.array([*transactions], pa.string())
        # a realm that only listings tell is unknown in the trash: references of every realm count
        realms = realms_of_keys(names, self.settings)
        objects = pa.table({"realm": pa.nulls(len(names), pa.string()) if realms is None else realms, "key": names})
        look = self._look
        if look is not None and not all(look.covers(names) | in_purging_realms(names, self.settings, look.purging)):
            look = None
        scan = self._scan_of(GivenKeys(objects["key"]), self._only.purging, self._only.holds)
        with look_here(scan) if look is None else nullcontext(look) as answers:
            who = zip(transactions, answers.witnesses(objects).to_pylist(), strict=True)
        found = {key: f"It is referenced by {text}." for key, text in who if text}
        in_sight = set(self._look_at(dataset, [*found])["key"].to_pylist())
        return {key: text for key, text in found.items() if key not in in_sight}

    def _scan_of(self, due: DueTransactions, purging: Collection[str], holds: Sequence[Keeper], **facts: Any) -> Scan:
        return Scan.of(self.settings, due=due, purging=frozenset(purging), holds=holds, **facts)

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """Note targets as `read` judged them; those that it did not read, as they are now."""
        if self._rows is not None:
            self._rows.cascades().check()
        names = pa.array(transactions, pa.string())
        asked, objects = self._read.get(dataset, (None, NAMED.empty_table()))
        if asked is None or not pc.all(pc.is_in(names, asked)).as_py():
            objects = self._find_of(dataset, transactions)
        places = pc.index_in(names, join_chunks(objects["key"]))
        notes, sizes = notes_of(objects).take(places), join_chunks(objects["size"]).take(places)
        facts = zip(transactions, sizes.to_pylist(), notes.to_pylist(), strict=True)
        return [PreparedTarget(name, size, note) for name, size, note in facts]

    def place(self, dataset: str, claim: bool = False) -> str | None:  # noqa: ARG002 - all of them have one place
        """Location of the table, or of the root and its identity. `claim` leaves an identity file in a local root."""
        if self._rows is not None:
            return location_of(self._rows.listing.database, self._rows.columns.table)
        root = self.settings.data_root
        if root is None:
            return None
        place = place_of_root(root)
        if not claim or KNOWN_BY in place:
            return place
        # The sweep will report a faulty root.
        with suppress(OSError):
            if holds_anything(root):
                leave_identity(root)
        return place_of_root(root)

    def store_place(self, claim: bool = False) -> str | None:
        return self.place("", claim)

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """ALL or NOTHING of each target; also NOTHING if another object has its key."""
        deletion = self._deletion(dataset)
        try:
            deletion.check_place(targets)
            present = present_of(self._look_at(dataset, [target.transaction for target in targets]).to_pylist())
        except Exception:  # noqa: BLE001 - drivers have exceptions of their own, and who can't look does not know
            return {target.transaction: Remains.UNKNOWN for target in targets}
        remains: dict[str, Remains] = {}
        for target in targets:
            planned, found = None, present.get(target.transaction)
            # A note that cannot be parsed counts as none.
            with suppress(Refused):
                planned = planned_of(target, conditional=True)
            if found is None:
                # a set aside object has freed nothing
                is_freed = planned is not None and not target.aside and deletion.is_freed(planned)
                remains[target.transaction] = Remains.FREED if is_freed else Remains.NOTHING
            elif planned is None:
                remains[target.transaction] = Remains.UNKNOWN
            else:
                remains[target.transaction] = Remains.NOTHING if planned.change(found) else Remains.ALL
        return remains

    def undo_fault(self) -> str | None:
        return self.settings.undo_fault or self._deletion("").trash.undo_fault()

    def undo_warnings(self, undo: Duration) -> list[str]:
        return self._deletion("").trash.lifecycle_warnings(undo)

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        return self._deletion(dataset).execute(targets, parallelism, permit, order)

    def _deletion(self, dataset: str) -> ObjectDeletion:
        return ObjectDeletion(self.settings, partial(self._find_of, dataset), self._rows, self._pace)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.listing.database.close()

    @cached_property
    def _rows(self) -> ObjectRows | None:
        return ObjectRows(self.listing) if isinstance(self.listing, DatabaseObjects) else None

    def _find(self, keys: Sequence[str]) -> pa.Table:
        batches = [with_names(batch, self.settings) for batch in self.listing.find(keys)] if keys else []
        objects = pa.Table.from_batches(batches, NAMED)
        counts = pc.value_counts(objects["key"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        if self._rows is None and len(repeated):
            key = repeated[0]["values"].as_py()
            realms = sorted({str(realm) for realm in objects.filter(pc.equal(objects["key"], key))["realm"].to_pylist()})
            raise Refused(
                f"The object {quote(key, 200)} of the store {self.name} is listed more than once (realms "
                f"{', '.join(realms)}), but exists once: deleting it for one realm would delete it for all. List each "
                "object once."
            )
        return objects

    def _look_at(self, dataset: str, keys: Sequence[str]) -> pa.Table:
        # A place has one dataset per key.
        if self._rows is not None:
            return self._find_of(dataset, keys)
        place = self.listing.place if isinstance(self.listing, FinishedListing) and self.listing.place else self.listing
        return pa.Table.from_batches(place.find(keys) if keys else [], OBJECTS)

    def _find_of(self, dataset: str, keys: Sequence[str]) -> pa.Table:
        objects = self._find(keys)
        return objects.filter(pc.equal(objects["dataset"], dataset))
