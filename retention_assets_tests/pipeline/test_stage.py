"""Stages on Spark: the same verdicts as in one piece, whatever the parts.

Belongs here: placement. What a verdict should be is tested without Spark.
"""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.verdicts.candidate_marks import candidate_marks, columns_for
from retention_assets.frames.verdicts.decisions import CANDIDATE_MARKS
from retention_assets.frames.views.branch_views import branch_views
from retention_assets.pipeline.stage import Source, read_output, run_stage, write_log
from retention_assets.policy.model import Hold, Policy
from retention_assets_tests.histories import AS_OF, log_of, random_histories
from retention_assets_tests.policies import random_holds, random_policies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def log() -> Log:
    """1,000 random datasets."""
    return log_of(random_histories(random.Random(3), 1000))


def plain(table: pa.Table) -> list[dict[str, object]]:
    """Rows that compare, whatever dictionaries the parts have."""
    return sorted(table.to_pylist(), key=lambda row: (row["dataset"], row["ordinal"]))


@pytest.mark.parametrize("rows_per_part", [1_000_000, 2500, 200])
def test_parts_of_any_size_give_the_verdicts_of_one_piece(
    rows_per_part: int, log: Log, spark: "SparkSession", tmp_path: Path
) -> None:
    """Law 5 for partitioning, through Parquet and Spark tasks, with just the columns that the policies need."""
    rng = random.Random(rows_per_part)
    policies = [Policy.model_validate(policy) for policy in random_policies(rng, 4)]
    holds = [Hold.model_validate(hold) for hold in random_holds(rng, 2)]

    def frame(transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        return {
            "candidate_marks": candidate_marks(transactions, datasets, policies, holds, AS_OF),
            "branch_views": branch_views(transactions, AS_OF),
        }

    parts = write_log(log, str(tmp_path / "log"), rows_per_part)
    outputs = ("candidate_marks", "branch_views")
    columns = columns_for(policies, log.datasets)
    sinks = {"branch_views": lambda table: str(len(table))}
    written = run_stage(spark, [Source(str(tmp_path / "log"))], str(tmp_path / "out"), outputs, frame, columns, sinks)
    # What a sink says of a part comes in the order of the parts, whoever was done first; the output is there as well.
    sizes = [len(pa.parquet.read_table(file)) for file in sorted((tmp_path / "out" / "branch_views").iterdir())]
    assert written.told == {"branch_views": [str(size) for size in sizes]}
    assert written.rows == dict.fromkeys(outputs, len(log.transactions))
    assert len(list((tmp_path / "out" / "branch_views").iterdir())) == parts
    whole = frame(log.transactions, log.datasets)
    for output in outputs:
        assert plain(read_output(str(tmp_path / "out"), output)) == plain(whole[output])


def test_a_log_survives_its_parts(log: Log, tmp_path: Path) -> None:
    """What is written is what is read, and no dataset is split."""
    write_log(log, str(tmp_path), 400)
    back = read_output(str(tmp_path), "transactions")
    assert back.schema.names == LOG.names
    assert plain(back) == plain(log.transactions)
    assert read_output(str(tmp_path), "datasets").num_rows == len(log.datasets)
    files = [pa.parquet.read_table(file, columns=["dataset"]) for file in sorted((tmp_path / "transactions").iterdir())]
    seen = [set(file["dataset"].to_pylist()) for file in files]
    assert sum(len(names) for names in seen) == len(set().union(*seen))


def test_an_empty_log_is_no_work(spark: "SparkSession", tmp_path: Path) -> None:
    """No dataset, no task, no failure."""
    empty = Log(LOG.empty_table(), DATASETS.empty_table())
    write_log(empty, str(tmp_path / "log"))

    def frame(transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        return {"candidate_marks": candidate_marks(transactions, datasets, [], [], AS_OF)}

    written = run_stage(
        spark, [Source(str(tmp_path / "log"))], str(tmp_path / "out"), ("candidate_marks",), frame, columns_for([])
    )
    assert written.rows == {"candidate_marks": 0}
    assert read_output(str(tmp_path / "out"), "candidate_marks").schema.names == CANDIDATE_MARKS.names


def test_an_error_in_a_frame_fails_the_stage_and_says_what_it_was(log: Log, spark: "SparkSession", tmp_path: Path) -> None:
    """A part that could not be judged must not look like one without marks."""
    write_log(log, str(tmp_path / "log"), 5000)

    def frame(_: pa.Table, __: pa.Table) -> dict[str, pa.Table]:
        raise RuntimeError("the frame broke")

    with pytest.raises(Exception, match="the frame broke"):
        run_stage(spark, [Source(str(tmp_path / "log"))], str(tmp_path / "out"), ("candidate_marks",), frame, columns_for([]))
