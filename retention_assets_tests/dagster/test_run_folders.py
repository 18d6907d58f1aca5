"""Folders of runs: which of them a run reads, which are removed, and what checks make of verdicts in several of them.

Belongs here: `pipeline/warehouse.py`, `pipeline/part_frames.py` and the choice of datasets, asked without Spark. Runs that
fill folders are in test_runs.py and test_definitions.py.
"""

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster_pyspark import LazyPySparkResource

from retention_assets.clock import now
from retention_assets.dagster.check_queries import CHECKS, CheckScope
from retention_assets.dagster.step import Step
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import candidate_marks, sound_log
from retention_assets.ledger import CANDIDATES, Ledger, Publication
from retention_assets.pipeline.part_frames import NeededMarks, write_already_marked
from retention_assets.pipeline.stage import Source, write_log
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
LOG, VERDICTS = "transaction_log", "candidate_marks"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a", "lake/b", "lake/c")


@pytest.fixture
def ledger(lake: Lake) -> Iterator[Ledger]:
    with lake.opened() as opened:
        yield opened


@pytest.fixture
def warehouse(lake: Lake) -> Warehouse:
    return Warehouse(root=str(lake.folder / "warehouse"))


def names(letters: str) -> list[str]:
    return [f"lake/{letter}" for letter in letters]


# --- which datasets a run is about ---

ALL = ("lake/a", "lake/[ab]", "lake/ab", "ice/a")


@pytest.mark.parametrize(
    ("choice", "chosen", "is_all"),
    [
        (DatasetFilter(), list(ALL), True),
        (DatasetFilter(("*", "lake/a")), list(ALL), True),
        (DatasetFilter(("lake/a",)), ["lake/a"], False),
        (DatasetFilter(("lake/a", "lake/a?")), ["lake/a", "lake/ab"], False),
        (DatasetFilter(("lake/*",)), ["lake/a", "lake/[ab]", "lake/ab"], False),
        (DatasetFilter(("lake/[[]ab]",)), ["lake/[ab]"], False),
        (DatasetFilter(()), [], False),
        # A run of partitions is never about all there is, even if they are all that there are.
        (DatasetFilter(("*",), frozenset(ALL)), list(ALL), False),
        (DatasetFilter(("*",), frozenset(["lake/a", "ice/a"])), ["lake/a", "ice/a"], False),
        (DatasetFilter(("ice/*",), frozenset(["lake/a", "ice/a"])), ["ice/a"], False),
        (DatasetFilter(("lake/a",), frozenset(["ice/a"])), [], False),
        (DatasetFilter(("*",), frozenset(["ice"]), keys_are_stores=True), ["ice/a"], False),
        (DatasetFilter(("*/a",), frozenset(["lake"]), keys_are_stores=True), ["lake/a"], False),
    ],
)
def test_a_run_is_about_its_partitions_within_what_its_configuration_names(
    choice: DatasetFilter, chosen: list[str], is_all: bool
) -> None:
    assert (choice.select(ALL), choice.selects_all) == (chosen, is_all)


# --- which folders a run reads ---


def published(ledger: Ledger, run: str, letters: str, asset: str = LOG) -> None:
    """A run has written an asset of some datasets into a folder of its own, which is called like it."""
    ledger.publications.publish([Publication(asset, name, run, run) for name in names(letters)], "test")


@pytest.mark.parametrize(
    ("run", "globs", "read"),
    [
        pytest.param("new", ["*"], {"one": {"lake/a"}, "two": {"lake/b", "lake/c"}}, id="the newest of each dataset"),
        pytest.param("new", ["lake/[ac]"], {"one": {"lake/a"}, "two": {"lake/c"}}, id="of those that are chosen"),
        pytest.param("two", ["*"], {"two": None}, id="what this run wrote, whole"),
        pytest.param("two", ["lake/b"], {"two": {"lake/b"}}, id="what this run wrote of what is chosen"),
        pytest.param("two", ["lake/[ab]"], {"two": {"lake/b"}}, id="nothing that it did not write itself beside it"),
        pytest.param("two", ["lake/a"], {"one": {"lake/a"}}, id="what another wrote where this one has nothing of it"),
    ],
)
def test_a_run_reads_what_it_wrote_itself_or_else_the_newest(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance, run: str, globs: list[str],
    read: dict[str, set[str] | None],
) -> None:  # fmt: skip
    published(ledger, "one", "abc")
    published(ledger, "two", "bc")
    published(ledger, "other asset", "abc", VERDICTS)
    found = step(lake, warehouse, instance, DatasetFilter(tuple(globs)), run).sources(ledger, LOG)
    assert found == [Source(folder, None if some is None else frozenset(some)) for folder, some in read.items()]


# --- which folders are removed ---


def folder(warehouse: Warehouse, run: str, asset: str = LOG, days_ago: float = 0) -> Path:
    """A folder that a run wrote."""
    made = Path(warehouse.folder(asset, run))
    made.mkdir(parents=True)
    (made / "part.parquet").write_text("rows")
    at = (now() - timedelta(days=days_ago)).timestamp()
    os.utime(made, (at, at))
    return made


def over(instance: dg.DagsterInstance, run: str, status: dg.DagsterRunStatus = dg.DagsterRunStatus.SUCCESS) -> None:
    instance.add_run(dg.DagsterRun("delete_cycle", run_id=run, status=status))


def test_only_what_nothing_points_at_and_nobody_may_be_writing_is_removed(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    for run in ("read", "left", "failed"):
        over(instance, run, dg.DagsterRunStatus.FAILURE if run == "failed" else dg.DagsterRunStatus.SUCCESS)
    read = folder(warehouse, "read", days_ago=9)
    ledger.publications.publish([Publication(LOG, "lake/a", str(read), "read")], "test")
    mine = folder(warehouse, "mine", days_ago=9)
    instance.add_run(dg.DagsterRun("delete_cycle", run_id="mine", status=dg.DagsterRunStatus.STARTED))
    # Of programs that this instance knows nothing of.
    young, old = folder(warehouse, "young", days_ago=0.9), folder(warehouse, "old", days_ago=1.1)
    gone = [folder(warehouse, "left"), folder(warehouse, "failed"), old]
    elsewhere = folder(warehouse, "left", "branch_views")
    assert step(lake, warehouse, instance, run="mine").clean_warehouse(ledger, [LOG]) == 3
    assert [one.exists() for one in gone] == [False] * 3
    assert [one.exists() for one in (read, mine, young, elsewhere)] == [True] * 4


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING])
def test_nothing_is_removed_while_another_run_may_be_reading_it(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    over(instance, "left")
    over(instance, "other", status)
    left = folder(warehouse, "left")
    assert step(lake, warehouse, instance, run="mine").clean_warehouse(ledger, [LOG]) == 0
    assert left.exists()


# --- what is marked already ---


@pytest.mark.parametrize(
    ("scope", "about"),
    [
        pytest.param("{include: ['lake/a']}", {"lake/a"}, id="by name"),
        pytest.param("{include: ['lake/*'], exclude: ['lake/a']}", {"lake/b", "lake/c"}, id="but some"),
        pytest.param("{include: ['lake/*'], with: {team: x}}", {"lake/c"}, id="by an attribute"),
        pytest.param("{include: ['lake/z*']}", set(), id="of none"),
    ],
)
def test_limits_are_told_what_was_marked_of_the_datasets_that_they_are_about(
    lake: Lake, ledger: Ledger, scope: str, about: set[str]
) -> None:
    """In every status in which it counts, so that a limit never counts a transaction twice."""
    lake._log("lake/c", ['{"dataset": "lake/c", "attributes": {"team": "x"}}'])
    lake.marks()
    statuses = ("MARKED", "SWEEPING", "SWEPT")
    batch = "1, 1, dataset, 0, 'x', id, id, json_array(id), 'DELETE', 'x', json_array(id)"
    write_past_ledger(
        ledger,
        "INSERT INTO batches (begun, plan, dataset, begun_at, begun_by, first, last, ids, order_given, seal, open_ids)"
        f" SELECT {batch} FROM marks WHERE dataset = 'lake/a' AND \"transaction\" = 'S2'",
    )
    write_past_ledger(ledger, "UPDATE marks SET status = 'SWEPT' WHERE dataset = 'lake/b' AND \"transaction\" = 'S1'")
    write_past_ledger(ledger, "UPDATE marks SET status = 'UNMARKED' WHERE dataset = 'lake/b' AND \"transaction\" = 'S2'")
    counted = {(row["dataset"], row["transaction"]) for row in ledger.marks.table(statuses=statuses).to_pylist()}
    assert len(counted) == 5
    lake.says(
        f"{OLD.replace('old,', 'free,')}, {{name: limited, datasets: {scope}, select: {{older_than: 30d}}, limits: {{transactions: 1}}}}"
    )
    store = lake.stores["lake"]
    log = sound_log(store.read(store.datasets()))
    policies = load_rulebook(ledger, lake.settings, "test").rules(names("abc"), MARKED).policies
    written = write_already_marked(ledger, policies, log.datasets, str(lake.folder / "known"))
    known = written.of(log.datasets)
    found = set() if known is None else {(row["dataset"], row["transaction"]) for row in known.to_pylist()}
    assert found == {one for one in counted if one[0] in about}
    # Of what a run published long ago, newer runs may have published all.
    nothing = written.of(log.datasets.slice(0, 0))
    assert nothing is None or len(nothing) == 0


# --- checks of verdicts that several runs published ---


def step(
    lake: Lake,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    datasets: DatasetFilter = DatasetFilter(),  # noqa: B008
    run: str = "checks",
) -> Step:
    """A step of a run: of checks that are launched alone, unless another is named."""
    key, its_run = dg.AssetKey(VERDICTS), dg.DagsterRun("delete_cycle", run_id=run)
    log = dg.DagsterLogManager.create([], dagster_run=its_run)
    spark = LazyPySparkResource(spark_config={})
    return Step(key, its_run, instance, log, Environment(lake.settings), spark, warehouse, datasets, MARKED)


def reads(lake: Lake, ledger: Ledger, warehouse: Warehouse, run: str, letters: str) -> None:
    """A run reads some logs and publishes them."""
    log = sound_log(lake.stores["lake"].read(names(letters)))
    write_log(log, warehouse.folder(LOG, run))
    ledger.publications.publish(warehouse.publications(LOG, run, names(letters)), "test")


def judges(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, run: str, letters: str, without: Sequence[tuple[str, str]] = ()
) -> None:
    """A run judges some logs and publishes the verdicts, without those that it overlooks."""
    log = sound_log(lake.stores["lake"].read(names(letters)))
    rules = load_rulebook(ledger, lake.settings, "test").rules(names(letters), MARKED)
    verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, MARKED)
    rows = [row for row in verdicts.to_pylist() if (row["dataset"], row["transaction"]) not in without]
    place = Path(warehouse.folder(VERDICTS, run))
    (place / "candidate_marks").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, verdicts.schema), place / "candidate_marks" / "part.parquet")
    ledger.publications.publish(warehouse.publications(VERDICTS, run, names(letters)), "test")


def violations(name: str, step: Step) -> dict[str, str]:
    """Violations of a check, by dataset."""
    (check,) = (check for checks in CHECKS.values() for check in checks if check.name == name)
    with step.retention.ledger() as ledger:
        return {violation.dataset: violation.what for violation in check.query(CheckScope(step, ledger))}


def test_the_newest_verdicts_of_each_dataset_are_held_against_its_log(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    """An older folder still holds verdicts of datasets that were judged anew: nobody reads these any more."""
    reads(lake, ledger, warehouse, "one", "abc")
    judges(lake, ledger, warehouse, "one", "abc", without=[("lake/b", "S1"), ("lake/c", "S2")])
    check = step(lake, warehouse, instance)
    expected = dict.fromkeys(names("bc"), "2 verdicts for 3 transactions")
    assert violations("verdicts_sum_to_the_log", check) == expected
    judges(lake, ledger, warehouse, "two", "ab")
    del expected["lake/b"]
    assert violations("verdicts_sum_to_the_log", check) == expected
    # Read anew and not judged yet: what was judged before is not about this log.
    lake.branches("more", "S3", "lake/c")
    reads(lake, ledger, warehouse, "three", "c")
    assert violations("verdicts_sum_to_the_log", check) == {}


def test_checks_of_a_run_of_partitions_look_at_those_alone(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    reads(lake, ledger, warehouse, "one", "abc")
    judges(lake, ledger, warehouse, "one", "abc", without=[("lake/b", "S1")])
    lake.marks()
    lake.sweeps()
    write_past_ledger(ledger, "UPDATE reports SET to_delete = to_delete + 1 WHERE dataset = 'lake/b'")
    for letters, off in (("ac", set()), ("ab", {"lake/b"})):
        check = step(lake, warehouse, instance, DatasetFilter(("*",), frozenset(names(letters))))
        assert set(violations("verdicts_sum_to_the_log", check)) == off
        assert set(violations("report_adds_up", check)) == off


def test_limits_count_what_the_runs_marked_whose_verdicts_are_the_newest(
    lake: Lake, ledger: Ledger, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    reads(lake, ledger, warehouse, "one", "abc")
    judges(lake, ledger, warehouse, "one", "abc")
    lake.says(OLD.replace("sweep:", "limits: {fraction: 0.5}, sweep:"))
    load_rulebook(ledger, lake.settings, "test")
    row = {"policy": "old", "policy_version": 2, "reason": "SELECTED", "grace": "7d", "bytes": 1}
    marks = [
        {**row, "dataset": name, "transaction": each} for name, each in (("lake/a", "S1"), ("lake/a", "S2"), ("lake/b", "S1"))
    ]
    ledger.marks.mark(pa.Table.from_pylist(marks, CANDIDATES), MARKED, "run one")
    check = step(lake, warehouse, instance)
    over = {"lake/a": "policy old newly marked 2 of 3 transactions, 2 bytes: over its limits"}
    assert violations("limits_are_respected", check) == over
    judges(lake, ledger, warehouse, "two", "a")
    assert violations("limits_are_respected", check) == over


def test_marks_of_an_older_folder_are_not_held_against_the_views_of_a_newer_one(lake: Lake, tmp_path: Path) -> None:
    """Each dataset has its marks where its verdicts are; the other folder has an older one that was wrong."""
    log = sound_log(lake.stores["lake"].read(names("ab")))
    row = {"policy": "old", "policy_version": 1, "reason": "SELECTED", "grace": "7d", "bytes": 1}
    for run, marks in (("old", {"lake/a": "S3", "lake/b": "S3"}), ("new", {"lake/a": "S1"})):
        (tmp_path / run / "marks").mkdir(parents=True)
        rows = [{**row, "dataset": name, "transaction": mine} for name, mine in marks.items()]
        pq.write_table(pa.Table.from_pylist(rows, CANDIDATES), tmp_path / run / "marks" / "part.parquet")
    sources = (Source(str(tmp_path / "old"), frozenset(["lake/b"])), Source(str(tmp_path / "new"), frozenset(["lake/a"])))
    found = NeededMarks(sources, frozenset(), frozenset(), MARKED, CANDIDATES)(log.transactions, log.datasets)["needed_marks"]
    assert [(row["dataset"], row["transaction"]) for row in found.to_pylist()] == [("lake/b", "S3")]
