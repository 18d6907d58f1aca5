"""Jobs `evaluate`, `sweep`, `cycle` and `report`: the steps of the assets in sequence, over a list of datasets.

A selection of partitions costs Dagster events for each of them and can't name datasets that do not stand together; a list
costs nothing. Each step reports the materialization of its asset, whose checks are then evaluated; no step follows one
whose blocking check failed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from retention_assets.dagster.asset_factory import RetentionAsset
from retention_assets.dagster.assets.branch_views import branch_views
from retention_assets.dagster.assets.candidate_marks import candidate_marks
from retention_assets.dagster.assets.purge_report import purge_report
from retention_assets.dagster.assets.retention_policies import retention_policies
from retention_assets.dagster.assets.swept_transactions import swept_transactions
from retention_assets.dagster.assets.transaction_log import transaction_log
from retention_assets.dagster.checks.asset_checks import evaluate_checks
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partition_events import WITHOUT_PAGES, partition_events
from retention_assets.dagster.run_config import AsOfConfig, JudgingConfig, ListConfig, SweepConfig, SweepListConfig
from retention_assets.dagster.step import Step, resources_in
from retention_assets.people.operation import Kind

_JUDGING = (retention_policies, transaction_log, branch_views, candidate_marks)
_SWEEPING = (swept_transactions, purge_report)


def jobs(names: Names) -> list[dg.JobDefinition]:
    """The jobs of an environment."""
    return [
        _job(
            "evaluate",
            _JUDGING,
            names,
            Kind.ACT,
            "Load the policies, read the logs, compute views, judge every transaction, and mark what may go.",
        ),
        _job(
            "sweep",
            _SWEEPING,
            names,
            Kind.DELETE,
            "Delete what was marked and whose grace is over, after a last look at each dataset; then report.",
        ),
        _job("cycle", (*_JUDGING, *_SWEEPING), names, Kind.DELETE, "All of it: read, judge, mark, sweep what is due, report."),
        _report(names),
    ]


def _report(names: Names) -> dg.JobDefinition:
    """The last step alone, with only a day to choose: a report is about all datasets."""

    @dg.op(name=names.of("report_purge_report"), out=dg.Out(dg.Nothing), required_resource_keys=names.resources)
    def op(context: dg.OpExecutionContext, config: AsOfConfig) -> Iterator[Any]:
        step = resources_in(context.resources, names).of_op(context, names.key("purge_report"), config)
        yield from _materialize(step, purge_report)

    what = "Put the report of a day together: what was to go, and what became of it so far."

    @dg.graph(name=names.of("report"), description=Kind.ACT.describe(what))
    def graph() -> None:
        op()

    @dg.config_mapping
    def of_day(config: AsOfConfig) -> dg.RunConfig:
        return dg.RunConfig({op.name: config})

    return graph.to_job(config=of_day, executor_def=dg.in_process_executor, tags=Kind.ACT.tags)


def _job(name: str, assets: Sequence[RetentionAsset], names: Names, kind: Kind, description: str) -> dg.JobDefinition:
    ops = [_op(names, name, asset, is_first=not number) for number, asset in enumerate(assets)]

    @dg.graph(name=names.of(name), description=kind.describe(description))
    def graph() -> None:
        before = None
        for op in ops:
            before = op() if before is None else op(before)

    def everywhere(config: ListConfig) -> dg.RunConfig:
        judging = JudgingConfig(as_of=config.as_of, datasets=config.datasets)
        forms: dict[str, dg.Config] = {op.name: judging for op in ops}
        if isinstance(config, SweepListConfig):
            sweeping = SweepConfig(as_of=config.as_of, datasets=config.datasets, accept_large=config.accept_large)
            forms |= {op.name: sweeping for op, asset in zip(ops, assets, strict=True) if asset.sweeps}
        return dg.RunConfig(forms, loggers={"console": {"config": {"log_level": config.log_level}}})

    @dg.config_mapping
    def judge(config: ListConfig) -> dg.RunConfig:
        return everywhere(config)

    @dg.config_mapping
    def sweep(config: SweepListConfig) -> dg.RunConfig:
        return everywhere(config)

    mapping = sweep if kind is Kind.DELETE else judge
    return graph.to_job(config=mapping, executor_def=dg.in_process_executor, tags=kind.tags)


def _op(names: Names, job: str, asset: RetentionAsset, is_first: bool) -> dg.OpDefinition:
    form = SweepConfig if asset.sweeps else JudgingConfig

    @dg.op(
        name=names.of(f"{job}_{asset.name}"),
        config_schema=form.to_config_schema().config_type,
        ins={} if is_first else {"before": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=names.resources,
        pool=names.sweeps if asset.sweeps else None,
    )
    def op(context: dg.OpExecutionContext) -> Iterator[Any]:
        step = resources_in(context.resources, names).of_op(context, names.key(asset.name), form(**context.op_config))
        yield from _materialize(step, asset)

    return op


def _materialize(step: Step, asset: RetentionAsset) -> Iterator[Any]:
    """An event for each partition that the step worked on stands first, so that its page is right; the materialization as a
    whole stands last, with all metadata.
    """
    metadata = asset.do(step)
    with step.within_ledger() as opened:
        if asset.pages is not None and not WITHOUT_PAGES.items() <= step.run.tags.items():
            yield from partition_events(opened, asset.pages(opened, metadata))
        yield dg.AssetMaterialization(asset_key=step.key, metadata=metadata)
        yield from evaluate_checks(opened)
