"""Definitions from settings: assets, checks, jobs, sensors, schedules and the resources of their steps.

Loading needs no Java and opens no store: the Spark session starts when a step first asks for it.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.assets.branch_views import branch_views
from retention_assets.dagster.assets.candidate_marks import candidate_marks
from retention_assets.dagster.assets.purge_report import purge_report
from retention_assets.dagster.assets.retention_policies import retention_policies
from retention_assets.dagster.assets.swept_transactions import swept_transactions
from retention_assets.dagster.assets.transaction_log import transaction_log
from retention_assets.dagster.automation.alerts import Notify, OwnRuns, alerts, log_notice
from retention_assets.dagster.automation.freshness import freshness_policies
from retention_assets.dagster.automation.schedules import schedules
from retention_assets.dagster.automation.sensors import sensors
from retention_assets.dagster.checks.asset_checks import asset_checks
from retention_assets.dagster.jobs import jobs
from retention_assets.dagster.naming import Names
from retention_assets.dagster.operations.jobs import operation_jobs
from retention_assets.dagster.partition_jobs import partition_jobs
from retention_assets.dagster.resources import resources
from retention_assets.dagster.store_assets import store_assets
from retention_assets.settings.model import Settings, load_settings

ASSETS = (retention_policies, transaction_log, branch_views, candidate_marks, swept_transactions, purge_report)


def build_defs(
    settings: Settings | None = None,
    notify: Notify = log_notice,
    key_prefix: str | Sequence[str] = (),
    **overrides: Any,
) -> dg.Definitions:
    """Definitions from settings, fresh at each call.

    `notify` is told of each run of theirs that failed or left something to look at, where `automation.alerts` is on.
    `key_prefix` stands before every name, instead of what the settings say: with it they merge into the definitions of another
    project, or twice into one. Definitions that have a prefix bring no executor, which would become everybody's.
    `overrides` replace what runs are given: retention, pyspark, warehouse.
    """
    settings = settings or load_settings()
    found = embedded_defs(settings, notify, key_prefix, **overrides)
    if key_prefix or settings.dagster.key_prefix:
        return found
    # One Python and one Spark session for all steps of a run; a process per step would start Spark anew each time.
    return dg.Definitions.merge(found, dg.Definitions(executor=dg.in_process_executor))


def embedded_defs(
    settings: Settings, notify: Notify = log_notice, key_prefix: str | Sequence[str] = (), **overrides: Any
) -> dg.Definitions:
    """The same for definitions whose executor is for others to choose. Jobs run in one Python all the same."""
    names = Names.below(key_prefix or settings.dagster.key_prefix)
    stores = store_assets(settings, names)
    sources = [store.key for store in stores]
    fresh = freshness_policies(settings.automation)
    of_assets = [
        one.asset(names, settings.dagster, sources if one is transaction_log else (), fresh.get(one.name)) for one in ASSETS
    ]
    of_jobs = [*jobs(names), *operation_jobs(names), *partition_jobs(names)]
    own = OwnRuns(names, frozenset(job.name for job in of_jobs), frozenset([*sources, *(asset.key for asset in of_assets)]))
    return dg.Definitions(
        assets=[*stores, *of_assets],
        asset_checks=asset_checks(names),
        jobs=of_jobs,
        sensors=[*sensors(settings, names, of_jobs), *alerts(notify, settings.automation.alerts, own)],
        schedules=schedules(settings, names),
        resources=resources(settings, names, **overrides),
    )
