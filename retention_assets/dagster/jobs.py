"""Jobs: the steps of the assets, one after the other, over a list of datasets instead of a selection of partitions.

Belongs here: `evaluate`, `sweep`, `cycle` and `report`. A selection of partitions costs Dagster events for each of them and
can't say "these forty, wherever they stand"; a list costs nothing. What a step makes is reported as a materialization of its
asset, whose checks are then evaluated; no step follows one whose blocking check failed.
Does not belong here: what a step does (assets), and what a check looks at (findings).
"""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from retention_assets.dagster.assets import (
    branch_views,
    candidate_marks,
    purge_report,
    retention_policies,
    swept_transactions,
    transaction_log,
)
from retention_assets.dagster.checks import evaluations
from retention_assets.dagster.naming import Names
from retention_assets.dagster.run_config import AsOfConfig, JudgingConfig, ListConfig
from retention_assets.dagster.step import Metadata, Step, resources_in
from retention_assets.dagster.worked_on import partitions_worked_on

StepFunction = Callable[[Step], Metadata]

_JUDGING: dict[str, StepFunction] = {
    "retention_policies": retention_policies.materialize,
    "transaction_log": transaction_log.materialize,
    "branch_views": branch_views.materialize,
    "candidate_marks": candidate_marks.materialize,
}
_SWEEPING: dict[str, StepFunction] = {
    "swept_transactions": swept_transactions.materialize,
    "purge_report": purge_report.materialize,
}


def jobs(names: Names) -> list[dg.JobDefinition]:
    """The jobs of an environment."""
    return [
        _job(
            "evaluate",
            _JUDGING,
            names,
            "Load the policies, read the logs, compute views, judge every transaction, and mark what may go. Deletes nothing.",
        ),
        _job(
            "sweep",
            _SWEEPING,
            names,
            "Delete what was marked and whose grace is over, after a last look at each dataset; then report.",
        ),
        _job("cycle", {**_JUDGING, **_SWEEPING}, names, "All of it: read, judge, mark, sweep what is due, report."),
        _report(names),
    ]


def _report(names: Names) -> dg.JobDefinition:
    """The last step alone. Nothing is asked but the day: a report is about all datasets."""

    @dg.op(name=names.of("report_purge_report"), out=dg.Out(dg.Nothing), required_resource_keys={names.materials})
    def op(context: dg.OpExecutionContext, config: AsOfConfig) -> Iterator[Any]:
        running = resources_in(context.resources, names).of_op(context, names.key("purge_report"), config)
        yield from _done(running, purge_report.materialize)

    @dg.graph(
        name=names.of("report"), description="Put the report of a day together: what was to go, and what became of it so far."
    )
    def graph() -> None:
        op()

    @dg.config_mapping
    def of_day(config: AsOfConfig) -> dg.RunConfig:
        return dg.RunConfig({op.name: config})

    return graph.to_job(config=of_day, executor_def=dg.in_process_executor)


def _job(name: str, steps: dict[str, StepFunction], names: Names, description: str) -> dg.JobDefinition:
    ops = [_op(names, name, step, work, is_first=not number) for number, (step, work) in enumerate(steps.items())]

    @dg.graph(name=names.of(name), description=description)
    def graph() -> None:
        before = None
        for op in ops:
            before = op() if before is None else op(before)

    @dg.config_mapping
    def everywhere(config: ListConfig) -> dg.RunConfig:
        step = JudgingConfig(as_of=config.as_of, datasets=config.datasets)
        console = {"console": {"config": {"log_level": config.log_level}}}
        return dg.RunConfig({op.name: step for op in ops}, loggers=console)

    return graph.to_job(config=everywhere, executor_def=dg.in_process_executor)


def _op(names: Names, job: str, step: str, work: StepFunction, is_first: bool) -> dg.OpDefinition:
    @dg.op(
        name=names.of(f"{job}_{step}"),
        ins={} if is_first else {"before": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={names.materials},
        pool=names.sweeps if step == "swept_transactions" else None,
    )
    def op(context: dg.OpExecutionContext, config: JudgingConfig) -> Iterator[Any]:
        yield from _done(resources_in(context.resources, names).of_op(context, names.key(step), config), work)

    return op


def _done(running: Step, work: StepFunction) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """A step, with what it made and what the checks of that say. What it made altogether stands last, with all that there is to
    see; before it a line for each partition, so that its page tells when it was last worked on.
    """
    metadata = work(running)
    for key in partitions_worked_on(running, metadata):
        yield dg.AssetMaterialization(asset_key=running.key, partition=key)
    yield dg.AssetMaterialization(asset_key=running.key, metadata=metadata)
    yield from evaluations(running)
