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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.frames.arrays import Bools, flags, integers, join_chunks
from retention_assets.policy.model import Keeper
from retention_assets.stores.concurrency import Result, Tasks, TasksHere
from retention_assets.stores.objects.classes import (
    CLASS_NAMES,
    NUMBER,
    ClassRules,
    class_rules,
    classes_of,
    dataset_lines,
    held_by,
    object_lines,
    why_kept,
)
from retention_assets.stores.objects.edges import ACROSS, EVERYWHERE, REALMS, CodedEdges, realms_of
from retention_assets.stores.objects.fingerprints import SALT_BYTES, ReferredNames, distinct
from retention_assets.stores.objects.folder import ROWS, ReferenceRuns, Run, ScanFolder, names_of_sources, write_edges
from retention_assets.stores.objects.hits import (
    DueFingerprints,
    FindReferences,
    GivenKeys,
    Hits,
    first_of_each,
    hashes_of,
    hits_of,
    text_of,
    within_realms,
    witnesses_among,
    write_due,
    write_hits,
)
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult, find_losses
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources import (
    ReadRows,
    RowSource,
    ShareRead,
    SourceNotWhole,
    count_sources,
    read_whole,
)
from retention_assets.stores.objects.sources.finished import FinishedListing
from retention_assets.stores.objects.tables import EDGES, NAMED, objects_batch, with_names
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import WITNESS, DueTransactions, error_text, never

_LEADING, _AROUND = "leading", "edges/around.parquet"
# label of objects that are kept by rules or holds
KEPT_LABEL = "edges"
# Older looks say nothing about the present.
OLDEST = timedelta(days=1)


@dataclass(frozen=True)
class ObjectsLook:
    """Result of a look: a small value that refers to the files in its folder."""

    folder: ScanFolder
    began: datetime
    listed_as_of: datetime
    due: DueFingerprints
    hits: Hits
    labels: tuple[str, ...] = ()
    # per source the realms of its references; None if no source was read because nothing is due
    heard: tuple[frozenset[str | None], ...] | None = None
    # reason why the result must not be used
    fault: str | None = None
    # realms whose objects it did not ask about
    purging: frozenset[str] = frozenset()

    def covers(self, keys: pa.Array) -> Bools:
        """Mask of the keys that the look covers: all references to them are among its hits."""
        return self.due.has(self.folder.fingerprints.of(keys))

    def check(self) -> None:
        if self.fault is not None:
            raise SourceNotWhole(self.fault)
        if now() - self.began > OLDEST:
            raise SourceNotWhole(f"its references were read at {self.began:%Y-%m-%d %H:%M}, too long ago. Sweep once more.")

    def rules(self, settings: ObjectsSettings, purging: Collection[str]) -> ClassRules:
        return class_rules(settings, settings.min_age.before(self.listed_as_of), purging, self.heard)

    def witnesses(self, objects: pa.Table) -> pa.Array:
        """Who refers to each object (realm, key), by exact keys; null: nobody. Raises SourceNotWhole unless every source proved
        that it was read completely."""
        self.check()
        places, rows = witnesses_among(self.hits, self.labels, objects)
        # white space collapsed to single spaces
        who = pc.replace_substring_regex(pc.fill_null(text_of(rows["from"]), ""), r"\s+", " ")
        sources = text_of(rows["source"])
        words = pc.if_else(pc.equal(who, ""), sources, pc.binary_join_element_wise(sources, who, ": "))
        return words.take(pc.index_in(pa.array(np.arange(len(objects))), places.cast(pa.int64())))

    def judge(
        self, settings: ObjectsSettings, objects: pa.Table, datasets: Sequence[str], purging: Collection[str]
    ) -> pa.Table:
        """Judge objects (rows of `tables.OBJECTS` with their dataset) as they are now, by exact keys. Return their log lines,
        with one about each dataset. Raises SourceNotWhole as `witnesses` does."""
        # References do not matter to objects that go with their realm.
        asked = np.flatnonzero(~within_realms(objects["realm"], purging))
        witnesses = pa.nulls(len(objects), pa.string())
        if len(asked):
            at = pc.index_in(pa.array(np.arange(len(objects))), pa.array(asked, pa.int64()))
            witnesses = self.witnesses(objects.select(["realm", "key"]).take(pa.array(asked))).take(at)
        rules = self.rules(settings, purging)
        codes = classes_of(objects, flags(pc.is_valid(witnesses)), rules)
        # Not covered by the look: in a realm that was PURGING when it began, but is no longer.
        unknown = np.flatnonzero(codes == NUMBER[ObjectClass.UNREFERENCED])
        covered = self.covers(join_chunks(objects["key"].take(pa.array(unknown))))
        codes[unknown[~covered]] = NUMBER[ObjectClass.UNHANDLED]
        names = CLASS_NAMES.take(pa.array(codes)).dictionary_encode()
        rows = objects.append_column("class", names).append_column(WITNESS, witnesses)
        # A dataset has a realm if all of its known objects have the same.
        counts = [("realm", "min"), ("realm", "max"), ("realm", "count"), ("key", "count")]
        realms = {
            group["dataset"]: group["realm_min"]
            for group in objects.group_by("dataset").aggregate(counts).to_pylist()
            if group["realm_min"] == group["realm_max"] and group["realm_count"] == group["key_count"]
        }
        return pa.concat_tables([dataset_lines({name: realms.get(name) for name in datasets}), object_lines(rows)])


@dataclass(frozen=True)
class LookOrder:
    """Input of a look."""

    references: Sequence[RowSource]
    edges: Sequence[RowSource]
    due: DueTransactions
    begin: Callable[[], datetime]
    settings: ObjectsSettings
    purging: Collection[str] = ()
    # holds and retain rules: what they keep, or may keep, keeps what its edges lead to
    holds: Sequence[Keeper] = ()
    last: ScanResult | None = None
    is_stopped: Callable[[], bool] = never


def look_in(tasks: Tasks, order: LookOrder, folder: ScanFolder) -> ObjectsLook:
    """Look, into an empty folder. A failure becomes the look's fault, so that it is raised where the look is used."""
    work = _LookRun(tasks, order, folder)
    try:
        work.run()
    except Exception as fault:  # noqa: BLE001 - a source may be anybody's, and so may what it raises
        return replace(work.look, fault=error_text(fault))
    return work.look


class _LookRun:
    def __init__(self, tasks: Tasks, order: LookOrder, folder: ScanFolder) -> None:
        self._tasks, self._order = tasks, order
        # A new salt for each look, so that nobody can craft colliding keys.
        self._folder = replace(folder, salt=secrets.token_bytes(SALT_BYTES))
        began, nothing_due = now(), DueFingerprints(self._folder)
        hits, purging = Hits(self._folder, ()), frozenset(order.purging)
        self.look = ObjectsLook(self._folder, began, began, nothing_due, hits, purging=purging)

    def run(self) -> None:
        order, folder = self._order, self._folder
        folder.make("due", "edges", "hits")
        self.look = replace(self.look, labels=(*(source.label for source in order.references), KEPT_LABEL))
        names_folders = any(source.names_folders for source in order.references)
        write = partial(write_due, folder, order.due, order.settings, order.purging, names_folders, order.is_stopped)
        written = self._tasks.run(write, order.due.parts)
        due = DueFingerprints.of(folder, [run for runs in written for run in runs if run.values])
        if not due.buckets:
            return
        # Taken before listing: whatever is listed later is younger.
        self.look = replace(self.look, due=due, listed_as_of=min(order.begin(), now()))
        read_edges = self._read(order.edges, partial(write_edges, folder), edges=True)
        parts = [share.result for share in read_edges if share.end.rows]
        files = self._tasks.run(partial(_find_leading, folder, parts, due, names_folders), 1) if parts else []
        leading = DueFingerprints.of(folder, [run for run in files if run])
        read: list[ShareRead[ReferenceRuns]] = []
        for bucket in range(len(due.buckets)):
            read += self._read(order.references, FindReferences(due, leading, bucket, folder))
        runs = sorted((run for share in read for run in share.result.runs), key=lambda run: run.name)
        names = names_of_sources(read, len(order.references))
        hits = Hits(folder, tuple(runs), frozenset(ReferredNames.all_of(names).depths))
        self.look = replace(self.look, heard=tuple(frozenset(each.realms) for each in names))
        if leading.buckets and (begins := (*runs, *self._kept())):
            [over] = self._tasks.run(partial(_follow_edges, replace(hits, runs=begins), self.look.labels), 1)
            hits = replace(hits, runs=(*runs, over)) if over else hits
        self.look = replace(self.look, hits=hits)

    def _kept(self) -> list[Run]:
        order, tasks = self._order, self._tasks.slots
        rules, label = self.look.rules(order.settings, order.purging), len(order.references)
        step = partial(_find_kept, self._folder, order.settings, rules, order.holds, label, tasks)
        return [run for run in self._tasks.run(step, tasks) if run]

    def _read(self, sources: Sequence[RowSource], read: ReadRows[Result], *, edges: bool = False) -> list[ShareRead[Result]]:
        order, settings = self._order, self._order.settings
        rate, has_realms = 0 if edges else settings.rates.references, settings.has_realms
        done = read_whole(self._tasks, sources, read, rate=rate, has_realms=has_realms, is_stopped=order.is_stopped)
        about, kind = (settings.edges, "edges by ") if edges else (settings.references, "")
        # one has probably lost some since its scan
        if losses := find_losses(settings.brakes, count_sources(sources, about, done, kind), order.last, now()):
            raise SourceNotWhole(f"{'; '.join(losses)}; or scan again (`retention run --mark-only`).")
        return done


def _find_leading(folder: ScanFolder, parts: Sequence[str], due: DueFingerprints, folders: bool, _: int) -> Run | None:
    # all keys from which edges lead to due ones, and these edges in a file beside
    edges = CodedEdges.read(folder, parts)
    near = due.has(folder.fingerprints.of(edges.keys))
    near[edges.reached(np.flatnonzero(near), back=True)[0]] = True
    rows = np.flatnonzero(near[edges.ends])
    if not len(rows):
        return None
    with folder.writer(_AROUND, EDGES) as writer:
        for part in np.array_split(rows, -(-len(rows) // ROWS)):
            texts = (edges.keys.take(pa.array(ends[part])) for ends in (edges.begins, edges.ends))
            table = pa.table([*texts, realms_of(edges.realms[part] + REALMS, edges.names)], names=EDGES.names)
            writer.write_table(table.cast(EDGES))
    leading = edges.keys.take(pa.array(distinct(edges.begins[rows])))
    return folder.write_values(_LEADING, distinct(np.concatenate(hashes_of(folder.fingerprints, leading, folders=folders))))


def _find_kept(
    folder: ScanFolder, settings: ObjectsSettings, rules: ClassRules, holds: Sequence[Keeper], label: int, tasks: int, part: int
) -> Run | None:
    # kept objects at which edges begin, with the reason; of every `tasks`-th key

    def named(batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches([with_names(batch, settings) for batch in batches], NAMED)

    with folder.reader(_AROUND) as source:
        begins = pc.unique(source.read(columns=["from"], use_threads=False)["from"]).cast(pa.string())
    keys = begins.take(pa.array(np.arange(part, len(begins), tasks)))
    listing = open_listing(settings)
    listed = named(listing.find(keys.to_pylist()))
    kept = listed.append_column("from_", why_kept(listed, rules, holds))
    if isinstance(listing, FinishedListing) and listing.place is not None:
        # A list does not name objects newer than itself.
        unlisted = named(listing.place.find(keys.filter(pc.invert(pc.is_in(keys, listed["key"]))).to_pylist()))
        kept = pa.concat_tables([kept, unlisted.append_column("from_", pa.repeat("is not in the listing", len(unlisted)))])
    absent = keys.filter(pc.invert(pc.is_in(keys, join_chunks(kept["key"]))))
    if holds and len(absent):
        # in the trash, where a hold keeps it
        aside = named(iter([objects_batch(absent, {})]))
        kept = pa.concat_tables([kept, aside.append_column("from_", held_by(aside, holds))])
    kept = kept.filter(pc.is_valid(kept["from_"]))
    if not len(kept):
        return None
    columns = {"key": kept["key"], "realm": kept["realm"], "from": kept["from_"]}
    return write_hits(folder, f"hits/kept-{part:05d}", hits_of(columns, label, np.arange(len(kept))))


def _follow_edges(hits: Hits, labels: Sequence[str], _: int) -> Run | None:
    # the last label stands for objects that are kept themselves
    edges = CodedEdges.read(hits.folder, [_AROUND])
    named = hits.of(edges.keys)
    if not len(named):
        return None
    realms = join_chunks(named["realm"])
    names = [*edges.names, *sorted(set(realms.drop_null().to_pylist()).difference(edges.names))]
    codes = integers(pc.index_in(realms, pa.array(names, pa.string()), skip_nulls=True), -1).astype(np.int64)
    # states in which walks begin, and the first hit of each
    nodes = named["asked"].to_numpy()
    begins = edges.states(np.where(codes < 0, EVERYWHERE, codes + REALMS), nodes)
    if names:
        begins, named = np.append(begins, edges.states(ACROSS, nodes)), pa.concat_tables([named, named])
    states, origins = edges.reached(np.unique(begins))
    if not len(states):
        return None
    first = first_of_each(named, begins).take(pa.array(origins))
    over, sources = edges.keys.take(join_chunks(first["asked"])), join_chunks(first["source"])
    who = join_chunks(first["from"])
    who = pc.if_else(pc.fill_null(pc.equal(who, ""), True), pa.array(labels, pa.string()).take(sources), who)
    verb = pc.if_else(pc.equal(sources, len(labels) - 1), "", " refers to")
    scopes, nodes = edges.split(states)
    columns = {
        "key": edges.keys.take(pa.array(nodes)),
        "realm": realms_of(scopes, names),
        "from": pc.binary_join_element_wise("over the edge from ", over.cast(pa.string()), ", which ", who, verb, ""),
        "over": over,
        "across": pa.array(scopes == ACROSS),
    }
    return write_hits(hits.folder, "hits/over", hits_of(columns, sources, first["at"].to_numpy()))


@contextmanager
def look_here(order: LookOrder) -> Iterator[ObjectsLook]:
    """Look in this process; its files exist as long as the context."""
    with temporary_folder("look") as place:
        yield look_in(TasksHere(), order, ScanFolder(place))


def find_witnesses(
    sources: Sequence[RowSource],
    realm_keys: pa.Table,
    edges: Sequence[RowSource],
    settings: ObjectsSettings,
    holds: Sequence[Keeper],
) -> pa.Table:
    """Keys (realm, key) that something refers to, each once: rows of WITNESSES. Raises SourceNotWhole."""
    asked = realm_keys.group_by(["realm", "key"]).aggregate([])
    with look_here(LookOrder(sources, edges, GivenKeys(asked["key"]), now, settings, holds=holds)) as look:
        look.check()
        return witnesses_among(look.hits, look.labels, asked)[1]
