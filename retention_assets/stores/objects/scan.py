"""One scan from beginning to end, in the order that keeps it safe: list first, then read every reference. Its steps are
numbered tasks, which Spark (pipeline/scans.py) or this process runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.policy.durations import from_micros
from retention_assets.stores.concurrency import Result, Tasks, TasksHere
from retention_assets.stores.objects.classes import LOGGED, class_rules
from retention_assets.stores.objects.edges import write_retained
from retention_assets.stores.objects.fingerprints import ReferredNames
from retention_assets.stores.objects.folder import (
    FOLDERS,
    RANGES,
    ListedObjects,
    ListingRows,
    ScanFolder,
    write_listing,
)
from retention_assets.stores.objects.judge import Judge, Scan
from retention_assets.stores.objects.matching import (
    GROUPS,
    BloomSize,
    MatchObjects,
    ask_objects,
    fill_bloom,
    judge_objects,
    split_ranges,
)
from retention_assets.stores.objects.scan_result import (
    ClassCount,
    ObjectClass,
    ScanFailed,
    ScannedDataset,
    ScanResult,
)
from retention_assets.stores.objects.settings import BloomFilter
from retention_assets.stores.objects.sources import count_sources, read_whole
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import error_text

__all__ = ["Scan", "scan_here", "scan_in"]

_TOGETHER = 1 << 23  # references or objects matched per task
_SMALL = 1 << 20  # up to so many go to a single task


def scan_in(tasks: Tasks, scan: Scan, folder: ScanFolder) -> ScanResult:
    """List, read the references, and write the class of each object into an empty folder. Anything incomplete raises."""
    return _Scanning(tasks, scan, folder).run()


class _Scanning(Judge):
    def run(self) -> ScanResult:
        scan, started = self.scan, now()
        self.folder.make(*FOLDERS)
        listed_as_of, listed = self._list()
        with _failing(scan, "a source"):
            self.read()
        names, references = self.names, [run for share in self.references for run in share.result.runs]
        # A listing from the future makes no object older.
        present = min(listed_as_of, now(), scan.as_of or listed_as_of)
        rules = class_rules(scan.settings, present, scan.purging, [source.realms for source in names])
        with _failing(scan, "the edges"):
            walked = self.walk(partial(write_retained, self.kept), rules, listed)
        over_edges = walked.runs if walked else []
        reached = sum(run.values for run in over_edges)
        wanted = scan.settings.filter
        size = BloomSize.of(self._expected(wanted), wanted.fpp) if isinstance(wanted, BloomFilter) else None
        if size:
            files = [run.name for run in (*references, *over_edges)]
            self._step("the filter", partial(fill_bloom, self.folder, size, files), 1)
        every = ReferredNames.all_of([*names, *([walked.names] if walked else [])])
        ask = partial(ask_objects, listed, every, scan.settings.has_realms)
        asked = self._step("the listing", ask, len(listed.parts))
        asked_runs = [run for part in asked for run in part]
        values = max(sum(run.values for run in runs) for runs in (references, asked_runs))
        bounds = split_ranges(0, RANGES, max(-(-values // _TOGETHER), self.tasks.slots if values > _SMALL else 1))
        match = MatchObjects(references, len(scan.references), over_edges, asked_runs, self.folder, bounds, size)
        matched = self._step("the judgement", match, len(bounds))
        distinct = sum(part.distinct for part in matched)
        effective_fpp = self._rate(distinct + reached, size)
        classify = partial(judge_objects, listed, asked, [part.name for part in matched], bounds, rules)
        groups = pa.concat_tables([GROUPS.empty_table(), *self._step("the judgement", classify, len(asked))])
        counts = count_sources(scan.references, scan.settings.references, self.references)
        for number, (count, source) in enumerate(zip(counts, names, strict=True)):
            count.distinct = sum(part.of_sources[number] for part in matched)
            count.realms = len(source.realms - {None})
            count.seconds = sum(share.seconds for share in self.references if share.source == number)
        result = ScanResult(
            store=scan.settings.name,
            started_at=started,
            finished_at=now(),
            listing_as_of=listed_as_of,
            cut_off=from_micros(rules.cut_off),
            salt=scan.salt.hex(),
            filter=wanted.kind,
            effective_fpp=effective_fpp,
            distinct_references=distinct,
            unresolved_references=distinct - sum(part.matched for part in matched),
            classes=_class_counts(groups),
            sources=counts,
            edges=sum(share.end.rows for share in self.edges),
            over_edges=reached,
            edge_sources=count_sources(scan.edges, scan.settings.edges, self.edges, "edges by "),
            references_shrink=scan.settings.brakes.references_shrink,
        )
        result.scanned, result.scanned_bytes = result.total()
        result.datasets = _datasets(groups, every=result.scanned <= scan.settings.rows_up_to)
        return result

    def _list(self) -> tuple[datetime, ListedObjects]:
        scan = self.scan
        with _failing(scan, "the listing"):
            as_of = scan.listing.begin()
            write = partial(write_listing, scan.settings, self.folder)
            listed = read_whole(self.tasks, [ListingRows(scan.listing)], write, rate=scan.settings.rates.scan)
        last_count = scan.last.scanned if scan.last else 0
        if last_count and not sum(share.result[1] for share in listed) and last_count > scan.count_swept():
            raise ScanFailed(
                scan.settings.name,
                f"nothing is listed, and the last scan had {last_count:,} objects. Look whether the place is the right"
                " one, and whether it can be read.",
            )
        return as_of, ListedObjects(self.folder, [share.result[0] for share in listed if share.end.rows])

    def _expected(self, wanted: BloomFilter) -> int:
        # The filter also holds what edges reach.
        refused, last = self.scan.refused, self.scan.last
        known = refused or (last.distinct_references + last.over_edges if last else 0)
        return round(known * wanted.growth) if known else wanted.expected

    def _rate(self, retained: int, size: BloomSize | None) -> float:
        wanted = self.scan.settings.filter
        if size is None or not isinstance(wanted, BloomFilter):
            return retained / 2**64
        rate = size.rate(retained)
        if rate > wanted.max_fpp:
            raise ScanFailed(
                self.scan.settings.name,
                f"the Bloom filter was sized for {self._expected(wanted):,} references, and {retained:,} distinct ones were"
                f" found, with which it errs at a rate of {rate:.3g}, above max_fpp {wanted.max_fpp:.3g}. The next scan sizes"
                f" it for {round(retained * wanted.growth):,}.",
                references=retained,
            )
        return rate

    def _step(self, name: str, step: Callable[[int], Result], count: int) -> list[Result]:
        with _failing(self.scan, name):
            return self.tasks.run(step, count) if count else []


@contextmanager
def _failing(scan: Scan, step: str) -> Iterator[None]:
    try:
        yield
    except Refused as fault:
        raise ScanFailed(scan.settings.name, str(fault)) from fault
    except Exception as fault:
        raise ScanFailed(scan.settings.name, f"{step}: {error_text(fault)}") from fault


def _class_counts(groups: pa.Table) -> list[ClassCount]:
    counts: dict[tuple[str, str, ObjectClass], ClassCount] = {}
    for row in groups.to_pylist():
        name = row["realm"] or "", row["kind"] or "", ObjectClass(row["class"])
        count = counts.setdefault(name, ClassCount(*name))
        count.objects += row["objects"]
        count.bytes += int(row["bytes"] or 0)
    return [counts[name] for name in sorted(counts)]


def _datasets(groups: pa.Table, *, every: bool) -> list[ScannedDataset]:
    rows: dict[str, int] = {}
    realms: dict[str, set[str]] = {}
    for row in groups.to_pylist():
        name, is_logged = row["dataset"], every or row["class"] in LOGGED
        realms.setdefault(name, set()).add(row["realm"] or "")
        rows[name] = rows.get(name, 0) + (row["objects"] if is_logged else 0)
    realm_of = {name: min(names) if len(names) == 1 else "" for name, names in realms.items()}
    return [ScannedDataset(name, realm_of[name], rows[name]) for name in sorted(rows)]


@contextmanager
def scan_here(scan: Scan) -> Iterator[tuple[ScanResult, ScanFolder]]:
    """Scan a store: the result, and its folder, which exists as long as the context."""
    with temporary_folder("scan") as place:
        folder = ScanFolder(place)
        yield scan_in(TasksHere(), scan, folder), folder
