"""Requests of runs: over partitions while the datasets are few and stand together, or else over a list.

Dagster runs a selection of partitions as one run for each stretch of them, and a run takes seconds to start.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.chain import STEP
from retention_assets.dagster.naming import BY_STORE, over_partitions
from retention_assets.dagster.step import Resources
from retention_assets.datasets import by_store

# starting more runs than these would take longer than the work
_MOST_RUNS = 3
_NAMED = 5


def run_requests(
    job: str,
    resources: Resources,
    instance: dg.DagsterInstance,
    datasets: Collection[str] | None,
    globs: Sequence[str],
    tags: dict[str, str],
) -> list[dg.RunRequest]:
    """The work of a job on some datasets: as runs over partitions where they are few and stand together, or else as a list.

    `globs` say the same as `datasets`, which are None where not all are known by name.
    """
    names, settings = resources.names, resources.retention.settings
    listed = dg.RunRequest(run_config={"datasets": list(globs)}, tags=tags, job_name=names.of(job))
    if datasets is None or len(datasets) > settings.automation.assets_up_to:
        return [listed]
    keys = set(by_store(datasets) if settings.partition_by == BY_STORE else datasets)
    stretches = stretches_of(keys, instance.get_dynamic_partitions(names.datasets))
    if not 0 < len(stretches) <= _MOST_RUNS:
        return [listed]
    config: dict[str, Any] = {}
    if settings.partition_by == BY_STORE:
        # The partition of a store contains datasets that are not meant.
        config = {"ops": {names.of(STEP): {"config": {"datasets": list(globs)}}}}
    requests = []
    for first, last in stretches:
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        partitions = {"dagster/partition": first} if first == last else ends
        requests.append(dg.RunRequest(None, config, {**tags, **partitions}, names.of(over_partitions(job))))
    return requests


def stretches_of(keys: Collection[str], partitions: Sequence[str]) -> list[tuple[str, str]]:
    """Group keys into stretches of partitions, each given by its first and last; empty if a key is no partition (yet).

    Partitions stand in the order in which they were added, as in a range of Dagster.
    """
    wanted = set(keys)
    if not wanted <= set(partitions):
        return []
    stretches: list[tuple[str, str]] = []
    before = None
    for key in partitions:
        if key in wanted:
            first = stretches.pop()[0] if before in wanted else key
            stretches.append((first, key))
        before = key
    return stretches


def shorten(names: Sequence[str]) -> str:
    """The first of some names, and how many there are besides."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def digest_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
