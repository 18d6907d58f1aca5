"""All assets and their checks as one multi-asset: a run of any of them is one step, in one process with one Spark session.

Dagster raises failed blocking checks only after a step, which would be after the sweep. So the step evaluates the checks of
an asset before it begins the next one, and raises itself.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from retention_assets.dagster.run_config import SweepConfig
from retention_assets.dagster.step import resources_in, sentences_of_faults
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
            op, made, selected = context.op_execution_context, context.selected_asset_keys, context.selected_asset_check_keys
            has_partitions = context.has_partition_key or op.has_partition_key_range
            partitions = frozenset(context.partition_keys) if has_partitions else None
            with sentences_of_faults():
                for asset in CHAIN:
                    step = resources_in(context.resources, names).step(op, names.key(asset.name), config, partitions)
                    checks = CHECKS.get(asset.name, ())
                    if step.key in made:
                        if asset.partitioned and partitions is None:
                            raise dg.Failure(_NO_PARTITION, allow_retries=False)
                        if asset is swept_transactions:
                            _refuse_late_checks(context, names)
                        yield from asset.make(step, dg.MaterializeResult)
                    # A blocking check guards what follows, also where somebody has launched the asset without it.
                    wanted = [one for one in checks if one.key(step.key) in selected or (step.key in made and one.blocking)]
                    yield from check_events(replace(step, makes_nothing=not made), wanted, selected)

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
