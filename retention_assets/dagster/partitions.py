"""Partitions: one key per dataset, or one per store where an environment has more datasets than people can look at."""

from collections.abc import Sequence

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.datasets import DatasetFilter

BY_STORE = "store"


def partitions_of(names: Names) -> dg.DynamicPartitionsDefinition:
    """The partitions of an environment's assets."""
    return dg.DynamicPartitionsDefinition(name=names.datasets)


def is_valid_key(name: str) -> bool:
    """Whether Dagster takes a name as a partition's: three dots stand for a range there."""
    return "..." not in name and name.isprintable()


def dataset_filter_of(context: dg.AssetExecutionContext, globs: Sequence[str], partition_by: str) -> DatasetFilter:
    """What a run is about: a single key, a range, or no partition at all."""
    has_keys = context.has_partition_key or context.op_execution_context.has_partition_key_range
    keys = frozenset(context.partition_keys) if has_keys else None
    return DatasetFilter(tuple(globs), keys, partition_by == BY_STORE)
