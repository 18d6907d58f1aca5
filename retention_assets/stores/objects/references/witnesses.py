"""Who refers to some keys: every source read once past them, and over edges whoever refers to what leads to them.

Belongs here: exact keys, for the re-check of a sweep and for what is explained to people; and only sources that are whole.
Does not belong here: the judgement of millions of objects, for which fingerprints are enough.

A reference without a realm names its key in every realm, and a key without a realm is named by a reference of any realm.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.stores.objects.references.edges import EdgeClosure
from retention_assets.stores.objects.references.source import RowSource, read_whole

# `from` is empty where the source does not say it.
WITNESSES = pa.schema(
    [
        pa.field("realm", pa.string()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("from", pa.string()),
    ]
)
# So many rows are looked up at once at least: a table of the keys that are asked about is made each time.
_AT_ONCE = 1 << 17
_EVERYTHING = "/"
_Ints = np.ndarray[Any, np.dtype[np.int64]]


def find_witnesses(sources: Sequence[RowSource], realm_keys: pa.Table, edges: Sequence[RowSource] = ()) -> pa.Table:
    """Of some keys (realm, key) those that are referred to, each once, with the first source in order that does, and who.

    A key that is referred to itself has that witness, and only others have one over edges. Raises SourceNotWhole.
    """
    asked = _distinct(realm_keys.select(["realm", "key"]))
    if not len(asked):
        return WITNESSES.empty_table()
    closure = EdgeClosure.of(edges) if edges else None
    wanted = asked if closure is None else _distinct(pa.concat_tables([asked, closure.ancestors(asked)]))
    search = _Search(wanted)
    for source in sources:
        search.read(source)
    direct = search.found()
    if closure is None:
        return direct
    own = _matching(direct, asked)
    left = _others(asked, own)
    return pa.concat_tables([own, _over_edges(closure.reached(direct.select(["realm", "key"]), left), direct)])


@dataclass
class _Search:
    """The keys that are wanted, and the first witness of each."""

    wanted: pa.Table
    _found: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = self.wanted["key"].combine_chunks()
        realms = self.wanted["realm"].combine_chunks().dictionary_encode()
        self.realms = realms.dictionary
        self.realm_of: _Ints = np.asarray(realms.indices.fill_null(-1), dtype=np.int64)
        self.open = np.ones(len(self.wanted), np.bool_)
        self.exact = _Lookup.of(self.keys, np.arange(len(self.keys)))
        self.folders: _Lookup | None = None

    def read(self, source: RowSource) -> None:
        """All of a source, which must be whole."""
        for rows in _gathered(read_whole(source), max(_AT_ONCE, min(len(self.wanted), 8 * _AT_ONCE))):
            self._match(source, rows, self.exact)
            if source.names_folders:
                folders = rows.filter(pc.ends_with(rows["object"], "/"))
                if len(folders):
                    self.folders = self.folders or _Lookup.of(*_folders_of(self.keys))
                    self._match(source, folders, self.folders)

    def found(self) -> pa.Table:
        """The witnesses."""
        return pa.concat_tables([WITNESSES.empty_table(), *self._found])

    def _match(self, source: RowSource, rows: pa.Table, lookup: "_Lookup") -> None:
        given, wanted = lookup.pairs(rows["object"])
        named = pc.index_in(rows["realm"], self.realms, skip_nulls=True)
        # -1: every realm; -2: a realm that nobody asked about.
        codes = np.asarray(pc.if_else(pc.is_null(rows["realm"]), -1, named.fill_null(-2)), dtype=np.int64)[given]
        mine = self.realm_of[wanted]
        hits = self.open[wanted] & ((codes == -1) | (mine == -1) | (codes == mine))
        new, first = np.unique(wanted[hits], return_index=True)
        if len(new):
            self.open[new] = False
            witnesses = self.wanted.take(pa.array(new))
            who = rows["from"].take(pa.array(given[hits][first]))
            columns = [witnesses["realm"], witnesses["key"], pa.repeat(source.label, len(new)), who]
            self._found.append(pa.table(columns, schema=WITNESSES))


@dataclass(frozen=True)
class _Lookup:
    """Texts, and the rows of each: a text may belong to many."""

    texts: pa.Array
    starts: _Ints
    rows: _Ints

    @classmethod
    def of(cls, texts: pa.Array, rows: _Ints) -> "_Lookup":
        """Sorted by text."""
        encoded = texts.dictionary_encode()
        numbers = np.asarray(encoded.indices, dtype=np.int64)
        counts = np.bincount(numbers, minlength=len(encoded.dictionary))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return cls(encoded.dictionary, starts, rows[np.argsort(numbers, kind="stable")])

    def pairs(self, given: pa.ChunkedArray) -> tuple[_Ints, _Ints]:
        """Every place in `given` whose text is known, with each of its rows."""
        found = pc.index_in(given, self.texts)
        places = np.flatnonzero(np.asarray(found.is_valid()))
        texts = np.asarray(found.drop_null(), dtype=np.int64)
        counts = self.starts[texts + 1] - self.starts[texts]
        at = np.arange(counts.sum()) + np.repeat(self.starts[texts] - (np.cumsum(counts) - counts), counts)
        return np.repeat(places, counts), self.rows[at]


def _folders_of(keys: pa.Array) -> tuple[pa.Array, _Ints]:
    """Every folder that a key lies in, with a / at its end, and / alone for all keys; and the row of its key."""
    parts = pc.split_pattern(keys, "/")
    depths = np.asarray(pc.list_value_length(parts), dtype=np.int64)
    texts, rows = [pa.repeat(_EVERYTHING, len(keys))], [np.arange(len(keys))]
    for depth in range(1, int(depths.max(initial=0))):
        deeper = np.flatnonzero(depths > depth)
        above = pc.list_slice(parts.take(pa.array(deeper)), 0, depth)
        texts.append(pc.binary_join_element_wise(pc.binary_join(above, "/"), "", "/"))
        rows.append(deeper)
    return pa.concat_arrays(texts), np.concatenate(rows)


def _gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= size:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _over_edges(reached: pa.Table, direct: pa.Table) -> pa.Table:
    """Those that are reached from keys with witnesses of their own."""
    witnesses = {(one["realm"], one["key"]): one for one in _matching(direct, _pairs(reached, "over")).to_pylist()}
    rows = []
    for one in reached.to_pylist():
        witness = witnesses[one["realm"], one["over"]]
        who = witness["from"] or witness["source"]
        said = f"over the edge from {one['over']}, which {who} refers to"
        rows.append({"realm": one["realm"], "key": one["key"], "source": witness["source"], "from": said})
    return pa.Table.from_pylist(rows, WITNESSES)


def _pairs(table: pa.Table, key: str = "key") -> pa.Table:
    return pa.table({"realm": table["realm"], "key": table[key]})


def _distinct(pairs: pa.Table) -> pa.Table:
    return pairs.group_by(["realm", "key"]).aggregate([]).select(["realm", "key"])


def _places(pairs: pa.Table, among: pa.Table) -> tuple[_Ints, _Ints]:
    """For each pair of two tables a number; the same for the same."""
    both = pa.concat_tables([_pairs(pairs), _pairs(among)])
    realm = both["realm"].combine_chunks().dictionary_encode("encode")
    key = both["key"].combine_chunks().dictionary_encode()
    numbers = np.asarray(realm.indices, dtype=np.int64) * len(key.dictionary) + np.asarray(key.indices, dtype=np.int64)
    return numbers[: len(pairs)], numbers[len(pairs) :]


def _matching(table: pa.Table, among: pa.Table) -> pa.Table:
    """The rows of a table whose realm and key are among others."""
    mine, others = _places(table, among)
    return table.filter(pa.array(np.isin(mine, others)))


def _others(table: pa.Table, among: pa.Table) -> pa.Table:
    """The rows of a table whose realm and key are not among others."""
    mine, others = _places(table, among)
    return table.filter(pa.array(~np.isin(mine, others)))
