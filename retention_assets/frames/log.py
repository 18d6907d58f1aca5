"""Schemas of a log: one table of transactions, and one of datasets.

A log that follows them is sound and clustered: the rows of a dataset stand together, in the order of `ordinal`, parents
before children. Soundness is decided in soundness.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import join_chunks
from retention_assets.policy.realms import REALM

INSTANT = pa.timestamp("us", tz="UTC")
NAME = pa.dictionary(pa.int32(), pa.string())
ATTRIBUTES = pa.map_(pa.string(), pa.string())
# class of an OBJECT by a scan; a dataset has it too if its OBJECTs do
CLASS = "class"
OWN_CLASSES = "::classes"
# attribute of a dataset: anything but `true` says that its store can't commit to its table
COMMITS = "commits.enabled"
# bytes are cast to this before they are summed: many large ones overflow 64 bits
SUMMED = pa.decimal128(38, 0)

LOG = pa.schema(
    [
        pa.field("dataset", NAME),
        pa.field("transaction", pa.string()),
        pa.field("ordinal", pa.int32()),
        pa.field("parent_ordinal", pa.int32()),
        pa.field("parent", pa.string()),
        pa.field("type", NAME),
        pa.field("status", NAME),
        pa.field("opened_at", INSTANT),
        pa.field("closed_at", INSTANT),
        pa.field("archived_at", INSTANT),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("file_names", pa.list_(pa.string())),
        pa.field("heads", pa.list_(pa.string())),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("tag_expiries", pa.list_(INSTANT)),
        pa.field("attributes", ATTRIBUTES),
    ]
)

DATASETS = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("transactions", pa.int64()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("fault", pa.string()),
        pa.field("fault_transaction", pa.string()),
    ]
)

# Reader's output before soundness is known: one row per line of the exchange format, in the order of the lines.
LINES = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("parent", pa.string()),
        pa.field("parent_given", pa.bool_()),
        pa.field("type", pa.string()),
        pa.field("status", pa.string()),
        pa.field("opened_at", INSTANT),
        pa.field("closed_at", INSTANT),
        pa.field("archived_at", INSTANT),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("file_names", pa.list_(pa.string())),
        pa.field("attributes", ATTRIBUTES),
        pa.field("branch", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("head", pa.string()),
        pa.field("expires_at", INSTANT),
        pa.field("realm", pa.string()),
        pa.field("fault", pa.string()),
    ]
)


@dataclass(frozen=True)
class Log:
    """Sound transactions, and every dataset that was read: a refused one has its fault here and no transaction."""

    transactions: pa.Table
    datasets: pa.Table

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the first dataset, for logs of one."""
        return dict(self.datasets["attributes"][0].as_py() or ())


def sums_by(rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Number and bytes of the transactions that have the same values in some columns."""
    sized = rows.select(columns).append_column("bytes", rows["bytes"].cast(SUMMED))
    sums = sized.group_by(list(columns)).aggregate([([], "count_all"), ("bytes", "sum")]).to_pylist()
    return [
        {**{name: row[name] for name in columns}, "transactions": row["count_all"], "bytes": int(row["bytes_sum"] or 0)}
        for row in sums
    ]


def realms_of(table: pa.Table) -> pa.Array:
    """Realm that the attributes of each row name, null where they name none."""
    return pc.map_lookup(join_chunks(table["attributes"]), pa.scalar(REALM), "first")


def refusals_of(datasets: pa.Table) -> dict[str, dict[str, str | None]]:
    """Refused datasets by name, each with its fault and the transaction to blame, for JSON."""
    refused = datasets.filter(pc.is_valid(datasets["fault"])).select(["dataset", "fault", "fault_transaction"])
    return {row["dataset"]: {"fault": row["fault"], "transaction": row["fault_transaction"]} for row in refused.to_pylist()}


def faults_of(datasets: pa.Table) -> dict[str, str]:
    """Refused datasets by name, each with its fault and the transaction to blame."""
    return {
        name: f"{fault['fault']} (transaction {fault['transaction']})" if fault["transaction"] else str(fault["fault"])
        for name, fault in refusals_of(datasets).items()
    }
