"""One look from beginning to end: the order of its steps, and its result as a value that tasks can be sent. The order keeps it
safe: first the time, then due keys, then edges, then references. Whatever appears or is written anew later is young by the
look's own time, and no key is judged by a look that did not ask about it."""

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
from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.policy.model import Hold
from retention_assets.stores.concurrency import Result, Tasks, TasksHere
from retention_assets.stores.objects.look.due import (
    DueFingerprints,
    GivenKeys,
    LookStopped,
    WriteDue,
    check_stop,
    within_realms,
)
from retention_assets.stores.objects.look.edges import KEPT_LABEL, FindKeptNow, FindLeading, FollowEdges
from retention_assets.stores.objects.look.hits import WITNESSES, FindReferences, Hits, witness_words, witnesses_among
from retention_assets.stores.objects.references import RowSource, SourceNotWhole
from retention_assets.stores.objects.references.rounds import ReadRows, ShareRead, ShareRows, count_sources, read_whole
from retention_assets.stores.objects.scan.brakes import find_losses
from retention_assets.stores.objects.scan.classes import CLASSES, NUMBER, ClassRules, class_rules, classes_of
from retention_assets.stores.objects.scan.fingerprints import SALT_BYTES, Fingerprints, ReferredNames
from retention_assets.stores.objects.scan.folder import Run, ScanFolder
from retention_assets.stores.objects.scan.log_lines import lines_of, object_lines
from retention_assets.stores.objects.scan.read_edges import ReadEdges
from retention_assets.stores.objects.scan.read_references import ReferenceRuns, names_of_sources
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult, SourceCount
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import WITNESS, DueTransactions, error_text, never

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
