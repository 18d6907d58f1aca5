"""What a log looks like from afar: for each column its nulls, range and words, and the largest datasets.

Belongs here: statistics of one part of a log, in a form that adds up over parts. They are made where the rows are, while these
are still in memory, so that nobody has to read a log again to say how large it is.
Does not belong here: how they are shown.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import integers, join_chunks
from retention_assets.frames.log import SUMMED

# More words than this are counted, and not named.
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

# Numbers whose sum means something. The others are places in a log.
_SUMMED = ("bytes", "files")


def column_statistics(log: pa.Table) -> pa.Table:
    """The statistics of a part. An empty list says as little as a null, so it is counted as one."""
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
    """The statistics of all parts as one row per column, in the order in which they come. A dataset is never in two parts."""
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
    """The datasets of a part with the most bytes, and where sizes are not known with the most transactions."""
    if not len(log):
        return LARGEST_DATASETS.empty_table()
    dataset = join_chunks(log["dataset"])
    index = integers(dataset.indices, -1)
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
    counts = np.diff(np.append(starts, len(index)))
    size = integers(log["bytes"], 0).astype(np.int64)
    # In two halves: a sum that wrapped around would make a giant the smallest.
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
    """When the newest transaction of each dataset was committed that readers can see."""
    committed = transactions.select(["dataset", "closed_at"]).filter(
        pc.equal(transactions["status"].cast(pa.string()), "COMMITTED")
    )
    plain = committed.set_column(0, "dataset", committed["dataset"].cast(pa.string()))
    return plain.group_by("dataset").aggregate([("closed_at", "max")])
