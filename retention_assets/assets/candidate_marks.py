"""The asset `candidate_marks`: the verdict of every transaction, and the marks that come of them."""

from collections.abc import Mapping
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
from retention_assets.frames.new_marks import new_marks
from retention_assets.ledger.candidates import CANDIDATES
from retention_assets.policy.model import Hold, Policy
from retention_assets.resources.known import Known, write_known
from retention_assets.resources.launch import AsOf
from retention_assets.resources.retention import Retention
from retention_assets.resources.stage import read_output, run_stage
from retention_assets.resources.warehouse import FOLDER, Warehouse
from retention_assets.rulebook import load_rulebook

OUTPUT, SUMS, MARKS = "candidate_marks", "sums", "marks"


@dataclass(frozen=True)
class Verdicts:
    """The frame with its rules at an instant, as a value that travels to tasks."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...]
    versions: Mapping[str, int]
    as_of: datetime
    known: Known

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        """The verdicts of one part, what is to be marked of it, and how many verdicts there are of each kind by policy."""
        verdicts = frame(transactions, datasets, self.policies, self.holds, self.as_of, self.known.of(datasets))
        plain = pa.table({name: verdicts[name].cast(pa.string()) for name in ("verdict", "policy")})
        columns = {"bytes": transactions["bytes"].cast(SUMMED), "closed_at": transactions["closed_at"]}
        for name, column in columns.items():
            plain = plain.append_column(name, column)
        sums = plain.group_by(["verdict", "policy"]).aggregate([([], "count_all"), ("bytes", "sum"), ("closed_at", "max")])
        marks = new_marks(verdicts, transactions["bytes"], self.policies, self.versions)
        return {OUTPUT: verdicts, SUMS: sums, MARKS: marks.cast(CANDIDATES)}


@dg.asset(group_name="retention", kinds={"pyspark", "parquet"}, deps=["transaction_log", "branch_views"])
def candidate_marks(
    context: dg.AssetExecutionContext,
    config: AsOf,
    retention: dg.ResourceParam[Retention],
    pyspark: LazyPySparkResource,
    warehouse: Warehouse,
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """The verdict of every transaction: mark, spare, keep or open, with the policy that has the credit and every reason.

    What is to go is marked in the ledger, from where the grace runs. A mark deletes nothing and can be taken back; what is
    marked already stays as it is.
    """
    source = warehouse.newest(context.instance, dg.AssetKey("transaction_log"))
    folder = warehouse.folder(context.asset_key, context.run.run_id)
    as_of, actor = config.instant(), f"run {context.run.run_id}"
    settings = retention.settings
    with retention.ledger() as ledger:
        rulebook = load_rulebook(ledger, settings, actor)
        for warning in rulebook.drifted:
            context.log.warning(warning)
        datasets = read_output(source, "datasets")
        rules = rulebook.rules(datasets["dataset"].to_pylist(), as_of)
        known = write_known(ledger, rules.policies, datasets, folder)
        columns = sorted({*columns_for(rules.policies), "bytes", "closed_at"})
        verdicts = Verdicts(rules.policies, rules.holds, rules.versions, as_of, known)
        run_stage(pyspark.spark_session, source, folder, (OUTPUT, SUMS, MARKS), verdicts, columns)
        sums, candidates = read_output(folder, SUMS), read_output(folder, MARKS)
        ledger.clock.check(as_of, pc.max(sums["closed_at_max"]).as_py(), settings.clock.max_ahead, settings.clock.max_skew)
        marked = ledger.marks.mark(candidates, as_of, actor)
    return dg.MaterializeResult(
        metadata={
            FOLDER: folder,
            "as_of": as_of.isoformat(),
            "newly_marked": marked.new,
            "marked_before": marked.known,
            **_numbers(sums),
        }
    )


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
