"""The asset `purge_report`: the report of the day, in numbers, as a table and as a page."""

import dagster as dg

from retention_assets.dagster.asset_factory import retention_asset
from retention_assets.dagster.run_config import AsOfConfig
from retention_assets.dagster.step import Metadata, Step
from retention_assets.pipeline.stage import write_text
from retention_assets.render.dagster import DATA, plot_metadata, strip_metadata
from retention_assets.render.html import page_of
from retention_assets.render.plots import plots_of
from retention_assets.render.summaries import report_summary
from retention_assets.report import day_report

_MOST_SHOWN = 1000


@retention_asset(AsOfConfig, kinds={"html"}, deps=["swept_transactions"], partitioned=False)
def purge_report(run: Step) -> Metadata:
    """What the day was to delete and what became of it: deleted, already gone, failed, spared, taken back, and bytes.

    The numbers are the ledger's. A day on which nothing was due has its report as well: it says when somebody looked, and at
    what. The page is one file without links to elsewhere, to be kept or sent.
    """
    day = run.as_of.date()
    with run.retention.ledger() as ledger:
        ledger.reports.note_look(run.as_of, run.actor)
        report = day_report(ledger, day, prices=run.retention.settings.prices)
        plots = plots_of(ledger.pending, day, run.as_of)
    total = report.total
    page = f"{run.folder}/{day.isoformat()}.html"
    write_text(page_of(report, (plots.freed, plots.ages)), page)
    rows = [
        {"dataset": line.dataset, **line.counters, "finished": "yes" if line.finished_at else "no"}
        for line in report.lines[:_MOST_SHOWN]
    ]
    # All of it is about one day, so there are no groups: whoever builds on the report finds its numbers under their own names.
    return {
        "summary": dg.MetadataValue.md(report_summary(report)),
        "freed": strip_metadata(plots.days),
        "freed_by_day_and_policy": plot_metadata(plots.freed),
        "marks_by_age": plot_metadata(plots.ages),
        # Only what a browser may open from a page is a link; of a file on a disk the path is shown, to be copied.
        "page": dg.MetadataValue.url(page) if page.startswith(("http://", "https://")) else dg.MetadataValue.path(page),
        "execution_date": day.isoformat(),
        "finished": total.finished_at is not None or not report.lines,
        "datasets": len(report.lines),
        **total.counters,
        f"{DATA}by_dataset": dg.MetadataValue.json(rows),
    }
