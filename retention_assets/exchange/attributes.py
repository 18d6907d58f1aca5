"""Attributes as text, the same in every format (design section 3). DuckDB writes those of JSON in the same way."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Ints, join_chunks

_NO_TEXT = pa.scalar(None, pa.string())


def attribute_texts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Text of each value, and the fault of a value without text; a null has neither."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        texts, faults = attribute_texts(values.dictionary)
        return texts.take(values.indices), faults.take(values.indices)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        texts = values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.timestamp("us", "UTC")).cast(pa.string())
        values = pc.replace_substring(pc.replace_substring(texts, " ", "T"), ".000000Z", "Z")
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        # Numbers repeat often.
        distinct = values.dictionary_encode()
        numbers = [repr(number) if isinstance(number, float) else f"{number:f}" for number in distinct.dictionary.to_pylist()]
        finite = [None if number in ("nan", "inf", "-inf") else number for number in numbers]
        texts = pa.array(finite, pa.string()).take(distinct.indices)
        infinite = pc.and_(pc.is_valid(values), pc.is_null(texts))
        return texts, pc.if_else(infinite, "is not a finite number", _NO_TEXT)
    elif pa.types.is_nested(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date(kind)):
        what = "is a time without a zone" if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else f"is of the type {kind}"
        return pa.nulls(len(values), pa.string()), pc.if_else(pc.is_valid(values), what, _NO_TEXT)
    return values.cast(pa.string()), pa.nulls(len(values), pa.string())


def attribute_map(columns: Mapping[str, pa.Array], mask: pa.Array | None = None) -> pa.Array:
    """Build a map per row from text columns, without nulls. `mask` is true for null rows."""
    names, texts = pa.array(list(columns)), list(columns.values())
    rows = len(texts[0])
    if len(texts) == 1 and not texts[0].null_count and mask is None:
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32))
        return pa.MapArray.from_arrays(offsets, pa.repeat(names[0], rows), texts[0])
    there = np.column_stack([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in texts])
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    # Row by row: index of each text in the concatenated columns.
    row, column = np.nonzero(there)
    items = pa.concat_arrays(texts).take(pa.array(column * rows + row))
    return pa.MapArray.from_arrays(pa.array(offsets), names.take(pa.array(column)), items, mask=mask)


def typed_attributes(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """A column of structs or maps as maps of texts, and the fault of each row that has none."""
    rows = join_chunks(column)
    if pa.types.is_struct(rows.type):
        names = [field.name for field in rows.type]
        of_keys = {name: attribute_texts(pc.struct_field(rows, [place])) for place, name in enumerate(names)}
        faults = [_name_key(pa.repeat(name, len(rows)), fault) for name, (_, fault) in of_keys.items()]
        texts = {name: text for name, (text, _) in of_keys.items()}
        return attribute_map(texts, pc.is_null(rows)), pc.coalesce(*faults)
    bounds = rows.offsets.to_numpy().astype(np.int64)
    begin, size = bounds[0], bounds[-1] - bounds[0]
    keys, (items, fault) = rows.keys.slice(begin, size).cast(pa.string()), attribute_texts(rows.items.slice(begin, size))
    row = np.repeat(np.arange(len(rows)), np.diff(bounds))
    kept = pc.is_valid(items).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(rows)))]).astype(np.int32)
    first = np.full(len(rows), -1)
    wrong = np.flatnonzero(pc.is_valid(fault).to_numpy(zero_copy_only=False))[::-1]
    first[row[wrong]] = wrong
    faults = _name_key(keys, fault).take(pa.array(first, mask=first < 0))
    faults = pc.if_else(_has_key_twice(row, keys, len(rows)), "attributes has a key twice", faults)
    keys, items = (column.filter(pa.array(kept)) for column in (keys, items))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, mask=pc.is_null(rows)), faults


def _has_key_twice(row: Ints, keys: pa.Array, rows: int) -> pa.Array:
    codes = keys.dictionary_encode()
    distinct = len(codes.dictionary) or 1
    pairs = np.sort(row * distinct + codes.indices.to_numpy())
    twice = np.zeros(rows, np.bool_)
    twice[pairs[1:][pairs[1:] == pairs[:-1]] // distinct] = True
    return pa.array(twice)


def _name_key(keys: pa.Array, faults: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("attributes[", keys, "] ", faults, "")
