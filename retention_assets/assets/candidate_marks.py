"""The asset `candidate_marks`: the verdict of every transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from dagster_pyspark import LazyPySparkResource

from retention_assets.frames.candidate_marks import candidate_marks as frame
from retention_assets.frames.candidate_marks import columns_for
from retention_assets.frames.decisions import VERDICTS
from retention_assets.frames.log import SUMMED
from retention_assets.in_force import Rules
from retention_assets.policy.model import Hold, Policy
from retention_assets.resources.launch import AsOf
from retention_assets.resources.stage import read_output, run_stage
from retention_assets.resources.warehouse import FOLDER, Warehouse

OUTPUT, SUMS = "candidate_marks", "sums"


@dataclass(frozen=True)
class Verdicts:
    """The frame with its rules at an instant, as a value that travels to tasks."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...]
    as_of: datetime

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        """The verdicts of one part, and how many there are of each kind by policy."""
        marks = frame(transactions, datasets, self.policies, self.holds, self.as_of)
        plain = pa.table({name: marks[name].cast(pa.string()) for name in ("verdict", "policy")})
        sized = plain.append_column("bytes", transactions["bytes"].cast(SUMMED))
        sums = sized.group_by(["verdict", "policy"]).aggregate([([], "count_all"), ("bytes", "sum")])
        return {OUTPUT: marks, SUMS: sums}


def candidate_marks(rules: Callable[[pa.Table], Rules]) -> dg.AssetsDefinition:
    """The asset under the rules that are in force for some datasets."""

    @dg.asset(
        name="candidate_marks", group_name="retention", kinds={"pyspark", "parquet"}, deps=["transaction_log", "branch_views"]
    )
    def asset(
        context: dg.AssetExecutionContext, config: AsOf, pyspark: LazyPySparkResource, warehouse: Warehouse
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        """The verdict of every transaction: mark, spare, keep or open, with the policy that has the credit and every reason.

        A verdict deletes nothing. It is what a mark would be made of.
        """
        source = warehouse.newest(context.instance, dg.AssetKey("transaction_log"))
        folder = warehouse.folder(context.asset_key, context.run.run_id)
        in_force = rules(read_output(source, "datasets"))
        as_of = config.instant()
        columns = sorted({*columns_for(in_force.policies), "bytes"})
        run_stage(
            pyspark.spark_session, source, folder, (OUTPUT, SUMS), Verdicts(in_force.policies, in_force.holds, as_of), columns
        )  # fmt: skip
        return dg.MaterializeResult(
            metadata={FOLDER: folder, "as_of": as_of.isoformat(), **_numbers(read_output(folder, SUMS))}
        )

    return asset


def _numbers(sums: pa.Table) -> dict[str, dg.MetadataValue | int]:
    """The numbers that are worth a plot over time, and a table by policy."""
    total = sums.group_by(["verdict", "policy"]).aggregate([("count_all", "sum"), ("bytes_sum", "sum")])
    rows = total.sort_by([("verdict", "ascending"), ("count_all_sum", "descending")]).to_pylist()
    numbers: dict[str, dg.MetadataValue | int] = {"dagster/row_count": pc.sum(total["count_all_sum"]).as_py() or 0}
    for verdict in VERDICTS:
        mine = [row for row in rows if row["verdict"] == verdict]
        numbers[verdict] = sum(row["count_all_sum"] for row in mine)
        numbers[f"{verdict}_bytes"] = sum(int(row["bytes_sum_sum"] or 0) for row in mine)
    records = [
        dg.TableRecord(
            {
                "verdict": row["verdict"],
                "policy": row["policy"] or "",
                "transactions": row["count_all_sum"],
                "bytes": int(row["bytes_sum_sum"] or 0),
            }
        )
        for row in rows
    ]
    schema = dg.TableSchema(
        [
            dg.TableColumn("verdict"),
            dg.TableColumn("policy"),
            dg.TableColumn("transactions", "int"),
            dg.TableColumn("bytes", "int"),
        ]
    )
    return {**numbers, "by_policy": dg.MetadataValue.table(records, schema)}
