"""Judges listed objects: matches them with references, assigns classes, and counts and writes both. Objects and references are
matched range by range of fingerprints, each small enough for a CPU cache. So the cost of an object stays the same however many
there are, and no task holds all references. A Bloom filter's bits depend on the salt of the scan, so no object is kept by a
false positive in every scan."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints, join_chunks
from retention_assets.stores.objects.classes import CLASS_NAMES, ClassRules, classes_of
from retention_assets.stores.objects.fingerprints import Hashes, ReferredNames, SortedFingerprints, lookups
from retention_assets.stores.objects.folder import (
    CLASS,
    CLASSES,
    ListedObjects,
    RangedValues,
    Run,
    ScanFolder,
    in_order,
)

_PART = 1 << 18  # values looked up at a time, to bound memory
_BLOOM_FILE = "retained/bloom"
_WORD = 64


@dataclass(frozen=True)
class BloomSize:
    bits: int
    hashes: int

    @classmethod
    def of(cls, expected: int, fpp: float) -> "BloomSize":
        """Smallest size for this many elements at a rate of false positives, in words of 64 bits."""
        exact = -expected * math.log(fpp) / math.log(2) ** 2
        return cls(-(-math.ceil(exact) // _WORD) * _WORD, max(1, round(exact / expected * math.log(2))))

    def rate(self, elements: int) -> float:
        """Rate of false positives with this many distinct elements."""
        return float(-math.expm1(-self.hashes * elements / self.bits)) ** self.hashes


class Bloom:
    def __init__(self, size: BloomSize, bits: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None) -> None:
        self.size = size
        self.bits = np.zeros(size.bits // 8, dtype=np.uint8) if bits is None else bits

    def add(self, values: Hashes) -> None:
        for begin in range(0, len(values), _PART):
            first, step = self._seeds(values[begin : begin + _PART])
            for number in range(self.size.hashes):
                places = self._place(first, step, number)
                bits_in_byte = places & np.uint64(7)
                byte_places = (places >> np.uint64(3)).astype(np.int64)
                for bit in range(8):
                    # Duplicate places within a byte are safe, as all set the same bit.
                    self.bits[byte_places[bits_in_byte == bit]] |= np.uint8(1 << bit)

    def has(self, wanted: Hashes) -> Bools:
        """Mask of the wanted that may be elements; elements always pass."""
        mask = np.ones(len(wanted), dtype=bool)
        for begin in range(0, len(wanted), _PART):
            undecided = np.arange(begin, min(begin + _PART, len(wanted)))
            first, step = self._seeds(wanted[undecided])
            for number in range(self.size.hashes):
                places = self._place(first, step, number)
                octets = self.bits.take((places >> np.uint64(3)).astype(np.int64))
                keep = (octets >> (places & np.uint64(7)).astype(np.uint8)) & 1 == 1
                mask[undecided[~keep]] = False
                undecided, first, step = undecided[keep], first[keep], step[keep]
        return mask

    def _seeds(self, values: Hashes) -> tuple[Hashes, Hashes]:
        step = values ^ (values >> np.uint64(30))
        step = step * np.uint64(0xBF58476D1CE4E5B9)
        step ^= step >> np.uint64(27)
        step *= np.uint64(0x94D049BB133111EB)
        step ^= step >> np.uint64(31)
        return values, step | np.uint64(1)

    def _place(self, first: Hashes, step: Hashes, number: int) -> Hashes:
        place: Hashes = (first + step * np.uint64(number)) % np.uint64(self.size.bits)
        return place


def fill_bloom(folder: ScanFolder, size: BloomSize, names: Sequence[str], _: int) -> None:
    bloom = Bloom(size)
    for name in names:
        bloom.add(folder.read_values(name).values)
    folder.write_bytes(_BLOOM_FILE, bloom.bits)


_ASKED = 1 << 22  # objects per run
_CELL = 1 << 16  # references looked up together; for fewer, calls cost more than lookups
_COLUMNS = ("realm", "kind", "dataset", "size", "created_at")


@dataclass(frozen=True)
class AskedRun:
    """A file of the fingerprints of consecutive objects; `rows` counts the objects, `values` the fingerprints."""

    name: str
    rows: int
    values: int


def ask_objects(listed: ListedObjects, referred: ReferredNames, has_realms: bool, number: int) -> list[AskedRun]:
    """Write the fingerprints under which a part's objects may be named."""
    folder, runs, rows = listed.folder, list[AskedRun](), 0
    # Their own fingerprints suffice, unless references name folders or leave out realms that objects have.
    bare = not (referred.depths or (None in referred.realms and has_realms))
    # fingerprints, and the row of each
    nothing = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint32)
    pieces = [nothing]

    def close() -> None:
        nonlocal rows
        if not rows:
            return
        name = f"asked/{number:05d}-{len(runs):04d}"
        values, places = (np.concatenate(column) for column in zip(*pieces, strict=True))
        folder.write_bytes(f"{name}.rows", places[folder.write_ranges(name, values)])
        runs.append(AskedRun(name, rows, len(values)))
        pieces[:], rows = [nothing], 0

    for table in listed.read(number, ["fingerprint"] if bare else ["key", "realm", "fingerprint"]):
        own, every = join_chunks(table["fingerprint"]).to_numpy(), np.arange(rows, rows + len(table), dtype=np.uint32)
        if bare:
            pieces.append((own, every))
        else:
            ways = lookups(folder.fingerprints, join_chunks(table["key"]), join_chunks(table["realm"]), referred, own)
            pieces += [(way.hashes, every if way.rows is None else every[way.rows]) for way in ways]
        rows += len(table)
        if rows >= _ASKED:
            close()
    close()
    return runs


@dataclass(frozen=True)
class MatchedRanges:
    """Result of some ranges: the file that tells which asked fingerprints are retained, and the number of distinct references
    in all, of each source, and of those that name a listed object."""

    name: str
    distinct: int
    of_sources: tuple[int, ...]
    matched: int


@dataclass(frozen=True)
class MatchObjects:
    """Task that matches all references and fingerprints of some ranges. With `bloom`, the filter says what is retained; the
    references are still counted exactly."""

    references: Sequence[Run]
    sources: int
    # fingerprints of keys that only edges retain
    over_edges: Sequence[Run]
    asked: Sequence[AskedRun]
    folder: ScanFolder
    bounds: Sequence[tuple[int, int]]
    bloom: BloomSize | None

    def __call__(self, number: int) -> MatchedRanges:
        first, end = self.bounds[number]

        def read(runs: Iterable[Run | AskedRun]) -> list[RangedValues]:
            return [self.folder.read_values(run.name, first, end) for run in runs]

        references = [read(run for run in self.references if run.source == source) for source in range(self.sources)]
        edge_runs, asked = read(self.over_edges), read(self.asked)
        bloom = Bloom(self.bloom, np.frombuffer(self.folder.read_bytes(_BLOOM_FILE), dtype=np.uint8)) if self.bloom else None
        met = [np.zeros(len(run.values), dtype=bool) for run in asked]
        places = [0] * len(asked)
        distinct, matched, counts = 0, 0, [0] * self.sources
        cells = sum(len(run.values) for runs in references for run in runs) // _CELL
        for low, high in split_ranges(first, end, cells):
            known, of_sources = _distinct_of(references, low, high)
            named = np.zeros(len(known), dtype=bool)
            parts = [run.between(low, high) for run in asked]
            hashes = np.concatenate(parts) if parts else known[:0]
            found = SortedFingerprints(known).find(hashes)
            is_met = found >= 0
            named[found[is_met]] = True
            if bloom:
                is_met |= bloom.has(hashes)
            else:
                for run in edge_runs:
                    is_met |= SortedFingerprints(_distinct_of([[run]], low, high)[0]).has(hashes)
            begin = 0
            for place, values in enumerate(parts):
                met[place][places[place] : places[place] + len(values)] = is_met[begin : begin + len(values)]
                places[place] += len(values)
                begin += len(values)
            distinct, matched = distinct + len(known), matched + int(np.count_nonzero(named))
            counts = [count + more for count, more in zip(counts, of_sources, strict=True)]
        name, bits = f"matched/{number:05d}", [np.packbits(flags) for flags in met]
        self.folder.write_bytes(name, np.cumsum([0, *map(len, bits)], dtype=np.int64), *bits)
        return MatchedRanges(name, distinct, tuple(counts), matched)


def _distinct_of(sources: Sequence[Sequence[RangedValues]], low: int, high: int) -> tuple[Hashes, list[int]]:
    sides = [in_order([run.between(low, high) for run in runs]) for runs in sources]
    return sides[0] if len(sides) == 1 else in_order(sides), [len(side) for side in sides]


def split_ranges(first: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut consecutive ranges into about equal parts, of one range at least."""
    parts = max(1, min(parts, end - first))
    return list(pairwise(first + (end - first) * number // parts for number in range(parts + 1)))


def _named_rows(
    folder: ScanFolder, asked: Sequence[AskedRun], matched: Sequence[str], bounds: Sequence[tuple[int, int]], number: int
) -> Bools:
    run, met = asked[number], list[Bools]()
    begins = folder.read_values(run.name, 0, 0).begins
    for name, (first, last) in zip(matched, bounds, strict=True):
        files, path = folder.place(name)
        with files.open_input_file(path) as source:
            begin, end = np.frombuffer(source.read_at(16, 8 * number), dtype=np.int64).tolist()
            bits = np.frombuffer(source.read_at(end - begin, 8 * (len(asked) + 1) + begin), dtype=np.uint8)
        met.append(np.unpackbits(bits, count=int(begins[last] - begins[first])).view(bool))
    rows: Ints = np.frombuffer(folder.read_bytes(f"{run.name}.rows"), dtype=np.uint32).astype(np.int64)
    named = np.zeros(run.rows, dtype=bool)
    named[rows[np.concatenate(met)]] = True
    return named


# objects and bytes of each group; bytes as decimals, whose sum does not overflow
_GROUP = ("realm", "kind", "dataset", "class")
GROUPS = pa.schema([*((name, pa.string()) for name in _GROUP), ("objects", pa.int64()), ("bytes", pa.decimal128(38, 0))])


def judge_objects(
    listed: ListedObjects,
    asked: Sequence[Sequence[AskedRun]],
    matched: Sequence[str],
    bounds: Sequence[tuple[int, int]],
    rules: ClassRules,
    number: int,
) -> pa.Table:
    """Write the class of each object of a part; return its groups. `asked` are the runs of each part."""
    every, first = [run for runs in asked for run in runs], sum(map(len, asked[:number]))
    groups = [GROUPS.empty_table()]
    tables = listed.read(number, _COLUMNS)
    with listed.folder.writer(f"{CLASSES}/{listed.parts[number]}", CLASS) as writer:
        for run in range(first, first + len(asked[number])):
            hit, begin = _named_rows(listed.folder, every, matched, bounds, run), 0
            while begin < len(hit):
                table = next(tables)
                part = hit[begin : begin + len(table)]
                names = pa.DictionaryArray.from_arrays(pa.array(classes_of(table, part, rules)), CLASS_NAMES)
                writer.write_table(pa.table([names], schema=CLASS))
                rows = {
                    "class": names,
                    "objects": pa.repeat(1, len(table)),
                    "bytes": table["size"].cast(GROUPS.field("bytes").type),
                }
                for name, column in rows.items():
                    table = table.append_column(name, column)
                groups.append(sum_groups(table, _GROUP).cast(GROUPS))
                begin += len(part)
    return sum_groups(pa.concat_tables(groups), _GROUP)


def sum_groups(groups: pa.Table, columns: Sequence[str]) -> pa.Table:
    sums = [("objects", "sum"), ("bytes", "sum")]
    return groups.group_by(columns, use_threads=False).aggregate(sums).rename_columns([*columns, "objects", "bytes"])
