"""One look from beginning to end: the order of its steps, and its result as a value that tasks can be sent. The order keeps it
safe: first the time, then due keys, then edges, then references. Whatever appears or is written anew later is young by the
look's own time, and no key is judged by a look that did not ask about it."""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pyarrow as pa

from retention_assets.clock import now
from retention_assets.frames.arrays import Bools
from retention_assets.policy.durations import micros
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.look.due import (
    DueFingerprints,
    DueRun,
    GivenKeys,
    LookStopped,
    WriteDue,
    check_stop,
)
from retention_assets.stores.objects.look.edges import KEPT_LABEL, FindKeptNow, FindLeading, FollowEdges
from retention_assets.stores.objects.look.hits import WITNESSES, HitRun, Hits, witnesses_among
from retention_assets.stores.objects.look.references import FindReferences, FoundReferences
from retention_assets.stores.objects.references import RowSource, SourceNotWhole
from retention_assets.stores.objects.references.rounds import R, Round, count_sources, read_whole
from retention_assets.stores.objects.scan.brakes import find_losses
from retention_assets.stores.objects.scan.classes import ClassRules, spoken_for
from retention_assets.stores.objects.scan.fingerprints import SALT_BYTES, Fingerprints
from retention_assets.stores.objects.scan.folder import ScanFolder
from retention_assets.stores.objects.scan.read_edges import ReadEdges
from retention_assets.stores.objects.scan_result import ScanResult, SourceCount
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import DueTransactions, error_text, never
from retention_assets.stores.tasks import Tasks, TasksHere
from retention_assets.stores.temporary import temporary_folder

# Older looks say nothing about the present.
OLDEST = timedelta(days=1)


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
        found = self._references(due, leading)
        runs = sorted((run for one in found for run in one.runs), key=lambda run: run.name)
        hits = Hits(self._folder, tuple(runs), self.look.salt, frozenset[int]().union(*(one.names.depths for one in found)))
        heard = [
            frozenset[str | None]().union(*(one.names.realms for one in found if one.source == at))
            for at in range(len(order.references))
        ]
        self.look = replace(self.look, heard=tuple(heard))
        if leading.buckets and (begins := (*runs, *self._kept())):
            [over] = self._tasks.run(FollowEdges(replace(hits, runs=begins), self.look.labels, self._folder), 1)
            hits = replace(hits, runs=(*runs, over)) if over else hits
        self.look = replace(self.look, hits=hits)

    def _kept(self) -> list[HitRun]:
        order, tasks = self._order, self._tasks.slots
        if order.settings is None:
            return []
        rules = rules_now(order.settings, self.look, order.purging)
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
        read = self._read(order.edges, lambda each: ReadEdges(each, self.look.salt, self._folder))
        self._check_amounts(count_sources(order.edges, order.settings.edges if order.settings else (), read, "edges by "))
        parts = [one.part for one in read if one.end.rows]
        if not parts:
            return DueFingerprints(self._folder)
        find = FindLeading(parts, due, self.look.salt, self._folder, self._folders)
        runs: list[DueRun] = [run for run in self._tasks.run(find, 1) if run]
        return DueFingerprints.of(self._folder, runs)

    def _references(self, due: DueFingerprints, leading: DueFingerprints) -> list[FoundReferences]:
        """Read every source once for each bucket of due keys."""
        order, found = self._order, list[FoundReferences]()
        for bucket in range(len(due.buckets)):

            def step(each: Round, bucket: int = bucket) -> FindReferences:
                return FindReferences(each, due, leading, bucket, self.look.salt, self._folder, order.rate, order.is_stopped)

            read = self._read(order.references, step)
            self._check_amounts(count_sources(order.references, order.settings.references if order.settings else (), read))
            found += read
        return found

    def _check_amounts(self, counts: Sequence[SourceCount]) -> None:
        """Raises SourceNotWhole if a source has probably lost references since its scan."""
        settings = self._order.settings
        if settings and (losses := find_losses(settings.brakes, counts, self._order.last, now())):
            raise SourceNotWhole(f"{'; '.join(losses)}; or have it scanned anew (`retention run --mark-only`).")

    def _read(self, sources: Sequence[RowSource], step: Callable[[Round], Callable[[int], R]]) -> list[R]:
        def unless_stopped(each: Round) -> Callable[[int], R]:
            check_stop(self._order.is_stopped)
            return step(each)

        settings = self._order.settings
        return read_whole(self._tasks, sources, unless_stopped, has_realms=settings is None or settings.has_realms)


def rules_now(settings: ObjectsSettings, look: ObjectsLook, purging: Collection[str]) -> ClassRules:
    return ClassRules(
        cut_off=micros(settings.min_age.before(look.listed_as_of)),
        purging=frozenset(purging),
        known_kinds=None if settings.known_kinds is None else frozenset(settings.known_kinds),
        handled=spoken_for(settings, zip(look.heard, settings.references, strict=True)) if look.heard is not None else None,
    )


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
