"""Simulate the cycle day by day, so that one sees marks come due and a sweep without waiting.

The history is what the stores have now: nothing new arrives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.forecast import IN_FORCE, ForecastDays
from retention_assets.frames.log import faults_of
from retention_assets.people.amounts import NOTHING, Amount
from retention_assets.people.rehearsal import rehearse
from retention_assets.policy.durations import text_of

MOST_DAYS = 3_660


@dataclass(frozen=True, kw_only=True)
class SimulationRequest:
    """Number of days, start (default: now), and datasets: globs over store/name."""

    days: int
    begin: datetime | None = None
    datasets: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MOST_DAYS:
            raise BadInput(Problem("is out of range", key="days", value=str(self.days), expected=f"1 to {MOST_DAYS:,} days"))


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
        return {"date": self.as_of.date().isoformat(), "as_of": text_of(self.as_of), **amounts}


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


def simulate(request: SimulationRequest, environment: Environment) -> Simulation:
    """Live through the days. Nothing is written; the stores are read, each once."""
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
