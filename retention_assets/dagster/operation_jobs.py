"""Makes jobs of operations: each is one step, with a form in the launchpad and an answer in the run.

A refusal ends as a failed run, with the sentence that the command would print.
"""

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from retention_assets.dagster.naming import Names
from retention_assets.dagster.run_config import refuse_variables
from retention_assets.dagster.step import actor_of, masking_faults, resources_in, show_unseen
from retention_assets.errors import BadInput, Refused
from retention_assets.failures import failure_text
from retention_assets.people.audit import audit_accept, audit_verify
from retention_assets.people.clock import clock_accept, clock_reset
from retention_assets.people.forecast import make_forecast
from retention_assets.people.history import make_explanation, open_history, show_upcoming
from retention_assets.people.holds import hold, release
from retention_assets.people.housekeeping import housekeeping
from retention_assets.people.marks import keep, unmark
from retention_assets.people.operation import (
    MOST_SHOWN,
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
from retention_assets.people.plan import show_plan
from retention_assets.people.policies import policy_overwrite, policy_revoke
from retention_assets.people.realms import change_realm
from retention_assets.people.scans import scan_accept
from retention_assets.people.visibility import advance_visibility
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import plot_metadata, table
from retention_assets.render.svg import Plot

OPERATIONS: Sequence[Operation[Any]] = (
    show_upcoming, make_explanation, open_history, show_plan, make_forecast, keep, unmark, hold, release, advance_visibility,
    change_realm, policy_overwrite, policy_revoke, clock_accept, clock_reset, audit_verify, audit_accept, scan_accept,
    housekeeping,
)  # fmt: skip
_ACTOR = Field(default="", description="Who does it, such as ann: the record keeps it, beside Dagster's user and run.")


def operation_jobs(names: Names) -> list[dg.JobDefinition]:
    """Make the jobs of an environment."""
    return [_job(operation, names) for operation in OPERATIONS]


def _job(operation: Operation[Any], names: Names) -> dg.JobDefinition:
    """Its form is the run's configuration, with the fields of the request; its answer is that of the result."""
    fields = [field for field in fields_of(operation.request) if field.only is not Only.COMMAND]
    is_recorded = issubclass(operation.request, RecordedRequest)
    typed_fields: dict[str, Any] = {"actor": (str, _ACTOR)} if is_recorded else {}
    typed_fields |= {field.name: _form_field(field) for field in fields}
    form = create_model(
        f"{operation.request.__name__}Form", __base__=dg.Config, __doc__=operation.request.__doc__, **typed_fields
    )

    @dg.op(
        name=names.of(f"{operation.job}_act"),
        config_schema=form.to_config_schema().config_type,
        out=dg.Out(dg.Nothing),
        required_resource_keys=names.resources,
    )
    @masking_faults()
    def op(context: dg.OpExecutionContext) -> None:
        filled: Any = form(**context.op_config)
        resources = resources_in(context.resources, names)
        context.log.addFilter(show_unseen)
        typed = {field.name: value for field in fields if _is_given(field, value := getattr(filled, field.name))}
        if is_recorded:
            typed["actor"] = actor_of(context.run_id, context.run.tags, filled.actor)
        try:
            refuse_variables(context.run.run_config)
            with operation.open(operation.request(**typed), resources.retention) as result:
                metadata = _shown(context.log, result)
                if operation.keeps_file:
                    folder = resources.warehouse.folder(names.key(operation.job).to_user_string(), context.run_id)
                    file = inside(folder, f"{operation.job}.json")
                    write_text(json_text(result.data, indent=2), file)
                    metadata["file"] = Path(file)
            context.add_output_metadata({name: _in_dagster(value) for name, value in metadata.items() if value is not None})
        except Exception as fault:
            words = failure_text(fault)
            if words is None:
                raise
            # The sentence of a refusal is all there is to know.
            raise dg.Failure(words, allow_retries=False) from (None if isinstance(fault, Refused | BadInput) else fault)

    @dg.graph(name=names.of(operation.job), description=operation.kind.describe(operation.help))
    def graph() -> None:
        op()

    flat = dg.ConfigMapping(lambda form: {"ops": {op.name: {"config": form}}}, form.to_config_schema(), False)
    return graph.to_job(config=flat, executor_def=dg.in_process_executor, tags=operation.kind.tags)


def _shown(log: dg.DagsterLogManager, result: Result) -> dict[str, Any]:
    """Answer first, then numbers and tables. Its first sentence stands in the log as well, where nobody has to click."""
    for warning in (*result.notes, *result.failures, *result.refusals)[:MOST_SHOWN]:
        log.warning(warning)
    if result.failed:
        for sentence in result.sentences[:MOST_SHOWN]:
            log.error(sentence)
        raise Refused("\n".join(result.failures))
    answer, metadata = result.page() if result.page else (result.answer, result.data)
    log.info(answer.headline)
    return {"answer": Markdown(answer.markdown), **metadata}


def _form_field(field: RequestField) -> Any:
    """Every field but a choice has a default, because Dagster puts only fields with one into an empty form."""
    if issubclass(field.type, Enum):
        return field.type, Field(description=field.help)
    if field.many:
        return list[str], Field(default=list(field.default or ()), description=field.help)
    kind = field.type if field.type in (bool, int) else str
    return kind, Field(default=field.default or kind(), description=field.help)


def _is_given(field: RequestField, value: Any) -> bool:
    """Tell whether a field of a form was filled in. The request itself refuses an empty one that it needs."""
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
