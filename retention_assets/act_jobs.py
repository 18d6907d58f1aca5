"""How one act on the ledger becomes a job: a form for the launchpad, one step, and the result where the run shows it.

Belongs here: the form that all acts share, what an act is given, and turning a refusal into a failed run with its sentence.
Does not belong here: the acts (acts.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import dagster as dg
from pydantic import Field

from retention_assets.policy.instants import (
    EXPECTED_DURATION,
    EXPECTED_INSTANT,
    Duration,
    parse_duration,
    parse_instant,
)
from retention_assets.problems import BadInput, Problem, Refused
from retention_assets.resources.retention import Retention
from retention_assets.resources.running import Materials, Metadata
from retention_assets.resources.warehouse import Warehouse

V = TypeVar("V")


class Form(dg.Config):
    """What every act asks for."""

    actor: str = Field(default="", description="Who does it: the record keeps it. Left out, it is the run.")


class Reasoned(Form):
    """What an act asks for that changes something."""

    reason: str = Field(description="Why it is done: the record keeps it.")


@dataclass(frozen=True)
class Doing:
    """What an act works on, and who does it."""

    actor: str
    run_id: str
    log: dg.DagsterLogManager
    retention: Retention
    warehouse: Warehouse


F = TypeVar("F", bound=dg.Config)
Act = Callable[[Doing, F], Metadata]


def act(form: type[F]) -> Callable[[Act[F]], dg.JobDefinition]:
    """Make a job of a function: its name is the job's, its docstring says what the job does, its form is the run's config."""

    def job_of(do: Act[F]) -> dg.JobDefinition:
        name = do.__name__
        op = _op(f"{name}_act", form, do)

        @dg.graph(name=name, description=do.__doc__)
        def graph() -> None:
            op()

        flat = dg.ConfigMapping(lambda said: {"ops": {op.name: {"config": said}}}, form.to_config_schema(), False)
        return graph.to_job(config=flat, executor_def=dg.in_process_executor)

    return job_of


def _op(name: str, form: type[F], do: Act[F]) -> dg.OpDefinition:
    @dg.op(name=name, config_schema=form.to_config_schema().config_type, out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext, materials: dg.ResourceParam[Materials]) -> None:
        said = form(**context.op_config)
        try:
            actor = _actor(said, context.run_id)
            doing = Doing(actor, context.run_id, context.log, materials.retention, materials.warehouse)
            context.add_output_metadata(dict(do(doing, said)))
        except (Refused, BadInput) as fault:
            raise dg.Failure(str(fault), allow_retries=False) from None

    return op


def _actor(said: dg.Config, run_id: str) -> str:
    """Who the record names; refused where it would keep nothing that says something."""
    if isinstance(said, Reasoned) and not said.reason.strip():
        remedy = "The record keeps who did what, and why."
        raise BadInput(Problem("is empty", key="reason", expected="some words", remedy=remedy))
    actor = said.actor.strip() if isinstance(said, Form) else ""
    if actor.startswith("::"):
        raise BadInput(Problem("begins with ::, as only the system's names do", key="actor", value=f"'{actor}'"))
    return actor or f"run {run_id}"


def length(words: str, key: str) -> Duration:
    """A duration that was typed."""
    return _read(words, key, parse_duration, EXPECTED_DURATION)


def instant(words: str, key: str) -> datetime:
    """An instant that was typed."""
    return _read(words, key, parse_instant, EXPECTED_INSTANT)


def _read(words: str, key: str, parse: Callable[[str], V], expected: str) -> V:
    try:
        return parse(words.strip())
    except ValueError as fault:
        raise BadInput(Problem(str(fault), key=key, value=f"'{words}'", expected=expected)) from None
