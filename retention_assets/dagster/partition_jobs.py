"""Jobs over partitions, `evaluate_partitions` and `sweep_partitions`, which Dagster's asset graph shows at work.

Sensors use them while the datasets are few and stand together: Dagster runs a selection of partitions as one run for each
stretch of them, and a run takes seconds to start. Jobs over lists of datasets are in jobs.py.
"""

from collections.abc import Collection, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.asset_factory import RetentionAsset
from retention_assets.dagster.assets.branch_views import branch_views
from retention_assets.dagster.assets.candidate_marks import candidate_marks
from retention_assets.dagster.assets.purge_report import purge_report
from retention_assets.dagster.assets.retention_policies import retention_policies
from retention_assets.dagster.assets.swept_transactions import swept_transactions
from retention_assets.dagster.assets.transaction_log import transaction_log
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import BY_STORE
from retention_assets.dagster.run_config import DatasetsConfig
from retention_assets.datasets import by_store
from retention_assets.people.operation import Kind
from retention_assets.settings.model import Settings

# by the name of the job over a list that does the same work
_ASSETS: dict[str, tuple[RetentionAsset, ...]] = {
    "evaluate": (retention_policies, transaction_log, branch_views, candidate_marks),
    "sweep": (swept_transactions, purge_report),
}
_DESCRIPTIONS = {
    "evaluate": "Read, judge and mark the datasets of some partitions.",
    "sweep": "Delete what is due of the datasets of some partitions, after a last look at each; then report.",
}
_KINDS = {"evaluate": Kind.ACT, "sweep": Kind.DELETE}
# starting more runs than these would take longer than the work
_MOST_RUNS = 3


def over_partitions(job: str) -> str:
    """The word for the job over partitions that does the work of one over a list."""
    return f"{job}_partitions"


def partition_jobs(names: Names) -> list[Any]:
    """The jobs of an environment. Their steps share one Python and one Spark session, whatever the project chooses."""
    return [
        dg.define_asset_job(
            names.of(over_partitions(job)),
            selection=dg.AssetSelection.assets(*(names.key(asset.name) for asset in assets)),
            description=_KINDS[job].describe(_DESCRIPTIONS[job]),
            tags=_KINDS[job].tags,
            executor_def=dg.in_process_executor,
        )
        for job, assets in _ASSETS.items()
    ]


def run_requests(
    job: str,
    names: Names,
    settings: Settings,
    instance: dg.DagsterInstance,
    datasets: Collection[str] | None,
    globs: Sequence[str],
    tags: dict[str, str],
    run_key: str | None = None,
) -> list[dg.RunRequest]:
    """The work of a job on some datasets: as runs over partitions where they are few and stand together, or else as a list.

    `globs` say the same as `datasets`, which are None where not all are known by name.
    """
    listed = dg.RunRequest(run_key, {"datasets": list(globs)}, tags, names.of(job))
    if datasets is None or len(datasets) > settings.automation.assets_up_to:
        return [listed]
    keys = set(by_store(datasets) if settings.partition_by == BY_STORE else datasets)
    stretches = stretches_of(keys, instance.get_dynamic_partitions(names.datasets))
    if not 0 < len(stretches) <= _MOST_RUNS:
        return [listed]
    # The partition of a store contains datasets that are not meant.
    takers = _ASSETS[job] if settings.partition_by == BY_STORE else ()
    config = {
        "ops": {
            names.of(asset.name): {"config": {"datasets": list(globs)}}
            for asset in takers
            if asset.form is not None and issubclass(asset.form, DatasetsConfig)
        }
    }
    return [
        dg.RunRequest(
            run_key and f"{run_key}-of-{number}",
            config if takers else {},
            {**tags, **_partition_tags(*stretch)},
            names.of(over_partitions(job)),
        )
        for number, stretch in enumerate(stretches)
    ]


def stretches_of(keys: Collection[str], partitions: Sequence[str]) -> list[tuple[str, str]]:
    """Some partitions as stretches, each by its first and its last one; none where one of the keys is no partition (yet).

    The order is that in which partitions were added, as Dagster has it in a range.
    """
    wanted = set(keys)
    if not wanted <= set(partitions):
        return []
    found: list[tuple[str, str]] = []
    before = None
    for key in partitions:
        if key in wanted:
            found = [*found[:-1], (found[-1][0], key)] if before in wanted else [*found, (key, key)]
        before = key
    return found


def _partition_tags(first: str, last: str) -> dict[str, str]:
    if first == last:
        return {"dagster/partition": first}
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
