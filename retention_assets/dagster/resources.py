"""The three resources of a run: the environment, Spark, and the warehouse.

Dagster's page shows everybody the configuration of a resource, so none has any: the settings hold passwords, and Spark's
configuration holds the keys of object stores.
"""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.spark import QuietSparkResource
from retention_assets.environment import Environment
from retention_assets.pipeline.spark import spark_conf
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.render.text import visible
from retention_assets.settings.model import Settings
from retention_assets.settings.urls import mask_text


def resources(
    settings: Settings, names: Names, retention: object = None, pyspark: object = None, warehouse: object = None
) -> dict[str, object]:
    """The resources of an environment by their names; what is given stands in the place of what the settings say."""

    def environment(_: dg.InitResourceContext) -> Environment:
        return Environment(settings)

    def spark_session(_: dg.InitResourceContext) -> QuietSparkResource:
        return QuietSparkResource(spark_config=spark_conf(settings.spark.master, settings.spark.conf, str(settings.warehouse)))

    def folder(_: dg.InitResourceContext) -> Warehouse:
        return Warehouse(root=str(settings.warehouse))

    lines = [
        "What a run works on: the ledger, the policies and the stores of the settings, opened when a step needs them.",
        "",
        f"* ledger: {settings.ledger}",
        f"* policies: {', '.join(map(str, settings.policies))}",
        *(f"* store {store.name} ({store.kind})" for store in settings.stores),
    ]
    # Only the keys of the configuration are shown.
    spark_lines = [
        "The Spark session of a run, started when a step first asks for it.",
        "",
        f"* master: {settings.spark.master}",
        *(f"* configured: {key}" for key in sorted(settings.spark.conf)),
    ]
    folder_lines = ["Where the assets' tables are written, a folder for each asset and run.", "", f"* {settings.warehouse}"]
    return {
        names.of("retention"): retention or _described(environment, lines),
        names.of("pyspark"): pyspark or _described(spark_session, spark_lines),
        names.of("warehouse"): warehouse or _described(folder, folder_lines),
    }


def _described(make: Callable[[dg.InitResourceContext], Any], lines: Sequence[str]) -> dg.ResourceDefinition:
    return dg.ResourceDefinition(make, description="\n".join(visible(mask_text(line)) for line in lines))
