"""Matches objects and references range by range of fingerprints, each small enough for a CPU cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints, join_chunks
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import RANGES, RangedValues, ScanFolder
from retention_assets.stores.objects.scan.listed import ListedObjects, reserved_rows
from retention_assets.stores.objects.scan.lookups import Lookup, NamedBy, lookups
from retention_assets.stores.objects.scan.membership import SortedFingerprints
from retention_assets.stores.objects.scan.read_edges import OVER_EDGES
from retention_assets.stores.objects.scan.read_references import Run, distinct_of, read_sources

Rows = npt.NDArray[np.uint32]

# objects per run
_ASKED = 1 << 22
# least references looked up together; for fewer, calls cost more than lookups
_CELL = 1 << 16


@dataclass(frozen=True)
class AskedRun:
    """A file of the fingerprints of consecutive objects; `rows` counts the objects, `values` the fingerprints."""

    name: str
    rows: int
    values: int


@dataclass
class AskedPart:
    """Runs of a part, its rows, and those not in a reserved realm."""

    runs: list[AskedRun] = field(default_factory=list)
    rows: int = 0
    counted: int = 0


@dataclass(frozen=True)
class AskObjects:
    """Task that writes the fingerprints under which a part's objects may be named."""

    listed: ListedObjects
    named_by: NamedBy
    has_realms: bool
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> AskedPart:
        found, fingerprints = AskedPart(), Fingerprints(self.salt)
        # If objects are named in one way and not by folders, their own fingerprints suffice.
        bare = not (self.named_by.depths or (self.named_by.in_all and self.has_realms))
        columns = ["realm"] + ["fingerprint"] * self.listed.is_written + ["key"] * (not (bare and self.listed.is_written))
        held: list[list[Lookup]] = []
        rows: list[int] = []
        for table in self.listed.read(number, columns):
            own: Hashes | None = join_chunks(table["fingerprint"]).to_numpy() if self.listed.is_written else None
            if own is not None and bare:
                held.append([Lookup(own, None, _no_names)])
            else:
                keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
                ways = lookups(fingerprints, keys, realms, self.named_by, own)
                # `names` would keep every table's keys in memory.
                held.append([Lookup(way.hashes, way.rows, _no_names) for way in ways])
            rows.append(len(table))
            found.rows += len(table)
            found.counted += len(table) - reserved_rows(table["realm"])
            if sum(rows) >= _ASKED:
                found.runs.append(self._write(f"{number:05d}-{len(found.runs):04d}", held, rows))
                held, rows = [], []
        if held:
            found.runs.append(self._write(f"{number:05d}-{len(found.runs):04d}", held, rows))
        return found

    def _write(self, name: str, held: Sequence[Sequence[Lookup]], rows: Sequence[int]) -> AskedRun:
        values, places = gathered(held, rows)
        run = AskedRun(f"asked/{name}", sum(rows), len(values))
        order = self.folder.write_ranges(run.name, values)
        self.folder.write_bytes(f"{run.name}.rows", order.astype(np.uint32) if places is None else places[order])
        return run


def gathered(held: Sequence[Sequence[Lookup]], rows: Sequence[int]) -> tuple[Hashes, Rows | None]:
    """Concatenate the fingerprints of batches, with the row of each; None if each row has exactly its own."""
    hashes = [way.hashes for ways in held for way in ways]
    values = np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)
    if all(len(ways) == 1 and ways[0].rows is None for ways in held):
        return values, None
    places = [np.zeros(0, dtype=np.uint32)]
    begin = 0
    for ways, size in zip(held, rows, strict=True):
        every = np.arange(size)
        places += [(begin + (every if way.rows is None else way.rows)).astype(np.uint32) for way in ways]
        begin += size
    return values, np.concatenate(places)


def _no_names() -> pa.Array:
    raise AssertionError("nobody compares texts while objects are matched")


@dataclass(frozen=True)
class MatchedRanges:
    """Result of some ranges: the file of met fingerprints, and the numbers of distinct references in all, per source and
    matched."""

    name: str
    distinct: int
    of_sources: tuple[int, ...]
    matched: int


@dataclass(frozen=True)
class MatchObjects:
    """Task that matches all references and fingerprints of some ranges."""

    references: Sequence[Run]
    sources: int
    asked: Sequence[AskedRun]
    over_edges: bool
    folder: ScanFolder
    bounds: Sequence[tuple[int, int]]

    def __call__(self, number: int) -> MatchedRanges:
        first, end = self.bounds[number]
        references = read_sources(self.folder, self.references, self.sources, first, end)
        beside = [self.folder.read_values(OVER_EDGES, first, end)] if self.over_edges else []
        asked = [self.folder.read_values(run.name, first, end) for run in self.asked]
        met = [np.zeros(len(one.values), dtype=bool) for one in asked]
        places = [0] * len(asked)
        distinct, matched, counts = 0, 0, [0] * self.sources
        for low, high in _cells([one for some in references for one in some], first, end):
            known, of_sources = distinct_of(references, low, high)
            named = np.zeros(len(known), dtype=bool)
            some = [one.between(low, high) for one in asked]
            hashes = np.concatenate(some) if some else known[:0]
            at = SortedFingerprints(known).find(hashes)
            there = at >= 0
            named[at[there]] = True
            if beside:
                there |= SortedFingerprints(distinct_of([beside], low, high)[0]).has(hashes)
            begin = 0
            for place, values in enumerate(some):
                met[place][places[place] : places[place] + len(values)] = there[begin : begin + len(values)]
                places[place] += len(values)
                begin += len(values)
            distinct, matched = distinct + len(known), matched + int(np.count_nonzero(named))
            counts = [one + more for one, more in zip(counts, of_sources, strict=True)]
        name = f"matched/{number:05d}"
        bits = [np.packbits(one) for one in met]
        ends = np.cumsum([0, *map(len, bits)], dtype=np.int64)
        self.folder.write_bytes(name, ends, *bits)
        return MatchedRanges(name, distinct, tuple(counts), matched)


def read_met(folder: ScanFolder, name: str, runs: int, number: int, asked: int) -> Bools:
    """Mask of a run's fingerprints in a task's ranges that were met; `asked` is their number."""
    files, path = folder.place(name)
    with files.open_input_file(path) as source:
        begin, end = np.frombuffer(source.read_at(16, 8 * number), dtype=np.int64).tolist()
        bits = np.frombuffer(source.read_at(end - begin, 8 * (runs + 1) + begin), dtype=np.uint8)
    return np.unpackbits(bits, count=asked).view(bool)


def _cells(references: Sequence[RangedValues], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Group ranges into cells of about _CELL references."""
    sizes = np.zeros(RANGES, dtype=np.int64)
    for one in references:
        sizes += np.diff(one.begins)
    begin, held = first, 0
    for number in range(first, end):
        if number > begin and held + sizes[number] > _CELL:
            yield begin, number
            begin, held = number, 0
        held += sizes[number]
    if begin < end:
        yield begin, end


def rows_of(folder: ScanFolder, run: AskedRun) -> Ints:
    return np.frombuffer(folder.read_bytes(f"{run.name}.rows"), dtype=np.uint32).astype(np.int64)
