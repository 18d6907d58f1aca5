"""Judging what was listed: each object is looked up, and so is in a class.

Belongs here: the steps, and what they count. Of references one bucket is in memory at a time.
Does not belong here: the rules (classes.py, lookups.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints, Small, integers, join_chunks
from retention_assets.stores.objects.scan.bloom import Bloom, BloomSize
from retention_assets.stores.objects.scan.classes import CLASSES as NAMES
from retention_assets.stores.objects.scan.classes import ClassRules, classes_of, words_of
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import CLASSES, OBJECTS, ScanFolder
from retention_assets.stores.objects.scan.lookups import Lookup, NamedBy, Retained, lookups
from retention_assets.stores.objects.scan.read_edges import OVER_EDGES, Bucket
from retention_assets.stores.objects.scan_result import ObjectClass

BLOOM = "retained/bloom"
_CLASS = pa.schema([pa.field("class", pa.dictionary(pa.int8(), pa.string()))])
_WORDS = pa.array([str(name) for name in NAMES], pa.string())

# Realm, kind, dataset and class, "" where there is none.
Group = tuple[str, str, str, ObjectClass]


@dataclass(frozen=True)
class FillBloom:
    """What the one task is sent that makes the filter."""

    size: BloomSize
    buckets: Sequence[Bucket]
    over_edges: bool
    folder: ScanFolder

    def __call__(self, _: int) -> None:
        """Add everything that is retained."""
        bloom = Bloom(self.size)
        names = [part.name for bucket in self.buckets for part in bucket.parts] + [OVER_EDGES] * self.over_edges
        for name in names:
            bloom.add(self.folder.read_values(name)[0])
        self.folder.write_bytes(BLOOM, bloom.bits)


@dataclass
class JudgedParts:
    """What a task judged: objects and bytes of each group, and where it noted which references it met."""

    groups: dict[Group, list[int]] = field(default_factory=dict)
    matched: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class JudgeObjects:
    """What a task is sent: the files of listed objects that each number takes, and what they are judged by."""

    parts: Sequence[Sequence[str]]
    buckets: Sequence[Bucket]
    over_edges: bool
    named_by: NamedBy
    rules: ClassRules
    salt: bytes
    folder: ScanFolder
    keyed: bool
    bloom: BloomSize | None

    def __call__(self, number: int) -> JudgedParts:
        """Look all objects of some files up, then write their classes."""
        judged = JudgedParts()
        mine = self.parts[number]
        hits: dict[tuple[str, int], Bools] = {}
        for at, bucket in enumerate(self.buckets):
            retained = bucket.read(self.folder, keyed=self.keyed)
            beside = self._over_edges(bucket)
            matched = np.zeros(len(retained.index), dtype=bool)
            for key, rows, ways in self._lookups(mine):
                hit = hits.setdefault(key, np.zeros(rows, dtype=bool))
                for way in ways:
                    self._look_up(way, bucket, (retained, beside), matched, hit)
            name = f"matched/{at:05d}-{number:05d}"
            self.folder.write_bytes(name, np.packbits(matched))
            judged.matched.append(name)
        if self.bloom:
            hits = self._in_bloom(mine, self.bloom)
        for part in mine:
            self._write(part, hits, judged)
        return judged

    def _over_edges(self, bucket: Bucket) -> Retained | None:
        if not self.over_edges:
            return None
        values, keys = self.folder.read_values(OVER_EDGES, bucket.first, bucket.end, keyed=self.keyed)
        return Retained(values, keys.combine_chunks() if self.keyed else None)

    def _lookups(self, parts: Sequence[str]) -> Iterator[tuple[tuple[str, int], int, list[Lookup]]]:
        """Row group by row group, under what its objects may be named."""
        fingerprints = Fingerprints(self.salt)
        bare = not (self.keyed or self.named_by.in_all or self.named_by.depths)
        for part in parts:
            with self.folder.reader(f"{OBJECTS}/{part}") as source:
                for group in range(source.num_row_groups):
                    columns = ["fingerprint"] if bare else ["fingerprint", "key", "realm"]
                    table = source.read_row_group(group, columns=columns, use_threads=False)
                    own: Hashes = join_chunks(table["fingerprint"]).to_numpy()
                    if bare:
                        ways = [Lookup(own, None, _no_texts)]
                    else:
                        keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
                        ways = list(lookups(fingerprints, keys, realms, self.named_by, own))
                    yield (part, group), len(own), ways

    def _look_up(
        self, way: Lookup, bucket: Bucket, retained: tuple[Retained, Retained | None], matched: Bools, hit: Bools
    ) -> None:
        # All of them where there is one bucket, which has every range.
        rows: Ints | None = None if len(self.buckets) == 1 else bucket.rows_of(way.hashes)
        references, beside = retained
        at = references.find(way, rows)
        there = at >= 0
        matched[at[there]] = True
        if beside is not None:
            there |= beside.find(way, rows) >= 0
        met = np.flatnonzero(there) if rows is None else rows[there]
        hit[met if way.rows is None else way.rows[met]] = True

    def _in_bloom(self, parts: Sequence[str], size: BloomSize) -> dict[tuple[str, int], Bools]:
        bloom = Bloom(size, np.frombuffer(self.folder.read_bytes(BLOOM), dtype=np.uint8))
        hits = {}
        for key, rows, ways in self._lookups(parts):
            hit = hits[key] = np.zeros(rows, dtype=bool)
            for way in ways:
                met = np.flatnonzero(bloom.has(way.hashes))
                hit[met if way.rows is None else way.rows[met]] = True
        return hits

    def _write(self, part: str, hits: dict[tuple[str, int], Bools], judged: JudgedParts) -> None:
        columns = ["realm", "kind", "dataset", "created_at", "size"]
        with self.folder.reader(f"{OBJECTS}/{part}") as source, self.folder.writer(f"{CLASSES}/{part}", _CLASS) as writer:
            for group in range(source.num_row_groups):
                table = source.read_row_group(group, columns=columns, use_threads=False)
                hit = hits.pop((part, group), None)
                found = classes_of(
                    table["realm"], table["kind"], table["created_at"],
                    np.zeros(len(table), dtype=bool) if hit is None else hit, self.rules,
                )  # fmt: skip
                writer.write_table(pa.table([pa.DictionaryArray.from_arrays(pa.array(found), _WORDS)], schema=_CLASS))
                for name, (objects, size) in count_groups(table, found).items():
                    counts = judged.groups.setdefault(name, [0, 0])
                    counts[0] += objects
                    counts[1] += size


def _no_texts() -> tuple[pa.Array, pa.Array | None]:
    raise AssertionError("nobody compares texts where keys are not kept")


def count_groups(table: pa.Table, classes: Small) -> dict[Group, tuple[int, int]]:
    """Objects and bytes of each realm, kind, dataset and class."""
    code = classes.astype(np.int64)
    words: list[list[str]] = []
    for name in ("realm", "kind", "dataset"):
        names, at = words_of(table[name])
        words.append([*names, ""])
        code = code * (len(names) + 1) + at
    # Small numbers are put in order by counting them.
    order = np.argsort(code.astype(np.min_scalar_type(int(code.max(initial=0)))), kind="stable")
    code = code[order]
    first = np.flatnonzero(np.append(True, code[1:] != code[:-1])) if len(code) else np.zeros(0, dtype=np.int64)
    sizes = integers(table["size"], 0).astype(np.int64)[order]
    # In two halves, so that no sum is too large for its type.
    high, low = np.add.reduceat(sizes >> 32, first), np.add.reduceat(sizes & 0xFFFFFFFF, first)
    counts = np.diff(np.append(first, len(code)))
    found: dict[Group, tuple[int, int]] = {}
    for number, objects, upper, lower in zip(*(each.tolist() for each in (code[first], counts, high, low)), strict=True):
        said: list[str] = []
        for names in reversed(words):
            number, at = divmod(number, len(names))
            said.append(names[at])
        dataset, kind, realm = said
        found[realm, kind, dataset, NAMES[number]] = (objects, (upper << 32) + lower)
    return found


@dataclass(frozen=True)
class CountMatched:
    """What a task is sent: what each task of the judgement noted of a bucket."""

    notes: Sequence[Sequence[str]]
    folder: ScanFolder

    def __call__(self, number: int) -> int:
        """How many references of a bucket name something that was listed."""
        together: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None
        for name in self.notes[number]:
            bits = np.frombuffer(self.folder.read_bytes(name), dtype=np.uint8)
            together = bits if together is None else together | bits
        return 0 if together is None else int(np.bitwise_count(together).sum())
