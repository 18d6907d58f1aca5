"""Simulates the cycle day by day, so that one sees marks come due and a sweep without waiting.

The history is what the stores have now: nothing new arrives.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field
from rich.table import Table

from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.days import IN_FORCE, ForecastDays
from retention_assets.frames.log import faults_of
from retention_assets.people.amounts import NOTHING, Amount
from retention_assets.people.command import command
from retention_assets.people.operation import DatasetGlobs, Flags, Instant, Kind, Request, Result, Strict, operation
from retention_assets.people.rehearsal import rehearse
from retention_assets.policy.durations import text_of
from retention_assets.render.terminal import table
from retention_assets.render.text import size_of

# amounts of a day, as their columns are called
_COLUMNS = {"newly_marked": "newly marked", "due": "due", "deleted": "deleted", "spared": "spared", "waiting": "then waiting"}


class SimulationRequest(Request):
    """Days of a simulation, and its datasets."""

    days: int = Field(ge=1, le=3_660, description="How many days, the first of them included.")
    datasets: DatasetGlobs = ("*",)
    begin: Annotated[Instant | None, Flags("--from")] = Field(
        default=None, description="Begin at this instant; at the present when left out."
    )
    strict: Strict = False


@dataclass(frozen=True)
class SimulatedDay:
    """Events of a day: `due` is what the sweep finds at its beginning, `waiting` what is marked at its end."""

    as_of: datetime
    newly_marked: Amount = NOTHING
    due: Amount = NOTHING
    deleted: Amount = NOTHING
    spared: Amount = NOTHING
    waiting: Amount = NOTHING

    @property
    def is_quiet(self) -> bool:
        return not (self.newly_marked.transactions or self.due.transactions or self.spared.transactions)

    def as_dict(self) -> dict[str, Any]:
        amounts = {name: value.as_dict() for name, value in vars(self).items() if isinstance(value, Amount)}
        return {"date": self.as_of.date().isoformat(), "as_of": self.as_of, **amounts}


@dataclass(frozen=True)
class Simulation:
    """Simulated days, and what could not take part: refused datasets, and stores that are away."""

    days: tuple[SimulatedDay, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    # number of spared marks by reason
    reasons: Mapping[str, int] = field(default_factory=dict)

    def total(self, name: str) -> Amount:
        """Sum of one of the amounts over all days."""
        return sum((getattr(one, name) for one in self.days), NOTHING)

    def as_dict(self) -> dict[str, Any]:
        return {
            "days": [one.as_dict() for one in self.days],
            "totals": {name: self.total(name).as_dict() for name in ("newly_marked", "deleted", "spared")},
            "spared_because": dict(self.reasons),
            "refused": dict(self.refused),
            "stores_away": dict(self.away),
        }


def make_simulation(request: SimulationRequest, environment: Environment) -> Simulation:
    """Live through the days. The stores are read, each once."""
    begin = request.begin or environment.present()
    days = ForecastDays.starting(IN_FORCE, begin, request.days)
    with rehearse(environment, request.datasets) as rehearsed:
        newest = rehearsed.copy.clock.times().newest_mark_at
        if newest and begin < newest:
            raise Refused(
                f"The newest mark of the ledger is of {text_of(newest)}: a simulation begins then or later, and not at"
                f" {text_of(begin)}. Leave --from out to begin now."
            )
        unswept = rehearsed.unswept()
        unsound = faults_of(rehearsed.walk([(days, rehearsed.rulebook)], begin, unswept))
        names = [name for one in rehearsed.chosen for name in one.datasets]
        refused = {name: unswept[store_of(name)] for name in names if store_of(name) in unswept} | unsound
        away = rehearsed.away
    simulated = (
        SimulatedDay(
            as_of=begin + timedelta(days=number),
            newly_marked=Amount(day.marked, day.bytes_marked),
            due=Amount(day.due, day.bytes_due),
            deleted=Amount(day.deleted, day.bytes_deleted),
            spared=Amount(day.spared, day.bytes_spared),
            waiting=Amount(day.waiting, day.bytes_waiting),
        )
        for number, day in enumerate(days.days)
    )
    return Simulation(tuple(simulated), dict(sorted(refused.items())), away, dict(sorted(days.spared_because.items())))


@operation(
    Kind.LOOK,
    "retention simulate --days 8",
    "retention simulate --days 30 -d 'lake/raw.*'",
    progress="living through {days:,} days",
)
def show_simulation(request: SimulationRequest, environment: Environment) -> Result:
    """Live through the next days on a copy: see marks come due and a sweep, without waiting and without a byte deleted.

    Policies, graces, holds, tags and realms are as they are. So is the history: nothing new arrives in it. Neither the ledger,
    the warehouse nor a store is written to, and there need not be a ledger yet.
    """
    found = make_simulation(request, environment)
    marked, deleted, spared = (found.total(name) for name in ("newly_marked", "deleted", "spared"))
    return Result(
        headline=(
            f"In {len(found.days):,} days: {marked.transactions:,} marked, {deleted.transactions:,} deleted"
            f" ({size_of(deleted.bytes)}), {spared.transactions:,} spared. This was a simulation: nothing was changed. What"
            " will arrive later is not in it."
        ),
        tables=lambda: _tables(found),
        failures=[f"{name}/* was not read: {why}" for name, why in found.away.items()],
        refusals=[f"{name} was refused: {why}" for name, why in found.refused.items()],
        data=found.as_dict(),
    )


simulate = command(show_simulation, "simulate")


def _tables(found: Simulation) -> Iterator[Table]:
    shown = [name for name in _COLUMNS if found.total(name).transactions]
    rows = [
        (
            day.as_of.date().isoformat(),
            *(f"{count:,}" if (count := getattr(day, name).transactions) else "" for name in shown),
            size_of(day.deleted.bytes) if day.deleted.transactions else "",
        )
        for day in found.days
        if not day.is_quiet
    ]
    columns = ("day", *(_COLUMNS[name] for name in shown), "freed")
    quiet = len(found.days) - len(rows)
    title = f"Day by day, without {quiet:,} on which nothing happens" if quiet else "Day by day"
    if rows:
        yield table(title, columns, rows, columns[1:])
    if found.reasons:
        why = [(f"{count:,}", words) for words, count in found.reasons.items()]
        yield table("Why marks were spared", ("marks", "why"), why, ("marks",))
