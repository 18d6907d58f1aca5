"""Closure over edges: what retains `from` retains `to`, exact by whole keys. An edge with a realm holds in that realm, one
without in every realm. What is retained in every realm is retained in each. Cycles are allowed; each key is visited once per
realm."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.frames.arrays import Bools, Ints, join_chunks
from retention_assets.stores.objects.scan.classes import words_of
from retention_assets.stores.objects.scan.fingerprints import Fingerprints
from retention_assets.stores.objects.scan.membership import SortedFingerprints, distinct

# keys of one realm; None means all realms
RealmKeys = tuple[str | None, pa.Array]
# Small fronts are followed node by node, as in long chains; larger ones vectorized.
_FEW = 64


@dataclass(frozen=True)
class CodedEdges:
    """Edges as indexes into distinct keys."""

    begins: Ints
    ends: Ints
    realms: pa.Array
    keys: pa.Array


def code_edges(read: Callable[[], Iterable[pa.Table]], fingerprints: Fingerprints) -> CodedEdges:
    """Code edges in several passes over `read()`, which must repeat the same batches; one batch is in memory at a time. Keys
    are told apart by fingerprints. Raises Refused if two keys have the same one."""
    ends = ("from", "to")
    batches = [[fingerprints.of(join_chunks(table[name])) for name in ends] for table in read()]
    known = distinct(np.concatenate([one for both in batches for one in both]))
    index = SortedFingerprints(known)
    codes = [[index.find(one) for one in both] for both in batches]
    del batches
    texts, numbers, realms = list[pa.Array](), list[Ints](), list[pa.Array]()
    seen = np.zeros(len(known), dtype=bool)
    for table, both in zip(read(), codes, strict=True):
        realms.append(join_chunks(table["realm"]).dictionary_encode())
        for name, mine in zip(ends, both, strict=True):
            some, first = np.unique(mine, return_index=True)
            new = ~seen[some]
            texts.append(join_chunks(table[name]).take(pa.array(first[new])).cast(pa.large_string()))
            numbers.append(some[new])
            seen[some] = True
    order = np.empty(len(known), dtype=np.int64)
    order[np.concatenate(numbers)] = np.arange(len(known))
    keys = pa.concat_arrays(texts)
    for table, both in zip(read(), codes, strict=True):
        for name, mine in zip(ends, both, strict=True):
            np.take(order, mine, out=mine)
            if not keys.take(pa.array(mine)).equals(join_chunks(table[name]).cast(pa.large_string())):
                raise Refused(
                    "Two keys of edges have the same fingerprint, which happens once in many thousand years. Scan again."
                )
    begins, targets = (np.concatenate([both[at] for both in codes]) for at in (0, 1))
    return CodedEdges(begins, targets, join_chunks(pa.chunked_array(realms).unify_dictionaries()), keys)


def close_edges(
    edges: CodedEdges,
    realms: Sequence[str],
    named: Callable[[Sequence[RealmKeys]], Sequence[Bools]],
    kept: Callable[[Sequence[RealmKeys]], Sequence[Bools]],
) -> list[RealmKeys]:
    """Keys that are retained over edges, but by no reference. `realms` are those of references and kept objects. `named` tells
    which keys references name, `kept` which are objects kept by rules or holds; edges are followed from both."""
    begins, ends, keys = edges.begins, edges.ends, edges.keys
    graphs = _by_realm(edges.realms, realms)
    nodes = [np.unique(begins[rows]) for _, rows in graphs]
    asked = [(name, keys.take(pa.array(mine))) for (name, _), mine in zip(graphs, nodes, strict=True)]
    found: list[RealmKeys] = []
    in_all = np.zeros(len(keys), dtype=bool)
    for (name, rows), mine, are_named, are_kept in zip(graphs, nodes, named(asked), kept(asked), strict=True):
        retained = in_all.copy()
        retained[mine[are_named]] = True
        start = retained.copy()
        start[mine[are_kept]] = True
        if not start.any():
            continue
        reached = reach(_Graph.of(begins[rows], ends[rows], len(keys)), start)
        met = np.zeros(len(keys), dtype=bool)
        met[ends[rows][reached[begins[rows]]]] = True
        new = np.flatnonzero(met & ~retained)
        if len(new):
            found.append((name, keys.take(pa.array(new))))
        if name is None:
            in_all = retained | met
    return found


def _by_realm(column: pa.Array, realms: Sequence[str]) -> list[tuple[str | None, Ints]]:
    """Edges that hold in every realm, and all edges that hold in each known realm."""
    names, realm = words_of(column)
    everywhere = np.flatnonzero(realm == len(names))
    by_realm = np.argsort(realm, kind="stable")
    first = np.searchsorted(realm[by_realm], np.arange(len(names) + 1))
    own = {name: by_realm[first[at] : first[at + 1]] for at, name in enumerate(names)}
    # If every edge has a realm, other realms have no edges.
    known = sorted({*names, *realms}) if len(everywhere) else sorted(names)
    return [(None, everywhere), *((name, np.append(everywhere, own.get(name, everywhere[:0]))) for name in known)]


@dataclass(frozen=True)
class _Graph:
    first: Ints
    targets: Ints

    @classmethod
    def of(cls, begins: Ints, ends: Ints, nodes: int) -> "_Graph":
        order = np.argsort(begins, kind="stable")
        first = np.zeros(nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(begins, minlength=nodes), out=first[1:])
        return cls(first, ends[order])


def reach(graph: _Graph, start: Bools) -> Bools:
    """Mask of all nodes reachable from the start, including it."""
    seen = start.copy()
    front = np.flatnonzero(seen)
    while len(front):
        if len(front) < _FEW:
            front = _one_by_one(graph, seen, front.tolist())
            continue
        counts = graph.first[front + 1] - graph.first[front]
        before = np.cumsum(counts) - counts
        met = graph.targets[np.repeat(graph.first[front] - before, counts) + np.arange(counts.sum())]
        front = np.unique(met[~seen[met]])
        seen[front] = True
    return seen


def _one_by_one(graph: _Graph, seen: Bools, front: list[int]) -> Ints:
    while front and len(front) < 2 * _FEW:
        node = front.pop()
        for target in graph.targets[graph.first[node] : graph.first[node + 1]].tolist():
            if not seen[target]:
                seen[target] = True
                front.append(target)
    return np.array(front, dtype=np.int64)
