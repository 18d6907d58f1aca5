"""The look of a sweep: finds, once for all due objects, who refers to them now. The order keeps it safe: first the time, then
due keys, then edges, then references. Whatever appears or is written anew later is young by the look's own time, and no key is
judged by a look that did not ask about it.

Due keys may be millions and references billions: so each step consists of numbered tasks that leave their results in a folder.
A fingerprint covers the key alone, as the ledger does not know realms, and only selects what is written down. Answers compare
whole keys and realms, so a collision of fingerprints costs a row and changes nothing.

An object that is kept retains what its edges lead to, just as one that is referred to does. An object without a realm is
retained over edges of any realms: better kept by mistake than lost.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.frames.arrays import Bools, Ints, flags, integers, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.concurrency import Result, Tasks, TasksHere
from retention_assets.stores.objects.classes import (
    CLASSES,
    NUMBER,
    ClassRules,
    class_rules,
    classes_of,
    lines_of,
    object_lines,
    why_kept,
)
from retention_assets.stores.objects.edges import ACROSS, EVERYWHERE, REALMS, CodedEdges, read_edge_files, realms_of
from retention_assets.stores.objects.fingerprints import SALT_BYTES, Fingerprints, ReferredNames, distinct
from retention_assets.stores.objects.folder import ROWS, ReadEdges, ReferenceRuns, Run, ScanFolder, names_of_sources
from retention_assets.stores.objects.hits import (
    WITNESSES,
    DueFingerprints,
    FindReferences,
    GivenKeys,
    Hits,
    LookStopped,
    WriteDue,
    check_stop,
    first_of_each,
    hashes_of,
    hits_of,
    within_realms,
    witness_words,
    witnesses_among,
    write_hits,
)
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.references import RowSource, SourceNotWhole
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult, SourceCount, find_losses
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources import ReadRows, ShareRead, ShareRows, count_sources, read_whole
from retention_assets.stores.objects.sources.finished import FinishedListing
from retention_assets.stores.objects.tables import EDGES, OBJECTS, with_names
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import WITNESS, DueTransactions, error_text, never

_LEADING, _AROUND = "leading", "edges/around.parquet"
# label of objects that are kept by rules or holds
KEPT_LABEL = "edges"
_NAMED = OBJECTS.append(pa.field("dataset", pa.string(), nullable=False))


@dataclass(frozen=True)
class FindLeading:
    parts: Sequence[str]
    wanted: DueFingerprints
    salt: bytes
    folder: ScanFolder
    folders: bool

    def __call__(self, number: int) -> Run | None:  # noqa: ARG002 - there is one
        """Write all keys from which edges lead to due ones, and these edges; None if there are none."""
        fingerprints = Fingerprints(self.salt)
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, self.parts), fingerprints)
        near = self.wanted.has(fingerprints.of(edges.keys))
        near[edges.walk(back=True).reached(np.flatnonzero(near))[0]] = True
        rows = np.flatnonzero(near[edges.ends])
        if not len(rows):
            return None
        with self.folder.writer(_AROUND, EDGES) as writer:
            for some in np.array_split(rows, -(-len(rows) // ROWS)):
                texts = (edges.keys.take(pa.array(ends[some])) for ends in (edges.begins, edges.ends))
                table = pa.table([*texts, realms_of(edges.realms[some] + REALMS, edges.names)], names=EDGES.names)
                writer.write_table(table.cast(EDGES))
        leading = edges.keys.take(pa.array(distinct(edges.begins[rows])))
        hashes = hashes_of(fingerprints, leading, folders=self.folders)
        return self.folder.write_values(_LEADING, distinct(np.concatenate(hashes)))


@dataclass(frozen=True)
class FindKeptNow:
    settings: ObjectsSettings
    rules: ClassRules
    holds: Sequence[Hold]
    # number of their label
    source: int
    tasks: int
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> Run | None:
        """Write kept objects as hits with the reason; None if there are none."""
        with self.folder.reader(_AROUND) as source:
            begins = pc.unique(source.read(columns=["from"], use_threads=False)["from"]).cast(pa.string())
        keys = begins.take(pa.array(np.arange(number, len(begins), self.tasks)))
        listing = open_listing(self.settings)
        found = self._named(listing.find(keys.to_pylist()))
        kept = found.append_column("from_", why_kept(found, self.rules, self.holds))
        if isinstance(listing, FinishedListing) and listing.place is not None:
            # A list does not name objects newer than itself.
            unlisted = self._named(listing.place.find(keys.filter(pc.invert(pc.is_in(keys, found["key"]))).to_pylist()))
            kept = pa.concat_tables([kept, unlisted.append_column("from_", pa.repeat("is not in the listing", len(unlisted)))])
        kept = kept.filter(pc.is_valid(kept["from_"]))
        if not len(kept):
            return None
        columns = {"key": kept["key"], "realm": kept["realm"], "from": kept["from_"]}
        hits = hits_of(columns, self.source, np.arange(len(kept)))
        return write_hits(self.folder, self.salt, f"hits/kept-{number:05d}", hits)

    def _named(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches([with_names(batch, self.settings) for batch in batches], _NAMED)


@dataclass(frozen=True)
class FollowEdges:
    """Task that follows edges from the hits. The last label stands for objects that are kept themselves."""

    hits: Hits
    labels: Sequence[str]
    folder: ScanFolder

    def __call__(self, number: int) -> Run | None:  # noqa: ARG002 - there is one
        edges = CodedEdges.read(lambda: read_edge_files(self.folder, [_AROUND]), Fingerprints(self.hits.salt))
        named = self.hits.of(edges.keys)
        if not len(named):
            return None
        realms = join_chunks(named["realm"])
        names = [*edges.names, *sorted(set(realms.drop_null().to_pylist()).difference(edges.names))]
        codes = integers(pc.index_in(realms, pa.array(names, pa.string()), skip_nulls=True), -1).astype(np.int64)
        starts, hits = _starts(named, codes, len(edges.keys), across=len(names) > 0)
        states, origins = edges.walk().reached(starts)
        if not len(states):
            return None
        return self._write(edges.keys, names, states, hits.take(pa.array(origins)))

    def _write(self, keys: pa.Array, names: Sequence[str], states: Ints, hits: pa.Table) -> Run:
        scopes = states // len(keys)
        ends, over = (keys.take(nodes) for nodes in (pa.array(states % len(keys)), join_chunks(hits["asked"])))
        who = _filled(hits["from"], pa.array(self.labels, pa.string()).take(join_chunks(hits["source"])))
        behind = pc.if_else(pc.equal(join_chunks(hits["source"]), len(self.labels) - 1), "", " refers to")
        words = pc.binary_join_element_wise("over the edge from ", over.cast(pa.string()), ", which ", who, behind, "")
        columns = {
            "key": ends,
            "realm": realms_of(scopes, names),
            "from": words,
            "over": over,
            "across": pa.array(scopes == ACROSS),
        }
        found = hits_of(columns, join_chunks(hits["source"]), hits["at"].to_numpy())
        return write_hits(self.folder, self.hits.salt, "hits/over", found)


def _filled(texts: pa.ChunkedArray, instead: pa.Array) -> pa.Array:
    given = join_chunks(texts)
    return pc.if_else(pc.fill_null(pc.equal(given, ""), True), instead, given)


def _starts(named: pa.Table, realms: Ints, nodes: int, *, across: bool) -> tuple[Ints, pa.Table]:
    """Distinct sorted states in which walks begin, and the first hit of each."""
    node = named["asked"].to_numpy()
    states = np.where(realms < 0, EVERYWHERE, realms + REALMS) * nodes + node
    if across:
        states = np.concatenate([states, ACROSS * nodes + node])
        named = pa.concat_tables([named, named])
    return np.unique(states), first_of_each(named, states)


# Older looks say nothing about the present.
OLDEST = timedelta(days=1)


@dataclass(frozen=True)
class UnlessStopped(Generic[Result]):
    read: ReadRows[Result]
    is_stopped: Callable[[], bool]

    def __call__(self, rows: ShareRows) -> Result:
        check_stop(self.is_stopped)
        return self.read(rows)


@dataclass(frozen=True)
class ObjectsLook:
    """Result of a look: a small value that refers to the files in its folder."""

    folder: ScanFolder
    salt: bytes = field(repr=False)
    began: datetime
    listed_as_of: datetime
    due: DueFingerprints
    hits: Hits
    labels: tuple[str, ...] = ()
    # per source the realms of its references; None if no source was read because nothing is due
    heard: tuple[frozenset[str | None], ...] | None = None
    # reason why the result must not be used
    fault: str | None = None

    def covers(self, keys: pa.Array) -> Bools:
        """Mask of the keys that the look covers: all references to them are among its hits."""
        return self.due.has(Fingerprints(self.salt).of(keys))

    def check(self) -> None:
        """Raises SourceNotWhole if the look failed or is too old."""
        if self.fault is not None:
            raise SourceNotWhole(self.fault)
        if now() - self.began > OLDEST:
            raise SourceNotWhole(f"its references were read at {self.began:%Y-%m-%d %H:%M}, too long ago. Sweep once more.")

    def rules(self, settings: ObjectsSettings, purging: Collection[str]) -> ClassRules:
        return class_rules(settings, settings.min_age.before(self.listed_as_of), purging, self.heard)

    def judge(
        self, settings: ObjectsSettings, objects: pa.Table, datasets: Sequence[str], purging: Collection[str]
    ) -> pa.Table:
        """Judge objects (rows of `tables.OBJECTS` with their dataset) as they are now, by exact keys. Return their log lines,
        with one about each dataset. Raises SourceNotWhole unless every source proved that it was read completely."""
        # References do not matter to objects that go with their realm.
        asked = np.flatnonzero(~within_realms(objects["realm"], purging))
        witnesses = pa.nulls(len(objects), pa.string())
        if len(asked):
            self.check()
            places, rows = witnesses_among(self.hits, self.labels, objects.select(["realm", "key"]).take(pa.array(asked)))
            at = pc.index_in(pa.array(np.arange(len(objects))), pa.array(asked[places.to_numpy()], pa.int64()))
            witnesses = witness_words(rows).take(at)
        rules = self.rules(settings, purging)
        codes = classes_of(objects["realm"], objects["kind"], objects["created_at"], flags(pc.is_valid(witnesses)), rules)
        # Not covered by the look: in a realm that was PURGING when it began, but is no longer.
        unknown = np.flatnonzero(codes == NUMBER[ObjectClass.UNREFERENCED])
        covered = self.covers(join_chunks(objects["key"].take(pa.array(unknown))))
        codes[unknown[~covered]] = NUMBER[ObjectClass.UNHANDLED]
        names = pa.array([str(name) for name in CLASSES]).take(pa.array(codes)).dictionary_encode()
        rows = objects.append_column("class", names).append_column(WITNESS, witnesses)
        return pa.concat_tables([_lines_about(objects, datasets), object_lines(rows)])


@dataclass(frozen=True)
class LookOrder:
    """Input of a look. `settings` provides the realms of keys, if anything does."""

    references: Sequence[RowSource]
    edges: Sequence[RowSource]
    due: DueTransactions
    begin: Callable[[], datetime] = now
    settings: ObjectsSettings | None = None
    purging: Collection[str] = ()
    # holds in force: what is held keeps what its edges lead to
    holds: Sequence[Hold] = ()
    last: ScanResult | None = None
    # references per second, all tasks together; 0 is unlimited
    rate: float = 0.0
    is_stopped: Callable[[], bool] = never


def look_in(tasks: Tasks, order: LookOrder, folder: ScanFolder) -> ObjectsLook:
    """Look, into an empty folder. A failure becomes the look's fault, so that it is raised where the look is used."""
    work = _LookRun(tasks, order, folder)
    try:
        work.run()
    except LookStopped as stop:
        return replace(work.look, fault=str(stop))
    except Exception as fault:  # noqa: BLE001 - a source may be anybody's, and so may what it raises
        return replace(work.look, fault=error_text(fault))
    return work.look


class _LookRun:
    def __init__(self, tasks: Tasks, order: LookOrder, folder: ScanFolder) -> None:
        self._tasks, self._order, self._folder = tasks, order, folder
        # A new salt for each look, so that nobody can craft colliding keys.
        salt, began = secrets.token_bytes(SALT_BYTES), now()
        self.look = ObjectsLook(folder, salt, began, began, DueFingerprints(folder), Hits(folder, (), salt))

    def run(self) -> None:
        order = self._order
        self.look = replace(self.look, labels=(*(source.label for source in order.references), KEPT_LABEL))
        due = self._due()
        if not due.buckets:
            return
        # Taken before listing: whatever is listed later is younger.
        self.look = replace(self.look, due=due, listed_as_of=min(order.begin(), now()))
        leading = self._leading(due)
        read = self._references(due, leading)
        runs = sorted((run for one in read for run in one.result.runs), key=lambda run: run.name)
        names = names_of_sources(read, len(order.references))
        hits = Hits(self._folder, tuple(runs), self.look.salt, frozenset(ReferredNames.all_of(names).depths))
        self.look = replace(self.look, heard=tuple(frozenset(one.realms) for one in names))
        if leading.buckets and (begins := (*runs, *self._kept())):
            [over] = self._tasks.run(FollowEdges(replace(hits, runs=begins), self.look.labels, self._folder), 1)
            hits = replace(hits, runs=(*runs, over)) if over else hits
        self.look = replace(self.look, hits=hits)

    def _kept(self) -> list[Run]:
        order, tasks = self._order, self._tasks.slots
        if order.settings is None:
            return []
        rules = self.look.rules(order.settings, order.purging)
        kept_label = len(order.references)
        step = FindKeptNow(order.settings, rules, order.holds, kept_label, tasks, self.look.salt, self._folder)
        return [run for run in self._tasks.run(step, tasks) if run]

    def _due(self) -> DueFingerprints:
        order, folder = self._order, self._folder
        folder.make("due", "edges", "hits")
        step = WriteDue(order.due, order.settings, order.purging, self.look.salt, folder, self._folders, order.is_stopped)
        runs = [run for some in self._tasks.run(step, order.due.parts) for run in some if run.values]
        return DueFingerprints.of(folder, runs)

    @property
    def _folders(self) -> bool:
        return any(source.names_folders for source in self._order.references)

    def _leading(self, due: DueFingerprints) -> DueFingerprints:
        order = self._order
        read = self._read(order.edges, ReadEdges(self.look.salt, self._folder))
        self._check_amounts(count_sources(order.edges, order.settings.edges if order.settings else (), read, "edges by "))
        parts = [one.result for one in read if one.end.rows]
        if not parts:
            return DueFingerprints(self._folder)
        find = FindLeading(parts, due, self.look.salt, self._folder, self._folders)
        runs = [run for run in self._tasks.run(find, 1) if run]
        return DueFingerprints.of(self._folder, runs)

    def _references(self, due: DueFingerprints, leading: DueFingerprints) -> list[ShareRead[ReferenceRuns]]:
        """Read every source once for each bucket of due keys."""
        order, done = self._order, list[ShareRead[ReferenceRuns]]()
        for bucket in range(len(due.buckets)):
            find = FindReferences(due, leading, bucket, self.look.salt, self._folder, order.is_stopped)
            read = self._read(order.references, find, order.rate)
            self._check_amounts(count_sources(order.references, order.settings.references if order.settings else (), read))
            done += read
        return done

    def _check_amounts(self, counts: Sequence[SourceCount]) -> None:
        """Raises SourceNotWhole if a source has probably lost references since its scan."""
        settings = self._order.settings
        if settings and (losses := find_losses(settings.brakes, counts, self._order.last, now())):
            raise SourceNotWhole(f"{'; '.join(losses)}; or have it scanned anew (`retention run --mark-only`).")

    def _read(self, sources: Sequence[RowSource], read: ReadRows[Result], rate: float = 0) -> list[ShareRead[Result]]:
        settings, is_stopped = self._order.settings, self._order.is_stopped
        has_realms = settings is None or settings.has_realms
        return read_whole(self._tasks, sources, UnlessStopped(read, is_stopped), rate=rate, has_realms=has_realms)


@contextmanager
def look_here(order: LookOrder) -> Iterator[ObjectsLook]:
    """Look in this process; its files exist as long as the context."""
    with temporary_folder("look") as place:
        yield look_in(TasksHere(), order, ScanFolder(place))


def find_witnesses(sources: Sequence[RowSource], realm_keys: pa.Table, edges: Sequence[RowSource] = ()) -> pa.Table:
    """Referenced ones of some keys (realm, key), each once: rows of WITNESSES. Raises SourceNotWhole."""
    asked = realm_keys.select(["realm", "key"]).group_by(["realm", "key"]).aggregate([]).select(["realm", "key"])
    if not len(asked):
        return WITNESSES.empty_table()
    with look_here(LookOrder(sources, edges, GivenKeys(asked["key"]))) as look:
        look.check()
        return witnesses_among(look.hits, look.labels, asked)[1]


def _lines_about(objects: pa.Table, datasets: Sequence[str]) -> pa.Table:
    """Lines with the realm of each dataset, if all of its known objects have the same."""
    groups = objects.group_by("dataset").aggregate([("realm", "min"), ("realm", "max"), ("realm", "count"), ("key", "count")])
    realms = {
        row["dataset"]: row["realm_min"]
        for row in groups.to_pylist()
        if row["realm_min"] == row["realm_max"] and row["realm_count"] == row["key_count"]
    }
    columns = {"dataset": pa.array(datasets, pa.string()), "realm": pa.array(map(realms.get, datasets), pa.string())}
    return lines_of(columns, len(datasets))
