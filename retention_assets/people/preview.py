"""Previews what policies would decide about a log, and compares two sets of policies. Nothing is written or deleted."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import InvalidValue
from retention_assets.evaluation import preview as evaluation
from retention_assets.evaluation.preview import as_json
from retention_assets.frames.log import Log
from retention_assets.people.command import command
from retention_assets.people.operation import AsOf, Flags, Kind, LogFile, Only, PolicyFiles, Request, Result, Strict, operation
from retention_assets.people.policies import store_warnings
from retention_assets.people.sources import policies_of, read_all, rules_of
from retention_assets.render.tables import compare_tables, preview_tables


class PreviewRequest(Request):
    """Log and policies by which to judge it."""

    log: LogFile = None
    policies: PolicyFiles = ()
    as_of: AsOf = None
    most: Annotated[int, Flags("-n", "--most"), Only.COMMAND] = Field(
        default=20, ge=0, description="How many marks the table lists."
    )
    strict: Strict = False

    @property
    def needs_settings(self) -> bool:
        return not (self.log and self.policies)


@operation(
    Kind.LOOK,
    "retention preview",
    "retention preview -t 'in 30d'",
    "retention preview -l log.jsonl -p policies -f json",
    progress="reading and judging",
)
def make_preview(request: PreviewRequest, environment: Environment) -> Result:
    """Show what policies would decide about a log. Writes nothing, deletes nothing."""
    settings = environment.settings
    policies = policies_of(request.policies, settings)
    log, away = read_all(request.log, environment)
    rules, notes = rules_of(policies, log, settings)
    warnings = () if request.log else store_warnings(environment)
    found = evaluation.preview(log, rules, request.as_of or now())
    return Result(
        tables=lambda: preview_tables(found, request.most),
        pieces=lambda: as_json(found),
        notes=(*(f"{store}: {text}" for store, text in warnings), *notes),
        failures=away,
        refusals=_refusals(log),
    )


def _refusals(log: Log) -> tuple[str, ...]:
    refused = len(log.datasets) - log.datasets["fault"].null_count
    words = f"{refused} of {len(log.datasets)} datasets were refused: their logs are not sound."
    return (words,) if refused else ()


preview = command(make_preview, "preview")


def _two(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    if len(paths) != 2:
        raise InvalidValue(f"is given {len(paths)} times", "--policies exactly twice: before and after")
    return paths


class CompareRequest(Request):
    """Log, and two sets of policies by which to judge it."""

    log: LogFile = None
    policies: Annotated[PolicyFiles, AfterValidator(_two)] = Field(
        description="Give it twice: first the policies in force, then those to compare them with."
    )
    as_of: AsOf = None
    transactions: Annotated[bool, Only.COMMAND] = Field(
        default=False, description="With --format json, list every transaction as well as the sums."
    )
    strict: Strict = False

    @property
    def needs_settings(self) -> bool:
        return self.log is None


@operation(Kind.LOOK, "retention compare -p policies -p new-policies", progress="reading, and judging twice")
def make_comparison(request: CompareRequest, environment: Environment) -> Result:
    """Show what another set of policies would newly mark and no longer mark."""
    settings, at = environment.settings, request.as_of or now()
    before, after = (policies_of((path,), settings) for path in request.policies)
    log, away = read_all(request.log, environment)
    (old, notes), (new, more) = rules_of(before, log, settings), rules_of(after, log, settings)
    changes, rows = evaluation.compare(log, old, new, at)
    data: dict[str, Any] = {"changes": [vars(change) for change in changes]}
    if request.transactions:
        data["transactions"] = rows.to_pylist()
    return Result(
        tables=lambda: compare_tables(changes),
        notes=(*notes, *more),
        failures=away,
        refusals=_refusals(log),
        data=data,
    )


compare = command(make_comparison, "compare")
