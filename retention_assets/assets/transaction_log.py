"""The asset `transaction_log`: the sound logs of all stores, clustered by dataset, as Parquet."""

import dagster as dg
import pyarrow.compute as pc
from dagster_pyspark import LazyPySparkResource

from retention_assets.frames.log import SUMMED
from retention_assets.resources.launch import Datasets
from retention_assets.resources.reading import choose, read_stores
from retention_assets.resources.retention import Retention
from retention_assets.resources.stage import read_output
from retention_assets.resources.warehouse import FOLDER, Warehouse

MOST_REFUSED_SHOWN = 1000
_COLUMNS = ("dataset", "fault", "transaction")


@dg.asset(group_name="retention", kinds={"pyspark", "parquet"})
def transaction_log(
    context: dg.AssetExecutionContext,
    config: Datasets,
    retention: dg.ResourceParam[Retention],
    pyspark: LazyPySparkResource,
    warehouse: Warehouse,
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per transaction of every dataset: identity, parent, type, status, times, bytes, branches and tags.

    A dataset whose log is not sound is refused whole, with its fault in the table below. Nothing of it is judged; the other
    datasets go on.
    """
    stores = retention.stores()
    if not stores:
        raise dg.Failure("The settings name no store. Add one to retention.yaml, then run again.")
    chosen = choose(stores.values(), config.datasets)
    away = {one.store.name: one.fault for one in chosen if one.fault}
    if len(away) == len(stores):
        raise dg.Failure("No store can be read. " + " ".join(f"{name}: {fault}." for name, fault in away.items()))
    folder = warehouse.folder(context.asset_key, context.run.run_id)
    parts = read_stores(pyspark.spark_session, chosen, folder)
    datasets = read_output(folder, "datasets")
    refused = datasets.filter(pc.is_valid(datasets["fault"]))
    shown = [
        dg.TableRecord({"dataset": row["dataset"], "fault": row["fault"], "transaction": row["fault_transaction"] or ""})
        for row in refused.slice(0, MOST_REFUSED_SHOWN).to_pylist()
    ]
    shown += [dg.TableRecord({"dataset": f"{name}/*", "fault": str(fault), "transaction": ""}) for name, fault in away.items()]
    return dg.MaterializeResult(
        metadata={
            FOLDER: folder,
            "dagster/row_count": int(pc.sum(datasets["transactions"].cast(SUMMED)).as_py() or 0),
            "datasets": len(datasets),
            "refused": len(refused),
            "stores_away": len(away),
            "parts": parts,
            "refused_datasets": dg.MetadataValue.table(shown, dg.TableSchema([dg.TableColumn(name) for name in _COLUMNS])),
        }
    )
