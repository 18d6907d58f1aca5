"""Judges listed objects: assigns classes, counts groups and writes both."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, Ints, Small, integers, join_chunks
from retention_assets.stores.objects.scan.bloom import Bloom, BloomSize
from retention_assets.stores.objects.scan.classes import CLASSES as NAMES
from retention_assets.stores.objects.scan.classes import LOGGED, ClassRules, classes_of, words_of
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import CLASS, CLASSES, EVERY, KEPT, LISTED, OBJECTS, ScanFolder
from retention_assets.stores.objects.scan.listed import ListedObjects
from retention_assets.stores.objects.scan.lookups import NamedBy, lookups
from retention_assets.stores.objects.scan.match import AskedPart, AskedRun, gathered, read_met, rows_of
from retention_assets.stores.objects.scan.membership import distinct
from retention_assets.stores.objects.scan.read_edges import OVER_EDGES
from retention_assets.stores.objects.scan.read_references import MergedRange
from retention_assets.stores.objects.scan_result import ObjectClass

BLOOM = "retained/bloom"
_KEPT = pa.schema([LISTED.field(name) for name in KEPT])
_WORDS = pa.array([str(name) for name in NAMES], pa.string())
_IS_LOGGED = np.array([name in LOGGED for name in NAMES])
# most groups counted in a dense array
_FEW = 1 << 16
# A row count can only differ if a finished list was written to meanwhile.
_CHANGED = "What lists the objects changed while it was read: {}. Scan again, and put a list in place only once it is finished."

# realm, kind, dataset and class; "" for none
Group = tuple[str, str, str, ObjectClass]


@dataclass(frozen=True)
class FillBloom:
    size: BloomSize
    merged: Sequence[MergedRange]
    over_edges: bool
    folder: ScanFolder

    def __call__(self, _: int) -> None:
        bloom = Bloom(self.size)
        for name in [part.name for part in self.merged] + [OVER_EDGES] * self.over_edges:
            bloom.add(self.folder.read_values(name).values)
        self.folder.write_bytes(BLOOM, bloom.bits)


@dataclass(frozen=True)
class JudgeObjects:
    """Task that judges a part by what was asked and met. Of a finished list only objects with lines in the log are written;
    with `every`, all of them."""

    listed: ListedObjects
    asked: Sequence[AskedPart]
    met: Sequence[str]
    bounds: Sequence[tuple[int, int]]
    named_by: NamedBy
    rules: ClassRules
    salt: bytes
    folder: ScanFolder
    bloom: BloomSize | None
    every: bool

    def __call__(self, number: int) -> dict[Group, list[int]]:
        """Write the class of each object of a part; return objects and bytes of each group."""
        groups: dict[Group, list[int]] = {}
        part, runs = self.listed.parts[number], self.asked[number].runs
        # offset of this part's runs in the files of met fingerprints
        before = sum(len(one.runs) for one in self.asked[:number])
        tables = self.listed.read(number, KEPT)
        with ExitStack() as files:
            judged = JudgedPart(self.listed, number, self.rules, self.folder, self.every, files)
            for at, run in enumerate(runs):
                values, rows, hit = self._hit(before + at, run)
                begin, picked, positions = 0, list[pa.Table](), list[Ints]()
                while begin < run.rows:
                    table = next(tables, None)
                    if table is None or begin + len(table) > run.rows:
                        raise Refused(_CHANGED.format(f"{part} has other rows"))
                    logged = judged.add(table, hit[begin : begin + len(table)], groups)
                    if len(logged):
                        picked.append(table.select(["key", "realm"]).take(pa.array(logged)))
                        positions.append(begin + logged)
                    begin += len(table)
                if picked and self.met:
                    self._check(part, values, rows, np.concatenate(positions), picked)
            if next(tables, None) is not None:
                raise Refused(_CHANGED.format(f"{part} has other rows"))
        return groups

    def _hit(self, number: int, run: AskedRun) -> tuple[Hashes, Ints, Bools]:
        """Fingerprints asked of a run, their rows, and a mask of the rows that something names."""
        values, rows = self.folder.read_values(run.name), rows_of(self.folder, run)
        hit = np.zeros(run.rows, dtype=bool)
        if self.bloom:
            bloom = Bloom(self.bloom, np.frombuffer(self.folder.read_bytes(BLOOM), dtype=np.uint8))
            hit[rows[bloom.has(values.values)]] = True
        elif self.met:
            count = sum(len(one.runs) for one in self.asked)
            met = [
                read_met(self.folder, name, count, number, int(values.begins[end] - values.begins[first]))
                for name, (first, end) in zip(self.met, self.bounds, strict=True)
            ]
            hit[rows[np.concatenate(met)]] = True
        return values.values, rows, hit

    def _check(self, part: str, values: Hashes, rows: Ints, logged: Ints, picked: Sequence[pa.Table]) -> None:
        """Raises Refused unless the objects to be logged are the ones that were asked about."""
        table = pa.concat_tables(picked).unify_dictionaries().combine_chunks()
        keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
        again = list(lookups(Fingerprints(self.salt), keys, realms, self.named_by))
        expected, places = gathered([again], [len(table)])
        wanted = np.zeros(int(rows.max(initial=-1)) + 1, dtype=bool)
        wanted[logged[logged < len(wanted)]] = True
        mine = wanted[rows]
        # An object without a realm is asked about twice where others have one.
        asked = distinct(values[mine] ^ _mixed(rows[mine]))
        if not np.array_equal(asked, distinct(expected ^ _mixed(logged if places is None else logged[places]))):
            raise Refused(_CHANGED.format(f"{part} has other objects"))


def _mixed(rows: Ints) -> Hashes:
    """Spread row numbers over all bits, so that fingerprint and row combine into one value."""
    return rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


class JudgedPart:
    """Files of a judged part: classes, and objects with lines in the log."""

    def __init__(
        self, listed: ListedObjects, number: int, rules: ClassRules, folder: ScanFolder, every: bool, files: ExitStack
    ) -> None:
        self._rules, part = rules, listed.parts[number]
        self._classes = files.enter_context(folder.writer(f"{CLASSES}/{part}", CLASS))
        self._objects: pq.ParquetWriter | None = None
        if not listed.is_written:
            self._objects = files.enter_context(folder.writer(f"{OBJECTS}/{part}", _KEPT))
        self._all: pq.ParquetWriter | None = None
        if not (listed.is_written or every):
            self._all = files.enter_context(folder.writer(f"{EVERY}/{part}", CLASS))

    def add(self, table: pa.Table, hit: Bools, groups: dict[Group, list[int]]) -> Ints:
        """Write and count a batch; return the rows that have lines in every log."""
        classes = classes_of(table["realm"], table["kind"], table["created_at"], hit, self._rules)
        add_groups(groups, count_groups(table, classes))
        logged = np.flatnonzero(_IS_LOGGED[classes])
        found = pa.table([pa.DictionaryArray.from_arrays(pa.array(classes), _WORDS)], schema=CLASS)
        if self._all is not None:
            self._all.write_table(found)
            table, found = (one.take(pa.array(logged)) for one in (table, found))
        if len(table):
            self._classes.write_table(found)
            if self._objects is not None:
                self._objects.write_table(table.cast(_KEPT))
        return logged


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
