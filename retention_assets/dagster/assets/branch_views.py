"""The asset `branch_views`: branches, views and protection of each transaction."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.compute as pc

from retention_assets.dagster.partition_events import DatasetPage, few, published_by
from retention_assets.dagster.retention_asset import retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.frames.log import LOG, faults_of
from retention_assets.ledger import Ledger
from retention_assets.pipeline.part_frames import ENDS, OF_VIEWS, SUMS, VIEWS, Views
from retention_assets.pipeline.stage import read_datasets, read_output, run_stage
from retention_assets.pipeline.warehouse import FOLDER
from retention_assets.render.dagster import VIEW_COLUMNS, branch_metadata, grouped
from retention_assets.render.summaries import branches_summary, views_summary

_COLUMNS = [name for name in LOG.names if name not in ("parent", "archived_at", "bytes", "files", "file_names", "attributes")]


def _pages(run: Step, ledger: Ledger, _: Metadata) -> Iterator[DatasetPage]:
    names = published_by(run, ledger)
    faults = faults_of(read_datasets(run.sources(ledger, "transaction_log")))
    yield from (DatasetPage(name, "", refused=faults[name]) for name in names if name in faults)
    shown = few(run, [name for name in names if name not in faults])
    ends = read_output(run.folder, ENDS, shown).to_pylist() if shown else []
    branches: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(ends, key=lambda row: (-row["transactions"], row["branch"])):
        branches.setdefault(row["dataset"], []).append(row)
    for name in shown:
        mine = branches.get(name, [])
        numbers = {"branches": len(mine), "in_latest_views": sum(row["transactions"] for row in mine)}
        yield DatasetPage(name, branches_summary(mine), numbers)


@retention_asset(kinds={"pyspark", "parquet"}, deps=["transaction_log"], pages=_pages)
def branch_views(run: Step, ledger: Ledger) -> Metadata:
    """One row per transaction: how many branches hold it, its newest view index (0 is a latest view), how many newer data
    transactions there are, when it left the latest view of the last branch, and which branch or tag protects it.
    """
    sources = run.sources(ledger, "transaction_log")
    written = run_stage(run.spark, sources, run.folder, OF_VIEWS, Views(run.as_of), _COLUMNS)
    datasets = read_datasets(sources)
    ledger.publications.publish(run.publications(datasets["dataset"].to_pylist()), run.actor)
    published = len(ledger.publications.datasets(run.asset))
    sums, ends = read_output(run.folder, SUMS), read_output(run.folder, ENDS)
    numbers = {name: pc.sum(sums[name]).as_py() or 0 for name in sums.column_names}
    return grouped(
        views_summary(len(datasets), faults_of(datasets), len(ends), numbers),
        {"datasets": published},
        {
            "dagster/row_count": written.rows[VIEWS],
            **numbers,
            "branches": branch_metadata(ends),
            "as_of": run.as_of.isoformat(),
            "dagster/column_schema": VIEW_COLUMNS,
            FOLDER: run.warehouse.below(run.folder),
        },
    )
