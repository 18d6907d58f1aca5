"""Judges listed objects: matches them with references, assigns classes, and counts and writes both. Objects and references are
matched range by range of fingerprints, each small enough for a CPU cache. So the cost of an object stays the same however many
there are, and no task holds all references. A Bloom filter's bits depend on the salt of the scan, so no object is kept by a
false positive in every scan."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints, Small, integers, join_chunks
from retention_assets.stores.objects.classes import CLASSES as NAMES
from retention_assets.stores.objects.classes import ClassRules, classes_of
from retention_assets.stores.objects.fingerprints import Fingerprints, Hashes, NamedBy, SortedFingerprints, lookups
from retention_assets.stores.objects.folder import (
    CLASS,
    CLASSES,
    RANGES,
    ListedObjects,
    RangedValues,
    Run,
    ScanFolder,
    distinct_of,
    read_sources,
    words_of,
)
from retention_assets.stores.objects.scan_result import ObjectClass

# values looked up at a time, to bound memory
_PART = 1 << 18
_FILE = "retained/bloom"
_WORD = 64


class Filter(Protocol):
    def has(self, wanted: Hashes) -> Bools:
        """Mask of the fingerprints that are, or may be, in the filter. No element is missed."""


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
        for places in self._places(values):
            inside = places & np.uint64(7)
            at = (places >> np.uint64(3)).astype(np.int64)
            for bit in range(8):
                # Duplicate places within a byte are safe, as all set the same bit.
                mine = at[inside == bit]
                self.bits[mine] |= np.uint8(1 << bit)

    def has(self, wanted: Hashes) -> Bools:
        """Mask of wanted that may be elements. There are no false negatives."""
        found = np.ones(len(wanted), dtype=bool)
        for begin in range(0, len(wanted), _PART):
            left = np.arange(begin, min(begin + _PART, len(wanted)))
            first, step = self._seeds(wanted[left])
            for number in range(self.size.hashes):
                places = self._place(first, step, number)
                held = self.bits.take((places >> np.uint64(3)).astype(np.int64))
                keep = (held >> (places & np.uint64(7)).astype(np.uint8)) & 1 == 1
                found[left[~keep]] = False
                left, first, step = left[keep], first[keep], step[keep]
        return found

    def _places(self, values: Hashes) -> Iterator[Hashes]:
        for begin in range(0, len(values), _PART):
            first, step = self._seeds(values[begin : begin + _PART])
            for number in range(self.size.hashes):
                yield self._place(first, step, number)

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


@dataclass(frozen=True)
class FillBloom:
    """Single task that writes a filter of all fingerprints in some files."""

    size: BloomSize
    names: Sequence[str]
    folder: ScanFolder

    def __call__(self, _: int) -> None:
        bloom = Bloom(self.size)
        for name in self.names:
            bloom.add(self.folder.read_values(name).values)
        self.folder.write_bytes(_FILE, bloom.bits)


def read_bloom(folder: ScanFolder, size: BloomSize) -> Bloom:
    return Bloom(size, np.frombuffer(folder.read_bytes(_FILE), dtype=np.uint8))


Rows = npt.NDArray[np.uint32]

# objects per run
_ASKED = 1 << 22
# least references looked up together; for fewer, calls cost more than lookups
_CELL = 1 << 16
_COLUMNS = ("realm", "kind", "dataset", "size", "created_at")
_WORDS = pa.array([str(name) for name in NAMES], pa.string())
# most groups counted in a dense array
_FEW = 1 << 16


@dataclass(frozen=True)
class AskedRun:
    """A file of the fingerprints of consecutive objects; `rows` counts the objects, `values` the fingerprints."""

    name: str
    rows: int
    values: int


@dataclass(frozen=True)
class AskObjects:
    """Task that writes the fingerprints under which a part's objects may be named."""

    listed: ListedObjects
    named_by: NamedBy
    has_realms: bool
    salt: bytes
    folder: ScanFolder

    def __call__(self, number: int) -> list[AskedRun]:
        runs, fingerprints = list[AskedRun](), Fingerprints(self.salt)
        # If objects are named in one way and not by folders, their own fingerprints suffice.
        bare = not (self.named_by.depths or (self.named_by.in_all and self.has_realms))
        held: list[tuple[Hashes, Rows | None]] = []
        rows = 0

        def close() -> None:
            nonlocal rows
            if rows:
                runs.append(self._write(f"asked/{number:05d}-{len(runs):04d}", held, rows))
                held.clear()
                rows = 0

        for table in self.listed.read(number, ["fingerprint"] if bare else ["key", "realm", "fingerprint"]):
            own = join_chunks(table["fingerprint"]).to_numpy()
            if bare:
                held.append((own, None))
            else:
                every = np.arange(rows, rows + len(table), dtype=np.uint32)
                ways = lookups(fingerprints, join_chunks(table["key"]), join_chunks(table["realm"]), self.named_by, own)
                held += [(way.hashes, every if way.rows is None else every[way.rows]) for way in ways]
            rows += len(table)
            if rows >= _ASKED:
                close()
        close()
        return runs

    def _write(self, name: str, held: Sequence[tuple[Hashes, Rows | None]], rows: int) -> AskedRun:
        values = np.concatenate([hashes for hashes, _ in held]) if held else np.zeros(0, dtype=np.uint64)
        order = self.folder.write_ranges(name, values)
        places = [some for _, some in held if some is not None]
        self.folder.write_bytes(f"{name}.rows", np.concatenate(places)[order] if places else order.astype(np.uint32))
        return AskedRun(name, rows, len(values))


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
    """Task that matches all references and fingerprints of some ranges. With `bloom`, the filter says what is retained; the
    references are still counted exactly."""

    references: Sequence[Run]
    sources: int
    # retained over edges
    over: Sequence[Run]
    asked: Sequence[AskedRun]
    folder: ScanFolder
    bounds: Sequence[tuple[int, int]]
    bloom: BloomSize | None

    def __call__(self, number: int) -> MatchedRanges:
        first, end = self.bounds[number]
        references = read_sources(self.folder, self.references, self.sources, first, end)
        beside = [self.folder.read_values(run.name, first, end) for run in self.over]
        asked = [self.folder.read_values(run.name, first, end) for run in self.asked]
        bloom = read_bloom(self.folder, self.bloom) if self.bloom else None
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
            retained: list[Filter] = (
                [bloom] if bloom else [SortedFingerprints(distinct_of([[one]], low, high)[0]) for one in beside]
            )
            for filter_ in retained:
                there |= filter_.has(hashes)
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


@dataclass(frozen=True)
class Matches:
    """All asked runs, and which of their fingerprints tasks met."""

    folder: ScanFolder
    asked: Sequence[AskedRun]
    met: Sequence[str]
    bounds: Sequence[tuple[int, int]]

    def hit(self, number: int) -> Bools:
        """Mask of the rows of a run that something names."""
        run = self.asked[number]
        begins = self.folder.read_values(run.name, 0, 0).begins
        met = [
            self._met(name, number, int(begins[end] - begins[first]))
            for name, (first, end) in zip(self.met, self.bounds, strict=True)
        ]
        rows: Ints = np.frombuffer(self.folder.read_bytes(f"{run.name}.rows"), dtype=np.uint32).astype(np.int64)
        hit = np.zeros(run.rows, dtype=bool)
        hit[rows[np.concatenate(met)]] = True
        return hit

    def _met(self, name: str, number: int, asked: int) -> Bools:
        files, path = self.folder.place(name)
        with files.open_input_file(path) as source:
            begin, end = np.frombuffer(source.read_at(16, 8 * number), dtype=np.int64).tolist()
            bits = np.frombuffer(source.read_at(end - begin, 8 * (len(self.asked) + 1) + begin), dtype=np.uint8)
        return np.unpackbits(bits, count=asked).view(bool)


# realm, kind, dataset and class; "" for none
Group = tuple[str, str, str, ObjectClass]


@dataclass(frozen=True)
class JudgeObjects:
    """Task that judges a part; `runs` are the numbers of the first asked run of each part, and one more."""

    listed: ListedObjects
    matches: Matches
    runs: Sequence[int]
    rules: ClassRules
    folder: ScanFolder

    def __call__(self, number: int) -> dict[Group, list[int]]:
        """Write the class of each object of a part; return objects and bytes of each group."""
        groups: dict[Group, list[int]] = {}
        tables = self.listed.read(number, _COLUMNS)
        with self.folder.writer(f"{CLASSES}/{self.listed.parts[number]}", CLASS) as writer:
            for run in range(self.runs[number], self.runs[number + 1]):
                hit, begin = self.matches.hit(run), 0
                while begin < len(hit):
                    table = next(tables)
                    part = hit[begin : begin + len(table)]
                    classes = classes_of(table["realm"], table["kind"], table["created_at"], part, self.rules)
                    add_groups(groups, count_groups(table, classes))
                    names = pa.DictionaryArray.from_arrays(pa.array(classes), _WORDS)
                    writer.write_table(pa.table([names], schema=CLASS))
                    begin += len(table)
        return groups


def add_groups(groups: dict[Group, list[int]], more: Mapping[Group, Sequence[int]]) -> None:
    for name, (objects, size) in more.items():
        counts = groups.setdefault(name, [0, 0])
        counts[0] += objects
        counts[1] += size


def count_groups(table: pa.Table, classes: Small) -> dict[Group, tuple[int, int]]:
    code = classes.astype(np.int64)
    words: list[list[str]] = []
    for name in ("realm", "kind", "dataset"):
        names, at = words_of(table[name])
        words.append([*names, ""])
        code = code * (len(names) + 1) + at
    if int(code.max(initial=0)) < _FEW:
        place = code
    else:
        code, place = np.unique(code, return_inverse=True)
    sizes = integers(table["size"], 0).astype(np.int64)
    # Summed in two halves, as doubles are exact for these.
    halves = [np.bincount(place, half).astype(np.int64) for half in (sizes >> 32, sizes & 0xFFFFFFFF)]
    counts = np.bincount(place)
    there = np.flatnonzero(counts)
    found: dict[Group, tuple[int, int]] = {}
    columns = (there if place is code else code[there], *(one[there] for one in (counts, *halves)))
    for number, objects, upper, lower in zip(*(one.tolist() for one in columns), strict=True):
        said: list[str] = []
        for names in reversed(words):
            number, at = divmod(number, len(names))
            said.append(names[at])
        dataset, kind, realm = said
        found[realm, kind, dataset, NAMES[number]] = (objects, (upper << 32) + lower)
    return found
