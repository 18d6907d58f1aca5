"""Forecast an environment under its policies and under others. Nothing is written."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.forecast import IN_FORCE, Forecast, ForecastDays
from retention_assets.evaluation.rules_in_force import rulebook_of_files
from retention_assets.frames.log import refusals_of
from retention_assets.people.rehearsal import rehearse
from retention_assets.policy.durations import LONGEST_YEARS, text_of
from retention_assets.policy.language import load_policies

DAYS, MOST_DAYS = 90, 1_000
_LAST_YEAR = 9_999


@dataclass(frozen=True, kw_only=True)
class ForecastRequest:
    """Number of days, start (default: now), datasets, and other policies beside today's."""

    days: int = DAYS
    as_of: datetime | None = None
    datasets: tuple[str, ...] = ("*",)
    others: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MOST_DAYS:
            raise BadInput(Problem(f"is {self.days}", key="days", expected=f"a number of days from 1 to {MOST_DAYS:,}"))


def forecast(request: ForecastRequest, environment: Environment) -> Forecast:
    """Live through the days. A store that is away, and a dataset that is not sound, is named and left out."""
    settings = environment.settings
    as_of = request.as_of or environment.present()
    if as_of.year + LONGEST_YEARS + request.days // 365 >= _LAST_YEAR:
        raise BadInput(Problem(f"is {text_of(as_of)}", key="as_of", expected="an instant after which there are years enough"))
    if not settings.stores:
        raise BadInput(Problem("the settings have no store, so there is nothing to forecast", key="stores"))
    others = [load_policies((path,)) for path in request.others]
    names = (IN_FORCE, *map(str, request.others))
    in_force, *beside = (ForecastDays.starting(name, as_of, request.days) for name in names)
    with rehearse(environment, request.datasets, scans=False, may_be_empty=True) as rehearsed:
        rulebooks = [rehearsed.rulebook, *(rulebook_of_files(rehearsed.copy, settings, files, as_of) for files in others)]
        refused = refusals_of(rehearsed.walk(list(zip((in_force, *beside), rulebooks, strict=True)), as_of))
        failed = {one.store.name for one in rehearsed.chosen if one.fault}
        away = {name: f"the store {name} failed: {why}" if name in failed else why for name, why in rehearsed.away.items()}
    prices = settings.prices
    return Forecast(as_of, in_force, tuple(beside), prices.currency if prices.are_set else None, refused, away)
