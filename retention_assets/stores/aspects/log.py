"""Converts rows of DataHub's table to lines of a log, in array operations without an object per row.

An urn is a branch. Its history versions, from the oldest, and then its current one are a chain of SNAPSHOTs, each committed
when the row was made; the current one, version 0, is the head. An urn without a version 0 has no branch: its rows are
unreachable, and no rule of DataHub's looks at them.

Attributes of a transaction: `urn` and `version`; of its dataset: `entity` and `aspect`.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import ATTRIBUTES, INSTANT, LINES
from retention_assets.sql.streams import are_datetimes, instant_columns
from retention_assets.stores.aspects.rows import PREFIX, Key, transaction_of

ROWS = pa.schema(
    [
        pa.field("urn", pa.string()),
        pa.field("aspect", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("createdon", INSTANT),
        pa.field("bytes", pa.int64()),
    ]
)
# same rows, with the raw text of the time
TEXTS = ROWS.set(ROWS.get_field_index("createdon"), pa.field("createdon", pa.string()))
# characters shown of a text that is no time
_SHOWN = 40
# rows per piece, so that no text column exceeds what an Arrow array can hold
_SLICE = 1_000_000
NO_URNS = "its urns are not urn:li:<entity>:…, so no DataHub policy matches them; mend or delete those rows by hand"

Ints = npt.NDArray[np.int64]


def lines_of(batches: Iterable[pa.RecordBatch], datasets: Mapping[Key, str]) -> pa.Table:
    """Convert rows of ROWS, in any order. Rows of other datasets are dropped.

    Raises ArrowInvalid if a time is in no year from 1 to 9999.
    """
    rows = pa.Table.from_batches(batches, ROWS)
    _check_range(rows["createdon"])
    return _lines_of(rows, datasets)


def lines_of_texts(batches: Iterable[pa.RecordBatch], datasets: Mapping[Key, str]) -> pa.Table:
    """Convert rows of TEXTS. A dataset with an impossible time becomes one line that names the first one; others are read."""
    rows = pa.Table.from_batches(batches, TEXTS)
    if not len(rows) or not datasets:
        return LINES.empty_table()
    chains = _Chains(rows, datasets)
    texts = chains.created.take(pa.array(chains.order))
    of = chains.dataset[chains.order]
    faults: dict[int, pa.Table] = {}
    # rows of a dataset are neighbours
    for at, first, count in zip(*np.unique(of, return_index=True, return_counts=True), strict=True):
        wrong = _first_wrong(texts.slice(first, count))
        if wrong is not None:
            row = chains.order[first + wrong]
            name = transaction_of(chains.urns[chains.urn[row]].as_py(), int(chains.version[row]))
            faults[int(at)] = fault_line(chains.names[at], _time_fault(name, texts[int(first) + wrong].as_py()))
    sound = rows.filter(pa.array((chains.dataset >= 0) & ~np.isin(chains.dataset, list(faults))))
    place = ROWS.get_field_index("createdon")
    sound = sound.set_column(place, ROWS.field(place), _instants(sound["createdon"]))
    return pa.concat_tables([_lines_of(sound, datasets), *faults.values()])


def _instants(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    # raises ArrowInvalid if a text is no time
    times = pa.chunked_array([instant_columns(chunk) for chunk in texts.chunks], INSTANT)
    _check_range(times)
    return times


def _check_range(times: pa.ChunkedArray) -> None:
    if not are_datetimes(times):
        raise pa.ArrowInvalid("an impossible time")


def _first_wrong(texts: pa.ChunkedArray) -> int | None:
    if _are_times(texts):
        return None
    # by bisection: all before `good` are times, and one before `end` is none
    good, end = 0, len(texts)
    while end - good > 1:
        half = (good + end) // 2
        if _are_times(texts.slice(good, half - good)):
            good = half
        else:
            end = half
    return good


def _are_times(texts: pa.ChunkedArray) -> bool:
    try:
        _instants(texts)
    except pa.ArrowInvalid:
        return False
    return True


def _time_fault(transaction: str, text: str) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return (
        f"createdon of {transaction} is {shown or 'empty'}, not a date with a time in a year from 1 to 9999, such as "
        "2026-01-31 12:00:00; write the UTC time at which the row was made"
    )


def fault_line(dataset: str, fault: str) -> pa.Table:
    return _lines({"dataset": pa.array([dataset]), "fault": pa.array([fault])}, 1)


def _lines_of(rows: pa.Table, datasets: Mapping[Key, str]) -> pa.Table:
    if not len(rows) or not datasets:
        return LINES.empty_table()
    chains = _Chains(rows, datasets)
    pieces = [slice(first, first + _SLICE) for first in range(0, len(chains.order), _SLICE)]
    transactions = (_transaction_lines(chains, one) for one in pieces)
    return pa.concat_tables([_dataset_lines(chains), *transactions, *(_branch_lines(chains, one) for one in pieces)])


class _Chains:
    """Requested rows in the order of their chains, strings as codes."""

    def __init__(self, rows: pa.Table, datasets: Mapping[Key, str]) -> None:
        self.created, self.bytes = rows["createdon"], rows["bytes"]
        self.version = rows["version"].to_numpy()
        encoded = rows["urn"].dictionary_encode().unify_dictionaries()
        self.urns, self.urn = encoded.chunk(0).dictionary, _codes(encoded)
        self.names = sorted(datasets.values())
        self.keys = {name: key for key, name in datasets.items()}
        self.dataset = self._datasets(rows["aspect"].dictionary_encode().unify_dictionaries())
        # sorting the few urns is cheaper than sorting the many rows by them
        place = np.empty(len(self.urns), dtype=np.int64)
        place[pc.sort_indices(self.urns).to_numpy()] = np.arange(len(self.urns))
        last = np.where(self.version == 0, np.iinfo(np.int64).max, self.version)
        order = np.lexsort((last, place[self.urn], self.dataset))
        self.order: Ints = order[np.searchsorted(self.dataset[order], 0) :]
        chain = self.dataset[self.order] * np.int64(len(self.urns)) + self.urn[self.order]
        self.begins = np.ones(len(chain), dtype=bool)
        self.begins[1:] = chain[1:] != chain[:-1]

    def _datasets(self, aspects: pa.ChunkedArray) -> Ints:
        # index of each row's dataset, -1 where it was not requested
        third = pc.extract_regex(self.urns, f"^{PREFIX}(?P<entity>[A-Za-z0-9_-]+):")
        entities = pc.struct_field(third, "entity").dictionary_encode()
        words = {word: at for at, word in enumerate(aspects.chunk(0).dictionary.to_pylist())}
        kinds = {kind: at for at, kind in enumerate(entities.dictionary.to_pylist())}
        # the last row of the table stands for no entity
        table = np.full((len(kinds) + 1, len(words)), -1, dtype=np.int64)
        for at, name in enumerate(self.names):
            entity, aspect = self.keys[name]
            if entity in kinds and aspect in words:
                table[kinds[entity], words[aspect]] = at
        entity_of = pc.fill_null(entities.indices, len(kinds)).to_numpy(zero_copy_only=False)
        found: Ints = table[entity_of[self.urn], _codes(aspects)]
        return found

    def named(self, rows: Ints) -> pa.Array:
        return pa.array(self.names, pa.string()).take(pa.array(self.dataset[rows]))

    def urn_of(self, rows: Ints) -> pa.Array:
        return self.urns.take(pa.array(self.urn[rows]))


def _codes(encoded: pa.ChunkedArray) -> Ints:
    return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)


def _dataset_lines(chains: _Chains) -> pa.Table:
    there = [chains.names[at] for at in np.unique(chains.dataset[chains.order]).tolist()]
    attributes = [list(zip(("entity", "aspect"), chains.keys[name], strict=True)) for name in there]
    return _lines({"dataset": pa.array(there, pa.string()), "attributes": pa.array(attributes, ATTRIBUTES)}, len(there))


def _transaction_lines(chains: _Chains, piece: slice) -> pa.Table:
    rows = chains.order[piece]
    numbers, at = np.unique(chains.version[rows], return_inverse=True)
    versions = pa.array(numbers).cast(pa.string())
    created = chains.created.take(pa.array(rows))
    columns = {
        "dataset": chains.named(rows),
        "transaction": pc.binary_join_element_wise(chains.urn_of(rows), versions.take(pa.array(at)), "@"),
        # a row that begins no chain follows the line before it
        "parent_given": pa.array(chains.begins[piece]),
        "type": _repeat("SNAPSHOT", len(rows)),
        "status": _repeat("COMMITTED", len(rows)),
        "opened_at": created,
        "closed_at": created,
        "bytes": chains.bytes.take(pa.array(rows)),
        "attributes": _attributes(chains.urns, chains.urn[rows], versions, at),
    }
    return _lines(columns, len(rows))


def _attributes(urns: pa.Array, urn: Ints, versions: pa.Array, version: Ints) -> pa.Array:
    # two keys per row, with alternating values
    count = len(urn)
    keys = pa.array(["urn", "version"]).take(pa.array(np.tile(np.array([0, 1], dtype=np.int8), count)))
    turns = np.stack((urn, version + len(urns)), axis=1).ravel()
    values = pa.concat_arrays([urns, versions]).take(pa.array(turns))
    return pa.MapArray.from_arrays(pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32)), keys, values)


def _branch_lines(chains: _Chains, piece: slice) -> pa.Table:
    rows = chains.order[piece]
    rows = rows[chains.version[rows] == 0]
    urn = chains.urn_of(rows)
    columns = {
        "dataset": chains.named(rows),
        "branch": urn,
        "head": pc.binary_join_element_wise(urn, "0", "@"),
        "parent_given": _repeat(False, len(rows)),
    }
    return _lines(columns, len(rows))


def _repeat(value: str | bool, count: int) -> pa.Array:
    return pa.repeat(value, count)


def _lines(columns: Mapping[str, pa.Array | pa.ChunkedArray], count: int) -> pa.Table:
    # missing columns are null
    columns = {"parent_given": _repeat(False, count), **columns}
    return pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in LINES], schema=LINES)
