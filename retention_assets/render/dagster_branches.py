"""What is shown of branches: the ones with the largest latest views, which is what readers keep.

Belongs here: branch ends (frames/views/branch_ends.py) as a table.
"""

from typing import Any

import dagster as dg
import pyarrow as pa

from retention_assets.policy.durations import text_of
from retention_assets.render.dagster_tables import MOST_SHOWN, table

_COLUMNS = {"dataset": "string", "branch": "string", "views": "int", "transactions": "int", "newest_close": "string"}
_ABOUT = {
    "views": "each SNAPSHOT begins one; a beginning without a SNAPSHOT is one as well",
    "transactions": "committed ones in the latest view",
    "newest_close": "when the newest committed transaction closed",
}


def branch_metadata(ends: pa.Table) -> dg.MetadataValue:
    """The largest latest views of all parts, largest first."""
    order = [("transactions", "descending"), ("dataset", "ascending"), ("branch", "ascending")]
    return table(_COLUMNS, map(_row, ends.sort_by(order).slice(0, MOST_SHOWN).to_pylist()), _ABOUT)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "newest_close": text_of(row["newest_close"]) if row["newest_close"] else ""}
