"""The asset `transaction_log`: the sound logs of all stores, clustered by dataset, as Parquet."""

from collections.abc import Iterator

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.dagster.partition_events import DatasetPage, few
from retention_assets.dagster.progress import report_store_warnings
from retention_assets.dagster.purged_realms import close_realms_of_nothing
from retention_assets.dagster.retention_asset import retention_asset
from retention_assets.dagster.step import Metadata, Step
from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import holds_of_files
from retention_assets.frames.log import SUMMED, faults_of, sums_by
from retention_assets.ledger import Ledger
from retention_assets.pipeline.head_file import is_away, place_faults
from retention_assets.pipeline.read_logs import COLUMNS, LARGEST, read_stores
from retention_assets.pipeline.read_tokens import write_begun, write_tokens
from retention_assets.pipeline.scans import RunScans, SparkScanner, scan_stores
from retention_assets.pipeline.stage import Source, read_datasets, read_output, read_transactions
from retention_assets.pipeline.warehouse import FOLDER
from retention_assets.render.dagster import LOG_COLUMNS, grouped, log_metadata, scan_metadata
from retention_assets.render.summaries import log_summary, logs_summary
from retention_assets.stores.logs import ChosenDatasets, choose_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import Store

MOST_REFUSED_SHOWN = 1000


def _pages(run: Step, _: Ledger, __: Metadata) -> Iterator[DatasetPage]:
    datasets = read_datasets([Source(run.folder)])
    faults = faults_of(datasets)
    yield from (DatasetPage(name, "", refused=fault) for name, fault in faults.items())
    transactions = dict(zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True))
    shown = few(run, [name for name in transactions if name not in faults])
    if not shown:
        return
    rows = read_transactions([Source(run.folder)], shown, ["dataset", "bytes"])
    plain = pa.table({"dataset": rows["dataset"].cast(pa.string()), "bytes": rows["bytes"]})
    sizes = {row["dataset"]: row["bytes"] for row in sums_by(plain, ["dataset"])}
    for name in shown:
        size = sizes.get(name, 0)
        yield DatasetPage(name, log_summary(transactions[name], size), {"transactions": transactions[name], "bytes": size})


@retention_asset(kinds={"pyspark", "parquet"}, pages=_pages)
def transaction_log(run: Step, ledger: Ledger) -> Metadata:
    """One row per transaction of every dataset: identity, parent, type, status, times, bytes, branches and tags.

    A dataset whose log is not sound is refused whole, with its fault in the table below. Nothing of it is judged; the other
    datasets go on.
    """
    stores = run.retention.stores()
    if not stores:
        raise dg.Failure("The settings name no store. Add one to retention.yaml, then run again.")
    report_store_warnings(stores.values(), run.log)
    scanner = SparkScanner(lambda: run.spark)
    faults = {name: fault for name, fault in place_faults(ledger, stores.values(), run.actor).items() if not is_away(fault)}
    elsewhere = [ChosenDatasets(stores[name], (), str(fault)) for name, fault in faults.items()]
    present = {name: store for name, store in stores.items() if name not in faults}
    objects = [one for one in run.retention.settings.stores if isinstance(one, ObjectsSettings)]
    scanned = [(present.pop(one.name), one) for one in objects if one.name in present]
    holds = holds_of_files(run.retention.settings) if scanned else ()
    with scan_stores(ledger, run.warehouse, scanner, scanned, run.datasets, run.actor, run.given_as_of, holds) as scans:
        return _read(run, ledger, [*present.values()], scans, elsewhere)


def _read(run: Step, ledger: Ledger, stores: list[Store], scans: RunScans, elsewhere: list[ChosenDatasets]) -> Metadata:
    """Read what is not scanned, and publish all of it together with the scans."""
    begun = run.retention.present()
    plain = choose_datasets(stores, run.datasets)
    chosen = [*plain, *scans.chosen, *elsewhere]
    away = {one.store.name: one.fault for one in chosen if one.fault}
    faults = " ".join(f"{name}: {fault}." for name, fault in away.items())
    if len(away) == len(run.retention.settings.stores):
        raise dg.Failure(f"No store can be read. {faults}")
    found = [name for one in chosen for name in one.datasets]
    unknown = run.datasets.unknown_keys(found)
    if not found:
        scans.publish(())
        close_realms_of_nothing(ledger, run)
        about = f"the partitions {', '.join(unknown[:5])}" if unknown else ", ".join(run.datasets.globs)
        raise dg.Failure(f"No store has a dataset of {about}. {faults}".rstrip())
    write_tokens(plain, run.folder, scans.tokens)
    write_begun({**{one.name: begun for one in stores}, **scans.begun}, run.folder)
    parts = read_stores(run.spark, plain, run.folder)
    parts += scans.write_logs(run.folder, parts)
    datasets = read_datasets([Source(run.folder)])
    # A refused dataset is published as well: nobody may go on judging its previous log.
    scans.publish(run.publications(datasets["dataset"].to_pylist()))
    try:
        scans.clean()
    except Refused as fault:
        run.log.warning(f"No folder of a scan was removed. {fault}")
    totals = ledger.states.totals(datasets["dataset"].to_pylist())
    refused = datasets.filter(pc.is_valid(datasets["fault"]))
    rows = int(pc.sum(datasets["transactions"].cast(SUMMED)).as_py() or 0)
    shown = log_metadata(read_output(run.folder, COLUMNS), read_output(run.folder, LARGEST).to_pylist())
    # This run's datasets as it read them, and the others as they were last judged.
    state = {
        "datasets": totals.datasets + len(datasets),
        "refused": len(totals.refused) + len(refused),
        "transactions": totals.transactions + rows,
        "bytes": totals.bytes + shown["bytes"],
    }
    return grouped(
        logs_summary(state, {**totals.refused, **faults_of(datasets)}, away),
        state,
        {
            "refused_datasets": list(_unread(refused, chosen, unknown)),
            "datasets": len(datasets),
            "refused": len(refused),
            "stores_away": len(away),
            "unknown_partitions": len(unknown),
            "dagster/row_count": rows,
            **shown,
            "parts": parts,
            "dagster/column_schema": LOG_COLUMNS,
            FOLDER: run.warehouse.below(run.folder),
        },
    ) | scan_metadata(scans.shown)


def _unread(refused: pa.Table, chosen: list[ChosenDatasets], unknown: list[str]) -> Iterator[dict[str, str]]:
    """Requested datasets that could not be read, each with the reason."""
    for row in refused.slice(0, MOST_REFUSED_SHOWN).to_pylist():
        yield {"dataset": row["dataset"], "fault": row["fault"], "transaction": row["fault_transaction"] or ""}
    for one in chosen:
        if one.fault:
            yield {"dataset": f"{one.store.name}/*", "fault": one.fault, "transaction": ""}
    for name in unknown[:MOST_REFUSED_SHOWN]:
        yield {"dataset": name, "fault": "no store has it (any more)", "transaction": ""}
