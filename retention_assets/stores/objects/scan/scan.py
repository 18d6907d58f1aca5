"""One scan from its beginning to its numbers, in the order that keeps it safe: list first, then read every reference.

Belongs here: that order, what makes a scan fail, and what becomes of the counts of its tasks.
Does not belong here: each step (its own module), running tasks (pipeline/scan_stage.py, here.py), brakes.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.policy.durations import micros
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.references import RowSource, ShareEnd
from retention_assets.stores.objects.scan.bloom import BloomSize
from retention_assets.stores.objects.scan.classes import ClassRules, spoken_for
from retention_assets.stores.objects.scan.fingerprints import SALT_BYTES
from retention_assets.stores.objects.scan.folder import CLASSES, OBJECTS, RANGES, ScanFolder
from retention_assets.stores.objects.scan.judge import CountMatched, FillBloom, Group, JudgeObjects
from retention_assets.stores.objects.scan.list_objects import ListedShare, ListObjects
from retention_assets.stores.objects.scan.lookups import NamedBy
from retention_assets.stores.objects.scan.read_edges import Bucket, CloseEdges, ReadEdges
from retention_assets.stores.objects.scan.read_references import MergedRange, MergeReferences, ReadReferences, ReadShare, Run
from retention_assets.stores.objects.scan_result import (
    ClassCount,
    ObjectClass,
    ScanFailed,
    ScannedDataset,
    ScanResult,
    SourceCount,
)
from retention_assets.stores.objects.settings import FLOOR, BloomFilter, ExactFilter, ObjectsSettings

# A source that changes while it is read is read again so often.
ROUNDS = 5
_SHARES_PER_SLOT = 3
# How many references a task merges, and how many of them are looked up together; of keys themselves there fit fewer.
_MERGED, _TOGETHER = 1 << 23, 1 << 25
_KEYED_MERGED, _KEYED_TOGETHER = 1 << 19, 1 << 21
# Fewer are merged by one task.
_SMALL = 1 << 20
LOGGED = (ObjectClass.UNREFERENCED, ObjectClass.REALM_PURGE)

T = TypeVar("T")


class Tasks(Protocol):
    """Who runs numbered tasks."""

    @property
    def slots(self) -> int:
        """How many run at a time."""

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """What a step says of each number below `count`. Whatever keeps a task from its end raises Refused."""


@dataclass(frozen=True)
class Scan:
    """What is scanned: a store's settings, its listing and its sources; and the realms that are PURGING."""

    settings: ObjectsSettings
    listing: ObjectListing
    references: Sequence[RowSource]
    edges: Sequence[RowSource] = ()
    purging: frozenset[str] = frozenset()
    # What is younger at this instant is not judged either; none: the present.
    as_of: datetime | None = None
    # Another one for each scan, so that no mistake is made twice and nobody knows it before.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False)

    @property
    def store(self) -> str:
        """The name of the store."""
        return self.settings.name


def scan_in(tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None = None) -> ScanResult:
    """Scan a store into an empty folder. `last` is its last whole scan.

    `refused` is how many distinct references a scan had found since that was refused for them (`ScanFailed.references`).
    """
    return _Course(tasks, scan, folder, last, refused).run()


class _Course:
    """One scan on its way."""

    def __init__(self, tasks: Tasks, scan: Scan, folder: ScanFolder, last: ScanResult | None, refused: int | None) -> None:
        self._tasks, self._scan, self._folder, self._last, self._refused = tasks, scan, folder, last, refused
        self._keyed = isinstance(scan.settings.filter, ExactFilter)

    def run(self) -> ScanResult:
        """All steps in their order."""
        scan, started = self._scan, now()
        self._folder.make(OBJECTS, CLASSES, "references", "retained", "edges", "matched")
        listed_as_of, listed = self._list()
        read = self._read_references()
        merged = self._merge(read)
        distinct = sum(one.values for one in merged)
        buckets = self._buckets(merged)
        named_by = NamedBy()
        for share in read:
            named_by |= share.named_by
        edges, over_edges, over_named_by = self._close(buckets, named_by, read)
        named_by |= over_named_by
        rate, size = self._filter(distinct, over_edges)
        if size:
            self._step("the filter", FillBloom(size, buckets, over_edges > 0, self._folder), 1)
        cut_off = self._cut_off(listed_as_of)
        rules = ClassRules(
            micros(cut_off), scan.purging, None if scan.settings.known_kinds is None else frozenset(scan.settings.known_kinds),
            self._spoken_for(read),
        )  # fmt: skip
        parts = _dealt(listed, self._tasks.slots)
        judge = JudgeObjects(
            parts, buckets, over_edges > 0, named_by, rules, scan.salt, self._folder, self._keyed, size
        )  # fmt: skip
        judged = self._step("the judgement", judge, len(parts))
        notes = [[one.matched[at] for one in judged] for at in range(len(buckets))]
        matched = sum(self._step("the judgement", CountMatched(notes, self._folder), len(notes)))
        groups: dict[Group, list[int]] = {}
        for one in judged:
            for group, (objects, size_of) in one.groups.items():
                counts = groups.setdefault(group, [0, 0])
                counts[0] += objects
                counts[1] += size_of
        result = ScanResult(
            store=scan.store,
            started_at=started,
            finished_at=now(),
            listing_as_of=listed_as_of,
            cut_off=cut_off,
            salt=scan.salt.hex(),
            filter=scan.settings.filter.kind,
            effective_fpp=rate,
            distinct_references=distinct,
            unresolved_references=distinct - matched,
            classes=_class_counts(groups),
            sources=self._source_counts(read, merged),
            edges=edges,
        )
        result.scanned, result.scanned_bytes = result.total()
        result.datasets = _datasets(groups, every=result.scanned <= scan.settings.rows_up_to)
        return result

    def _list(self) -> tuple[datetime, list[ListedShare]]:
        scan = self._scan
        with _failing(scan, "the listing"):
            as_of = scan.listing.begin()
            shares = scan.listing.shares(_SHARES_PER_SLOT * self._tasks.slots)
        step = ListObjects(scan.settings, scan.listing, scan.salt, self._folder, shares)
        listed = self._step("the listing", step, len(shares))
        if self._last is not None and self._last.scanned and not sum(one.counted for one in listed):
            raise ScanFailed(
                scan.store,
                f"nothing is listed, and the last scan had {self._last.scanned:,} objects. Look whether the place is the right"
                " one, and whether it can be read.",
            )
        return as_of, listed

    def _cut_off(self, listed_as_of: datetime) -> datetime:
        """What is younger is never judged. A listing of the future makes nothing older than it is."""
        known = min(listed_as_of, now(), self._scan.as_of or listed_as_of)
        return min(self._scan.settings.min_age.before(known), FLOOR.before(known))

    def _read_references(self) -> list[ReadShare]:
        scan, found = self._scan, list[ReadShare]()

        def step(shares: Sequence[tuple[int, Any]], number: int) -> Callable[[int], ReadShare]:
            rate = scan.settings.rates.references / max(1, min(self._tasks.slots, len(shares)))
            return ReadReferences(scan.references, shares, scan.salt, self._folder, number, rate, self._keyed)

        self._read(scan.references, step, found)
        return found

    def _read(self, sources: Sequence[RowSource], step: Callable[[Any, int], Callable[[int], Any]], found: list[Any]) -> None:
        """Read sources until each of them says that it was whole; those that change, again."""
        shares: list[tuple[int, Any]] = []
        for number, source in enumerate(sources):
            with _failing(self._scan, source.label):
                shares += [(number, share) for share in source.shares(_SHARES_PER_SLOT * self._tasks.slots)]
        for number in range(ROUNDS):
            if shares:
                found += self._step("a source", step(shares, number), len(shares))
            shares = []
            for at, source in enumerate(sources):
                ends: list[ShareEnd] = [one.end for one in found if one.source == at]
                with _failing(self._scan, source.label):
                    shares += [(at, share) for share in source.finish(ends)]
            if not shares:
                return
        changing = ", ".join(sorted({sources[at].label for at, _ in shares}))
        raise ScanFailed(
            self._scan.store,
            f"{changing} changed each of the {ROUNDS} times that it was read. Scan when less is written, or have it written"
            " elsewhere and put in place at once.",
        )

    def _merge(self, read: Sequence[ReadShare]) -> list[MergedRange]:
        runs: list[Run] = [run for share in read for run in share.runs]
        total = sum(run.values for run in runs)
        if not total:
            return []
        wanted = max(-(-total // (_KEYED_MERGED if self._keyed else _MERGED)), self._tasks.slots if total > _SMALL else 1)
        count = min(RANGES, wanted)
        edges = [RANGES * number // count for number in range(count + 1)]
        bounds = list(pairwise(edges))
        step = MergeReferences(runs, len(self._scan.references), self._folder, bounds, self._keyed)
        return self._step("the references", step, count)

    def _buckets(self, merged: Sequence[MergedRange]) -> list[Bucket]:
        most, found, held = _KEYED_TOGETHER if self._keyed else _TOGETHER, list[Bucket](), list[MergedRange]()
        for one in merged:
            if held and sum(part.values for part in held) + one.values > most:
                found.append(Bucket(tuple(held)))
                held = []
            held.append(one)
        return [*found, Bucket(tuple(held))] if held else []

    def _close(self, buckets: Sequence[Bucket], named_by: NamedBy, read: Sequence[ReadShare]) -> tuple[int, int, NamedBy]:
        """How many edges there are, how much is retained over them alone, and how that is named."""
        scan, found = self._scan, list[Any]()
        self._read(scan.edges, lambda shares, number: ReadEdges(scan.edges, shares, self._folder, number), found)
        edges = sum(one.rows for one in found)
        if not edges or not buckets:
            return edges, 0, NamedBy()
        realms = sorted(frozenset[str]().union(*(share.realms for share in read)))
        parts = [one.part for one in found if one.rows]
        step = CloseEdges(parts, buckets, named_by, realms, scan.salt, self._folder, self._keyed)
        over_edges, over_named_by = self._step("the edges", step, 1)[0]
        return edges, over_edges, over_named_by

    def _filter(self, distinct: int, over_edges: int) -> tuple[float, BloomSize | None]:
        """The rate of errors, and the size of the Bloom filter if there is to be one."""
        wanted = self._scan.settings.filter
        if isinstance(wanted, ExactFilter):
            return 0.0, None
        if not isinstance(wanted, BloomFilter):
            return (distinct + over_edges) / 2**64, None
        known = self._refused or (self._last.distinct_references if self._last else 0)
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
        return rate, size

    def _spoken_for(self, read: Sequence[ReadShare]) -> frozenset[str] | None:
        """The realms that sources speak for; none if one of them speaks for all (see ClassRules)."""
        settings = self._scan.settings
        # What says where the realms of a source are, so that an empty one speaks for none.
        known = settings.references if len(settings.references) == len(self._scan.references) else self._scan.references
        heard: list[tuple[set[str | None], object]] = [(set(), said) for said in known]
        for share in read:
            heard[share.source][0].update(share.realms, [None] if share.named_by.in_all else [])
        return spoken_for(settings, heard)

    def _source_counts(self, read: Sequence[ReadShare], merged: Sequence[MergedRange]) -> list[SourceCount]:
        found = []
        for number, source in enumerate(self._scan.references):
            mine = [share for share in read if share.source == number]
            found.append(
                SourceCount(
                    source.label,
                    rows=sum(share.end.rows for share in mine),
                    distinct=sum(one.of_sources[number] for one in merged),
                    realms=len(frozenset[str]().union(*(share.realms for share in mine))),
                    seconds=sum(share.seconds for share in mine),
                )
            )
        return found

    def _step(self, what: str, step: Callable[[int], T], count: int) -> list[T]:
        with _failing(self._scan, what):
            return self._tasks.run(step, count) if count else []


@contextmanager
def _failing(scan: Scan, what: str) -> Iterator[None]:
    """Whatever goes wrong makes the scan fail, in words that say where."""
    try:
        yield
    except ScanFailed:
        raise
    except Refused as fault:
        raise ScanFailed(scan.store, str(fault)) from fault
    except Exception as fault:
        raise ScanFailed(scan.store, f"{what}: {type(fault).__name__}: {' '.join(str(fault).split())}") from fault


def _dealt(listed: Sequence[ListedShare], slots: int) -> list[list[str]]:
    """Files dealt out to as many tasks as run at a time, each of which reads all references once."""
    hands: list[list[str]] = [[] for _ in range(slots)]
    load = [0] * slots
    for one in sorted(listed, key=lambda one: -one.rows):
        if one.rows:
            least = load.index(min(load))
            hands[least].append(one.part)
            load[least] += one.rows
    return [hand for hand in hands if hand]


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
