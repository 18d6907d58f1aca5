"""Count what is left of realms that are being purged or are PURGED: rows that are not swept, by what keeps them.

A DELETE owns no bytes and does not count.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, flags, join_chunks, keys_of
from retention_assets.frames.lives import is_in_log
from retention_assets.frames.log import SUMMED, realms_of
from retention_assets.policy.realms import PURGED_TYPES, is_within

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
    """How much of some realms is left in a part, and its verdicts. `swept`: what the ledger knows as SWEPT, with times."""
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
