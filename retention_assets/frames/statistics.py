"""Statistics of a part of a log that add up over parts: nulls, range and words by column, and the largest datasets.

They are computed while the rows are in memory, so that nobody reads a log again to say how large it is.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import integers, join_chunks
from retention_assets.frames.log import SUMMED

# more words than this are counted, not named
_WORDS = 12
LARGEST = 20

# One row per column and part. Ranges of instants are microseconds; `total` is the sum of numbers, or the entries of lists.
COLUMN_STATISTICS = pa.schema(
    [
        pa.field("column", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("nulls", pa.int64()),
        pa.field("least", pa.int64()),
        pa.field("most", pa.int64()),
        pa.field("total", SUMMED),
        pa.field("distinct", pa.int64()),
        pa.field("words", pa.list_(pa.string())),
    ]
)

LARGEST_DATASETS = pa.schema(
    [pa.field("dataset", pa.string()), pa.field("transactions", pa.int64()), pa.field("bytes", SUMMED)]
)

# numbers whose sum means something
_SUMMED = ("bytes", "files")


def column_statistics(log: pa.Table) -> pa.Table:
    """Statistics of a part. An empty list counts as a null."""
    return pa.Table.from_pylist([_of(name, join_chunks(log[name])) for name in log.column_names], COLUMN_STATISTICS)


def _of(name: str, values: pa.Array) -> dict[str, Any]:
    found: dict[str, Any] = {"column": name, "rows": len(values), "nulls": values.null_count}
    kind = values.type
    if pa.types.is_dictionary(kind):
        words = pc.unique(values).drop_null()
        plain = words.dictionary.take(words.indices) if isinstance(words, pa.DictionaryArray) else words
        found |= {"distinct": len(plain), "words": plain.slice(0, _WORDS).to_pylist()}
    elif pa.types.is_list(kind):
        lengths = pc.list_value_length(values)
        entries = pc.sum(lengths).as_py() or 0
        found |= {"nulls": len(values) - (pc.sum(pc.greater(lengths, 0)).as_py() or 0), "total": entries}
    elif pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        range_ = pc.min_max(values.view(pa.int64()) if pa.types.is_timestamp(kind) else values).as_py()
        found |= {"least": range_["min"], "most": range_["max"]}
        if name in _SUMMED:
            found["total"] = pc.sum(values.cast(SUMMED)).as_py() or 0
    return found


def merge_statistics(statistics: pa.Table) -> Iterator[dict[str, Any]]:
    """Merge the statistics of all parts into one row per column, in order of appearance. A dataset is in one part only."""
    by_column: dict[str, list[dict[str, Any]]] = {}
    for row in statistics.to_pylist():
        by_column.setdefault(row["column"], []).append(row)
    for name, rows in by_column.items():
        there = {key: [row[key] for row in rows if row[key] is not None] for key in ("least", "most", "total", "distinct")}
        words = sorted({word for row in rows for word in row["words"] or ()})
        distinct = (sum(there["distinct"]) if name == "dataset" else len(words)) if there["distinct"] else None
        yield {
            "column": name,
            "rows": sum(row["rows"] for row in rows),
            "nulls": sum(row["nulls"] for row in rows),
            "least": min(there["least"], default=None),
            "most": max(there["most"], default=None),
            "total": int(sum(there["total"])) if there["total"] else None,
            "distinct": distinct,
            "words": words[:_WORDS],
        }


def largest_datasets(log: pa.Table) -> pa.Table:
    """Largest datasets of a part by bytes, or by transactions where sizes are unknown."""
    if not len(log):
        return LARGEST_DATASETS.empty_table()
    dataset = join_chunks(log["dataset"])
    index = integers(dataset.indices, -1)
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
    counts = np.diff(np.append(starts, len(index)))
    size = integers(log["bytes"], 0).astype(np.int64)
    # in two halves: a sum that overflows would make a giant the smallest
    high, low = (np.add.reduceat(part, starts) for part in (size >> 32, size & 0xFFFFFFFF))
    high, low = high + (low >> 32), low & 0xFFFFFFFF
    first = np.lexsort((starts, -counts, -low, -high))[:LARGEST]
    names = dataset.dictionary.take(pa.array(index[starts[first]])).to_pylist()
    rows = [
        {"dataset": name, "transactions": int(counts[at]), "bytes": (int(high[at]) << 32) + int(low[at])}
        for name, at in zip(names, first.tolist(), strict=True)
    ]
    return pa.Table.from_pylist(rows, LARGEST_DATASETS)


def newest_closes(transactions: pa.Table) -> pa.Table:
    """Closing time of each dataset's newest committed transaction that readers can see."""
    committed = transactions.select(["dataset", "closed_at"]).filter(
        pc.equal(transactions["status"].cast(pa.string()), "COMMITTED")
    )
    plain = committed.set_column(0, "dataset", committed["dataset"].cast(pa.string()))
    return plain.group_by("dataset").aggregate([("closed_at", "max")])
