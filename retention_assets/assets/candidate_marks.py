"""The asset `candidate_marks`: the verdict of every transaction, and the marks that come of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import keys_of
from retention_assets.frames.candidate_marks import candidate_marks as frame
from retention_assets.frames.candidate_marks import columns_for
from retention_assets.frames.decisions import VERDICTS
from retention_assets.frames.log import SUMMED
from retention_assets.frames.new_marks import new_marks
from retention_assets.ledger import Ledger
from retention_assets.ledger.candidates import CANDIDATES
from retention_assets.partitions import DATASETS
from retention_assets.policy.model import Hold, Policy
from retention_assets.policy.purging import purge_named
from retention_assets.resources.known import Known, write_known
from retention_assets.resources.launch import Judging
from retention_assets.resources.running import Materials, Metadata, Running
from retention_assets.resources.stage import read_datasets, read_output, run_stage
from retention_assets.resources.warehouse import FOLDER
from retention_assets.rulebook import load_rulebook

_IN_WAREHOUSE = ("transaction_log", "branch_views", "candidate_marks")
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


def materialize(run: Running) -> Metadata:
    """Judge the log's datasets, and mark in the ledger what may go, together with the publication of the verdicts."""
    clock = run.retention.settings.clock
    with run.retention.ledger() as ledger:
        rulebook = load_rulebook(ledger, run.retention.settings, run.actor)
        for warning in rulebook.drifted:
            run.log.warning(warning)
        sources = run.warehouse.sources(ledger, run.sibling("transaction_log"), run.run, run.choice)
        datasets = read_datasets(sources)
        names = datasets["dataset"].to_pylist()
        rules = rulebook.rules(names, run.as_of)
        known = write_known(ledger, rules.policies, datasets, run.folder)
        verdicts = Verdicts(rules.policies, rules.holds, rules.versions, run.as_of, known)
        columns = sorted({*columns_for(rules.policies), "bytes", "closed_at"})
        run_stage(run.spark, sources, run.folder, (OUTPUT, SUMS, MARKS), verdicts, columns)
        sums, candidates = read_output(run.folder, SUMS), read_output(run.folder, MARKS)
        ledger.clock.check(run.as_of, pc.max(sums["closed_at_max"]).as_py(), clock.max_ahead, clock.max_skew)
        publications = run.warehouse.publications(run.key, run.run.run_id, names)
        marked = ledger.marks.mark(candidates, run.as_of, run.actor, published=publications)
        _purge_done(ledger, run, datasets)
        removed = run.warehouse.clean(ledger, run.instance, run.run.run_id, [run.sibling(name) for name in _IN_WAREHOUSE])
    return {
        FOLDER: run.folder,
        "as_of": run.as_of.isoformat(),
        "newly_marked": marked.new,
        "marked_before": marked.known,
        "folders_removed": removed,
        **_numbers(sums),
    }


def _purge_done(ledger: Ledger, run: Running, datasets: pa.Table) -> None:
    """A realm that is being purged is over once a look at everything finds nothing of it that is not swept."""
    realms = [name for name, realm in ledger.realms.all().items() if realm.status == "PURGING"]
    if not realms or not run.choice.all or datasets["fault"].null_count < len(datasets):
        return
    attributes = {
        row["dataset"]: dict(row["attributes"] or ()) for row in datasets.select(["dataset", "attributes"]).to_pylist()
    }
    for realm in realms:
        mine = [name for name, own in attributes.items() if own.get("realm") == realm]
        if ledger.realms.purged(realm, _left_of(ledger, run, realm, mine), run.actor).status == "PURGED":
            run.log.info(f"Realm {realm} is PURGED: nothing of it is left.")


def _left_of(ledger: Ledger, run: Running, realm: str, datasets: Sequence[str]) -> int:
    """How many transactions of a realm are still open or not swept."""
    rows = read_output(run.folder, OUTPUT, datasets, ["dataset", "transaction", "verdict", "policy"])
    verdict, policy = (rows[name].cast(pa.string()) for name in ("verdict", "policy"))
    selected = rows.filter(pc.equal(policy, purge_named(realm)))
    swept = ledger.marks.table(datasets, ["SWEPT"])
    gone = pc.sum(pc.is_in(keys_of(selected), value_set=keys_of(swept))).as_py() or 0
    return len(selected) - int(gone) + int(pc.sum(pc.equal(verdict, "open")).as_py() or 0)


@dg.asset(
    group_name="retention",
    kinds={"pyspark", "parquet"},
    deps=["transaction_log", "branch_views", "retention_policies"],
    partitions_def=DATASETS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def candidate_marks(
    context: dg.AssetExecutionContext, config: Judging, materials: dg.ResourceParam[Materials]
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """The verdict of every transaction: mark, spare, keep or open, with the policy that has the credit and every reason.

    What is to go is marked in the ledger, from where the grace runs. A mark deletes nothing and can be taken back; what is
    marked already stays as it is.
    """
    return dg.MaterializeResult(metadata=materialize(materials.of_asset(context, config)))


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
