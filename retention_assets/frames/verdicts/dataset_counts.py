"""Count verdicts by dataset and policy, each with one transaction as an example, for the page of a dataset.

A dataset is never in two parts, so nothing has to be added up afterwards.
"""

import numpy as np
import pyarrow as pa

from retention_assets.frames.log import SUMMED

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
    """The verdicts of a part; `sizes` are the bytes of the same transactions."""
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
