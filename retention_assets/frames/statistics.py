"""Statistics and counts of a part of a log and of its verdicts, which add up over parts. A dataset is in one part only.

They are computed while the rows are in memory, so that nobody reads a log again to say how large it is.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Counts, Ints, codes, flags, integers, join_chunks, keys_of, sums_in_halves
from retention_assets.frames.log import SUMMED, bounds_of, is_in_log, realms_of
from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.realms import PURGED_TYPES, is_within

LARGEST = 20

_LOG_SUMS = pa.schema([pa.field("bytes", SUMMED), pa.field("branches", pa.int64()), pa.field("tags", pa.int64())])

_LARGEST_DATASETS = pa.schema(
    [pa.field("dataset", pa.string()), pa.field("transactions", pa.int64()), pa.field("bytes", SUMMED)]
)


def log_sums(log: pa.Table) -> pa.Table:
    """Bytes, branches and tags of a part, in one row."""
    lists = {name: pc.sum(pc.list_value_length(join_chunks(log[name]))).as_py() or 0 for name in ("heads", "tags")}
    size = pc.sum(log["bytes"].cast(SUMMED)).as_py() or 0
    return pa.Table.from_pylist([{"bytes": size, "branches": lists["heads"], "tags": lists["tags"]}], _LOG_SUMS)


def largest_datasets(log: pa.Table) -> pa.Table:
    """Largest datasets of a part by bytes, or by transactions where sizes are unknown."""
    if not len(log):
        return _LARGEST_DATASETS.empty_table()
    bounds = bounds_of(log)
    starts, counts = bounds[:-1], np.diff(bounds)
    high, low = sums_in_halves(integers(log["bytes"], 0).astype(np.int64), starts)
    first = np.lexsort((starts, -counts, -low, -high))[:LARGEST]
    names = log["dataset"].take(pa.array(starts[first])).cast(pa.string()).to_pylist()
    rows = [
        {"dataset": name, "transactions": int(counts[at]), "bytes": (int(high[at]) << 32) + int(low[at])}
        for name, at in zip(names, first.tolist(), strict=True)
    ]
    return pa.Table.from_pylist(rows, _LARGEST_DATASETS)


def newest_closes(transactions: pa.Table) -> pa.Table:
    """Closing time of each dataset's newest committed transaction that readers can see."""
    committed = transactions.select(["dataset", "closed_at"]).filter(
        pc.equal(transactions["status"].cast(pa.string()), "COMMITTED")
    )
    plain = committed.set_column(0, "dataset", committed["dataset"].cast(pa.string()))
    return plain.group_by("dataset").aggregate([("closed_at", "max")])


# One row per dataset, verdict and policy. `transaction` is the first of them, `code` and `witness` are its first reason.
DATASET_COUNTS = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("policy", pa.string()),
        pa.field("transactions", pa.int64()),
        pa.field("bytes", SUMMED),
        pa.field("transaction", pa.string()),
        pa.field("code", pa.string()),
        pa.field("witness", pa.string()),
    ]
)
_ALIKE = ("dataset", "verdict", "policy")


def count_by_dataset(verdicts: pa.Table, sizes: pa.ChunkedArray) -> pa.Table:
    """Count the verdicts of a part by dataset and policy; `sizes` are the bytes of the same transactions."""
    plain = pa.table(
        {
            **{name: verdicts[name].cast(pa.string()) for name in _ALIKE},
            "bytes": sizes.cast(SUMMED),
            "row": pa.array(np.arange(len(verdicts))),
        }
    )
    sums = plain.group_by(_ALIKE).aggregate([([], "count_all"), ("bytes", "sum"), ("row", "min")]).sort_by("row_min")
    examples = verdicts.select(["transaction", "reasons"]).take(sums["row_min"])
    reasons = [(reasons or [{"code": None, "witness": None}])[0] for reasons in examples["reasons"].to_pylist()]
    columns = {
        **{name: sums[name] for name in _ALIKE},
        "transactions": sums["count_all"],
        "bytes": sums["bytes_sum"],
        "transaction": examples["transaction"],
        **{name: pa.array([reason[name] for reason in reasons], pa.string()) for name in ("code", "witness")},
    }
    return pa.table(columns).cast(DATASET_COUNTS)


# One row per realm, dataset, verdict and first reason with its witness.
REALM_COUNTS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("realm", "dataset", "verdict", "code", "witness")),
        pa.field("transactions", pa.int64()),
        pa.field("bytes", SUMMED),
    ]
)
_GROUPS = ["realm", "dataset", "verdict", "code", "witness"]


def count_realms(
    transactions: pa.Table, datasets: pa.Table, verdicts: pa.Table, realms: Sequence[str], swept: pa.Table | None
) -> pa.Table:
    """Count by verdict and first reason what a part still has of the realms. `swept`: SWEPT marks of the ledger, with times."""
    counts = [REALM_COUNTS.empty_table()]
    realm_of_dataset = dict(zip(datasets["dataset"].to_pylist(), realms_of(datasets).to_pylist(), strict=True))
    left: Bools | None = None
    for realm in realms if len(transactions) else ():
        names = [name for name, own in realm_of_dataset.items() if own is not None and is_within(own, realm)]
        if names:
            left = _left(transactions, swept) if left is None else left
            at = pa.array(np.flatnonzero(left & flags(pc.is_in(transactions["dataset"].cast(pa.string()), pa.array(names)))))
            counts.append(_counted(verdicts.take(at), transactions["bytes"].take(at), realm))
    return pa.concat_tables(counts)


def _left(transactions: pa.Table, swept: pa.Table | None) -> Bools:
    counts = flags(pc.is_in(transactions["type"].cast(pa.string()), pa.array(PURGED_TYPES)))
    if swept is None or not len(swept):
        return counts
    # A row that reuses the id of a swept one is another transaction.
    gone = swept.filter(pa.array(is_in_log(swept, transactions)))
    return counts & ~flags(pc.is_in(keys_of(transactions), value_set=keys_of(gone)))


def _counted(verdicts: pa.Table, sizes: pa.ChunkedArray, realm: str) -> pa.Table:
    first = join_chunks(pc.list_element(join_chunks(verdicts["reasons"]), 0)) if len(verdicts) else None
    if first is None:
        return REALM_COUNTS.empty_table()
    words = {name: verdicts[name].cast(pa.string()) for name in ("dataset", "verdict")}
    words |= {name: first.field(name).cast(pa.string()) for name in ("code", "witness")}
    rows = pa.table({"realm": pa.repeat(realm, len(verdicts)), **words, "bytes": sizes.cast(SUMMED)})
    sums = rows.group_by(_GROUPS).aggregate([([], "count_all"), ("bytes", "sum")])
    return sums.select([*_GROUPS, "count_all", "bytes_sum"]).rename_columns(REALM_COUNTS.names).cast(REALM_COUNTS)


# One row per verdict and reason. A transaction with several reasons is counted for each of them.
WHY = pa.schema(
    [
        pa.field("verdict", pa.string()),
        pa.field("code", pa.string()),
        pa.field("transactions", pa.int64()),
        pa.field("bytes", SUMMED),
        pa.field(
            "examples",
            pa.list_(pa.struct([pa.field(name, pa.string()) for name in ("dataset", "transaction", "policy", "witness")])),
        ),
    ]
)

_CODES = tuple(reason.name for reason in Reason)
_KEYS = len(VERDICTS) * len(_CODES)
EXAMPLES = 3
# Bytes are summed as floats, in two parts: over so many rows with up to 256 reasons each, a float holds either sum exactly.
_ROWS_AT_ONCE = 1 << 16
_BITS = 24
_LOW = (1 << _BITS) - 1


def count_reasons(verdicts: pa.Table, sizes: pa.ChunkedArray) -> pa.Table:
    """Count verdicts by reason; `sizes` are the bytes of the same transactions."""
    size = integers(sizes, 0).astype(np.int64)
    counts, high, low = (np.zeros(_KEYS, dtype=np.int64) for _ in range(3))
    huge = bool((size >> _BITS).any())
    examples: list[list[dict[str, Any]]] = [[] for _ in range(_KEYS)]
    row = 0
    for batch in verdicts.select(["dataset", "transaction", "verdict", "policy", "reasons"]).to_batches(_ROWS_AT_ONCE):
        lengths = np.diff(batch["reasons"].offsets.to_numpy())
        entries = batch["reasons"].flatten()
        verdict = codes(batch["verdict"], VERDICTS).astype(np.int16) * len(_CODES)
        key = np.repeat(verdict, lengths) + codes(entries.field("code"), _CODES)
        sizes_of_entries = np.repeat(size[row : row + len(batch)], lengths)
        counts += np.bincount(key, minlength=_KEYS)
        low += np.bincount(key, sizes_of_entries & _LOW, _KEYS).astype(np.int64)
        if huge:
            high += np.bincount(key, sizes_of_entries >> _BITS, _KEYS).astype(np.int64)
        for number in np.flatnonzero(counts).tolist():
            if len(examples[number]) < EXAMPLES:
                examples[number] += _examples(batch, lengths, entries.field("witness"), key == number)
        row += len(batch)
    return pa.Table.from_pylist(
        [_row(number, counts, high, low, examples[number][:EXAMPLES]) for number in np.flatnonzero(counts).tolist()], WHY
    )


def _row(number: int, counts: Ints, high: Ints, low: Ints, examples: list[dict[str, Any]]) -> dict[str, Any]:
    verdict, code = divmod(number, len(_CODES))
    return {
        "verdict": VERDICTS[verdict],
        "code": _CODES[code],
        "transactions": int(counts[number]),
        "bytes": (int(high[number]) << _BITS) + int(low[number]),
        "examples": examples,
    }


def _examples(batch: pa.RecordBatch, lengths: Counts, witness: pa.Array, there: Bools) -> list[dict[str, Any]]:
    # The first and the last transaction with a reason: mostly of different datasets.
    if not there.any():
        return []
    ends = {int(np.argmax(there)), len(there) - 1 - int(np.argmax(there[::-1]))}
    after = np.cumsum(lengths)
    return [
        {
            **{
                name: batch[name][int(np.searchsorted(after, entry, side="right"))].as_py()
                for name in ("dataset", "transaction", "policy")
            },
            "witness": witness[entry].as_py(),
        }
        for entry in sorted(ends)
    ]


def merge_reason_counts(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the rows of all parts into one per verdict and reason: verdicts in their order, the most frequent reason first."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for part in parts:
        row = sums.setdefault(
            (part["verdict"], part["code"]),
            {"verdict": part["verdict"], "code": part["code"], "transactions": 0, "bytes": 0, "examples": []},
        )
        row["transactions"] += part["transactions"]
        row["bytes"] += int(part["bytes"])
        row["examples"] = [*row["examples"], *part["examples"]][:EXAMPLES]
    return sorted(sums.values(), key=lambda row: (VERDICTS.index(row["verdict"]), -row["transactions"], row["code"]))
