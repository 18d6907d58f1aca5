"""Stages on Spark: the same verdicts as in one piece, whatever the parts.

Belongs here: placement. What a verdict should be is tested without Spark.
"""

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.datasets import DatasetFilter
from retention_assets.frames import (
    CANDIDATE_MARKS,
    DATASETS,
    LINES,
    LOG,
    Log,
    branch_views,
    candidate_marks,
    columns_for,
    sound_log,
)
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.read_tokens import read_tokens, write_tokens
from retention_assets.pipeline.stage import Source, read_datasets, read_output, run_stage, write_log
from retention_assets.policy import Hold, Policy
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.logs import _logs, choose_datasets
from retention_assets.stores.protocol import Only
from retention_assets_tests.histories import AS_OF, log_of, random_histories
from retention_assets_tests.local_spark import Session
from retention_assets_tests.policies import random_holds, random_policies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def log() -> Log:
    return log_of(random_histories(random.Random(3), 1000))


def plain(table: pa.Table) -> list[dict[str, object]]:
    """Rows that compare, whatever dictionaries the parts have."""
    return sorted(table.to_pylist(), key=lambda row: (row["dataset"], row["ordinal"]))


@pytest.mark.spark
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
    assert written.texts == {"branch_views": [str(size) for size in sizes]}
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


@pytest.mark.spark
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


@pytest.mark.spark
def test_an_error_in_a_frame_fails_the_stage_and_says_what_it_was(log: Log, spark: "SparkSession", tmp_path: Path) -> None:
    """A part that could not be judged must not look like one without marks."""
    write_log(log, str(tmp_path / "log"), 5000)

    def frame(_: pa.Table, __: pa.Table) -> dict[str, pa.Table]:
        raise RuntimeError("the frame broke")

    with pytest.raises(Exception, match="the frame broke"):
        run_stage(spark, [Source(str(tmp_path / "log"))], str(tmp_path / "out"), ("candidate_marks",), frame, columns_for([]))


SCRIPT = """
import sys
import retention_assets.pipeline.part_frames
import retention_assets.pipeline.read_logs
import retention_assets.stores.files.store
print(sorted({"dagster", "sqlalchemy", "alembic", "retention_assets.ledger", "retention_assets.dagster"} & sys.modules.keys()))
"""


@pytest.mark.program
def test_tasks_that_read_and_judge_load_neither_dagster_nor_the_ledger() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


THREE = ("lake/a", "lake/b", "lake/c")


def written(folder: Path, *names: str, parts: int = 1) -> str:
    rows = [{"dataset": name, "transaction": "T1", "type": "APPEND", "status": "OPEN", "opened_at": AS_OF} for name in names]
    write_log(sound_log(pa.Table.from_pylist(rows, LINES)), str(folder), rows_per_part=len(names) // parts)
    return str(folder)


def test_a_stage_reads_of_each_source_what_is_meant_and_says_how_much_it_wrote(tmp_path: Path) -> None:
    sources = [
        Source(written(tmp_path / "one", *THREE, parts=3), frozenset({"lake/b", "lake/c"})),
        Source(written(tmp_path / "two", "ods/x", "ods/y", "ods/z"), frozenset({"ods/y"})),
        Source(written(tmp_path / "three", "all/x", "all/y")),
        Source(written(tmp_path / "four", "no/x"), frozenset({"lake/a"})),
    ]
    seen: list[tuple[list[str], list[str]]] = []

    def frame(transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        seen.append((transactions["dataset"].to_pylist(), datasets["dataset"].to_pylist()))
        return {"found": transactions, "twice": pa.concat_tables([datasets, datasets])}

    spark = cast("Any", Session())
    ran = run_stage(spark, sources, str(tmp_path / "out"), ["found", "twice"], frame, ["dataset", "transaction"])
    parts = [["all/x", "all/y"], ["lake/b"], ["lake/c"], ["ods/y"]]
    assert sorted(seen) == [(part, part) for part in parts]
    assert ran.rows == {"found": 5, "twice": 10}
    files = [pq.read_table(file)["dataset"].to_pylist() for file in (tmp_path / "out" / "found").iterdir()]
    assert sorted(files) == parts
    assert sorted(read_datasets(sources)["dataset"].to_pylist()) == sorted(name for part in parts for name in part)


def test_a_store_that_cannot_list_or_share_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    stores = [Sick(names=("x/a", "x/b")), Sick(lists=False), Sick(names=("z/a", "z/b"), shared=False)]
    chosen = choose_datasets(stores, DatasetFilter(("x/a", "y/*", "z/*")))
    assert [(one.datasets, one.fault) for one in chosen] == [(("x/a",), None), ((), "OSError: away"), (("z/a", "z/b"), None)]
    assert read_stores(cast("Any", Session()), chosen, str(tmp_path)) == 2
    assert sorted(read_datasets([Source(str(tmp_path))])["dataset"].to_pylist()) == ["x/a", "z/a", "z/b"]


def test_nothing_to_read_is_a_log_without_datasets(tmp_path: Path) -> None:
    read_stores(cast("Any", Session()), choose_datasets([Sick(names=("x/a",))], DatasetFilter(("none",))), str(tmp_path))
    assert read_datasets([Source(str(tmp_path))]).equals(DATASETS.empty_table())


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE = {"transaction": "T1", "type": "APPEND", "status": "OPEN", "opened_at": None}


@dataclass(frozen=True)
class Sick(FilesStore):
    """A store of many datasets in one share, that can't read any batch in which some of them are."""

    names: tuple[str, ...] = ()
    sick: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    lists: bool = True
    shared: bool = True
    settings: FilesSettings = field(
        default_factory=lambda: FilesSettings(name="lake", kind="files", log="log", data="data/{dataset}/{transaction}")
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Sick, **vars(self)), ()

    def datasets(self) -> list[str]:
        if not self.lists:
            raise OSError("away")
        return list(self.names)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        if not self.shared:
            raise OSError("away")
        return [tuple(datasets)]

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - the protocol's
        if self.sick.intersection(datasets):
            raise OSError("the disk has gone")
        return pa.Table.from_pylist([{**LINE, "dataset": name} for name in datasets if name not in self.bare], LINES)

    def tokens(self, datasets: Sequence[str]) -> dict[str, str]:
        if self.sick:
            raise OSError("the disk has gone")
        return dict.fromkeys(datasets, "1")


NAMES = tuple(f"lake/{number:03}" for number in range(100))


@pytest.mark.spark
@pytest.mark.parametrize("sick", [set(), {"lake/005"}, {"lake/000", "lake/050", "lake/099"}, set(NAMES)])
def test_what_cannot_be_read_is_refused_and_the_rest_of_its_share_is_not(
    sick: set[str], spark: "SparkSession", tmp_path: Path
) -> None:
    chosen = choose_datasets([Sick(names=NAMES, sick=frozenset(sick))], DatasetFilter())
    read_stores(spark, chosen, str(tmp_path))
    found = {row["dataset"]: row["fault"] for row in read_datasets([Source(str(tmp_path))]).to_pylist()}
    assert found == {name: "cannot be read: OSError: the disk has gone" if name in sick else None for name in NAMES}
    rows = read_output(str(tmp_path), "transactions")
    assert sorted(rows["dataset"].to_pylist()) == [name for name in NAMES if name not in sick]


@pytest.mark.spark
@pytest.mark.parametrize("bare", [{"lake/000"}, {"lake/005", "lake/050", "lake/099"}, set(NAMES)])
@pytest.mark.parametrize("sick", [set(), {"lake/007"}])
def test_a_dataset_without_a_line_is_there_without_transactions_and_in_its_place(
    bare: set[str], sick: set[str], spark: "SparkSession", tmp_path: Path
) -> None:
    """Left out, it would be published by nobody and looked at by nobody, so the loop would ask for it at every tick."""
    read_stores(
        spark, choose_datasets([Sick(names=NAMES, sick=frozenset(sick), bare=frozenset(bare))], DatasetFilter()), str(tmp_path)
    )
    table = read_datasets([Source(str(tmp_path))])
    assert table["dataset"].to_pylist() == list(NAMES)
    assert table["transactions"].to_pylist() == [0 if name in bare | sick else 1 for name in NAMES]
    assert {row["dataset"] for row in table.to_pylist() if row["fault"]} == sick
    rows = read_output(str(tmp_path), "transactions")["dataset"].to_pylist()
    assert rows == [name for name in NAMES if name not in bare | sick]


def test_parts_hold_whole_datasets_also_where_some_are_empty(tmp_path: Path) -> None:
    log = _logs(Sick(names=NAMES, bare=frozenset(NAMES[::3])), NAMES, {})[0]
    write_log(log, str(tmp_path), rows_per_part=10)
    for file in sorted((tmp_path / "transactions").iterdir()):
        datasets = pq.read_table(tmp_path / "datasets" / file.name).to_pylist()
        assert pq.read_table(file)["dataset"].to_pylist() == [row["dataset"] for row in datasets if row["transactions"]]


def test_tokens_are_kept_beside_the_log_for_whom_they_are_asked_of(tmp_path: Path) -> None:
    write_tokens(choose_datasets([Sick(names=NAMES)], DatasetFilter()), str(tmp_path))
    assert read_tokens([Source(str(tmp_path))]) == dict.fromkeys(NAMES, "1")
    assert read_tokens([Source(str(tmp_path), frozenset(NAMES[:2]))]) == dict.fromkeys(NAMES[:2], "1")


def test_a_store_that_tells_no_tokens_leaves_none_and_no_fault(tmp_path: Path) -> None:
    write_tokens(choose_datasets([Sick(names=NAMES, sick=frozenset(NAMES[:1]))], DatasetFilter()), str(tmp_path))
    assert read_tokens([Source(str(tmp_path))]) == {}
