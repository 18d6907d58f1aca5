"""The step of all assets and their checks, and the jobs: over partitions, over a list of datasets, and one per operation.

Dagster raises failed blocking checks only after a step, which would be after the sweep. So the step evaluates the checks of
an asset before it begins the next one, and raises itself.

A selection of partitions costs Dagster events for each of them and can't name datasets that do not stand together; a list
costs nothing. In a job over a list each asset is an op: it reports its materialization, then its checks are evaluated, and no
op follows one whose blocking check failed.
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg

from retention_assets.dagster.assets import branch_views, candidate_marks, retention_policies, transaction_log
from retention_assets.dagster.check_queries import CHECKS
from retention_assets.dagster.checks import check_events
from retention_assets.dagster.naming import Names
from retention_assets.dagster.partitions import BACKFILL, RetentionAsset
from retention_assets.dagster.step import (
    AsOfConfig,
    JudgingConfig,
    Resources,
    SweepConfig,
    actor_of,
    masking_faults,
    resources_in,
    sentences_of_faults,
    show_unseen,
)
from retention_assets.dagster.sweeping import purge_report, state_events, swept_transactions
from retention_assets.errors import BadInput, Refused
from retention_assets.failures import failure_text
from retention_assets.people.audit import audit_accept, audit_verify
from retention_assets.people.clock import clock_accept, clock_reset
from retention_assets.people.history import make_explanation, open_history
from retention_assets.people.holds import hold, release
from retention_assets.people.housekeeping import housekeeping
from retention_assets.people.marks import keep, unmark
from retention_assets.people.operation import (
    MOST_SHOWN,
    Kind,
    Markdown,
    Only,
    Operation,
    RecordedRequest,
    RequestField,
    Result,
    Rows,
    fields_of,
    json_text,
)
from retention_assets.people.plan import show_plan, show_upcoming
from retention_assets.people.policies import policy_overwrite, policy_revoke
from retention_assets.people.realms import change_realm
from retention_assets.people.scans import scan_accept
from retention_assets.people.trash import empty_trash, forget_trash, restore
from retention_assets.people.visibility import advance_visibility
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import plot_metadata, table
from retention_assets.render.svg import Plot
from retention_assets.settings.model import Settings
from retention_assets.settings.sections import DagsterSettings

JUDGING = (retention_policies, transaction_log, branch_views, candidate_marks)
SWEEPING = (swept_transactions, purge_report)
# in the order in which a step makes them
CHAIN = (*JUDGING, *SWEEPING)
# name of the step
STEP = "retention"
_NO_PARTITION = (
    "Nothing was done: the assets have partitions, but this run names none. Choose partitions, or launch a job over lists, "
    "such as `delete_cycle`."
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
            config_schema=_form(fields_of(SweepConfig)),
            required_resource_keys=names.resources,
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=names.sweeps,
        )
        def retention(context: dg.AssetExecutionContext) -> Iterator[Any]:
            config = SweepConfig(**context.op_execution_context.op_config)
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
                    wanted = [
                        check for check in checks if check.key(step.key) in selected or (step.key in made and check.blocking)
                    ]
                    yield from check_events(replace(step, makes_nothing=not made), wanted, selected)
                # An event in a backfill would count as the report that the backfill is to make.
                if made and names.key(purge_report.name) not in made and BACKFILL not in context.run.tags:
                    yield from _state_events(context.instance, resources_in(context.resources, names))

        return retention


def _refuse_late_checks(context: dg.AssetExecutionContext, names: Names) -> None:
    graph = context.op_execution_context.job_def.asset_layer.asset_graph
    judging = {names.key(asset.name) for asset in JUDGING} & context.selected_asset_keys
    for key in graph.asset_check_keys - context.selected_asset_check_keys:
        if key.asset_key in judging and graph.get(key).blocking:
            raise dg.Failure(
                f"Nothing is swept: the blocking check {key.name} of {key.asset_key.to_user_string()} is evaluated only after"
                " this step. Materialize swept_transactions in a run of its own, once the check has passed.",
                allow_retries=False,
            )


@dataclass(frozen=True)
class AssetJob:
    """Job over a list of datasets, in which each asset is an op. `over_partitions` names the same over partitions."""

    name: str
    kind: Kind
    assets: Sequence[RetentionAsset]
    form: type[AsOfConfig]
    description: str

    @property
    def job(self) -> str:
        return self.kind.job(self.name)

    @property
    def over_partitions(self) -> str:
        return f"{self.job}_partitions"


_EVALUATE = "Load the policies, read the logs, compute views, judge every transaction, and mark what may go."
_SWEEP = "Delete marks whose grace is over, after a last look at each dataset. Then report."
_CYCLE = "Read, judge, mark, sweep what is due, and report."
_REPORT = "Write the report of a day: what was due and what became of it."
EVALUATE = AssetJob("evaluate", Kind.ACT, JUDGING, JudgingConfig, _EVALUATE)
SWEEP = AssetJob("sweep", Kind.DELETE, SWEEPING, SweepConfig, _SWEEP)
CYCLE = AssetJob("cycle", Kind.DELETE, CHAIN, SweepConfig, _CYCLE)
# A report is about all datasets, and has only a day to choose.
REPORT = AssetJob("report", Kind.ACT, (purge_report,), AsOfConfig, _REPORT)
ASSET_JOBS = (EVALUATE, SWEEP, CYCLE, REPORT)
_LOG_LEVEL = dg.Field(str, default_value="INFO", description="Log level of the console: DEBUG, INFO, WARNING or ERROR.")


def asset_jobs(names: Names) -> list[Any]:
    over_partitions = [
        dg.define_asset_job(
            names.of(job.over_partitions),
            selection=dg.AssetSelection.assets(*(names.key(asset.name) for asset in job.assets)),
            description=f"{job.kind.describe(job.description)} Runs over partitions, which the graph shows.",
            tags=job.kind.tags,
            executor_def=dg.in_process_executor,
        )
        for job in (EVALUATE, SWEEP)
    ]
    return [*(_list_job(names, job) for job in ASSET_JOBS), *over_partitions]


def _list_job(names: Names, job: AssetJob) -> dg.JobDefinition:
    ops, fields = [_op(names, job, asset) for asset in job.assets], _form(fields_of(job.form))

    @dg.graph(name=names.of(job.job), description=job.kind.describe(job.description))
    def graph() -> None:
        before = None
        for op in ops:
            before = op() if before is None else op(before)

    def fill_in(given: Mapping[str, Any]) -> dict[str, Any]:
        config = {"config": {field: given[field] for field in fields}}
        level = {"config": {"log_level": given["log_level"]}}
        return {"ops": {op.name: config for op in ops}, "loggers": {"console": level}}

    mapping = dg.ConfigMapping(fill_in, {**fields, "log_level": _LOG_LEVEL})
    return graph.to_job(config=mapping, executor_def=dg.in_process_executor, tags=job.kind.tags)


def _op(names: Names, job: AssetJob, asset: RetentionAsset) -> dg.OpDefinition:
    @dg.op(
        name=names.of(f"{job.name}_{asset.name}"),
        config_schema=_form(fields_of(job.form)),
        ins={} if asset is job.assets[0] else {"before": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=names.resources,
        pool=names.sweeps if asset is swept_transactions else None,
    )
    def op(context: dg.OpExecutionContext) -> Iterator[Any]:
        step = resources_in(context.resources, names).step(context, names.key(asset.name), job.form(**context.op_config))
        with sentences_of_faults():
            yield from asset.make(step, dg.AssetMaterialization)
            yield from check_events(step, CHECKS.get(asset.name, ()))
            if asset is job.assets[-1] is not purge_report:
                yield from _state_events(context.instance, resources_in(context.resources, names))

    return op


def _state_events(instance: dg.DagsterInstance, resources: Resources) -> list[dg.AssetMaterialization]:
    with resources.retention.ledger() as ledger:
        return list(state_events(instance, resources, ledger))


# what an operator needs in a browser; the rest is on the command line
_USUAL: Sequence[Operation[Any]] = (show_upcoming, make_explanation, keep, unmark, hold, release, restore)
OPERATIONS: Sequence[Operation[Any]] = (
    *_USUAL, open_history, show_plan, advance_visibility, change_realm, policy_overwrite, policy_revoke,
    clock_accept, clock_reset, audit_verify, audit_accept, scan_accept, housekeeping, forget_trash, empty_trash,
)  # fmt: skip
_ACTOR = dg.Field(
    str, default_value="", description="Your name for the record, such as ann. Dagster's user and run are recorded beside it."
)


def operation_jobs(settings: Settings, names: Names) -> list[dg.JobDefinition]:
    """Make the jobs that the settings ask for: the usual ones and those of schedules that are on, or all."""
    automation, operations = settings.automation, list(OPERATIONS)
    if settings.dagster.jobs == "usual":
        scheduled = ((housekeeping, automation.housekeeping), (audit_verify, automation.verify))
        operations = [*_USUAL, *(operation for operation, is_on in scheduled if is_on)]
    return [_operation_job(operation, names) for operation in operations]


def _operation_job(operation: Operation[Any], names: Names) -> dg.JobDefinition:
    fields = [field for field in fields_of(operation.request) if field.only is not Only.COMMAND]
    is_recorded = issubclass(operation.request, RecordedRequest)
    form = {"actor": _ACTOR, **_form(fields)} if is_recorded else _form(fields)

    @dg.op(
        name=names.of(operation.name),
        config_schema=form,
        out=dg.Out(dg.Nothing),
        required_resource_keys=names.resources,
    )
    @masking_faults()
    def op(context: dg.OpExecutionContext) -> None:
        resources = resources_in(context.resources, names)
        context.log.addFilter(show_unseen)
        typed = {field.name: value for field in fields if _is_given(field, value := context.op_config[field.name])}
        if is_recorded:
            typed["actor"] = actor_of(context.run_id, context.run.tags, context.op_config["actor"])
        try:
            with operation.open(operation.request(**typed), resources.retention) as result:
                metadata = _shown(context.log, result)
                if operation.keeps_file:
                    folder = resources.warehouse.folder(names.key(operation.name).to_user_string(), context.run_id)
                    file = inside(folder, f"{operation.name}.json")
                    write_text(json_text(result.data, indent=2), file)
                    metadata["file"] = Path(file)
            for event in _state_events(context.instance, resources) if is_recorded else ():
                context.log_event(event)
            context.add_output_metadata({name: _in_dagster(value) for name, value in metadata.items() if value is not None})
        except Exception as fault:
            sentence = failure_text(fault)
            if sentence is None:
                raise
            # The sentence of a refusal is all there is to know.
            raise dg.Failure(sentence, allow_retries=False) from (None if isinstance(fault, Refused | BadInput) else fault)

    @dg.graph(name=names.of(operation.job), description=operation.kind.describe(operation.help))
    def graph() -> None:
        op()

    flat = dg.ConfigMapping(lambda filled: {"ops": {op.name: {"config": filled}}}, form, False)
    return graph.to_job(config=flat, executor_def=dg.in_process_executor, tags=operation.kind.tags)


def _shown(log: dg.DagsterLogManager, result: Result) -> dict[str, Any]:
    for warning in (*result.notes, *result.failures, *result.refusals)[:MOST_SHOWN]:
        log.warning(warning)
    if result.failed:
        for sentence in result.sentences[:MOST_SHOWN]:
            log.error(sentence)
        raise Refused("\n".join(result.failures))
    answer, metadata = result.page() if result.page else (result.answer, result.data)
    log.info(answer.headline)
    return {"answer": Markdown(answer.markdown), **metadata}


def _form(fields: Iterable[RequestField]) -> dict[str, dg.Field]:
    """Make the fields of a form in the launchpad. They take only what is typed: Dagster's own texts take `{env: NAME}`, and
    would put the server's variable into the record.
    """
    form = {}
    for field in fields:
        kind: Any = field.type if field.type in (bool, int) else str
        default = list(field.default or ()) if field.many else field.default or kind()
        if issubclass(field.type, Enum):
            kind = dg.Enum(field.type.__name__, [dg.EnumValue(member.value) for member in field.type])
        # Dagster refuses to launch a form that lacks a field without a default.
        optional: Any = {} if field.required else {"default_value": default}
        form[field.name] = dg.Field([kind] if field.many else kind, description=field.help, **optional)
    return form


def _is_given(field: RequestField, value: Any) -> bool:
    # the request itself refuses an empty one that it needs
    return field.required or not (value == [] or (isinstance(value, str) and not value.strip()))


def _in_dagster(value: Any) -> Any:
    match value:
        case Markdown():
            return dg.MetadataValue.md(value)
        case Path():
            return dg.MetadataValue.path(str(value))
        case Plot():
            return plot_metadata(value)
        case Rows(columns, rows, meanings):
            return table(columns, (dict(zip(columns, row, strict=True)) for row in rows), meanings)
    plain = json.loads(json_text(value))
    return plain[:MOST_SHOWN] if isinstance(plain, list) else plain
