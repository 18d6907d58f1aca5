"""The asset `purge_report`: the report of the day, in numbers, as a table and as a page."""

import dagster as dg

from retention_assets.day_report import day_report
from retention_assets.ledger.reports import COUNTERS
from retention_assets.report_page import page_of
from retention_assets.resources.launch import AsOf
from retention_assets.resources.running import Materials, Metadata, Running
from retention_assets.resources.stage import write_text

_MOST_SHOWN = 1000


def materialize(run: Running) -> Metadata:
    """Put the day's numbers together, and write the page."""
    day = run.as_of.date()
    with run.retention.ledger() as ledger:
        report = day_report(ledger, day)
    total = report.total
    page = f"{run.folder}/{day.isoformat()}.html"
    write_text(page_of(report), page)
    columns = [dg.TableColumn("dataset"), *(dg.TableColumn(name, "int") for name in COUNTERS), dg.TableColumn("finished")]
    records = [
        dg.TableRecord({"dataset": line.dataset, **line.counters, "finished": "yes" if line.finished_at else "no"})
        for line in report.lines[:_MOST_SHOWN]
    ]
    return {
        "execution_date": day.isoformat(),
        "page": dg.MetadataValue.path(page),
        "datasets": len(report.lines),
        "finished": total.finished_at is not None,
        **total.counters,
        "by_dataset": dg.MetadataValue.table(records, dg.TableSchema(columns)),
    }


@dg.asset(group_name="retention", kinds={"html"}, deps=["swept_transactions"])
def purge_report(
    context: dg.AssetExecutionContext, config: AsOf, materials: dg.ResourceParam[Materials]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """What the day was to delete and what became of it: deleted, already gone, failed, spared, taken back, and bytes.

    The numbers are the ledger's. The page is one file without links to elsewhere, to be kept or sent.
    """
    return dg.MaterializeResult(metadata=materialize(materials.of_asset(context, config)))
