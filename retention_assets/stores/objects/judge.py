"""The judge of references, for scans and looks. A scan is a look at everything that is listed; a look is a scan of what is due.
Both read every source of edges and references whole, and walk along the edges from whatever is referred to or kept. A scan then
matches all objects by fingerprints, and a look answers by exact keys.

The order keeps it safe: first the time, then the objects, then edges, then references. What appears or is written anew later is
young by that time."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.model import Keeper
from retention_assets.stores.concurrency import Result, Tasks
from retention_assets.stores.objects.classes import ClassRules, held_by, why_kept
from retention_assets.stores.objects.edges import Candidates, EdgeRuns, find_kept, leading_keys, write_edges, write_leading
from retention_assets.stores.objects.fingerprints import SALT_BYTES, ReferredNames
from retention_assets.stores.objects.folder import KEPT, ListedObjects, ReferenceRuns, Run, ScanFolder
from retention_assets.stores.objects.hits import DueFingerprints, Hits, ReadReferences, load, write_due
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.references import open_edges, open_references
from retention_assets.stores.objects.scan_result import ScanResult, find_losses
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.source_settings import SourceSettings
from retention_assets.stores.objects.sources import (
    ObjectListing,
    ReadRows,
    RowSource,
    ShareRead,
    SourceNotWhole,
    count_sources,
    read_whole,
)
from retention_assets.stores.objects.sources.finished import FinishedListing
from retention_assets.stores.objects.tables import NAMED, objects_batch, with_names
from retention_assets.stores.protocol import DueTransactions, never


@dataclass(frozen=True)
class Scan:
    """A scan or look to make: a store's settings, listing and sources, the realms and holds in force, and the scans before."""

    settings: ObjectsSettings
    listing: ObjectListing
    references: Sequence[RowSource]
    edges: Sequence[RowSource] = ()
    purging: frozenset[str] = frozenset()
    # an object that one keeps, or may keep, also keeps what its edges lead to
    holds: Sequence[Keeper] = ()
    # objects that a look asks about; None for a scan, which asks about all
    due: DueTransactions | None = None
    is_stopped: Callable[[], bool] = never
    # nothing is judged that was younger at this instant, if given
    as_of: datetime | None = None
    last: ScanResult | None = None  # the last whole scan
    # counts the objects that sweeps have deleted since the last whole scan
    count_swept: Callable[[], int] = int
    # number of references at which the newest scan failed as too many (`ScanFailed.references`)
    refused: int | None = None
    # A new salt for each, so that collisions do not repeat and cannot be crafted.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False)

    @classmethod
    def of(cls, settings: ObjectsSettings, **facts: Any) -> "Scan":
        return cls(settings, open_listing(settings), open_references(settings), open_edges(settings), **facts)


class Judge:
    def __init__(self, tasks: Tasks, scan: Scan, folder: ScanFolder) -> None:
        self.tasks, self.scan, self.folder = tasks, scan, replace(folder, salt=scan.salt)
        self.edges: list[ShareRead[EdgeRuns]] = []
        self.references: list[ShareRead[ReferenceRuns]] = []
        # number of the source that stands for objects that are kept without references
        self.kept = len(scan.references)
        self._around: list[EdgeRuns] = []  # edges to walk along

    def write_due(self) -> DueFingerprints:
        """Write down what a look asks about."""
        due, scan = self.scan.due, self.scan
        assert due is not None, "a scan asks about everything"
        write = partial(write_due, self.folder, due, scan.settings, scan.purging, self._names_folders, scan.is_stopped)
        return DueFingerprints.of(self.folder, [run for runs in self.tasks.run(write, due.parts) for run in runs if run.values])

    def read(self, due: DueFingerprints | None = None) -> None:
        """Read all edges and references: those that may matter to what is due, if that is given."""
        scan, folder, settings = self.scan, self.folder, self.scan.settings
        write = partial(write_edges, folder, self._names_folders)
        self.edges = self._read(scan.edges, settings.edges, write, "edges by ")
        self._around = [share.result for share in self.edges if share.end.rows]
        if due is not None and self._around:
            lead = partial(write_leading, folder, [runs.part for runs in self._around], due, self._names_folders)
            self._around = [runs for runs in self.tasks.run(lead, 1) if runs]
        leading = DueFingerprints.of(folder, [runs.begins for runs in self._around]).buckets
        for turn, bucket in enumerate([()] if due is None else due.buckets):
            # Leading keys are few, so they are only looked up with the first bucket.
            wanted = [runs for runs in (bucket, *(() if turn else leading)) if runs]
            read = ReadReferences(folder, wanted, settings.has_realms, due is None, turn)
            self.references += self._read(scan.references, settings.references, read)

    def _read(
        self,
        sources: Sequence[RowSource],
        their_settings: Sequence[SourceSettings],
        read: ReadRows[Result],
        kind: str = "",
    ) -> list[ShareRead[Result]]:
        scan, settings = self.scan, self.scan.settings
        rate = 0 if kind else settings.rates.references
        done = read_whole(self.tasks, sources, read, rate=rate, has_realms=settings.has_realms, is_stopped=scan.is_stopped)
        # The losses of a scan are found by its exact counts.
        counts = count_sources(sources, their_settings, done, kind) if scan.due is not None else []
        if losses := find_losses(settings.brakes, counts, scan.last, now()):
            raise SourceNotWhole(f"{'; '.join(losses)}; or scan again (`retention run --mark-only`).")
        return done

    @property
    def _names_folders(self) -> bool:
        return any(source.names_folders for source in self.scan.references)

    @property
    def names(self) -> list[ReferredNames]:
        """Realms and folder depths by which the references of each source name objects."""
        numbers = range(self.kept)
        parts = [[share.result.names for share in self.references if share.source == number] for number in numbers]
        return [ReferredNames.all_of(each) for each in parts]

    @property
    def hits(self) -> Hits:
        runs = sorted((run for share in self.references for run in share.result.hits), key=lambda run: run.name)
        return Hits(self.folder, tuple(runs), frozenset(ReferredNames.all_of(self.names).depths))

    def walk(
        self, step: Callable[[Hits, Sequence[str], int], Result], rules: ClassRules, listed: ListedObjects | None = None
    ) -> Result | None:
        """Run a step that walks along edges from what is referred to or kept; None without edges or without such objects.
        `listed` is the listing of a scan."""
        if not self._around:
            return None
        scan, tasks, rules = self.scan, self.tasks.slots, replace(rules, holds=self.scan.holds)
        if listed is None:
            candidates: Candidates = partial(_candidates_in_place, self.folder, scan.listing, scan.settings, rules, tasks)
        else:
            tasks, begins = max(1, min(tasks, len(listed.parts))), [runs.begins for runs in self._around]
            candidates = partial(_candidates_in_listing, listed, begins, rules, tasks)
        kept = self.tasks.run(partial(find_kept, self.folder, candidates, self.kept), tasks)
        hits = replace(self.hits, runs=(*self.hits.runs, *(run for run in kept if run)))
        walk = partial(step, hits, [runs.part for runs in self._around])
        return self.tasks.run(walk, 1)[0] if hits.runs else None


def _candidates_in_listing(
    listed: ListedObjects, begins: Sequence[Run], rules: ClassRules, tasks: int, number: int
) -> Iterator[tuple[pa.Table, pa.Array]]:
    # reads every `tasks`-th part
    keys = load(listed.folder, begins)
    for part in range(number, len(listed.parts), tasks):
        for table in listed.read(part, KEPT):
            objects = table.filter(pa.array(keys.has(listed.folder.fingerprints.of(join_chunks(table["key"])))))
            yield objects, why_kept(objects, rules)


def _candidates_in_place(
    folder: ScanFolder, listing: ObjectListing, settings: ObjectsSettings, rules: ClassRules, tasks: int, number: int
) -> Iterator[tuple[pa.Table, pa.Array]]:
    # finds every `tasks`-th key

    def named(batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches([with_names(batch, settings) for batch in batches], NAMED)

    keys = leading_keys(folder)
    keys = keys.take(pa.array(np.arange(number, len(keys), tasks)))
    listed = named(listing.find(keys.to_pylist()))
    yield listed, why_kept(listed, rules)
    absent = keys.filter(pc.invert(pc.is_in(keys, join_chunks(listed["key"]))))
    if isinstance(listing, FinishedListing) and listing.place is not None:
        # A list does not name objects newer than itself.
        unlisted = named(listing.place.find(absent.to_pylist()))
        yield unlisted, pa.repeat("is not in the listing", len(unlisted))
        absent = absent.filter(pc.invert(pc.is_in(absent, join_chunks(unlisted["key"]))))
    if rules.holds and len(absent):
        # an object in the trash, which a hold keeps
        in_trash = named([objects_batch(absent, {})])
        yield in_trash, held_by(in_trash, rules.holds)
