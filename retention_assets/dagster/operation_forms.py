"""How one act on the ledger becomes a job: a form for the launchpad, one step, and the result where the run shows it.

Belongs here: the form that all acts share, what an act is given, and turning a refusal into a failed run with its sentence.
Does not belong here: the acts (operation_jobs.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import dagster as dg
from pydantic import Field

from retention_assets.dagster.naming import Names
from retention_assets.dagster.step import Metadata, resources_in
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy.durations import EXPECTED_DURATION, EXPECTED_INSTANT, Duration, parse_duration, parse_instant

V = TypeVar("V")


class OperationForm(dg.Config):
    """What every act asks for."""

    actor: str = Field(default="", description="Who does it: the record keeps it. Left out, it is the run.")


class ReasonForm(OperationForm):
    """What an act asks for that changes something."""

    reason: str = Field(description="Why it is done: the record keeps it.")


@dataclass(frozen=True)
class OperationContext:
    """What an act works on, and who does it."""

    actor: str
    run_id: str
    log: dg.DagsterLogManager
    retention: Environment
    warehouse: Warehouse
    names: Names


F = TypeVar("F", bound=dg.Config)


@dataclass(frozen=True)
class OperationJob(Generic[F]):
    """An act, before an environment has given its job a name."""

    form: type[F]
    do: Callable[[OperationContext, F], Metadata]

    def job(self, names: Names) -> dg.JobDefinition:
        """The job of an environment: called like the function, with its docstring; its form is the run's configuration."""
        op = self._op(names)

        @dg.graph(name=names.of(self.do.__name__), description=self.do.__doc__)
        def graph() -> None:
            op()

        flat = dg.ConfigMapping(lambda said: {"ops": {op.name: {"config": said}}}, self.form.to_config_schema(), False)
        return graph.to_job(config=flat, executor_def=dg.in_process_executor)

    def _op(self, names: Names) -> dg.OpDefinition:
        @dg.op(
            name=names.of(f"{self.do.__name__}_act"),
            config_schema=self.form.to_config_schema().config_type,
            out=dg.Out(dg.Nothing),
            required_resource_keys={names.resources},
        )
        def op(context: dg.OpExecutionContext) -> None:
            said, resources = self.form(**context.op_config), resources_in(context.resources, names)
            try:
                actor = _actor(said, context.run_id)
                doing = OperationContext(actor, context.run_id, context.log, resources.retention, resources.warehouse, names)
                context.add_output_metadata(dict(self.do(doing, said)))
            except (Refused, BadInput) as fault:
                raise dg.Failure(str(fault), allow_retries=False) from None

        return op


def operation_job(form: type[F]) -> Callable[[Callable[[OperationContext, F], Metadata]], OperationJob[F]]:
    """Make an act of a function that does it, by the form that is filled in for it."""
    return lambda do: OperationJob(form, do)


def _actor(said: dg.Config, run_id: str) -> str:
    """Who the record names; refused where it would keep nothing that says something."""
    if isinstance(said, ReasonForm) and not said.reason.strip():
        remedy = "The record keeps who did what, and why."
        raise BadInput(Problem("is empty", key="reason", expected="some words", remedy=remedy))
    actor = said.actor.strip() if isinstance(said, OperationForm) else ""
    if actor.startswith("::"):
        raise BadInput(Problem("begins with ::, as only the system's names do", key="actor", value=f"'{actor}'"))
    return actor or f"run {run_id}"


def duration_of(words: str, key: str) -> Duration:
    """A duration that was typed."""
    return _read(words, key, parse_duration, EXPECTED_DURATION)


def instant_of(words: str, key: str) -> datetime:
    """An instant that was typed."""
    return _read(words, key, parse_instant, EXPECTED_INSTANT)


def _read(words: str, key: str, parse: Callable[[str], V], expected: str) -> V:
    try:
        return parse(words.strip())
    except ValueError as fault:
        raise BadInput(Problem(str(fault), key=key, value=f"'{words}'", expected=expected)) from None
