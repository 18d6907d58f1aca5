"""Reports what was due for deletion on a day, or on several, and what became of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.fates import Fates
from retention_assets.ledger import Ledger
from retention_assets.people.command import command
from retention_assets.people.operation import DatasetGlobs, Day, Flags, Kind, Request, Result, operation, what_is_missing
from retention_assets.people.realms import reported_realms
from retention_assets.render.report import DayReport, as_json, day_report, days_report
from retention_assets.render.report_page import page_of
from retention_assets.render.summaries import looks_words
from retention_assets.render.svg import Plot, plots_of, since
from retention_assets.render.tables import report_tables

# days that a refusal names
_SHOWN = 5


class ReportRequest(Request):
    """Day, or first and last day, of a report, and the file of its page."""

    day: Annotated[Day | None, Flags(metavar="[DATE]")] = Field(default=None, description="One day.")
    first: Annotated[Day | None, Flags("--from", metavar="DATE")] = Field(
        default=None, description="The first day of a period."
    )
    last: Annotated[Day | None, Flags("--to", metavar="DATE")] = Field(default=None, description="The last day of a period.")
    datasets: DatasetGlobs = ("*",)
    html: Annotated[Path | None, Flags("--html", metavar="FILE")] = Field(
        default=None, description="Also write the report as a page to this file."
    )
    most: Annotated[int, Flags("-n", "--most")] = Field(default=20, ge=0, description="How many datasets the table lists.")

    @property
    def is_about_all(self) -> bool:
        return self.datasets == ("*",)


@operation(
    Kind.LOOK, "retention report", "retention report --from 2026-03-01 --to 2026-03-31 --html march.html", progress="reporting"
)
def make_report(request: ReportRequest, environment: Environment) -> Result:
    """Show what was due for deletion on DATE and what became of it. By default DATE is the newest day with a report.

    A day's report covers the marks that were due when the day began. Later ones count on the next day.
    """
    day, first, last = request.day, request.first, request.last
    if day and (first or last):
        raise BadInput(Problem("DATE stands beside --from or --to", remedy="Give one or the other."))
    if first and last and last < first:
        raise BadInput(Problem(f"--to {last} is before --from {first}"))
    report, plots = None, list[Plot]()
    with environment.ledger_if_any() as ledger:
        notes = list(what_is_missing(environment, ledger))
        reported = ledger.reports.days() if ledger else []
        if day or first or last:
            _check_days(reported, day or first, day or last)
        if ledger and reported:
            report = _report(ledger, reported, request)
            # Plots are about all datasets, so they would not fit what is said of some.
            if request.html and request.is_about_all:
                # what waits is known of the present only
                as_of, day = now(), report.last or report.execution_date
                drawn = plots_of(ledger.pending.freed(since(day)), Fates.recorded(ledger, as_of).pending(ledger), day, as_of)
                plots = [drawn.freed, drawn.ages] if day == as_of.date() else [drawn.freed]
    if report is None:
        unwritten = f". {request.html} was not written" if request.html else ""
        notes.append(f"no day has a report yet: the first sweep opens one{unwritten}")
    elif request.html:
        page = page_of(report, plots)
        try:
            request.html.write_text(page, "utf-8")
        except OSError as fault:
            raise BadInput(Problem(f"cannot be written: {fault.strerror}", file=str(request.html))) from None
        notes.append(f"the page is in {request.html}")
    sentences: list[str] = []
    if report and not report.lines:
        sentences = [f"Report of {report.when}", *looks_words(report), *(realm.sentence for realm in report.realms)]
    return Result(
        sentences=sentences,
        tables=lambda: report_tables(report, request.most) if report and report.lines else (),
        notes=notes,
        data=report.as_dict() if report else as_json(None, ()),
    )


report = command(make_report, "report")


def _check_days(days: Sequence[date], first: date | None, last: date | None) -> None:
    # a sum of nothing would look like a day without work
    if any((first is None or first <= day) and (last is None or day <= last) for day in days):
        return
    ends = (("from", first), ("to", last)) if first != last else (("of", first),)
    named = " ".join(f"{word} {day}" for word, day in ends if day)
    more = f" and {len(days) - _SHOWN:,} more back to {days[-1]}" if len(days) > _SHOWN else ""
    reported = f"Days that have one: {', '.join(map(str, days[:_SHOWN]))}{more}."
    raise Refused(f"There is no report {named}. {reported if days else 'No day has one yet: the first sweep opens one.'}")


def _report(ledger: Ledger, days: Sequence[date], request: ReportRequest) -> DayReport:
    if request.first or request.last:
        first, last = request.first or days[-1], request.last or days[0]
        chosen = [day for day in days if first <= day <= last]
        report = days_report(ledger, chosen, first, last, request.datasets)
    else:
        report = day_report(ledger, request.day or days[0], request.datasets)
    if not report.lines and (not request.is_about_all or not report.looks):
        raise Refused(f"No dataset in the report of {report.when} matches {', '.join(request.datasets)}.")
    if not request.is_about_all or (report.last or report.execution_date) < days[0]:
        # a realm's remainder is known of the present, and of all datasets together
        return report
    return replace(report, realms=reported_realms(ledger))
