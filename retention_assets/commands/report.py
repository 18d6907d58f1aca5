"""The command about what was due for deletion on a day, and what became of it.

Belongs here: `report`: which days are meant, and what to print where none has a report.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retention_assets.clock import now
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.people.common.options import FORMAT, examples
from retention_assets.people.common.output import echo, print_json, print_tables, progress, say
from retention_assets.people.common.sources import find_environment, ledger_to_read

if TYPE_CHECKING:
    from retention_assets.environment import Environment
    from retention_assets.evaluation.forecast import Forecast
    from retention_assets.ledger import Ledger
    from retention_assets.render.svg import Plot
    from retention_assets.report import DayReport
    from retention_assets.settings.prices import Prices

_SHOWN = 5


class DayParam(click.ParamType[date]):
    """A day of the calendar, in UTC."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Read the day, or fail with what was expected."""
        try:
            return value if isinstance(value, date) else date.fromisoformat(value)
        except ValueError:
            self.fail(f"'{value}' is not a day; expected one such as 2026-01-31", param, ctx)


@examples("retention report", "retention report --from 2026-03-01 --to 2026-03-31 --html march.html")
@click.command()
@click.argument("day", type=DayParam(), required=False, metavar="[DATE]")
@click.option("--from", "first", type=DayParam(), metavar="DATE", help="Add up the days from this one on.")
@click.option("--to", "last", type=DayParam(), metavar="DATE", help="Add up the days up to this one.")
@click.option("-d", "--dataset", "globs", multiple=True, metavar="GLOB", help="Only these datasets; may be repeated.")
@FORMAT
@click.option(
    "--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write the report also as a page to this file."
)
@click.option(
    "-n", "--most", type=click.IntRange(min=0), default=20, show_default=True, help="How many datasets the table lists."
)
@click.option(
    "--forecast", "days", type=click.IntRange(1, 1_000), metavar="DAYS",
    help="With --html, show on the page also what is to come in so many days.",
)  # fmt: skip
def report(
    day: date | None,
    first: date | None,
    last: date | None,
    globs: tuple[str, ...],
    format_: str,
    page: Path | None,
    days: int | None,
    most: int,
) -> None:
    """Show what was due for deletion on DATE and what became of it. Without DATE, show the newest day that has a report.

    Due on a day is what was due when it began. What became due later belongs to the next day.
    """
    if day and (first or last):
        raise click.UsageError("DATE is one day, --from and --to are several: give one or the other.")
    if first and last and last < first:
        raise click.UsageError(f"--to {last} is before --from {first}.")
    if days and not page:
        raise click.UsageError("--forecast is for the page: name one with --html FILE, or ask `retention forecast`.")
    found, plots, environment = None, list["Plot"](), find_environment()
    with ledger_to_read(environment) as ledger:
        reported = ledger.reports.days() if ledger else []
        if day or first or last:
            _check_days(reported, day or first, day or last)
        if ledger and reported:
            found = _report(ledger, reported, environment.settings.prices, day, first, last, globs)
            # Plots are about all datasets, so they would not fit what is said of some.
            plots = _plots(ledger, found) if page and not globs else []
    if found and page:
        from retention_assets.render.html import page_of

        foreseen = _foresee(environment, days, globs) if days else None
        _write(page_of(found, plots, foreseen), page)
    _show(found, format_, most)
    if found is None:
        say(f"no day has a report yet: the first sweep opens one{f'. {page} was not written' if page else ''}")


def _plots(ledger: "Ledger", found: "DayReport") -> list["Plot"]:
    """What was freed up to the report's last day; what waits is known of the present only."""
    from retention_assets.evaluation.fates import Fates
    from retention_assets.render.plots import plots_of

    as_of, day = now(), found.last or found.execution_date
    plots = plots_of(ledger.pending, Fates.recorded(ledger, as_of).pending(ledger), day, as_of)
    return [plots.freed, plots.ages] if day == as_of.date() else [plots.freed]


def _foresee(environment: "Environment", days: int, globs: Sequence[str]) -> "Forecast":
    """What is to come, as of the present; what could not be foreseen is said."""
    from retention_assets.people.forecast import ForecastRequest, forecast

    with progress(f"living through {days:,} days"):
        found = forecast(ForecastRequest(days=days, datasets=tuple(globs) or ("*",)), environment)
    for words in found.left_out:
        say(words)
    return found


def _write(text: str, file: Path) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as fault:
        raise BadInput(Problem(f"cannot be written: {fault.strerror}", file=str(file))) from None
    say(f"the page is in {file}")


def _check_days(days: Sequence[date], first: date | None, last: date | None) -> None:
    """Refuse days of which none has a report: a sum of nothing would look like a day without work."""
    if any((first is None or first <= day) and (last is None or day <= last) for day in days):
        return
    ends = (("from", first), ("to", last)) if first != last else (("of", first),)
    named = " ".join(f"{word} {day}" for word, day in ends if day)
    raise Refused(f"There is no report {named}. {_days_with_report(days)}")


def _days_with_report(days: Sequence[date]) -> str:
    if not days:
        return "No day has one yet: the first sweep opens one."
    shown = ", ".join(map(str, days[:_SHOWN]))
    more = f" and {len(days) - _SHOWN:,} more back to {days[-1]}" if len(days) > _SHOWN else ""
    return f"Days that have one: {shown}{more}."


def _report(
    ledger: "Ledger",
    days: Sequence[date],
    prices: "Prices",
    day: date | None,
    first: date | None,
    last: date | None,
    globs: Sequence[str],
) -> "DayReport":
    """The report of the days that were named, `days` being those that have one, newest first."""
    from retention_assets.report import day_report, days_report

    datasets = globs or ("*",)
    if first or last:
        first, last = first or days[-1], last or days[0]
        found = days_report(ledger, [one for one in days if first <= one <= last], first, last, datasets, prices)
    else:
        found = day_report(ledger, day or days[0], datasets, prices)
    if not found.lines and (globs or not found.looks):
        raise Refused(f"No dataset in the report of {found.when} fits {', '.join(datasets)}.")
    if globs or (found.last or found.execution_date) < days[0]:
        # What is left of a realm is known of the present, and of all datasets together.
        return found
    from retention_assets.people.realms import reported_realms

    return replace(found, realms=reported_realms(ledger))


def _show(found: "DayReport | None", format_: str, most: int) -> None:
    if format_ == "json":
        from retention_assets.report import as_json

        print_json(found.as_dict() if found else as_json(None, ()))
    elif found:
        from retention_assets.render.report_tables import report_tables
        from retention_assets.render.summaries import looks_words

        if found.lines:
            print_tables(report_tables(found, most))
        else:
            echo("\n".join([f"Report of {found.when}", *looks_words(found), *(one.sentence for one in found.realms)]))
