"""Jobs `evaluate`, `sweep`, `cycle` and `report`: the steps of the assets in sequence, over a list of datasets; and jobs over
partitions, `evaluate_partitions` and `sweep_partitions`, which Dagster's asset graph shows at work.

A selection of partitions costs Dagster events for each of them and can't name datasets that do not stand together; a list
costs nothing. Each step reports the materialization of its asset, whose checks are then evaluated; no step follows one
whose blocking check failed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.assets.purge_report import purge_report
from retention_assets.dagster.assets.swept_transactions import swept_transactions
from retention_assets.dagster.chain import CHAIN, JUDGING, SWEEPING
from retention_assets.dagster.checks.asset_checks import check_events
from retention_assets.dagster.checks.queries import CHECKS
from retention_assets.dagster.naming import Names, over_partitions
from retention_assets.dagster.retention_asset import RetentionAsset
from retention_assets.dagster.run_config import AsOfConfig, JudgingConfig, ListConfig, SweepConfig, SweepListConfig
from retention_assets.dagster.step import resources_in, sentences_of_faults
from retention_assets.people.operation import Kind

_EVALUATE = "Load the policies, read the logs, compute views, judge every transaction, and mark what may go."
_SWEEP = "Delete what was marked and whose grace is over, after a last look at each dataset; then report."
_CYCLE = "All of it: read, judge, mark, sweep what is due, report."
_REPORT = "Put the report of a day together: what was to go, and what became of it so far."
_EVALUATE_PARTITIONS = "Read, judge and mark the datasets of some partitions."
_SWEEP_PARTITIONS = "Delete what is due of the datasets of some partitions, after a last look at each; then report."
_Form = type[AsOfConfig]


def jobs(names: Names) -> list[dg.JobDefinition]:
    """The jobs over lists. A report is about all datasets, and has only a day to choose."""
    return [
        _job(names, "evaluate", JUDGING, Kind.ACT, _EVALUATE, JudgingConfig, ListConfig),
        _job(names, "sweep", SWEEPING, Kind.DELETE, _SWEEP, SweepConfig, SweepListConfig),
        _job(names, "cycle", CHAIN, Kind.DELETE, _CYCLE, SweepConfig, SweepListConfig),
        _job(names, "report", (purge_report,), Kind.ACT, _REPORT, AsOfConfig, AsOfConfig),
    ]


def partition_jobs(names: Names) -> list[Any]:
    """The jobs over partitions: each is the step of the assets, about some of them."""
    return [
        dg.define_asset_job(
            names.of(over_partitions(job)),
            selection=dg.AssetSelection.assets(*(names.key(asset.name) for asset in assets)),
            description=kind.describe(description),
            tags=kind.tags,
            executor_def=dg.in_process_executor,
        )
        for job, assets, kind, description in (
            ("evaluate", JUDGING, Kind.ACT, _EVALUATE_PARTITIONS),
            ("sweep", SWEEPING, Kind.DELETE, _SWEEP_PARTITIONS),
        )
    ]


def _job(
    names: Names, name: str, assets: Sequence[RetentionAsset], kind: Kind, description: str, form: _Form, launched: _Form
) -> dg.JobDefinition:
    """Steps in sequence. `form` is what each takes, `launched` what a person fills in for all of them."""
    ops = [_op(names, name, asset, asset is assets[0], form) for asset in assets]

    @dg.graph(name=names.of(name), description=kind.describe(description))
    def graph() -> None:
        before = None
        for op in ops:
            before = op() if before is None else op(before)

    def fill_in(given: Mapping[str, Any]) -> dict[str, Any]:
        config = {"config": {field: given[field] for field in form.model_fields}}
        level = {"console": {"config": {"log_level": given["log_level"]}}} if "log_level" in given else {}
        return {"ops": {op.name: config for op in ops}, "loggers": level}

    mapping = dg.ConfigMapping(fill_in, launched.to_config_schema())
    return graph.to_job(config=mapping, executor_def=dg.in_process_executor, tags=kind.tags)


def _op(names: Names, job: str, asset: RetentionAsset, is_first: bool, form: _Form) -> dg.OpDefinition:
    @dg.op(
        name=names.of(f"{job}_{asset.name}"),
        config_schema=form.to_config_schema().config_type,
        ins={} if is_first else {"before": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=names.resources,
        pool=names.sweeps if asset is swept_transactions else None,
    )
    def op(context: dg.OpExecutionContext) -> Iterator[Any]:
        step = resources_in(context.resources, names).step(context, names.key(asset.name), form(**context.op_config))
        with sentences_of_faults():
            yield from asset.make(step, dg.AssetMaterialization)
            yield from check_events(step, CHECKS.get(asset.name, ()))

    return op
