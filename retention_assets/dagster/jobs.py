"""The step of all assets and their checks, and the jobs: over partitions, over a list of datasets, and one per operation.

Dagster raises failed blocking checks only after a step, which would be after the sweep. So the step evaluates the checks of
an asset before it begins the next one, and raises itself.

A selection of partitions costs Dagster events for each of them and can't name datasets that do not stand together. So a run
that names no partition makes the same assets of a list of datasets; its results are all events.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg

from retention_assets.dagster.assets import branch_views, candidate_marks, retention_policies, transaction_log
from retention_assets.dagster.check_queries import CHECKS
from retention_assets.dagster.checks import check_events
from retention_assets.dagster.forms import StepConfig, form_of, given_in
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import BACKFILL, RetentionAsset
from retention_assets.dagster.step import actor_of, mask_and_escape, resources_in, sentences_of_faults
from retention_assets.dagster.sweeping import purge_report, state_events, swept_transactions
from retention_assets.errors import Refused
from retention_assets.people.audit import audit_accept, audit_verify
from retention_assets.people.clock import clock_accept, clock_reset
from retention_assets.people.history import make_explanation, open_history
from retention_assets.people.holds import hold, release
from retention_assets.people.housekeeping import housekeeping
from retention_assets.people.marks import keep, unmark
from retention_assets.people.operation import (
    Kind,
    Operation,
    RecordedRequest,
    Result,
)
from retention_assets.people.plan import show_plan, show_upcoming
from retention_assets.people.policies import policy_overwrite, policy_revoke
from retention_assets.people.realms import change_realm
from retention_assets.people.replay import replay
from retention_assets.people.scans import scan_accept
from retention_assets.people.trash import empty_trash, forget_trash, restore
from retention_assets.people.visibility import advance_visibility
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import draw_table
from retention_assets.render.page import MOST_SHOWN, Table
from retention_assets.render.text import json_text, plain_json
from retention_assets.settings.model import Settings
from retention_assets.settings.sections import DagsterSettings

JUDGING = (retention_policies, transaction_log, branch_views, candidate_marks)
SWEEPING = (swept_transactions, purge_report)
CHAIN = (*JUDGING, *SWEEPING)  # in the order in which a step makes them
STEP = "retention"  # name of the step
_NO_PARTITION = (
    "Nothing was done: the assets have partitions, but this run names none. Choose partitions, or launch a job, such as "
    "`delete_cycle`, over a list of datasets."
)


def chain(
    names: Names, catalog: DagsterSettings, sources: Sequence[dg.AssetKey], freshness: Mapping[str, dg.FreshnessPolicy]
) -> dg.AssetsDefinition:
    """Define assets and checks; `sources` are the stores."""
    with warnings.catch_warnings():
        # Dagster warns that backfill policies and code references are in beta. pyproject.toml pins its release, so whoever
        # loads definitions can do nothing about it.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_asset(
            name=names.of(STEP),
            description="Materializes the selected assets in order, and evaluates the checks of each before the next.",
            specs=[
                asset.spec(names, catalog, sources if asset is transaction_log else (), freshness.get(asset.name))
                for asset in CHAIN
            ],
            check_specs=[
                dg.AssetCheckSpec(check.name, asset=names.key(asset), description=check.description, blocking=check.blocking)
                for asset, checks in CHECKS.items()
                for check in checks
            ],
            can_subset=True,
            required_resource_keys=names.resources,
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=names.sweeps,
        )
        def retention(context: dg.AssetExecutionContext, config: StepConfig) -> Iterator[Any]:
            op, job = context.op_execution_context, job_of(context.run, names)
            assets = job.assets if job else CHAIN
            made = context.selected_asset_keys & {names.key(asset.name) for asset in assets}
            has_partitions = context.has_partition_key or op.has_partition_key_range
            partitions = frozenset(context.partition_keys) if has_partitions else None
            if made and not has_partitions and job is None:
                raise dg.Failure(_NO_PARTITION, allow_retries=False)
            # Dagster takes no result of a check in a run that makes assets over a list: there it is an event.
            results = context.selected_asset_check_keys if has_partitions or not made else frozenset()
            resources = resources_in(context.resources, names)
            for asset in CHAIN:
                with sentences_of_faults(asset.name):
                    step = resources.step(op, names.key(asset.name), config, partitions)
                    if step.key in made:
                        if asset is swept_transactions:
                            _refuse_late_checks(context, names, made)
                        yield from asset.make(step)
                    # A blocking check guards what follows, also where somebody has launched the asset without it.
                    wanted = [
                        check
                        for check in CHECKS.get(asset.name, ())
                        if check.key(step.key) in context.selected_asset_check_keys or (step.key in made and check.blocking)
                    ]
                    yield from check_events(replace(step, makes_nothing=not made), wanted, results)
            # An event in a backfill would count as the report that the backfill is to make.
            if made and names.key(purge_report.name) not in made and BACKFILL not in context.run.tags:
                with sentences_of_faults(purge_report.name):
                    yield from state_events(context.instance, resources)

        return retention


def _refuse_late_checks(context: dg.AssetExecutionContext, names: Names, made: Collection[dg.AssetKey]) -> None:
    graph = context.op_execution_context.job_def.asset_layer.asset_graph
    judging = {names.key(asset.name) for asset in JUDGING}.intersection(made)
    for key in graph.asset_check_keys - context.selected_asset_check_keys:
        if key.asset_key in judging and graph.get(key).blocking:
            raise dg.Failure(
                f"Nothing is swept: the blocking check {key.name} of {key.asset_key.to_user_string()} is evaluated only after"
                " this step. Materialize swept_transactions in a run of its own, once the check has passed.",
                allow_retries=False,
            )


@dataclass(frozen=True)
class AssetJob:
    """Job that makes some of the assets: over partitions if a run names some, or else over a list of datasets."""

    name: str
    kind: Kind
    assets: Sequence[RetentionAsset]
    description: str

    @property
    def job(self) -> str:
        return self.kind.job(self.name)

    def keys(self, names: Names) -> list[dg.AssetKey]:
        return [names.key(asset.name) for asset in self.assets]

    def define(self, names: Names) -> Any:
        # Dagster takes no run without partitions whose step has an input with partitions: what the job's assets are made of is
        # selected as well, and not made.
        selected = CHAIN[: CHAIN.index(self.assets[-1]) + 1]
        # Dagster shows no tab for the launchpad of a job over partitions.
        form = f"[Launch it over a list of datasets]({names.of(self.job)}/playground), without a partition."
        return dg.define_asset_job(
            names.of(self.job),
            selection=dg.AssetSelection.assets(*(names.key(asset.name) for asset in selected)).without_checks()
            | dg.AssetSelection.checks_for_assets(*self.keys(names)),
            description=f"{self.kind.describe(self.description)} {form}",
            tags=self.kind.tags,
            executor_def=dg.in_process_executor,
        )


EVALUATE = AssetJob(
    "evaluate",
    Kind.ACT,
    JUDGING,
    "Load the policies, read the logs, compute views, judge every transaction, and mark what may go.",
)
SWEEP = AssetJob(
    "sweep", Kind.DELETE, SWEEPING, "Delete marks whose grace is over, after a last look at each dataset. Then report."
)
CYCLE = AssetJob("cycle", Kind.DELETE, CHAIN, "Read, judge, mark, sweep what is due, and report.")
REPORT = AssetJob("report", Kind.ACT, (purge_report,), "Write the report of a day: what was due and what became of it.")
ASSET_JOBS = (EVALUATE, SWEEP, CYCLE, REPORT)


def job_of(run: dg.DagsterRun, names: Names) -> AssetJob | None:
    return next((job for job in ASSET_JOBS if names.of(job.job) == run.job_name), None)


def step_config(names: Names, **fields: Any) -> dict[str, Any]:
    """Configure a run of assets."""
    return {"ops": {names.of(STEP): {"config": fields}}}


# operations that people need in a browser; the others are on the command line
_USUAL: Sequence[Operation[Any]] = (show_upcoming, make_explanation, keep, unmark, hold, release, restore)
OPERATIONS: Sequence[Operation[Any]] = (
    *_USUAL, open_history, show_plan, advance_visibility, change_realm, policy_overwrite, policy_revoke,
    clock_accept, clock_reset, audit_verify, audit_accept, scan_accept, housekeeping, forget_trash, empty_trash, replay,
)  # fmt: skip


def operation_jobs(settings: Settings, names: Names) -> list[dg.JobDefinition]:
    """Make the jobs that the settings ask for: the usual ones and those of schedules that are on, or all."""
    automation, operations = settings.automation, list(OPERATIONS)
    if settings.dagster.jobs == "usual":
        scheduled = ((housekeeping, automation.housekeeping), (audit_verify, automation.verify))
        operations = [*_USUAL, *(operation for operation, is_on in scheduled if is_on)]
    return [_operation_job(operation, names) for operation in operations]


def _operation_job(operation: Operation[Any], names: Names) -> dg.JobDefinition:
    form, is_recorded = form_of(operation), issubclass(operation.request, RecordedRequest)

    @dg.op(name=names.of(operation.name), out=dg.Out(dg.Nothing), required_resource_keys=names.resources)
    @sentences_of_faults()
    def op(context: dg.OpExecutionContext, config: form) -> None:  # type: ignore[valid-type]
        resources = resources_in(context.resources, names)
        context.log.addFilter(mask_and_escape)
        typed = dict(given_in(config, operation))
        if is_recorded:
            typed["actor"] = actor_of(context.run_id, context.run.tags, config.actor)  # type: ignore[attr-defined]
        with operation.open(operation.request(**typed), resources.retention) as result:
            metadata = _shown(context.log, result)
            if operation.keeps_file:
                folder = resources.warehouse.folder(names.key(operation.name).to_user_string(), context.run_id)
                file = inside(folder, f"{operation.name}.json")
                write_text(json_text(result.data, indent=2), file)
                metadata["file"] = Path(file)
        for event in state_events(context.instance, resources) if is_recorded else ():
            context.log_event(event)
        context.add_output_metadata({name: _in_dagster(value) for name, value in metadata.items() if value is not None})

    @dg.graph(name=names.of(operation.job), description=operation.kind.describe(operation.help))
    def graph() -> None:
        op()

    flat = dg.ConfigMapping(lambda filled: {"ops": {op.name: {"config": filled}}}, form.to_fields_dict(), False)
    return graph.to_job(config=flat, executor_def=dg.in_process_executor, tags=operation.kind.tags)


def _shown(log: dg.DagsterLogManager, result: Result) -> dict[str, Any]:
    for warning in (*result.notes, *result.failures, *result.refusals)[:MOST_SHOWN]:
        log.warning(warning)
    if result.failed:
        for sentence in result.sentences[:MOST_SHOWN]:
            log.error(sentence)
        raise Refused("\n".join(result.failures))
    answer, metadata = result.page() if result.page else (result.answer, result.numbers() if result.numbers else result.data)
    log.info(answer.headline)
    return {"answer": dg.MetadataValue.md(answer.markdown), **metadata}


def _in_dagster(value: Any) -> Any:
    match value:
        case dg.MetadataValue():
            return value
        case Path():
            return dg.MetadataValue.path(str(value))
        case Table():
            return draw_table(value)
    plain = plain_json(value)
    return plain[:MOST_SHOWN] if isinstance(plain, list) else plain
