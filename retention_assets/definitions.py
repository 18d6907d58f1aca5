"""What Dagster loads: `build_defs` puts assets, jobs and resources together. The only place that builds resources.

Loading needs no Java and opens no store: the Spark session starts when a step first asks for it.
"""

from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource

from retention_assets.assets.branch_views import branch_views
from retention_assets.assets.candidate_marks import candidate_marks
from retention_assets.assets.transaction_log import transaction_log
from retention_assets.in_force import Rules, rules_for
from retention_assets.policy.language import load_policies
from retention_assets.resources.spark import spark_conf
from retention_assets.resources.warehouse import Warehouse
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.kinds import FilesSettings


def build_defs(settings: Settings | None = None, **overrides: Any) -> dg.Definitions:
    """Definitions from settings, fresh at each call. `overrides` replace resources by name."""
    settings = settings or load_settings()
    logs = {store.name: Path(store.log) for store in settings.stores if isinstance(store, FilesSettings)}
    assets = [transaction_log(logs), branch_views, candidate_marks(partial(_rules, settings))]
    resources: dict[str, Any] = {
        "pyspark": LazyPySparkResource(spark_config=spark_conf(settings.spark.master, settings.spark.conf)),
        "warehouse": Warehouse(root=str(settings.warehouse)),
    }
    evaluate = dg.define_asset_job(
        "evaluate",
        selection=dg.AssetSelection.assets(*assets),
        description="Read all logs, compute views, and judge every transaction. Deletes nothing.",
    )
    return dg.Definitions(
        assets=assets,
        jobs=[evaluate],
        resources={**resources, **overrides},
        # One Python and one Spark session for all steps of a run; a process per step would start Spark anew each time.
        executor=dg.in_process_executor,
    )


def _rules(settings: Settings, datasets: pa.Table) -> Rules:
    """The policies as they are on disk when the step runs, for the datasets that were read."""
    policies = load_policies(settings.policies, {store.name for store in settings.stores})
    return rules_for(policies, datasets["dataset"].to_pylist(), settings)


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return build_defs()
