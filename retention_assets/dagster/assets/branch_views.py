"""The asset `branch_views`: what its branches say about each transaction."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.dagster.asset_factory import retention_asset
from retention_assets.dagster.run_config import JudgingConfig
from retention_assets.dagster.step import Metadata, Step
from retention_assets.frames.log import LOG
from retention_assets.frames.views.branch_views import branch_views_and_ends as frame
from retention_assets.pipeline.stage import read_datasets, read_output, run_stage
from retention_assets.pipeline.warehouse import FOLDER
from retention_assets.render.dagster import VIEW_COLUMNS, branch_metadata

OUTPUT, ENDS, SUMS = "branch_views", "branch_ends", "sums"
_COLUMNS = [name for name in LOG.names if name not in ("parent", "archived_at", "bytes", "files", "file_names", "attributes")]


@dataclass(frozen=True)
class Views:
    """The frame at an instant, as a value that travels to tasks."""

    as_of: datetime

    def __call__(self, transactions: pa.Table, _: pa.Table) -> dict[str, pa.Table]:
        """The views of one part, its branches, and how many transactions are in latest views and protected."""
        views, ends = frame(transactions, self.as_of)
        latest = pc.sum(pc.equal(views["view"], 0)).as_py() or 0
        protected = len(views) - views["protected_by"].null_count
        return {OUTPUT: views, ENDS: ends, SUMS: pa.table({"in_latest_views": [latest], "protected": [protected]})}


@retention_asset(JudgingConfig, kinds={"pyspark", "parquet"}, deps=["transaction_log"])
def branch_views(run: Step) -> Metadata:
    """One row per transaction: how many branches hold it, its newest view index (0 is a latest view), how many newer data
    transactions there are, when it left the latest view of the last branch, and which branch or tag protects it.
    """
    with run.retention.ledger() as ledger:
        sources = run.sources(ledger, "transaction_log")
        written = run_stage(run.spark, sources, run.folder, (OUTPUT, ENDS, SUMS), Views(run.as_of), _COLUMNS)
        names = read_datasets(sources)["dataset"].to_pylist()
        ledger.publications.publish(run.publications(names), run.actor)
    sums = read_output(run.folder, SUMS)
    return {
        "dagster/row_count": written.rows[OUTPUT],
        "dagster/column_schema": VIEW_COLUMNS,
        "as_of": run.as_of.isoformat(),
        **{name: pc.sum(sums[name]).as_py() or 0 for name in sums.column_names},
        "branches": branch_metadata(read_output(run.folder, ENDS)),
        FOLDER: run.folder,
    }
