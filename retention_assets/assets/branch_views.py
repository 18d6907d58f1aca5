"""The asset `branch_views`: what its branches say about each transaction."""

from dataclasses import dataclass
from datetime import datetime

import dagster as dg
import pyarrow as pa

from retention_assets.frames.branch_views import branch_views as frame
from retention_assets.frames.log import LOG
from retention_assets.partitions import DATASETS
from retention_assets.resources.launch import Judging
from retention_assets.resources.running import Materials, Metadata, Running
from retention_assets.resources.stage import read_datasets, run_stage
from retention_assets.resources.warehouse import FOLDER

OUTPUT = "branch_views"
_COLUMNS = [name for name in LOG.names if name not in ("parent", "archived_at", "bytes", "files", "file_names", "attributes")]


@dataclass(frozen=True)
class Views:
    """The frame at an instant, as a value that travels to tasks."""

    as_of: datetime

    def __call__(self, transactions: pa.Table, _: pa.Table) -> dict[str, pa.Table]:
        """The views of one part."""
        return {OUTPUT: frame(transactions, self.as_of)}


def materialize(run: Running) -> Metadata:
    """Compute the views of the log's datasets, and publish them."""
    with run.retention.ledger() as ledger:
        sources = run.warehouse.sources(ledger, run.sibling("transaction_log"), run.run, run.choice)
        written = run_stage(run.spark, sources, run.folder, (OUTPUT,), Views(run.as_of), _COLUMNS)
        names = read_datasets(sources)["dataset"].to_pylist()
        ledger.published.publish(run.warehouse.publications(run.key, run.run.run_id, names), run.actor)
    return {FOLDER: run.folder, "as_of": run.as_of.isoformat(), "dagster/row_count": written.rows[OUTPUT]}


@dg.asset(
    group_name="retention",
    kinds={"pyspark", "parquet"},
    deps=["transaction_log"],
    partitions_def=DATASETS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def branch_views(
    context: dg.AssetExecutionContext, config: Judging, materials: dg.ResourceParam[Materials]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per transaction: how many branches hold it, its newest view index (0 is a latest view), how many newer data
    transactions there are, when it left the latest view of the last branch, and which branch or tag protects it.
    """
    return dg.MaterializeResult(metadata=materialize(materials.of_asset(context, config)))
