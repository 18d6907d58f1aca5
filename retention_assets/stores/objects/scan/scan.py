"""One scan from beginning to end, in the order that keeps it safe: list first, then read every reference."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.policy.durations import micros
from retention_assets.policy.model import Hold
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.listings.finished import FinishedListing
from retention_assets.stores.objects.references import RowSource
from retention_assets.stores.objects.references.rounds import R, Round, read_whole, shards_among
from retention_assets.stores.objects.scan.at_once import CountNamed, JudgeAtOnce
from retention_assets.stores.objects.scan.bloom import BloomSize
from retention_assets.stores.objects.scan.classes import LOGGED, ClassRules, spoken_for
from retention_assets.stores.objects.scan.fingerprints import SALT_BYTES
from retention_assets.stores.objects.scan.folder import FOLDERS, RANGES, ScanFolder
from retention_assets.stores.objects.scan.judge import FillBloom, Group, JudgeObjects, add_groups
from retention_assets.stores.objects.scan.list_objects import ListObjects
from retention_assets.stores.objects.scan.listed import (
    FinishedObjects,
    ListedObjects,
    WrittenObjects,
    can_be_read_again,
    note_list,
)
from retention_assets.stores.objects.scan.lookups import NamedBy
from retention_assets.stores.objects.scan.match import AskedPart, AskObjects, MatchedRanges, MatchObjects
from retention_assets.stores.objects.scan.read_edges import (
    CloseEdges,
    FindKept,
    KeptObjects,
    ReadEdges,
    ReadEdgeShare,
    edge_counts,
)
from retention_assets.stores.objects.scan.read_references import MergedRange, MergeReferences, ReadReferences, ReadShare, Run
from retention_assets.stores.objects.scan_result import (
    ClassCount,
    ObjectClass,
    ScanFailed,
    ScannedDataset,
    ScanResult,
    SourceCount,
)
from retention_assets.stores.objects.settings import FLOOR, BloomFilter, ObjectsSettings
from retention_assets.stores.protocol import error_text
from retention_assets.stores.tasks import T, Tasks, TasksHere

_SHARES_PER_SLOT = 3
# references and objects matched per task
_TOGETHER = 1 << 23
# fewer go to a single task
_SMALL = 1 << 20
# references in a task's memory, 12 bytes each with their index
_AT_ONCE = 48_000_000
# bits counted in this process
_BITS_HERE = 1 << 27


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
    # A new salt for each scan, so that collisions do not repeat and cannot be crafted.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False)

    @property
    def store(self) -> str:
        return self.settings.name


def scan_in(tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None = None) -> ScanResult:
    """Scan a store into an empty folder. `last` is its last whole scan. `refused` is the number of distinct references that a
    later scan was refused for (`ScanFailed.references`)."""
    return _Course(tasks, scan, folder, last, refused).run()


class _Course:
    def __init__(self, tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None) -> None:
        self._tasks, self._scan, self._folder, self._last, self._refused = tasks, scan, folder, last, refused
        self._wanted = _SHARES_PER_SLOT * tasks.slots

    def run(self) -> ScanResult:
        scan, started = self._scan, now()
        self._folder.make(*FOLDERS)
        listed_as_of, listed = self._list()
        read = self._read_references()
        runs = [run for share in read for run in share.runs]
        named_by = NamedBy()
        for share in read:
            named_by |= share.named_by
        read_edges = self._read_edges()
        edge_parts, edges = [one.part for one in read_edges if one.rows], sum(one.rows for one in read_edges)
        merged = self._merge(runs) if edges or isinstance(scan.settings.filter, BloomFilter) else None
        cut_off = self._cut_off(listed_as_of)
        rules = ClassRules(
            micros(cut_off), scan.purging, None if scan.settings.known_kinds is None else frozenset(scan.settings.known_kinds),
            self._spoken_for(read),
        )  # fmt: skip
        kept = self._find_kept(listed, edge_parts, rules)
        over_edges, over_named_by = self._close(edge_parts, merged or (), named_by, kept, read)
        named_by |= over_named_by
        size = self._bloom(sum(one.values for one in merged or ()), over_edges)
        known = _Known(listed, runs, merged, over_edges, named_by, rules, size)
        judged = self._judge_at_once(known) if self._fit(known) else self._judge_by_ranges(known)
        if isinstance(listed, FinishedObjects):
            note_list(self._folder, listed.shares, self._wanted, every=judged.every)
        distinct = judged.distinct
        result = ScanResult(
            store=scan.store,
            started_at=started,
            finished_at=now(),
            listing_as_of=listed_as_of,
            cut_off=cut_off,
            salt=scan.salt.hex(),
            filter=scan.settings.filter.kind,
            effective_fpp=self._rate(distinct + over_edges, size),
            distinct_references=distinct,
            unresolved_references=distinct - judged.named,
            classes=_class_counts(judged.groups),
            sources=self._source_counts(read, judged.of_sources),
            edges=edges,
            over_edges=over_edges,
            edge_sources=edge_counts(scan.settings, scan.edges, read_edges),
            references_shrink=scan.settings.brakes.references_shrink,
        )
        result.scanned, result.scanned_bytes = result.total()
        result.datasets = _datasets(judged.groups, every=result.scanned <= scan.settings.rows_up_to)
        return result

    def _fit(self, known: "_Known") -> bool:
        return known.bloom is None and known.values + known.over_edges <= _AT_ONCE

    def _judge_at_once(self, known: "_Known") -> "_Judged":
        most = self._scan.settings.rows_up_to
        # At least one task, as it also counts the references.
        tasks = max(1, min(self._tasks.slots, len(known.listed.parts)))
        # Whether all objects have lines depends on their number: guess from the last scan, and repeat if wrong.
        likely = self._last is not None and self._last.scanned <= most
        for every in (likely, not likely):
            step = JudgeAtOnce(
                known.listed, tasks, known.runs, len(self._scan.references), known.over_edges > 0, known.named_by, known.rules,
                self._scan.salt, self._folder, every,
            )  # fmt: skip
            found = self._step("the judgement", step, tasks)
            judged = _Judged(every, found[0].distinct, [found[0].of_sources])
            for one in found:
                add_groups(judged.groups, one.groups)
            counted = sum(objects for group, (objects, _) in judged.groups.items() if group[-1] != ObjectClass.RESERVED)
            self._check_not_empty(counted)
            if known.listed.is_written or every == (counted <= most):
                break
        else:
            raise ScanFailed(self._scan.store, "what lists the objects changed while it was read. Scan again.")
        count = CountNamed([one.named for one in found], self._folder)
        runner = self._tasks if tasks * judged.distinct > _BITS_HERE else TasksHere()
        with _failing(self._scan, "the judgement"):
            [judged.named] = runner.run(count, 1)
        return judged

    def _judge_by_ranges(self, known: "_Known") -> "_Judged":
        scan, listed, named_by, merged = self._scan, known.listed, known.named_by, known.merged
        if known.bloom:
            self._step("the filter", FillBloom(known.bloom, merged or (), known.over_edges > 0, self._folder), 1)
        asking = AskObjects(listed, named_by, scan.settings.has_realms, scan.salt, self._folder)
        asked = self._step("the listing", asking, len(listed.parts))
        self._check_not_empty(sum(one.counted for one in asked))
        bounds, matched = self._match(known, asked)
        every = sum(one.counted for one in asked) <= scan.settings.rows_up_to
        judge = JudgeObjects(
            listed, asked, [one.name for one in matched], bounds, named_by, known.rules, scan.salt, self._folder, known.bloom,
            every,
        )  # fmt: skip
        of_sources = [one.of_sources for one in (merged if merged is not None else matched)]
        named = sum(one.matched for one in matched)
        judged = _Judged(every, sum(one.distinct for one in matched), of_sources, named)
        for groups in self._step("the judgement", judge, len(asked)):
            add_groups(judged.groups, groups)
        return judged

    def _list(self) -> tuple[datetime, ListedObjects]:
        scan = self._scan
        with _failing(scan, "the listing"):
            as_of = scan.listing.begin()
            shares = scan.listing.shares(self._wanted)
            if isinstance(scan.listing, FinishedListing) and can_be_read_again(scan.settings, scan.listing):
                return as_of, FinishedObjects(scan.settings, scan.listing, shares)
        step = ListObjects(scan.settings, scan.listing, scan.salt, self._folder, shares)
        listed = self._step("the listing", step, len(shares))
        self._check_not_empty(sum(one.counted for one in listed))
        return as_of, WrittenObjects(self._folder, [one.part for one in listed if one.rows])

    def _check_not_empty(self, listed: int) -> None:
        if self._last is not None and self._last.scanned and not listed:
            raise ScanFailed(
                self._scan.store,
                f"nothing is listed, and the last scan had {self._last.scanned:,} objects. Look whether the place is the right"
                " one, and whether it can be read.",
            )

    def _cut_off(self, listed_as_of: datetime) -> datetime:
        """Younger objects are never judged. A listing from the future makes no object older."""
        known = min(listed_as_of, now(), self._scan.as_of or listed_as_of)
        return min(self._scan.settings.min_age.before(known), FLOOR.before(known))

    def _read_references(self) -> list[ReadShare]:
        scan = self._scan

        def step(each: Round) -> ReadReferences:
            return ReadReferences(each, scan.salt, self._folder, scan.settings.rates.references)

        return self._read(scan.references, step)

    def _read_edges(self) -> list[ReadEdgeShare]:
        return self._read(self._scan.edges, lambda each: ReadEdges(each, self._scan.salt, self._folder))

    def _read(self, sources: Sequence[RowSource], step: Callable[[Round], Callable[[int], R]]) -> list[R]:
        with _failing(self._scan, "a source"):
            return read_whole(self._tasks, sources, step)

    def _bounds(self, values: int) -> list[tuple[int, int]]:
        tasks = max(-(-values // _TOGETHER), self._tasks.slots if values > _SMALL else 1)
        count = min(RANGES, tasks)
        return list(pairwise(RANGES * number // count for number in range(count + 1)))

    def _merge(self, runs: Sequence[Run]) -> list[MergedRange]:
        bounds = self._bounds(sum(run.values for run in runs))
        step = MergeReferences(runs, len(self._scan.references), self._folder, bounds)
        return self._step("the references", step, len(bounds) if runs else 0)

    def _find_kept(self, listed: ListedObjects, parts: Sequence[str], rules: ClassRules) -> list[KeptObjects]:
        if not parts:
            return []
        tasks = min(self._tasks.slots, len(listed.parts))
        step = FindKept(listed, tasks, parts, rules, self._scan.holds, self._scan.salt, self._folder)
        return [one for one in self._step("the edges", step, tasks) if one.part.values]

    def _close(
        self,
        parts: Sequence[str],
        merged: Sequence[MergedRange],
        named_by: NamedBy,
        kept: Sequence[KeptObjects],
        read: Sequence[ReadShare],
    ) -> tuple[int, NamedBy]:
        if not parts or not (merged or kept):
            return 0, NamedBy()
        realms = sorted(frozenset[str]().union(*(share.realms for share in read), *(one.realms for one in kept)))
        step = CloseEdges(parts, merged, named_by, kept, realms, self._scan.salt, self._folder)
        [found] = self._step("the edges", step, 1)
        return found

    def _match(self, known: "_Known", asked: Sequence[AskedPart]) -> tuple[list[tuple[int, int]], list[MatchedRanges]]:
        """Bounds of the ranges and their results; empty if nothing is retained."""
        if not known.runs and not known.over_edges:
            return [], []
        every = [run for one in asked for run in one.runs]
        bounds = self._bounds(max(known.values, sum(run.values for run in every)))
        # Merged references count as one source.
        sources, runs = (len(self._scan.references), known.runs) if known.merged is None else (1, _as_runs(known.merged))
        step = MatchObjects(runs, sources, every, known.over_edges > 0, self._folder, bounds)
        return bounds, self._step("the judgement", step, len(bounds))

    def _bloom(self, distinct: int, over_edges: int) -> BloomSize | None:
        wanted = self._scan.settings.filter
        if not isinstance(wanted, BloomFilter):
            return None
        # The filter also holds what edges reach.
        known = self._refused or (self._last.distinct_references + self._last.over_edges if self._last else 0)
        expected = round(known * wanted.growth) if known else wanted.expected
        size = BloomSize.of(expected, wanted.fpp)
        rate = size.rate(distinct + over_edges)
        if rate > wanted.max_fpp:
            found = distinct + over_edges
            raise ScanFailed(
                self._scan.store,
                f"the Bloom filter was sized for {expected:,} references, and {found:,} distinct ones were found, with which it"
                f" errs at a rate of {rate:.3g}, above max_fpp {wanted.max_fpp:.3g}. The next scan sizes it for"
                f" {round(found * wanted.growth):,}.",
                references=found,
            )
        return size

    def _rate(self, retained: int, size: BloomSize | None) -> float:
        return size.rate(retained) if size else retained / 2**64

    def _spoken_for(self, read: Sequence[ReadShare]) -> frozenset[str] | None:
        settings = self._scan.settings
        # Settings tell whether a source provides realms, so that an empty one covers none.
        known = settings.references if len(settings.references) == len(self._scan.references) else self._scan.references
        heard: list[tuple[set[str | None], object]] = [(set(), said) for said in known]
        for share in read:
            heard[share.source][0].update(share.realms, [None] if share.named_by.in_all else [])
        return spoken_for(settings, heard)

    def _source_counts(self, read: Sequence[ReadShare], of_sources: Sequence[Sequence[int]]) -> list[SourceCount]:
        found = []
        for number, source in enumerate(self._scan.references):
            mine = [share for share in read if share.source == number]
            found.append(
                SourceCount(
                    source.label,
                    rows=sum(share.end.rows for share in mine),
                    distinct=sum(one[number] for one in of_sources),
                    realms=len(frozenset[str]().union(*(share.realms for share in mine))),
                    seconds=sum(share.seconds for share in mine),
                    shards=shards_among(self._scan.settings.references, number, source, mine),
                )
            )
        return found

    def _step(self, what: str, step: Callable[[int], T], count: int) -> list[T]:
        with _failing(self._scan, what):
            return self._tasks.run(step, count) if count else []


@dataclass(frozen=True)
class _Known:
    listed: ListedObjects
    runs: Sequence[Run]
    merged: Sequence[MergedRange] | None
    over_edges: int
    named_by: NamedBy
    rules: ClassRules
    bloom: BloomSize | None

    @property
    def values(self) -> int:
        return sum(run.values for run in self.runs)


@dataclass
class _Judged:
    """Result of judging: distinct references in all, per source and `named`; `every` tells whether all objects have lines."""

    every: bool
    distinct: int
    of_sources: Sequence[Sequence[int]]
    named: int = 0
    groups: dict[Group, list[int]] = field(default_factory=dict)


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


def _as_runs(merged: Sequence[MergedRange]) -> list[Run]:
    return [Run(0, part.name, part.values) for part in merged]


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
