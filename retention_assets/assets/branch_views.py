"""The asset `branch_views`: what its branches say about each transaction."""

from dataclasses import dataclass
from datetime import datetime

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource

from retention_assets.frames.branch_views import branch_views as frame
from retention_assets.frames.log import LOG
from retention_assets.resources.launch import AsOf
from retention_assets.resources.stage import run_stage
from retention_assets.resources.warehouse import FOLDER, Warehouse

OUTPUT = "branch_views"
_COLUMNS = [name for name in LOG.names if name not in ("parent", "archived_at", "bytes", "files", "file_names", "attributes")]


@dataclass(frozen=True)
class Views:
    """The frame at an instant, as a value that travels to tasks."""

    as_of: datetime

    def __call__(self, transactions: pa.Table, _: pa.Table) -> dict[str, pa.Table]:
        """The views of one part."""
        return {OUTPUT: frame(transactions, self.as_of)}


@dg.asset(group_name="retention", kinds={"pyspark", "parquet"}, deps=["transaction_log"])
def branch_views(
    context: dg.AssetExecutionContext, config: AsOf, pyspark: LazyPySparkResource, warehouse: Warehouse
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per transaction: how many branches hold it, its newest view index (0 is a latest view), how many newer data
    transactions there are, when it left the latest view of the last branch, and which branch or tag protects it.
    """
    source = warehouse.newest(context.instance, dg.AssetKey("transaction_log"))
    folder = warehouse.folder(context.asset_key, context.run.run_id)
    as_of = config.instant()
    written = run_stage(pyspark.spark_session, source, folder, (OUTPUT,), Views(as_of), _COLUMNS)
    return dg.MaterializeResult(
        metadata={FOLDER: folder, "as_of": as_of.isoformat(), "dagster/row_count": written.rows[OUTPUT]}
    )
