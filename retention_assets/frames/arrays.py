"""Convert Arrow columns to NumPy arrays and back, as views where Arrow allows it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Small = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

# A missing instant is neither old nor young: comparisons with a bound have to leave it out.
NEVER = np.iinfo(np.int64).min
# No age ever gets past this time.
FOREVER = np.iinfo(np.int64).max


def join_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def flags(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Boolean column; null is false."""
    return np.asarray(join_chunks(pc.fill_null(column, False)).to_numpy(zero_copy_only=False), dtype=bool)


def integers(column: pa.Array | pa.ChunkedArray, missing: int) -> npt.NDArray[Any]:
    """Integer column with its nulls replaced."""
    array = join_chunks(column)
    if array.null_count:
        array = array.fill_null(missing)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def as_micros(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Timestamps as microseconds since the epoch; null is NEVER."""
    return integers(join_chunks(column).view(pa.int64()), int(NEVER))


def from_micros(values: Ints) -> pa.Array:
    """Timestamps from microseconds since the epoch; NEVER is null."""
    return pa.array(values, mask=values == NEVER).view(pa.timestamp("us", tz="UTC"))


def sums_in_halves(values: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Sum of each run of values from its start, cut at 32 bits: a sum that overflows would pass for a small one."""
    high, low = (np.add.reduceat(part, starts) for part in (values >> 32, values & 0xFFFFFFFF))
    return high + (low >> 32), low & 0xFFFFFFFF


def changes(values: Ints) -> Bools:
    """True for the first value, and for each that differs from the one before it."""
    changed = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def places_from_end(starts: Ints, length: int) -> Ints:
    """1 for the last row of each run, 2 for the one before it; the runs begin at `starts` and have this length together."""
    ends = np.append(starts, length)[1:]
    return np.repeat(ends, ends - starts) - np.arange(length)


def inverse(order: Ints) -> Ints:
    """Place of each number in a permutation."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def keys_of(table: pa.Table) -> pa.Array:
    """Dataset and transaction joined by a separator that no name contains."""
    return join_chunks(pc.binary_join_element_wise(table["dataset"].cast(pa.string()), table["transaction"], "\0"))


def codes(column: pa.Array | pa.ChunkedArray, known: tuple[str, ...]) -> Small:
    """Index of each word of a dictionary column in a fixed list of words; -1 for any other."""
    array = join_chunks(column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    places = {word: place for place, word in enumerate(known)}
    table = np.array([places.get(word, -1) for word in array.dictionary.to_pylist()] or [-1], dtype=np.int8)
    places_of_rows: Small = table[integers(array.indices, 0)]
    return places_of_rows
