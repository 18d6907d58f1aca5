"""What Dagster loads: `build_defs` puts assets, jobs and all that launches them together. It alone builds resources.

Loading needs no Java and opens no store: the Spark session starts when a step first asks for it.
"""

from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from retention_assets.acts import acts
from retention_assets.alerts import Notify, alerts, log_notice
from retention_assets.assets.branch_views import branch_views
from retention_assets.assets.candidate_marks import candidate_marks
from retention_assets.assets.purge_report import purge_report
from retention_assets.assets.retention_policies import retention_policies
from retention_assets.assets.swept_transactions import swept_transactions
from retention_assets.assets.transaction_log import transaction_log
from retention_assets.checks import asset_checks
from retention_assets.jobs import jobs
from retention_assets.resources.retention import Retention
from retention_assets.resources.running import Materials
from retention_assets.resources.spark import spark_conf
from retention_assets.resources.warehouse import Warehouse
from retention_assets.schedules import schedules
from retention_assets.sensors import sensors
from retention_assets.settings import Settings, load_settings

_ASSETS = (retention_policies, transaction_log, branch_views, candidate_marks, swept_transactions, purge_report)


def build_defs(settings: Settings | None = None, notify: Notify = log_notice, **overrides: Any) -> dg.Definitions:
    """Definitions from settings, fresh at each call. `overrides` replace what runs are given: retention, pyspark, warehouse.

    `notify` is told of each run that failed or left something to look at, where `automation.alerts` is on.
    """
    settings = settings or load_settings()
    materials: dict[str, Any] = {
        "retention": Retention(settings),
        "pyspark": LazyPySparkResource(spark_config=spark_conf(settings.spark.master, settings.spark.conf)),
        "warehouse": Warehouse(root=str(settings.warehouse)),
    }
    return dg.Definitions(
        assets=_ASSETS,
        asset_checks=asset_checks(),
        jobs=[*jobs(), *acts()],
        sensors=[*sensors(settings), *alerts(notify, settings.automation.alerts)],
        schedules=schedules(settings),
        resources={"materials": Materials(**{**materials, **overrides})},
        # One Python and one Spark session for all steps of a run; a process per step would start Spark anew each time.
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return build_defs()
