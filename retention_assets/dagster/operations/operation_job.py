"""Turn an operation into a job of one step, with a form in the launchpad and an answer in the run.

A refusal ends as a failed run, with the sentence that the command would print.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import dagster as dg
from pydantic import Field

from retention_assets.clock import now
from retention_assets.dagster.naming import Names
from retention_assets.dagster.operations.job_kinds import JobKind
from retention_assets.dagster.run_config import refuse_variables
from retention_assets.dagster.step import Metadata, actor_of, masking_faults, resources_in, show_unseen
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.failures import failure_text
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import (
    EXPECTED_DURATION,
    EXPECTED_MOMENT,
    Duration,
    parse_duration,
    parse_moment,
)
from retention_assets.render.markdown import Answer

V = TypeVar("V")
# rows of a table in a run
MOST_SHOWN = 1000


class OperationForm(dg.Config):
    """What every operation asks for."""

    actor: str = Field(default="", description="Who does it, such as ann: the record keeps it, beside Dagster's user and run.")


class ReasonForm(OperationForm):
    """What an operation asks for that changes something."""

    # Has a default, because Dagster puts only fields with one into an empty form. An empty reason is refused.
    reason: str = Field(default="", description="Why it is done: the record keeps it. Such as: the audit of 2026 needs it.")


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
    kind: JobKind
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


def operation_job(form: type[F], kind: JobKind) -> Callable[[Callable[[OperationContext, F], Metadata]], OperationJob[F]]:
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


def typed_duration(text: str, key: str) -> Duration:
    """A duration, as policies have it."""
    return _parsed(text, key, parse_duration, EXPECTED_DURATION)


def typed_instant(text: str, key: str) -> datetime:
    """An instant that names its zone, or one so far from the present."""
    return _parsed(text, key, lambda typed: parse_moment(typed, now()), EXPECTED_MOMENT)


def typed_instant_if_any(text: str, key: str = "as_of") -> datetime | None:
    """An instant that may be left out."""
    return typed_instant(text, key) if text.strip() else None


def _parsed(text: str, key: str, parse: Callable[[str], V], expected: str) -> V:
    try:
        return parse(text.strip())
    except (ValueError, OverflowError) as fault:
        raise BadInput(Problem(str(fault), key=key, value=f"'{text}'", expected=expected)) from None
