"""Definitions from settings: assets, checks, jobs, sensors, schedules and the resources of their steps.

Loading needs no Java and opens no store: the Spark session starts when a step first asks for it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from retention_assets.dagster.automation.schedules import schedules
from retention_assets.dagster.automation.sensors import sensors
from retention_assets.dagster.chain import chain
from retention_assets.dagster.jobs import jobs, partition_jobs
from retention_assets.dagster.naming import Names
from retention_assets.dagster.operation_jobs import operation_jobs
from retention_assets.dagster.resources import resources
from retention_assets.dagster.store_assets import store_assets
from retention_assets.settings.model import AutomationSettings, Settings, load_settings

# time for a run, besides the sensor's interval
_A_RUN = timedelta(hours=1)


def build_defs(
    settings: Settings | None = None,
    key_prefix: str | Sequence[str] = (),
    **overrides: Any,
) -> dg.Definitions:
    """Definitions from settings, fresh at each call.

    `key_prefix` stands before every name, instead of what the settings say: with it they merge into the definitions of another
    project, or twice into one. Definitions that have a prefix bring no executor, which would become everybody's.
    `overrides` replace what runs are given: retention, pyspark, warehouse.
    """
    settings = settings or load_settings()
    defs = embedded_defs(settings, key_prefix, **overrides)
    if key_prefix or settings.dagster.key_prefix:
        return defs
    # One Python and one Spark session for all steps of a run; a process per step would start Spark anew each time.
    return dg.Definitions.merge(defs, dg.Definitions(executor=dg.in_process_executor))


def embedded_defs(settings: Settings, key_prefix: str | Sequence[str] = (), **overrides: Any) -> dg.Definitions:
    """The same for definitions whose executor is for others to choose. Jobs run in one Python all the same."""
    names = Names.below(key_prefix or settings.dagster.key_prefix)
    stores = store_assets(settings, names)
    sources = [store.key for store in stores]
    assets = chain(names, settings.dagster, sources, _freshness_policies(settings.automation))
    of_jobs = [*jobs(names), *operation_jobs(names), *partition_jobs(names)]
    return dg.Definitions(
        assets=[*stores, assets],
        jobs=of_jobs,
        sensors=sensors(settings, names, of_jobs),
        schedules=schedules(settings.automation, names),
        resources=resources(settings, names, **overrides),
    )


def _freshness_policies(automation: AutomationSettings) -> dict[str, dg.FreshnessPolicy]:
    """By asset how old its newest materialization may be; none where nobody promised that it is made anew by itself."""
    promised = {
        "candidate_marks": (automation.evaluate, automation.everything.length),
        "swept_transactions": (automation.sweep, timedelta(days=1)),
    }
    return {
        name: dg.FreshnessPolicy.time_window(fail_window=within + every.length + _A_RUN)
        for name, (every, within) in promised.items()
        if every is not None
    }
