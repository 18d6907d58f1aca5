"""Count the reasons of verdicts with bytes and a few examples, in a form that adds up over parts.

Reasons are counted by their dictionary numbers, so that the cost stays small beside deciding them.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Counts, Ints, codes, integers
from retention_assets.frames.log import SUMMED
from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reasons import Reason

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
    """The reasons of some verdicts; `sizes` are the bytes of the same transactions."""
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
        mine = np.repeat(size[row : row + len(batch)], lengths)
        counts += np.bincount(key, minlength=_KEYS)
        low += np.bincount(key, mine & _LOW, _KEYS).astype(np.int64)
        if huge:
            high += np.bincount(key, mine >> _BITS, _KEYS).astype(np.int64)
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
    """The first and the last transaction with a reason: mostly of different datasets."""
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
    """The rows of all parts as one per verdict and reason: in the order of the verdicts, what is most frequent first."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for part in parts:
        one = sums.setdefault(
            (part["verdict"], part["code"]),
            {"verdict": part["verdict"], "code": part["code"], "transactions": 0, "bytes": 0, "examples": []},
        )
        one["transactions"] += part["transactions"]
        one["bytes"] += int(part["bytes"])
        one["examples"] = [*one["examples"], *part["examples"]][:EXAMPLES]
    return sorted(sums.values(), key=lambda one: (VERDICTS.index(one["verdict"]), -one["transactions"], one["code"]))
