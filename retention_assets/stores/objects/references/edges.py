"""Edges in memory: from which keys some keys can be reached, and which of these are reached from keys that are referred to.

Belongs here: the two walks, backwards and forwards, each edge once, whatever circles there are.
Does not belong here: reading edges from their sources (source.py), and who refers to a key (witnesses.py).

An edge with a realm holds in that realm, one without in every realm. A key without a realm is asked about as if realms were not
told apart: edges of every realm count for it, for it is kept by mistake rather than lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.stores.objects.references.source import RowSource, read_whole
from retention_assets.stores.objects.tables import EDGES

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_NO_REALM = -1


@dataclass(frozen=True)
class _Arrows:
    """Edges sorted by where they begin: those of a node stand together."""

    starts: Ints
    ends: Ints
    realms: Ints

    @classmethod
    def of(cls, begin: Ints, end: Ints, realms: Ints, nodes: int) -> Self:
        order = np.argsort(begin, kind="stable")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(begin, minlength=nodes))])
        return cls(starts, end[order], realms[order])

    def step(self, nodes: Ints, realm: int | None) -> tuple[Ints, Ints]:
        """Along every edge that holds in a realm (None: in any): places in `nodes`, and the nodes at the other end."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        origins = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(origins)) + np.repeat(self.starts[nodes] - (np.cumsum(counts) - counts), counts)
        if realm is not None:
            holds = (self.realms[places] == _NO_REALM) | (self.realms[places] == realm)
            origins, places = origins[holds], places[holds]
        return origins, self.ends[places]


@dataclass(frozen=True)
class EdgeClosure:
    """Edges, their keys and realms as numbers."""

    keys: pa.Array
    realms: pa.Array
    backwards: _Arrows
    forwards: _Arrows

    @classmethod
    def of(cls, sources: Sequence[RowSource]) -> Self:
        """Read from their sources. Raises SourceNotWhole."""
        batches = [batch for source in sources for batch in read_whole(source)]
        edges = pa.Table.from_batches(batches, EDGES)
        both = pa.chunked_array([*edges["from"].chunks, *edges["to"].chunks], pa.string())
        encoded = both.combine_chunks().dictionary_encode()
        numbers = np.asarray(encoded.indices, dtype=np.int64)
        begin, end = numbers[: len(edges)], numbers[len(edges) :]
        realms = edges["realm"].combine_chunks().dictionary_encode()
        of_edges = np.asarray(realms.indices.fill_null(_NO_REALM), dtype=np.int64)
        keys, count = encoded.dictionary, len(encoded.dictionary)
        return cls(keys, realms.dictionary, _Arrows.of(end, begin, of_edges, count), _Arrows.of(begin, end, of_edges, count))

    def ancestors(self, asked: pa.Table) -> pa.Table:
        """Of some keys (realm, key) every key from which edges lead to one of them; these keys are not among them."""
        found = [self._in_realm(self._walk(nodes, realm, self.backwards), realm) for realm, nodes in self._by_realm(asked)]
        return pa.concat_tables([asked.schema.empty_table(), *found])

    def reached(self, held: pa.Table, asked: pa.Table) -> pa.Table:
        """Of those asked, the ones to which edges lead from a held one: realm, key, and the first held one, as `over`."""
        wanted = dict(self._by_realm(asked))
        found = [pa.table({"realm": [], "key": [], "over": []}, _REACHED)]
        for realm, nodes in self._by_realm(held):
            if realm not in wanted:
                continue
            origin = np.full(len(self.keys), -1, np.int64)
            origin[nodes] = nodes
            while len(nodes):
                places, ends = self.forwards.step(nodes, self._number(realm))
                fresh, first = np.unique(ends, return_index=True)
                is_new = origin[fresh] < 0
                origin[fresh[is_new]] = origin[nodes[places[first[is_new]]]]
                nodes = fresh[is_new]
            mine = wanted[realm]
            mine = mine[(origin[mine] >= 0) & (origin[mine] != mine)]
            over = self.keys.take(pa.array(origin[mine]))
            rows = self._in_realm(mine, realm)
            found.append(rows.append_column("over", over).cast(_REACHED))
        return pa.concat_tables(found)

    def _by_realm(self, pairs: pa.Table) -> Iterable[tuple[str | None, Ints]]:
        """The nodes of some keys realm by realm. A key that no edge names has none."""
        nodes = pc.index_in(pairs["key"], self.keys)
        known = pa.table({"realm": pairs["realm"], "node": nodes}).filter(pc.is_valid(nodes))
        if not len(known):
            return
        encoded = known["realm"].combine_chunks().dictionary_encode("encode")
        realms = np.asarray(encoded.indices, dtype=np.int64)
        numbers = np.asarray(known["node"], dtype=np.int64)
        order = np.argsort(realms, kind="stable")
        ends = np.cumsum(np.bincount(realms, minlength=len(encoded.dictionary)))[:-1]
        yield from zip(encoded.dictionary.to_pylist(), map(np.unique, np.split(numbers[order], ends)), strict=True)

    def _walk(self, nodes: Ints, realm: str | None, arrows: _Arrows) -> Ints:
        """Every other node that is reached from some."""
        known: Flags = np.zeros(len(self.keys), np.bool_)
        known[nodes] = True
        found = [np.zeros(0, np.int64)]
        while len(nodes):
            _, ends = arrows.step(nodes, self._number(realm))
            nodes = np.unique(ends[~known[ends]])
            known[nodes] = True
            found.append(nodes)
        return np.concatenate(found)

    def _number(self, realm: str | None) -> int | None:
        """None for no realm, in which edges of any count; a number of no edge for a realm that no edge names."""
        if realm is None:
            return None
        found = self.realms.index(realm).as_py()
        return len(self.realms) if found < 0 else int(found)

    def _in_realm(self, nodes: Ints, realm: str | None) -> pa.Table:
        keys = self.keys.take(pa.array(nodes))
        return pa.table({"realm": pa.array([realm], pa.string()).take(pa.array(np.zeros(len(nodes), np.int64))), "key": keys})


_REACHED = pa.schema([("realm", pa.string()), ("key", pa.string()), ("over", pa.string())])
