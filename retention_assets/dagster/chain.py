"""All assets and their checks as one multi-asset: a run of any of them is one step, in one process with one Spark session.

Dagster raises failed blocking checks only after a step, which would be after the sweep. So the step evaluates the checks of
an asset before it begins the next one, and raises itself.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.assets.branch_views import branch_views
from retention_assets.dagster.assets.candidate_marks import candidate_marks
from retention_assets.dagster.assets.purge_report import purge_report
from retention_assets.dagster.assets.retention_policies import retention_policies
from retention_assets.dagster.assets.swept_transactions import swept_transactions
from retention_assets.dagster.assets.transaction_log import transaction_log
from retention_assets.dagster.checks.asset_checks import check_events, check_specs
from retention_assets.dagster.checks.queries import CHECKS
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partition_events import all_refused, of_range, partition_events
from retention_assets.dagster.run_config import SweepConfig
from retention_assets.dagster.specs import RetentionAsset
from retention_assets.dagster.step import Step, masking_faults, resources_in
from retention_assets.settings.dagster import DagsterSettings

JUDGING = (retention_policies, transaction_log, branch_views, candidate_marks)
SWEEPING = (swept_transactions, purge_report)
# in the order in which a step makes them
CHAIN = (*JUDGING, *SWEEPING)
# name of the step
STEP = "retention"
_NO_PARTITION = (
    "Nothing is done: the assets have partitions, and this run names none. Choose partitions, or launch a job over lists, such"
    " as `cycle`."
)
# Dagster's tag for a run of a backfill
_BACKFILL = "dagster/backfill"


def chain(
    names: Names, catalog: DagsterSettings, sources: Sequence[dg.AssetKey], freshness: Mapping[str, dg.FreshnessPolicy]
) -> dg.AssetsDefinition:
    """Define the assets and checks of an environment; `sources` are its stores."""
    with warnings.catch_warnings():
        # Dagster warns that backfill policies and code references are in beta. pyproject.toml pins its release, so whoever
        # loads definitions can do nothing about it.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_asset(
            name=names.of(STEP),
            description="Makes the selected assets one after the other, and evaluates the checks of each before the next.",
            specs=[
                asset.spec(names, catalog, sources if asset is transaction_log else (), freshness.get(asset.name))
                for asset in CHAIN
            ],
            check_specs=check_specs(names),
            can_subset=True,
            required_resource_keys=names.resources,
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=names.sweeps,
        )
        def retention(context: dg.AssetExecutionContext, config: SweepConfig) -> Iterator[Any]:
            resources = resources_in(context.resources, names)
            selected = context.selected_asset_check_keys
            with masking_faults():
                for asset in CHAIN:
                    step = resources.of_asset(context, names.key(asset.name), config)
                    checks = CHECKS.get(asset.name, ())
                    is_made = step.key in context.selected_asset_keys
                    if is_made and asset.partitioned and step.datasets.keys is None:
                        raise dg.Failure(_NO_PARTITION, allow_retries=False)
                    if is_made and asset is swept_transactions:
                        _refuse_late_checks(context, names)
                    if is_made:
                        yield from _materialize(step, asset)
                    # A blocking check guards what follows, also where somebody has launched the asset without it.
                    wanted = [one for one in checks if one.key(step.key) in selected or (is_made and one.blocking)]
                    yield from check_events(step, wanted, selected)

        return retention


def _refuse_late_checks(context: dg.AssetExecutionContext, names: Names) -> None:
    """Refuse to sweep past a blocking check that a project has put on an asset of this step: it is evaluated afterwards."""
    graph = context.op_execution_context.job_def.asset_layer.asset_graph
    judging = {names.key(asset.name) for asset in JUDGING} & context.selected_asset_keys
    for key in graph.asset_check_keys - context.selected_asset_check_keys:
        if key.asset_key in judging and graph.get(key).blocking:
            raise dg.Failure(
                f"Nothing is swept: the blocking check {key.name} of {key.asset_key.to_user_string()} is evaluated only after"
                " this step. Materialize swept_transactions in a run of its own, once the check has passed.",
                allow_retries=False,
            )


def _materialize(step: Step, asset: RetentionAsset) -> Iterator[Any]:
    metadata = asset.do(step)
    keys = step.datasets.keys
    if asset.pages is None or keys is None:
        yield dg.MaterializeResult(asset_key=step.key, metadata=metadata)
        return
    with step.within_ledger() as opened:
        pages = list(asset.pages(opened, metadata))
    if why := all_refused(pages):
        raise dg.Failure(why, allow_retries=False)
    # Dagster writes the metadata of a result once for each partition. So each dataset's page is an event of its own, and so
    # is, as the last one, the page about all of them.
    is_single = len(keys) == 1 and not step.datasets.keys_are_stores
    own = next((page for page in pages if not page.idle), None) if is_single else None
    yield dg.MaterializeResult(asset_key=step.key, metadata=own.metadata if own else None)
    yield from partition_events(step, of_range([page for page in pages if page is not own], len(keys)))
    # Dagster ends a backfill at an event of a partitioned asset that names no partition, unless it is an observation.
    whole = dg.AssetObservation if _BACKFILL in step.run.tags else dg.AssetMaterialization
    yield whole(asset_key=step.key, metadata=metadata)
