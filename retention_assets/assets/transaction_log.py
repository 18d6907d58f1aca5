"""The asset `transaction_log`: the sound logs of all stores, clustered by dataset, as Parquet."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.exchange import read_lines
from retention_assets.frames.soundness import sound_log
from retention_assets.resources.stage import write_log
from retention_assets.resources.warehouse import FOLDER, Warehouse

MOST_REFUSED_SHOWN = 1000


def transaction_log(logs: dict[str, Path]) -> dg.AssetsDefinition:
    """The asset over the logs of some stores, by store name."""

    @dg.asset(name="transaction_log", group_name="retention", kinds={"parquet"})
    def asset(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:  # type: ignore[type-arg]
        """One row per transaction of every dataset: identity, parent, type, status, times, bytes, branches and tags.

        A dataset whose log is not sound is refused whole, with its fault in the table below. Nothing of it is judged; the
        other datasets go on.
        """
        lines = [read_lines(path) for path in logs.values()]
        if not lines:
            raise dg.Failure("The settings name no `files` store. Add one to retention.yaml, then run again.")
        log = sound_log(pa.concat_tables(lines).combine_chunks())
        folder = warehouse.folder(context.asset_key, context.run.run_id)
        parts = write_log(log, folder)
        refused = log.datasets.filter(pc.is_valid(log.datasets["fault"])).slice(0, MOST_REFUSED_SHOWN).to_pylist()
        return dg.MaterializeResult(
            metadata={
                FOLDER: folder,
                "dagster/row_count": len(log.transactions),
                "datasets": len(log.datasets),
                "refused": len(log.datasets) - log.datasets["fault"].null_count,
                "parts": parts,
                "refused_datasets": dg.MetadataValue.table(
                    [
                        dg.TableRecord(
                            {"dataset": row["dataset"], "fault": row["fault"], "transaction": row["fault_transaction"] or ""}
                        )
                        for row in refused
                    ],
                    dg.TableSchema([dg.TableColumn(name) for name in ("dataset", "fault", "transaction")]),
                ),
            }
        )

    return asset
