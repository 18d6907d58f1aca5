"""The asset `purge_report`: the report of the day, in numbers, as a table and as a page."""

from dataclasses import replace
from datetime import timedelta

import dagster as dg

from retention_assets.dagster.retention_asset import retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.evaluation.fates import Fates
from retention_assets.ledger import Ledger
from retention_assets.ledger.states import Waiting
from retention_assets.people.realms import reported_realms
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import DATA, plot_metadata, strip_metadata
from retention_assets.render.html import page_of
from retention_assets.render.markdown import plain
from retention_assets.render.plots import plots_of
from retention_assets.render.summaries import report_summary
from retention_assets.report import day_report

_MOST_SHOWN = 1000
# Time for which a page stays where Dagster shows it; the ledger can make it again (`retention report --page`).
_KEPT = timedelta(days=30)


@retention_asset(kinds={"html"}, deps=["swept_transactions"], partitioned=False)
def purge_report(run: Step, ledger: Ledger) -> Metadata:
    """What the day was to delete and what became of it: deleted, already gone, failed, spared, taken back, and bytes.

    The numbers are the ledger's. A day on which nothing was due has its report as well: it says when somebody looked, and at
    what. The page is one file without links to elsewhere, to be kept or sent.
    """
    day = run.as_of.date()
    run.clean_warehouse(ledger, [run.key.path[-1]], _KEPT)
    waiting = Fates.recorded(ledger, run.as_of).pending(ledger)
    ledger.reports.note_look(run.as_of, run.actor, Waiting.of(waiting, run.as_of).due)
    report = replace(day_report(ledger, day, prices=run.retention.settings.prices), realms=reported_realms(ledger))
    plots = plots_of(ledger.pending, waiting, day, run.as_of)
    total = report.total
    page = inside(run.folder, f"{day.isoformat()}.html")
    write_text(page_of(report, (plots.freed, plots.ages)), page)
    run.log.info(f"The page of the report: {page}")
    rows = [
        {"dataset": line.dataset, **line.counters, "finished": "yes" if line.finished_at else "no"}
        for line in report.lines[:_MOST_SHOWN]
    ]
    # All of it is about one day, so there are no groups: tools that read the report find its numbers under their own names.
    return {
        "summary": dg.MetadataValue.md("\n\n".join([report_summary(report), *(plain(one.sentence) for one in report.realms)])),
        "freed": strip_metadata(plots.days),
        "freed_by_day_and_policy": plot_metadata(plots.freed),
        "marks_by_age": plot_metadata(plots.ages),
        # Only what a browser may open from a page is a link. Other files are shown by the path below the warehouse: a page is
        # as wide as its longest word, and a whole path would hide the ends of all sentences.
        "page": dg.MetadataValue.url(page) if page.startswith(("http://", "https://")) else run.warehouse.below(page),
        "execution_date": day.isoformat(),
        "finished": total.finished_at is not None or not report.lines,
        "datasets": len(report.lines),
        "ordered_by": list(total.ordered_by),
        **total.counters,
        f"{DATA}by_dataset": dg.MetadataValue.json(rows),
    }
