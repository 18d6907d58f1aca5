"""Judges listed objects: assigns classes, counts groups and writes both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Small, integers
from retention_assets.stores.objects.scan.classes import CLASSES as NAMES
from retention_assets.stores.objects.scan.classes import ClassRules, classes_of, words_of
from retention_assets.stores.objects.scan.folder import CLASS, CLASSES, ScanFolder
from retention_assets.stores.objects.scan.listed import ListedObjects
from retention_assets.stores.objects.scan.match import Matches
from retention_assets.stores.objects.scan_result import ObjectClass

_COLUMNS = ("realm", "kind", "dataset", "size", "created_at")
_WORDS = pa.array([str(name) for name in NAMES], pa.string())
# most groups counted in a dense array
_FEW = 1 << 16

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
