"""Foresees an environment day by day: a forecast under its policies and under others, and a simulation of its cycle.

The history is what the stores have now: nothing new arrives, and nothing is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from rich.table import Table

from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.days import IN_FORCE, Forecast, ForecastDays
from retention_assets.evaluation.rules_in_force import rulebook_of_files
from retention_assets.frames.log import faults_of, refusals_of
from retention_assets.people.amounts import NOTHING, Amount
from retention_assets.people.command import command
from retention_assets.people.operation import (
    AsOf,
    DatasetGlobs,
    Flags,
    Instant,
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
from retention_assets.policy.sentences import count
from retention_assets.policy.sizes import size_of
from retention_assets.render.forecast import ASSUMPTION, forecast_plot, forecast_texts, periods_of, summary
from retention_assets.render.markdown import Answer, plain
from retention_assets.render.svg import strip
from retention_assets.render.terminal import Count, Size, table

_LAST_YEAR = 9_999
_COUNTS = ("marked", "deleted", "bytes_deleted")


class ForecastRequest(Request):
    """Days of a forecast, and other policies beside those in force."""

    days: int = Field(default=90, ge=1, le=1_000, description="How many days ahead.")
    policies: Annotated[tuple[Path, ...], Flags("-p", "--policies")] = Field(
        default=(), description="Compare with this policy file or folder; may be repeated."
    )
    datasets: DatasetGlobs = ("*",)
    as_of: AsOf = None
    strict: Strict = False


@operation(
    Kind.LOOK,
    "retention forecast",
    "retention forecast --days 365 -p other-policies/ -f json",
    progress="simulating {days:,} days",
    name="forecast",
    keeps_file=True,
)
def make_forecast(request: ForecastRequest, environment: Environment) -> Result:
    """Forecast day by day what is stored, marked and deleted, and what it costs. Writes nothing, deletes nothing.

    Nothing new arrives, and each day has one run. Stores that are away and datasets that are not sound are named and left out.
    """
    foreseen = forecast_environment(request, environment)
    return Result(
        tables=lambda: forecast_texts(foreseen),
        failures=foreseen.stores_left_out,
        refusals=foreseen.datasets_left_out,
        data=foreseen.as_dict(),
        page=lambda: _page(foreseen),
    )


forecast = command(make_forecast, "forecast")


def forecast_environment(request: ForecastRequest, environment: Environment) -> Forecast:
    settings = environment.settings
    as_of = request.as_of or environment.present()
    if as_of.year + LONGEST_YEARS + request.days // 365 >= _LAST_YEAR:
        raise BadInput(Problem(f"is {text_of(as_of)}", key="as_of", expected="an earlier instant"))
    if not settings.stores:
        raise BadInput(Problem("the settings name no store: there is nothing to forecast", key="stores"))
    others = [load_policies((path,)) for path in request.policies]
    names = (IN_FORCE, *map(str, request.policies))
    in_force, *beside = (ForecastDays.starting(name, as_of, request.days) for name in names)
    with rehearse(environment, request.datasets, scans=False) as rehearsed:
        rulebooks = [rehearsed.rulebook, *(rulebook_of_files(rehearsed.copy, settings, files, as_of) for files in others)]
        refused = refusals_of(rehearsed.walk(list(zip((in_force, *beside), rulebooks, strict=True)), as_of))
        failed = {choice.store.name for choice in rehearsed.chosen if choice.fault}
        away = {name: f"the store {name} failed: {why}" if name in failed else why for name, why in rehearsed.away.items()}
    prices = settings.prices
    return Forecast(as_of, in_force, tuple(beside), prices.currency if prices.are_set else None, refused, away)


def _page(foreseen: Forecast) -> tuple[Answer, Mapping[str, Any]]:
    headline, *sentences = (summary(each, foreseen.currency) for each in foreseen.sets)
    first, last, count = foreseen.in_force.start, foreseen.in_force.days[-1], len(foreseen.in_force.days)
    words = f"{size_of(first.bytes)} become {size_of(last.bytes)} in {count} days"
    columns = {"policies": "string", "until": "string", **dict.fromkeys((*_COUNTS, "bytes"), "int")}
    money = {"month": "float"} if foreseen.currency else {}
    rows = [
        (
            each.policies,
            part.last.date.isoformat(),
            *(getattr(part, name) for name in _COUNTS),
            part.last.bytes,
            *((part.last.month,) if money else ()),
        )
        for each in foreseen.sets
        for part in periods_of(each)
    ]
    meanings = {"bytes": "stored then", "month": f"cost of a month, in {foreseen.currency}"}
    numbers = {
        "stored_by_day": Markdown(strip(words, [part.last.bytes for part in periods_of(foreseen.in_force)])),
        "plot": forecast_plot(foreseen),
        "bytes_now": first.bytes,
        "bytes_then": last.bytes,
        **{name: foreseen.in_force.total(name) for name in _COUNTS},
        "left_out": len(foreseen.refused) + len(foreseen.away),
        "days": Rows({**columns, **money}, rows, meanings),
    }
    return Answer(headline, tuple(map(plain, (*sentences, ASSUMPTION, *foreseen.left_out)))), numbers


# Amounts of a simulated day, by their counts in a walk: `due` is what the sweep finds at its beginning, `waiting` what is
# marked at its end.
_SIMULATED = {"newly_marked": "marked", "due": "due", "deleted": "deleted", "spared": "spared", "waiting": "waiting"}


class SimulationRequest(Request):
    """Days of a simulation, and its datasets."""

    days: int = Field(ge=1, le=3_660, description="How many days, the first of them included.")
    datasets: DatasetGlobs = ("*",)
    begin: Annotated[Instant | None, Flags("--from")] = Field(
        default=None, description="Begin at this instant; now by default."
    )
    strict: Strict = False


@operation(
    Kind.LOOK,
    "retention simulate --days 8",
    "retention simulate --days 30 -d 'lake/raw.*'",
    progress="simulating {days:,} days",
)
def show_simulation(request: SimulationRequest, environment: Environment) -> Result:
    """Simulate the next days on a copy: marks come due and a sweep deletes, without touching your data.

    Policies, graces, holds, tags, realms and history are those of today. No new data arrives. Nothing is written, and no
    ledger is needed.
    """
    begin = request.begin or environment.present()
    walked = ForecastDays.starting(IN_FORCE, begin, request.days)
    with rehearse(environment, request.datasets) as rehearsed:
        newest = rehearsed.copy.clock.times().newest_mark_at
        if newest and begin < newest:
            raise Refused(
                f"The newest mark of the ledger is of {text_of(newest)}: a simulation can't begin earlier, at "
                f"{text_of(begin)}. Leave --from out to begin now."
            )
        unswept = rehearsed.unswept()
        refused = faults_of(rehearsed.walk([(walked, rehearsed.rulebook)], begin, unswept))
        for name in rehearsed.names:
            if store_of(name) in unswept:
                refused.setdefault(name, unswept[store_of(name)])
    days = [
        {name: Amount(getattr(day, count), getattr(day, f"bytes_{count}")) for name, count in _SIMULATED.items()}
        for day in walked.days
    ]
    total = {name: sum((day[name] for day in days), NOTHING) for name in _SIMULATED}
    marked, deleted, spared = (total[name] for name in ("newly_marked", "deleted", "spared"))
    reasons = dict(sorted(walked.spared_because.items()))
    instants = [begin + timedelta(days=number) for number in range(len(days))]
    return Result(
        headline=(
            f"In {count(len(days), 'day')}: {marked.transactions:,} marked, {deleted.transactions:,} deleted "
            f"({size_of(deleted.bytes)}), {spared.transactions:,} spared. This was a simulation: nothing was changed. New "
            "data is not in it."
        ),
        tables=lambda: _simulation_tables(instants, days, total, reasons),
        failures=[f"{name}/* was not read: {why}" for name, why in rehearsed.away.items()],
        refusals=[f"{name} was refused: {why}" for name, why in sorted(refused.items())],
        data={
            "days": [
                {"date": at.date().isoformat(), "as_of": at, **{name: amount.as_dict() for name, amount in day.items()}}
                for at, day in zip(instants, days, strict=True)
            ],
            "totals": {name: total[name].as_dict() for name in ("newly_marked", "deleted", "spared")},
            "spared_because": reasons,
            "refused": dict(sorted(refused.items())),
            "stores_away": dict(rehearsed.away),
        },
    )


simulate = command(show_simulation, "simulate")


def _simulation_tables(
    instants: Sequence[datetime], days: Sequence[Mapping[str, Amount]], total: Mapping[str, Amount], reasons: Mapping[str, int]
) -> Iterator[Table]:
    shown = [name for name in _SIMULATED if total[name].transactions]
    rows = [
        (
            at.date(),
            *(day[name].transactions or None for name in shown),
            day["deleted"].bytes if day["deleted"].transactions else "",
        )
        for at, day in zip(instants, days, strict=True)
        if any(day[name].transactions for name in ("newly_marked", "due", "spared"))
    ]
    counts = ("then waiting" if name == "waiting" else name.replace("_", " ") for name in shown)
    columns = ("day", *map(Count, counts), Size("freed"))
    quiet = len(days) - len(rows)
    title = f"Day by day, without {quiet:,} with no change" if quiet else "Day by day"
    if rows:
        yield table(title, columns, rows)
    if reasons:
        yield table("Why marks were spared", (Count("marks"), "why"), [(count, why) for why, count in reasons.items()])
