"""A run on its way: what every step of it works on, whether Dagster materializes an asset or a job works through a list.

Belongs here: the value that a step takes, and how it comes to be from either kind of context.
Does not belong here: what a step does (assets).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import dataset_filter_of
from retention_assets.dagster.run_config import AsOfConfig, DatasetsConfig
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Metadata = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One step of a run. `key` is the asset that it makes; its siblings have the same prefix."""

    key: dg.AssetKey
    run: dg.DagsterRun
    instance: dg.DagsterInstance
    log: dg.DagsterLogManager
    retention: Environment
    pyspark: LazyPySparkResource
    warehouse: Warehouse
    datasets: DatasetFilter
    as_of: datetime

    @property
    def actor(self) -> str:
        """Who the record names."""
        return f"run {self.run.run_id}"

    @property
    def folder(self) -> str:
        """Where this run writes the asset."""
        return self.warehouse.folder(self.key, self.run.run_id)

    @property
    def spark(self) -> "SparkSession":
        """The session of the run, started on the first call."""
        session: SparkSession = self.pyspark.spark_session
        return session

    def sibling(self, name: str) -> dg.AssetKey:
        """Another asset of the same definitions."""
        return dg.AssetKey([*self.key.path[:-1], name])


@dataclass(frozen=True)
class Resources:
    """What a run is given besides its configuration."""

    retention: Environment
    pyspark: LazyPySparkResource
    warehouse: Warehouse
    names: Names

    def of_asset(self, context: dg.AssetExecutionContext, config: AsOfConfig | DatasetsConfig | None = None) -> Step:
        """A step that materializes an asset: its partitions say which datasets, within what the configuration says."""
        datasets = dataset_filter_of(context, _globs(config), self.retention.settings.partition_by)
        return self._running(context.asset_key, context.op_execution_context, config, datasets)

    def of_op(self, context: dg.OpExecutionContext, key: dg.AssetKey, config: AsOfConfig | DatasetsConfig) -> Step:
        """A step of a job that works through a list."""
        return self._running(key, context, config, DatasetFilter(tuple(_globs(config))))

    def _running(
        self,
        key: dg.AssetKey,
        context: dg.OpExecutionContext,
        config: AsOfConfig | DatasetsConfig | None,
        datasets: DatasetFilter,
    ) -> Step:
        as_of = config.instant() if isinstance(config, AsOfConfig) else AsOfConfig().instant()
        return Step(
            key, context.run, context.instance, context.log, self.retention, self.pyspark, self.warehouse, datasets, as_of
        )


def resources_in(resources: object, names: Names) -> Resources:
    """What a context holds for the definitions of some names."""
    found: Resources = getattr(resources, names.materials)
    return found


def _globs(config: AsOfConfig | DatasetsConfig | None) -> Sequence[str]:
    return config.datasets if isinstance(config, DatasetsConfig) else ("*",)
