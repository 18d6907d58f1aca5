"""Forecasts an environment, day by day, under its policies and under others. Nothing is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.evaluation.days import IN_FORCE, Forecast, ForecastDays
from retention_assets.evaluation.rules_in_force import rulebook_of_files
from retention_assets.frames.log import refusals_of
from retention_assets.people.command import command
from retention_assets.people.operation import (
    AsOf,
    DatasetGlobs,
    Flags,
    Kind,
    Markdown,
    Request,
    Result,
    Rows,
    Strict,
    operation,
)
from retention_assets.people.rehearsal import rehearse
from retention_assets.policy.durations import LONGEST_YEARS, text_of
from retention_assets.policy.language import load_policies
from retention_assets.render.forecast import ASSUMPTION, forecast_plot, forecast_texts, periods_of, summary
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.svg import strip
from retention_assets.render.text import size_of

_LAST_YEAR = 9_999
_COUNTS = ("marked", "deleted", "bytes_deleted")


class ForecastRequest(Request):
    """Days of a forecast, and other policies beside those in force."""

    days: int = Field(default=90, ge=1, le=1_000, description="How many days ahead.")
    policies: Annotated[tuple[Path, ...], Flags("-p", "--policies")] = Field(
        default=(), description="Show beside it what this policy file or folder would lead to; several may be given."
    )
    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None
    strict: Strict = False


@operation(
    Kind.LOOK,
    "retention forecast",
    "retention forecast --days 365 -p other-policies/ -f json",
    progress="living through {days:,} days",
    job="forecast",
    keeps_file=True,
)
def make_forecast(request: ForecastRequest, environment: Environment) -> Result:
    """Foresee, day by day, what will be stored, marked and deleted, and what it costs. Writes nothing, deletes nothing.

    Nothing new arrives, and each day has one run. A store that is away, and a dataset that is not sound, is named and left out.
    """
    found = forecast_environment(request, environment)
    return Result(
        tables=lambda: forecast_texts(found),
        failures=found.stores_left_out,
        refusals=found.datasets_left_out,
        data=found.as_dict(),
        page=lambda: (_answer(found), _metadata(found)),
    )


forecast = command(make_forecast, "forecast")


def forecast_environment(request: ForecastRequest, environment: Environment) -> Forecast:
    """Live through the days."""
    settings = environment.settings
    as_of = request.as_of or environment.present()
    if as_of.year + LONGEST_YEARS + request.days // 365 >= _LAST_YEAR:
        raise BadInput(Problem(f"is {text_of(as_of)}", key="as_of", expected="an instant after which there are years enough"))
    if not settings.stores:
        raise BadInput(Problem("the settings have no store, so there is nothing to forecast", key="stores"))
    others = [load_policies((path,)) for path in request.policies]
    names = (IN_FORCE, *map(str, request.policies))
    in_force, *beside = (ForecastDays.starting(name, as_of, request.days) for name in names)
    with rehearse(environment, request.datasets, scans=False, may_be_empty=True) as rehearsed:
        rulebooks = [rehearsed.rulebook, *(rulebook_of_files(rehearsed.copy, settings, files, as_of) for files in others)]
        refused = refusals_of(rehearsed.walk(list(zip((in_force, *beside), rulebooks, strict=True)), as_of))
        failed = {one.store.name for one in rehearsed.chosen if one.fault}
        away = {name: f"the store {name} failed: {why}" if name in failed else why for name, why in rehearsed.away.items()}
    prices = settings.prices
    return Forecast(as_of, in_force, tuple(beside), prices.currency if prices.are_set else None, refused, away)


def _answer(found: Forecast) -> Answer:
    first, *others = (summary(each, found.currency) for each in found.sets)
    return Answer(first, tuple(map(plain, (*others, ASSUMPTION, *found.left_out))))


def _metadata(found: Forecast) -> Mapping[str, Any]:
    """Sums, a plot, and few rows for each set of policies: the file has all days."""
    first, last, count = found.in_force.start, found.in_force.days[-1], len(found.in_force.days)
    words = f"{size_of(first.bytes)} become {size_of(last.bytes)} in {count} days"
    columns = {"policies": "string", "until": "string", **dict.fromkeys((*_COUNTS, "bytes"), "int")}
    money = {"month": "float"} if found.currency else {}
    rows = [
        (
            each.policies,
            part.last.date.isoformat(),
            *(getattr(part, name) for name in _COUNTS),
            part.last.bytes,
            *((part.last.month,) if money else ()),
        )
        for each in found.sets
        for part in periods_of(each)
    ]
    meanings = {"bytes": "what is stored then", "month": f"what a month of that costs, in {found.currency}"}
    return {
        "stored_by_day": Markdown(strip(words, [part.last.bytes for part in periods_of(found.in_force)])),
        "plot": forecast_plot(found),
        "bytes_now": first.bytes,
        "bytes_then": last.bytes,
        **{name: found.in_force.total(name) for name in _COUNTS},
        "left_out": len(found.refused) + len(found.away),
        "days": Rows({**columns, **money}, rows, meanings),
    }
