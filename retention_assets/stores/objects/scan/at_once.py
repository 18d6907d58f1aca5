"""Judges objects as they are read, if all references fit into a task's memory. The listing is read only once. More references,
and Bloom filters, take match.py and judge.py."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from retention_assets.frames.arrays import join_chunks
from retention_assets.stores.objects.scan.classes import ClassRules
from retention_assets.stores.objects.scan.fingerprints import Fingerprints, Hashes
from retention_assets.stores.objects.scan.folder import KEPT, ScanFolder
from retention_assets.stores.objects.scan.judge import Group, JudgedPart
from retention_assets.stores.objects.scan.listed import ListedObjects
from retention_assets.stores.objects.scan.lookups import NamedBy, lookups
from retention_assets.stores.objects.scan.membership import SortedFingerprints, distinct
from retention_assets.stores.objects.scan.read_edges import OVER_EDGES
from retention_assets.stores.objects.scan.read_references import Run


@dataclass(frozen=True)
class JudgedAtOnce:
    """Result of some parts: groups, number of distinct references in all and per source, and the file of bits that says which
    references name an object."""

    groups: dict[Group, list[int]]
    distinct: int
    of_sources: tuple[int, ...]
    named: str


@dataclass(frozen=True)
class JudgeAtOnce:
    """Task that judges every `tasks`-th part of the listing against all references."""

    listed: ListedObjects
    tasks: int
    runs: Sequence[Run]
    sources: int
    over_edges: bool
    named_by: NamedBy
    rules: ClassRules
    salt: bytes
    folder: ScanFolder
    every: bool

    def __call__(self, number: int) -> JudgedAtOnce:
        values, of_sources = self._references()
        retained = SortedFingerprints(values)
        beside = SortedFingerprints(self.folder.read_values(OVER_EDGES).values if self.over_edges else values[:0])
        # one place more: find() returns -1 for missing values
        named = np.zeros(len(values) + 1, dtype=bool)
        fingerprints, groups = Fingerprints(self.salt), dict[Group, list[int]]()
        columns = [*KEPT, *(["fingerprint"] if self.listed.is_written else [])]
        for part in range(number, len(self.listed.parts), self.tasks):
            with ExitStack() as files:
                judged = JudgedPart(self.listed, part, self.rules, self.folder, self.every, files)
                for table in self.listed.read(part, columns):
                    keys, realms = join_chunks(table["key"]), join_chunks(table["realm"])
                    own = join_chunks(table["fingerprint"]).to_numpy() if self.listed.is_written else None
                    hit = np.zeros(len(table), dtype=bool)
                    for way in lookups(fingerprints, keys, realms, self.named_by, own):
                        at = retained.find(way.hashes)
                        named[at] = True
                        there = at >= 0
                        if len(beside):
                            there |= beside.has(way.hashes)
                        if way.rows is None:
                            hit |= there
                        else:
                            hit[way.rows[there]] = True
                    judged.add(table, hit, groups)
        name = f"matched/{number:05d}"
        self.folder.write_bytes(name, np.packbits(named[:-1]))
        return JudgedAtOnce(groups, len(values), of_sources, name)

    def _references(self) -> tuple[Hashes, tuple[int, ...]]:
        """Sorted distinct references in a single buffer, and the number per source."""
        held = np.empty(sum(run.values for run in self.runs), dtype=np.uint64)
        end, of_sources = 0, []
        for source in range(self.sources):
            begin = end
            for run in self.runs:
                if run.source == source:
                    held[end : end + run.values] = self.folder.read_values(run.name).values
                    end += run.values
            of_sources.append(len(distinct(held[begin:end])))
            end = begin + of_sources[-1]
        return held[:end] if self.sources == 1 else distinct(held[:end]), tuple(of_sources)


@dataclass(frozen=True)
class CountNamed:
    """Single task that counts the references that named an object in any task."""

    names: Sequence[str]
    folder: ScanFolder

    def __call__(self, _: int) -> int:
        met = np.frombuffer(self.folder.read_bytes(self.names[0]), dtype=np.uint8)
        for name in self.names[1:]:
            met = met | np.frombuffer(self.folder.read_bytes(name), dtype=np.uint8)
        return int(np.bitwise_count(met).sum())
