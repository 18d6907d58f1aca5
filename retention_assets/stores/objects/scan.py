"""One scan from beginning to end, in the order that keeps it safe: list first, then read every reference. Its steps are
numbered tasks, which Spark (pipeline/scans.py) or this process runs."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise

import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.policy.model import Hold
from retention_assets.stores.concurrency import Result, Tasks, TasksHere
from retention_assets.stores.objects.classes import LOGGED, ClassRules, class_rules, log_lines
from retention_assets.stores.objects.edges import CloseEdges, FindKept
from retention_assets.stores.objects.fingerprints import SALT_BYTES, ReferredNames
from retention_assets.stores.objects.folder import (
    FOLDERS,
    RANGES,
    ListedObjects,
    ListingRows,
    ReadEdges,
    ReadReferences,
    ReferenceRuns,
    ScanFolder,
    WriteListing,
    names_of_sources,
)
from retention_assets.stores.objects.judge import (
    AskObjects,
    BloomSize,
    FillBloom,
    Group,
    JudgeObjects,
    Matches,
    MatchObjects,
    add_groups,
)
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.references import RowSource
from retention_assets.stores.objects.scan_result import (
    ClassCount,
    ObjectClass,
    ScanFailed,
    ScannedDataset,
    ScanResult,
    SourceCount,
)
from retention_assets.stores.objects.settings import FLOOR, BloomFilter, ObjectsSettings
from retention_assets.stores.objects.sources import ReadRows, ShareRead, count_sources, read_whole
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import error_text

# references and objects matched per task
_TOGETHER = 1 << 23
# fewer go to a single task
_SMALL = 1 << 20


@dataclass(frozen=True)
class Scan:
    """Input of a scan: a store's settings, listing, sources and PURGING realms."""

    settings: ObjectsSettings
    listing: ObjectListing
    references: Sequence[RowSource]
    edges: Sequence[RowSource] = ()
    purging: frozenset[str] = frozenset()
    # holds in force: what is held keeps what its edges lead to
    holds: tuple[Hold, ...] = ()
    # earlier instant for minimum ages; None is the present
    as_of: datetime | None = None
    # counts the objects that sweeps have deleted since the last whole scan
    count_swept: Callable[[], int] = int
    # A new salt for each scan, so that collisions do not repeat and cannot be crafted.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False)

    @property
    def store(self) -> str:
        return self.settings.name


def scan_in(tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None = None) -> ScanResult:
    """Scan a store into an empty folder. `last` is its last whole scan. `refused` is the number of distinct references that a
    later scan was refused for (`ScanFailed.references`)."""
    return _ScanRun(tasks, scan, folder, last, refused).run()


class _ScanRun:
    def __init__(self, tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None) -> None:
        self._tasks, self._scan, self._folder, self._last, self._refused = tasks, scan, folder, last, refused

    def run(self) -> ScanResult:
        scan, started = self._scan, now()
        self._folder.make(*FOLDERS)
        listed_as_of, listed = self._list()
        read = self._read(scan.references, ReadReferences(scan.salt, self._folder), scan.settings.rates.references)
        references = _together(one.result for one in read)
        read_edges = self._read(scan.edges, ReadEdges(scan.salt, self._folder))
        cut_off, names = self._cut_off(listed_as_of), names_of_sources(read, len(scan.references))
        rules = class_rules(scan.settings, cut_off, scan.purging, [one.realms for one in names])
        over = self._close([one.result for one in read_edges if one.end.rows], references, listed, rules)
        over_edges = sum(run.values for run in over.runs)
        named_by = ReferredNames.all_of([references.names, over.names]).named_by
        size = self._size_of_bloom()
        if size:
            files = [run.name for run in (*references.runs, *over.runs)]
            self._step("the filter", FillBloom(size, files, self._folder), 1)
        asking = AskObjects(listed, named_by, scan.settings.has_realms, scan.salt, self._folder)
        asked = self._step("the listing", asking, len(listed.parts))
        every = [run for part in asked for run in part]
        bounds = self._bounds(max(sum(run.values for run in runs) for runs in (references.runs, every)))
        match = MatchObjects(references.runs, len(scan.references), over.runs, every, self._folder, bounds, size)
        matched = self._step("the judgement", match, len(bounds))
        distinct = sum(one.distinct for one in matched)
        effective_fpp = self._rate(distinct + over_edges, size)
        matches = Matches(self._folder, every, [one.name for one in matched], bounds)
        first = [0, *accumulate(len(part) for part in asked)]
        groups: dict[Group, list[int]] = {}
        for more in self._step("the judgement", JudgeObjects(listed, matches, first, rules, self._folder), len(asked)):
            add_groups(groups, more)
        result = ScanResult(
            store=scan.store,
            started_at=started,
            finished_at=now(),
            listing_as_of=listed_as_of,
            cut_off=cut_off,
            salt=scan.salt.hex(),
            filter=scan.settings.filter.kind,
            effective_fpp=effective_fpp,
            distinct_references=distinct,
            unresolved_references=distinct - sum(one.matched for one in matched),
            classes=_class_counts(groups),
            sources=self._source_counts(read, names, [one.of_sources for one in matched]),
            edges=sum(one.end.rows for one in read_edges),
            over_edges=over_edges,
            edge_sources=count_sources(scan.edges, scan.settings.edges, read_edges, "edges by "),
            references_shrink=scan.settings.brakes.references_shrink,
        )
        result.scanned, result.scanned_bytes = result.total()
        result.datasets = _datasets(groups, every=result.scanned <= scan.settings.rows_up_to)
        return result

    def _list(self) -> tuple[datetime, ListedObjects]:
        scan = self._scan
        with _failing(scan, "the listing"):
            as_of = scan.listing.begin()
            write = WriteListing(scan.settings, scan.salt, self._folder)
            listed = read_whole(self._tasks, [ListingRows(scan.listing)], write, rate=scan.settings.rates.scan)
        before = self._last.scanned if self._last else 0
        if before and not sum(one.result.counted for one in listed) and before > scan.count_swept():
            raise ScanFailed(
                scan.store,
                f"nothing is listed, and the last scan had {before:,} objects. Look whether the place is the right"
                " one, and whether it can be read.",
            )
        return as_of, ListedObjects(self._folder, [one.result.part for one in listed if one.end.rows])

    def _cut_off(self, listed_as_of: datetime) -> datetime:
        """Younger objects are never judged. A listing from the future makes no object older."""
        known = min(listed_as_of, now(), self._scan.as_of or listed_as_of)
        return min(self._scan.settings.min_age.before(known), FLOOR.before(known))

    def _read(self, sources: Sequence[RowSource], read: ReadRows[Result], rate: float = 0) -> list[ShareRead[Result]]:
        with _failing(self._scan, "a source"):
            return read_whole(self._tasks, sources, read, rate=rate, has_realms=self._scan.settings.has_realms)

    def _bounds(self, values: int) -> list[tuple[int, int]]:
        tasks = max(-(-values // _TOGETHER), self._tasks.slots if values > _SMALL else 1)
        count = min(RANGES, tasks)
        return list(pairwise(RANGES * number // count for number in range(count + 1)))

    def _close(
        self, parts: Sequence[str], references: ReferenceRuns, listed: ListedObjects, rules: ClassRules
    ) -> ReferenceRuns:
        """Follow edges from everything that is kept or referred to."""
        if not parts:
            return _together([])
        tasks = min(self._tasks.slots, len(listed.parts))
        find = FindKept(listed, tasks, parts, rules, self._scan.holds, self._scan.salt, self._folder)
        kept = _together(self._step("the edges", find, tasks))
        if not (references.runs or kept.runs):
            return _together([])
        step = CloseEdges(parts, references, kept, self._scan.salt, self._folder)
        return _together(self._step("the edges", step, 1))

    def _size_of_bloom(self) -> BloomSize | None:
        wanted = self._scan.settings.filter
        return BloomSize.of(self._expected(wanted), wanted.fpp) if isinstance(wanted, BloomFilter) else None

    def _expected(self, wanted: BloomFilter) -> int:
        # The filter also holds what edges reach.
        known = self._refused or (self._last.distinct_references + self._last.over_edges if self._last else 0)
        return round(known * wanted.growth) if known else wanted.expected

    def _rate(self, retained: int, size: BloomSize | None) -> float:
        """Rate of false positives. Raises ScanFailed if it is too high."""
        wanted = self._scan.settings.filter
        if size is None or not isinstance(wanted, BloomFilter):
            return retained / 2**64
        rate = size.rate(retained)
        if rate > wanted.max_fpp:
            raise ScanFailed(
                self._scan.store,
                f"the Bloom filter was sized for {self._expected(wanted):,} references, and {retained:,} distinct ones were"
                f" found, with which it errs at a rate of {rate:.3g}, above max_fpp {wanted.max_fpp:.3g}. The next scan sizes"
                f" it for {round(retained * wanted.growth):,}.",
                references=retained,
            )
        return rate

    def _source_counts(
        self, read: Sequence[ShareRead[ReferenceRuns]], names: Sequence[ReferredNames], of_sources: Sequence[Sequence[int]]
    ) -> list[SourceCount]:
        counts = count_sources(self._scan.references, self._scan.settings.references, read)
        for number, (count, known) in enumerate(zip(counts, names, strict=True)):
            count.distinct = sum(one[number] for one in of_sources)
            count.realms = len(known.realms - {None})
            count.seconds = sum(share.seconds for share in read if share.source == number)
        return counts

    def _step(self, what: str, step: Callable[[int], Result], count: int) -> list[Result]:
        with _failing(self._scan, what):
            return self._tasks.run(step, count) if count else []


def _together(every: Iterable[ReferenceRuns]) -> ReferenceRuns:
    known = list(every)
    runs = [run for one in known for run in one.runs if run.values]
    return ReferenceRuns(runs, ReferredNames.all_of(one.names for one in known))


@contextmanager
def _failing(scan: Scan, what: str) -> Iterator[None]:
    """Turn any exception into ScanFailed, with the step's name."""
    try:
        yield
    except ScanFailed:
        raise
    except Refused as fault:
        raise ScanFailed(scan.store, str(fault)) from fault
    except Exception as fault:
        raise ScanFailed(scan.store, f"{what}: {error_text(fault)}") from fault


def _class_counts(groups: Mapping[Group, Sequence[int]]) -> list[ClassCount]:
    found: dict[tuple[str, str, ObjectClass], ClassCount] = {}
    for (realm, kind, _, name), (objects, size) in sorted(groups.items()):
        count = found.setdefault((realm, kind, name), ClassCount(realm, kind, name))
        count.objects += objects
        count.bytes += size
    return list(found.values())


def _datasets(groups: Mapping[Group, Sequence[int]], *, every: bool) -> list[ScannedDataset]:
    rows: dict[str, int] = {}
    realms: dict[str, set[str]] = {}
    for (realm, _, dataset, name), (objects, _) in groups.items():
        realms.setdefault(dataset, set()).add(realm)
        rows[dataset] = rows.get(dataset, 0) + (objects if every or name in LOGGED else 0)
    return [
        ScannedDataset(name, next(iter(realms[name])) if len(realms[name]) == 1 else "", rows[name]) for name in sorted(rows)
    ]


@contextmanager
def scan_here(
    scan: Scan, last: ScanResult | None = None, refused: int | None = None
) -> Iterator[tuple[ScanResult, ScanFolder]]:
    """Scan a store: the result, and its folder, which exists as long as the context."""
    with temporary_folder("scan") as place:
        folder = ScanFolder(place)
        yield scan_in(TasksHere(), scan, folder, last, refused), folder


def read_here(scan: Scan, datasets: Sequence[str], last: ScanResult | None = None) -> tuple[ScanResult, pa.Table]:
    with scan_here(scan, last) as (result, folder):
        return result, log_lines(folder, result, scan.settings, datasets)
