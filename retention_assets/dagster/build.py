"""Definitions from settings: assets, checks, jobs, sensors, schedules and the resources of their steps.

Loading needs no Java and opens no store: the Spark session starts when a step first asks for it. Resources have no
configuration: Dagster shows it to everybody, and settings hold passwords and the keys of object stores; and a launch may
change it, so that a run would name a ledger on which it does not work.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from retention_assets.dagster.automation import schedules, sensors
from retention_assets.dagster.jobs import ASSET_JOBS, chain, operation_jobs
from retention_assets.dagster.naming import RESOURCES, Names
from retention_assets.dagster.step import QuietSparkResource
from retention_assets.dagster.stores import store_assets
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.pipeline.spark import spark_conf
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.render.text import visible
from retention_assets.settings.model import Settings, load_settings
from retention_assets.settings.places import mask_text
from retention_assets.settings.sections import AutomationSettings


class Overrides(TypedDict, total=False):
    """Replacements for resources that settings describe: a value itself, or a Dagster resource that makes it."""

    retention: Environment | dg.ResourceDefinition
    pyspark: dg.ConfigurableResource[Any] | dg.ResourceDefinition
    warehouse: Warehouse | dg.ResourceDefinition


def resources(
    settings: Settings, names: Names, retention: object = None, pyspark: object = None, warehouse: object = None
) -> dict[str, object]:
    """Resources by their names: each one that is given, or else as the settings describe it."""
    given = ((retention, Environment), (pyspark, LazyPySparkResource), (warehouse, Warehouse))
    for key, (value, expected) in zip(RESOURCES, given, strict=True):
        if not isinstance(value, expected | dg.ResourceDefinition | dg.ConfigurableResource | None):
            types = f"a value of type {expected.__name__}, or a Dagster resource that provides one"
            raise BadInput(Problem("has a wrong type", key=key, value=f"'{type(value).__name__}'", expected=types))

    def spark_session(_: dg.InitResourceContext) -> QuietSparkResource:
        return QuietSparkResource(spark_config=spark_conf(settings.spark.master, settings.spark.conf, str(settings.warehouse)))

    lines = [
        "The ledger, the policies and the stores of the settings, opened when a step needs them.",
        "",
        f"* ledger: {settings.ledger}",
        f"* policies: {', '.join(map(str, settings.policies))}",
        *(f"* store {store.name} ({store.kind})" for store in settings.stores),
    ]
    # Only the keys of the configuration are shown.
    spark_lines = [
        "The Spark session of a run, started when a step first needs it.",
        "",
        f"* master: {settings.spark.master}",
        *(f"* configured: {key}" for key in sorted(settings.spark.conf)),
    ]
    folder_lines = ["The tables of the assets, in a folder for each asset and run.", "", f"* {settings.warehouse}"]
    return {
        names.of("retention"): retention or _described(lambda _: Environment(settings), lines),
        names.of("pyspark"): pyspark or _described(spark_session, spark_lines),
        names.of("warehouse"): warehouse or _described(lambda _: Warehouse(root=str(settings.warehouse)), folder_lines),
    }


def _described(make: Callable[[dg.InitResourceContext], Any], lines: Sequence[str]) -> dg.ResourceDefinition:
    return dg.ResourceDefinition(make, description="\n".join(visible(mask_text(line)) for line in lines))


# time for a run, besides the sensor's interval
_A_RUN = timedelta(hours=1)


def build_defs(
    settings: Settings | None = None, key_prefix: str | Sequence[str] = (), **overrides: Unpack[Overrides]
) -> dg.Definitions:
    """Make definitions from settings, fresh at each call.

    `key_prefix` stands before every name, instead of what the settings say: with it they merge into the definitions of another
    project, or twice into one. Definitions that have a prefix bring no executor, which would become everybody's.
    """
    settings = settings or load_settings()
    defs = embedded_defs(settings, key_prefix, **overrides)
    if key_prefix or settings.dagster.key_prefix:
        return defs
    # One Python and one Spark session for all steps of a run; a process per step would start Spark anew each time.
    return dg.Definitions.merge(defs, dg.Definitions(executor=dg.in_process_executor))


def embedded_defs(settings: Settings, key_prefix: str | Sequence[str] = (), **overrides: Unpack[Overrides]) -> dg.Definitions:
    """Make definitions whose executor is for others to choose. Jobs run in one Python all the same."""
    names = Names.below(key_prefix or settings.dagster.key_prefix)
    stores = store_assets(settings, names)
    sources = [store.key for store in stores]
    assets = chain(names, settings.dagster, sources, _freshness_policies(settings.automation))
    asset_jobs = (job.define(names) for job in ASSET_JOBS)
    jobs = {job.name: job for job in (*asset_jobs, *operation_jobs(settings, names))}
    return dg.Definitions(
        assets=[*stores, assets],
        jobs=jobs.values(),
        sensors=sensors(settings, names, jobs),
        schedules=schedules(settings.automation, names, jobs),
        resources=resources(settings, names, **overrides),
    )


def _freshness_policies(automation: AutomationSettings) -> dict[str, dg.FreshnessPolicy]:
    promised = {
        "candidate_marks": (automation.evaluate, automation.everything.length),
        "swept_transactions": (automation.sweep, timedelta(days=1)),
    }
    return {
        name: dg.FreshnessPolicy.time_window(fail_window=window + every.length + _A_RUN)
        for name, (every, window) in promised.items()
        if every is not None
    }
