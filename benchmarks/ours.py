"""Our side: the stage as the assets run it, from the Parquet of a log to the Parquet of verdicts, placed by a warm Spark.

Belongs here: frames and sessions as the project makes them. Nothing is left out and nothing is tuned for the benchmark.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from benchmarks.environments import AS_OF
from benchmarks.policies import POLICIES
from retention_assets.frames import branch_views, candidate_marks, columns_for
from retention_assets.pipeline.spark import spark_session
from retention_assets.pipeline.stage import Source, run_stage, write_part
from retention_assets.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKS = ("candidate_marks",)
BOTH = ("candidate_marks", "branch_views")
COLUMNS = tuple(columns_for(POLICIES))


@dataclass(frozen=True)
class Judge:
    """The frame that a task calls: verdicts, and views beside them if asked."""

    outputs: tuple[str, ...] = MARKS
    policies: tuple[Policy, ...] = POLICIES
    as_of: datetime = AS_OF

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        tables = {"candidate_marks": candidate_marks(transactions, datasets, self.policies, (), self.as_of)}
        if "branch_views" in self.outputs:
            tables["branch_views"] = branch_views(transactions, self.as_of)
        return tables


def warm_session(cores: int, source: Path, target: Path) -> "SparkSession":
    """A session that has run the stage before: what it costs to start is Spark's, and a run starts it once."""
    spark = spark_session(f"local[{cores}]", {})
    for _ in range(2):
        judge(spark, source, target, BOTH)
    return spark


def judge(spark: "SparkSession", source: Path, target: Path, outputs: tuple[str, ...] = MARKS) -> int:
    """Run the stage. Returns how many rows it wrote."""
    return sum(run_stage(spark, [Source(str(source))], str(target), outputs, Judge(outputs), COLUMNS).rows.values())


def judge_here(source: Path, target: Path, policies: tuple[Policy, ...] = POLICIES) -> None:
    """The same part by part in this Python, without Spark: what one core does."""
    columns = columns_for(policies)
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        (target / "candidate_marks").mkdir(parents=True, exist_ok=True)
        for part in sorted((source / "transactions").iterdir()):
            transactions = pq.read_table(part, columns=columns, use_threads=False)
            datasets = pq.read_table(source / "datasets" / part.name, use_threads=False)
            marks = Judge(policies=policies)(transactions, datasets)["candidate_marks"]
            write_part(marks, str(target / "candidate_marks" / part.name), pafs.LocalFileSystem())
    finally:
        pa.set_cpu_count(cores)
