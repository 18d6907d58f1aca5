"""Edges, and the walk along them for scans and looks: what retains `from` retains `to`, exact by whole keys. An edge with a
realm holds in that realm, one without in every realm. Cycles are allowed; each key is visited once per scope. Following is a
single task, which holds indexes for all edges, and each key once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, Ints, inverse, join_chunks
from retention_assets.policy.model import Keeper
from retention_assets.stores.objects.classes import ClassRules, why_kept
from retention_assets.stores.objects.fingerprints import (
    Hashes,
    ReferredNames,
    SortedFingerprints,
    distinct,
    lookups,
    words_of,
)
from retention_assets.stores.objects.folder import KEPT, ListedObjects, ReferenceRuns, ScanFolder, in_order

# scope of a walk: every realm alike, across all realms, or a realm's number plus REALMS
EVERYWHERE, ACROSS, REALMS = 0, 1, 2


@dataclass(frozen=True)
class CodedEdges:
    """Edges as indexes into distinct keys, and into the names of realms; the realm -1 means every realm."""

    begins: Ints
    ends: Ints
    realms: Ints
    keys: pa.Array
    names: tuple[str, ...]

    @classmethod
    def read(cls, folder: ScanFolder, parts: Sequence[str]) -> "CodedEdges":
        """Code edges in several passes over files; one batch is in memory at a time. Keys are told apart by fingerprints.
        Raises Refused if two keys have the same one."""

        def columns(*names: str) -> Iterator[pa.Array]:
            return (join_chunks(table[name]) for name in names for part in parts for table in folder.groups(part, [name]))

        hashes = [folder.fingerprints.of(keys) for keys in columns("from", "to")]
        bounds = np.cumsum([0, *map(len, hashes)])
        # index of each key by its fingerprint, then in the order of the keys' first texts
        _, first, codes = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
        del hashes
        order = np.argsort(first)
        first, codes = first[order], inverse(order)[codes]
        batches = zip(columns("from", "to"), np.split(first, np.searchsorted(first, bounds[1:-1])), bounds[:-1], strict=True)
        texts = [keys.take(pa.array(new - begin)).cast(pa.large_string()) for keys, new, begin in batches]
        every = pa.concat_arrays(texts)
        del texts
        for keys, part in zip(columns("from", "to"), np.split(codes, bounds[1:-1]), strict=True):
            if not every.take(pa.array(part)).equals(keys.cast(pa.large_string())):
                raise Refused("Two keys of edges have the same fingerprint, which is extremely rare. Scan again.")
        begins, ends = np.split(codes, 2)
        realms = pa.chunked_array([realms.dictionary_encode() for realms in columns("realm")])
        names, realm = words_of(join_chunks(realms.unify_dictionaries()))
        return cls(begins, ends, np.where(realm == len(names), -1, realm), every, tuple(names))

    def states(self, scopes: Ints | int, nodes: Ints) -> Ints:
        return scopes * len(self.keys) + nodes

    def split(self, states: Ints) -> tuple[Ints, Ints]:
        return np.divmod(states, len(self.keys))

    def reached(self, front: Ints, *, back: bool = False) -> tuple[Ints, Ints]:
        """All states that edges lead to from the front (sorted, distinct), including starts that are reached again, and the
        index of each one's start. `back` follows edges of all realms backwards."""
        begins, ends = (self.ends, self.begins) if back else (self.begins, self.ends)
        order = np.argsort(begins, kind="stable")
        targets = ends[order]
        realms = np.full(len(ends), -1, dtype=np.int64) if back else self.realms[order]
        begin_of = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(begins, minlength=len(self.keys)))])
        seen, origins = _Seen(), np.arange(len(front))
        states, roots = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while len(front):
            scope, node = self.split(front)
            first = begin_of[node]
            counts = begin_of[node + 1] - first
            # edges that begin at the front, and the index of each one's state there
            starts = np.repeat(np.arange(len(front)), counts)
            edges = np.arange(len(starts)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            scope, realm = scope[starts], realms[edges]
            goes = (scope <= ACROSS) | (realm < 0) | (realm + REALMS == scope)
            scope = np.where((scope == EVERYWHERE) & (realm >= 0), realm + REALMS, scope)
            front, first = np.unique(self.states(scope, targets[edges])[goes], return_index=True)
            new = seen.new(front)
            front, origins = front[new], origins[starts[goes][first[new]]]
            states.append(front)
            roots.append(origins)
        return np.concatenate(states), np.concatenate(roots)


def realms_of(scopes: Ints, names: Sequence[str | None]) -> pa.Array:
    """Name of the realm of each scope; null for those that are no realm's."""
    return pa.array(names, pa.string()).take(pa.array(np.maximum(scopes - REALMS, 0), mask=scopes < REALMS))


class _Seen:
    """Visited states in sorted pieces of decreasing size, so that adding stays cheap."""

    def __init__(self) -> None:
        self._pieces: list[Ints] = []

    def new(self, states: Ints) -> Bools:
        """Mask of the states (sorted, distinct) not seen before; marks them as seen."""
        new = np.ones(len(states), dtype=bool)
        for piece in self._pieces:
            at = np.minimum(np.searchsorted(piece, states), len(piece) - 1)
            new &= piece[at] != states
        if new.any():
            self._pieces.append(states[new])
        while len(self._pieces) > 1 and len(self._pieces[-2]) <= 2 * len(self._pieces[-1]):
            self._pieces.append(np.sort(np.concatenate([self._pieces.pop(), self._pieces.pop()])))
        return new


def find_kept(
    listed: ListedObjects, tasks: int, edges: Sequence[str], rules: ClassRules, holds: Sequence[Keeper], number: int
) -> ReferenceRuns:
    """Write, like references, objects that rules or holds keep and at which edges begin; of every `tasks`-th part of the
    listing."""
    folder, hashes, names = listed.folder, list[Hashes](), ReferredNames()
    begins = SortedFingerprints(in_order([folder.read_values(f"{part}.begins").values for part in edges]))
    for part in range(number, len(listed.parts), tasks):
        for table in listed.read(part, KEPT):
            objects = table.filter(pa.array(begins.has(folder.fingerprints.of(join_chunks(table["key"])))))
            kept = objects.filter(pc.is_valid(why_kept(objects, rules, holds)))
            texts, realms = join_chunks(kept["key"]), join_chunks(kept["realm"]).cast(pa.string())
            hashes.append(folder.fingerprints.of(texts, realms))
            names.realms.update(pc.unique(realms).to_pylist())
    return ReferenceRuns([folder.write_values(f"edges/kept-{number:05d}", in_order(hashes))], names)


def close_edges(
    folder: ScanFolder,
    parts: Sequence[str],
    references: ReferenceRuns,
    kept: ReferenceRuns,
    number: int,  # noqa: ARG001 - the only one
) -> ReferenceRuns:
    """Write the keys that are retained over edges, but by no reference."""
    edges = CodedEdges.read(folder, parts)
    begins = _begins_by_realm(edges, references.names.realms | kept.names.realms)
    referenced = _states_named(folder, edges, begins, references)
    reached, _ = edges.reached(distinct(np.append(referenced, _states_named(folder, edges, begins, kept))))
    # Keys that are retained in every realm are written once, without a realm.
    is_everywhere = np.zeros(len(edges.keys), dtype=bool)
    for states in (referenced, reached):
        scopes, nodes = edges.split(states)
        is_everywhere[nodes[scopes == EVERYWHERE]] = True
    scopes, nodes = edges.split(reached[~np.isin(reached, referenced, assume_unique=True, kind="sort")])
    is_written = (scopes == EVERYWHERE) | ~is_everywhere[nodes]
    realms = realms_of(scopes[is_written], [*begins][1:])
    values = distinct(folder.fingerprints.of(edges.keys.take(pa.array(nodes[is_written])), realms))
    return ReferenceRuns([folder.write_values("edges/retained", values)], ReferredNames(set(pc.unique(realms).to_pylist())))


def _begins_by_realm(edges: CodedEdges, realms: Collection[str | None]) -> dict[str | None, Ints]:
    """Nodes at which edges begin, by the realm in which these hold and in the order of scopes: edges without a realm (None),
    realms of edges, and the other realms."""
    order = np.argsort(edges.realms, kind="stable")
    bounds = np.searchsorted(edges.realms[order], np.arange(-1, len(edges.names) + 1))
    everywhere, *within = (distinct(edges.begins[part]) for part in np.split(order, bounds[1:-1]))
    begins: dict[str | None, Ints] = {None: everywhere}
    for name, nodes in zip(edges.names, within, strict=True):
        begins[name] = distinct(np.append(everywhere, nodes))
    # If every edge has a realm, no edge holds in other realms.
    others = {name for name in realms if name is not None}.difference(edges.names) if len(everywhere) else set()
    return begins | dict.fromkeys(sorted(others), everywhere)


def _states_named(folder: ScanFolder, edges: CodedEdges, begins: Mapping[str | None, Ints], references: ReferenceRuns) -> Ints:
    asked: list[tuple[Ints, Hashes]] = []
    for scope, (realm, nodes) in zip([EVERYWHERE, *range(REALMS, REALMS + len(begins) - 1)], begins.items(), strict=True):
        keys, states = edges.keys.take(pa.array(nodes)), edges.states(scope, nodes)
        realms = None if realm is None else pa.repeat(realm, len(keys))
        for lookup in lookups(folder.fingerprints, keys, realms, references.names):
            asked.append((states if lookup.rows is None else states[lookup.rows], lookup.hashes))
    # Each run is read once, for all scopes.
    wanted = SortedFingerprints(in_order([hashes for _, hashes in asked]))
    # one place more, for references that name none of them: find() returns -1
    is_named = np.zeros(len(wanted) + 1, dtype=bool)
    for run in references.runs:
        is_named[wanted.find(folder.read_values(run.name).values)] = True
    return distinct(np.concatenate([states[is_named[wanted.find(hashes)]] for states, hashes in asked]))
