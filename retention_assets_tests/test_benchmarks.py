"""The benchmarks at a tiny size: what they measure must be the same job on both sides, or their ratios say nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import environments
from benchmarks.__main__ import main
from benchmarks.environments import SHAPES, Environment
from benchmarks.sections import SECTIONS
from retention_assets.frames import Log

ROWS, DATASETS = 4_000, 40
# Whole runs of Dagster and databases of their own take minutes at any size: these are for `make bench` alone.
MEASURED = sorted(SECTIONS.keys() - {"aspects", "cluster", "loop", "partitions", "records", "turns", "wholes"})


@pytest.mark.program
@pytest.mark.spark
def test_contenders_give_the_same_answers_and_the_table_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A contender that answers differently does another job, and the exit code says so."""
    found = tmp_path / "bench.json"
    sizes = ["--rows", str(ROWS), "--datasets", str(DATASETS), "--rounds", "1", "--only", ",".join(MEASURED)]

    assert main([*sizes, "--folder", str(tmp_path), "--json", str(found)]) == 0

    report = json.loads(found.read_text())
    answers = {agreement["case"]: agreement for agreement in report["agreements"]}
    assert {case.partition(",")[0] for case in answers} == {
        "stage and duckdb: walk",
        "stage and duckdb: runs",
        "stage and duckdb: whole",
        "kernel and pyiceberg: older_than",
        "kernel and pyiceberg: keep_newest",
        "ledger and SQLite",
        "ledger and PostgreSQL",
        "store and pyiceberg",
        "commits of store and pyiceberg",
        "read_stores and pyiceberg",
        "folders that the store left",
        "objects that the store left",
        "second reader and lives of files",
        "simulation",
        "store and vacuum",
    }
    assert {case: one["different"] for case, one in answers.items()} == dict.fromkeys(answers, 0)
    assert answers["stage and duckdb: walk"]["compared"] == ROWS
    assert {one["section"] for one in report["measurements"]} == set(MEASURED)
    printed = capfd.readouterr().out
    assert all(one["contender"] in printed for one in report["measurements"])
    assert all(case in printed for case in answers)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.program
@pytest.mark.long
def test_benchmarks_need_no_variable_that_only_tests_set() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    program = [sys.executable, "-m", "benchmarks", "--help"]
    done = subprocess.run(program, cwd=Path(__file__).parents[1], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shape", SHAPES)
def test_an_environment_is_the_same_in_one_batch_and_in_many(shape: str) -> None:
    """Otherwise the same seed would be another environment on a machine with less memory."""
    environment = Environment(6, 50, branches=3, shapes=(shape,))
    batches = [environment.log(first, 2).transactions for first in (0, 2, 4)]
    assert pa.concat_tables(batches).to_pylist() == environment.log().transactions.to_pylist()


@pytest.mark.parametrize(
    ("log", "heads"),
    [
        pytest.param(Environment(10, 60, branches=4).log(), None, id="mix"),
        pytest.param(environments.comb(7, 3), 8, id="comb: one head at each tooth, and main at the end of the spine"),
        pytest.param(environments.star(7, 3), 8, id="star: one head at each arm, and main at the root"),
    ],
)
def test_environments_are_sound_and_clustered(log: Log, heads: int | None) -> None:
    """A stage trusts its input to be sound, so a benchmark on an unsound one would measure nonsense."""
    rows = log.transactions
    rows.validate(full=True)
    ordinal, parent = (rows[name].to_numpy() for name in ("ordinal", "parent_ordinal"))
    sizes = log.datasets["transactions"].to_pylist()
    assert np.array_equal(ordinal, np.concatenate([np.arange(size) for size in sizes]))
    assert ((parent < ordinal) & (parent >= -1)).all()
    assert len(set(rows["transaction"].to_pylist())) == len(rows)
    by_place = dict(
        zip(zip(rows["dataset"].to_pylist(), ordinal.tolist(), strict=True), rows["transaction"].to_pylist(), strict=True)
    )
    expected = [by_place.get(place) for place in zip(rows["dataset"].to_pylist(), parent.tolist(), strict=True)]
    assert rows["parent"].to_pylist() == expected
    if heads is not None:
        assert sum(map(len, rows["heads"].to_pylist())) == heads
