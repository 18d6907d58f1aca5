"""Turn an operation into a job of one step, with a form in the launchpad and an answer in the run.

A refusal ends as a failed run, with the sentence that the command would print.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import dagster as dg
from pydantic import Field, create_model

from retention_assets.clock import now
from retention_assets.dagster.naming import Names
from retention_assets.dagster.run_config import refuse_variables
from retention_assets.dagster.step import Metadata, actor_of, masking_faults, resources_in, show_unseen
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.failures import failure_text
from retention_assets.people.operation import Kind, Only, Operation, RequestField, fields_of
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import EXPECTED_MOMENT, parse_moment, text_of
from retention_assets.render.markdown import Answer, with_code

# rows of a table in a run
MOST_SHOWN = 1000


class OperationForm(dg.Config):
    """What every operation asks for."""

    actor: str = Field(default="", description="Who does it, such as ann: the record keeps it, beside Dagster's user and run.")


@dataclass(frozen=True)
class OperationContext:
    """Environment and run of an operation. `actor` names the person who filled in the form, with the run."""

    actor: str
    run_id: str
    log: dg.DagsterLogManager
    environment: Environment
    warehouse: Warehouse
    names: Names

    def answer(self, found: Answer, fields: Metadata | None = None) -> Metadata:
        """What the run shows: the answer first, and after it numbers and tables. Its first sentence stands in the log as well,
        where nobody has to click.
        """
        self.log.info(found.headline)
        return {"answer": dg.MetadataValue.md(found.markdown), **(fields or {})}


F = TypeVar("F", bound=dg.Config)


@dataclass(frozen=True)
class OperationJob(Generic[F]):
    """An operation with its form, before an environment has given its job a name."""

    form: type[F]
    kind: Kind
    run: Callable[[OperationContext, F], Metadata]

    def job(self, names: Names) -> dg.JobDefinition:
        """The job of an environment: called like the function, with its docstring; its form is the run's configuration."""
        op = self._op(names)

        @dg.graph(name=names.of(self.run.__name__), description=self.kind.describe(self.run.__doc__ or ""))
        def graph() -> None:
            op()

        flat = dg.ConfigMapping(lambda form: {"ops": {op.name: {"config": form}}}, self.form.to_config_schema(), False)
        return graph.to_job(config=flat, executor_def=dg.in_process_executor, tags=self.kind.tags)

    def _op(self, names: Names) -> dg.OpDefinition:
        @dg.op(
            name=names.of(f"{self.run.__name__}_act"),
            config_schema=self.form.to_config_schema().config_type,
            out=dg.Out(dg.Nothing),
            required_resource_keys=names.resources,
        )
        @masking_faults()
        def op(context: dg.OpExecutionContext) -> None:
            form, resources = self.form(**context.op_config), resources_in(context.resources, names)
            context.log.addFilter(show_unseen)
            typed = form.actor if isinstance(form, OperationForm) else ""
            actor = actor_of(context.run_id, context.run.tags, typed)
            works_on = OperationContext(actor, context.run_id, context.log, resources.retention, resources.warehouse, names)
            try:
                refuse_variables(context.run.run_config)
                context.add_output_metadata(dict(self.run(works_on, form)))
            except Exception as fault:
                words = failure_text(fault)
                if words is None:
                    raise
                # The sentence of a refusal is all there is to know.
                raise dg.Failure(words, allow_retries=False) from (None if isinstance(fault, Refused | BadInput) else fault)

        return op


def operation_job(form: type[F], kind: Kind) -> Callable[[Callable[[OperationContext, F], Metadata]], OperationJob[F]]:
    """Make a job of a function that runs an operation, by the form that is filled in for it."""
    return lambda run: OperationJob(form, kind, run)


def metadata_table(columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> dg.MetadataValue:
    """A table as Dagster shows it: the type of each column by its name."""
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(*column) for column in columns.items()]))


def typed_name(text: str) -> str:
    """The name of a dataset. A form begins with an empty one."""
    if not text.strip():
        raise BadInput(Problem("is empty", key="dataset", expected="a dataset, as store/name"))
    return text.strip()


def typed_instant(text: str, key: str = "as_of") -> datetime | None:
    """An instant that names its zone, or one so far from the present; it may be left out."""
    try:
        return parse_moment(text.strip(), now()) if text.strip() else None
    except (ValueError, OverflowError) as fault:
        raise BadInput(Problem(str(fault), key=key, value=f"'{text}'", expected=EXPECTED_MOMENT)) from None


# --- jobs of declared operations ---


def declared(operation: Operation[Any, Any]) -> OperationJob[Any]:
    """Make a job of a declared operation: its form has the fields of the request, its answer the sentences of the result."""
    fields = [field for field in fields_of(operation.request) if field.only is not Only.COMMAND]
    form = create_model(
        f"{operation.request.__name__}Form", __base__=OperationForm, __doc__=operation.request.__doc__,
        **{field.name: _form_field(field) for field in fields},
    )  # fmt: skip

    def run(context: OperationContext, filled: dg.Config) -> Metadata:
        typed = {field.name: value for field in fields if _is_given(field, value := getattr(filled, field.name))}
        result = operation(operation.request(actor=context.actor, **typed), context.environment)
        remarks, sentences = result.remarks()[:MOST_SHOWN], result.sentences()[:MOST_SHOWN]
        for remark in remarks:
            context.log.warning(remark)
        if result.failed:
            for sentence in sentences:
                context.log.error(sentence)
            raise Refused(result.headline)
        answer = Answer(result.headline, tuple(map(with_code, (*remarks, *sentences, result.next))))
        return context.answer(answer, _metadata(result.as_dict()))

    run.__name__, run.__doc__ = operation.name, operation.help
    return OperationJob(form, operation.kind, run)


def _form_field(field: RequestField) -> Any:
    """Every field but a choice has a default, because Dagster puts only fields with one into an empty form."""
    if issubclass(field.type, Enum):
        return field.type, Field(description=field.help)
    if field.many:
        return list[str], Field(default=[], description=field.help)
    kind = field.type if field.type in (bool, int) else str
    return kind, Field(default=kind(), description=field.help)


def _is_given(field: RequestField, value: Any) -> bool:
    """Tell whether a field of a form was filled in. The request itself refuses an empty one that it needs."""
    return field.required or not (value == [] or (isinstance(value, str) and not value.strip()))


def _metadata(result: Mapping[str, Any]) -> Metadata:
    """Fields of a result, without those that are unknown, and as much of a list as a run shows."""
    plain = json.loads(json.dumps(result, default=lambda value: text_of(value) if isinstance(value, datetime) else str(value)))
    return {
        name: value[:MOST_SHOWN] if isinstance(value, list) else value for name, value in plain.items() if value is not None
    }
