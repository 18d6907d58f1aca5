"""Runs as Dagster makes them: very many partitions at once, one that failed and goes on, one that is killed between two assets.

Belongs here: what a run leaves for the next one. What its steps compute is tested where that is; a sweep that is killed between
its own writes in sweep/test_killed.py.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from retention_assets.dagster import assets, partitions
from retention_assets.dagster.check_queries import CHECKS
from retention_assets.definitions import build_defs
from retention_assets.ledger import Marks
from retention_assets.ledger.evaluations import Publications
from retention_assets.pipeline.part_frames import VERDICTS
from retention_assets.pipeline.stage import read_output
from retention_assets.policy import text_of
from retention_assets_tests.dagster.launch import materialize, step_config
from retention_assets_tests.forked import forking
from retention_assets_tests.local_spark import LocalSpark
from retention_assets_tests.rounds import deaths
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
IN_WAREHOUSE = ("transaction_log", "branch_views", "candidate_marks")
# What ten and a hundred times as many cost is in benchmarks/.
MANY, VERY_MANY, PER_FILE, ONE_IN = 100, 1_000, 500, 100


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An environment that other programs find as well."""
    made = Lake(tmp_path / "lake").has(HISTORY, "lake/a").has(HISTORY, "lake/b")
    monkeypatch.setenv("RETENTION_CONFIG", str(made.folder / "retention.yaml"))
    return made


# --- many partitions ---


def shallow(lake: Lake, count: int, one_in: int = 1) -> list[str]:
    """So many tiny datasets, of which one in some has two old transactions; few files tell of them, and they have no bytes."""
    names = [f"lake/t{number:06d}" for number in range(count)]
    for begin in range(0, count, PER_FILE):
        with (lake.folder / "log" / f"many-{begin:06d}.jsonl").open("w") as log:
            for number, name in enumerate(names[begin : begin + PER_FILE], begin):
                for order, age in enumerate((90, 80, 1) if number % one_in == 0 else (3, 2, 1)):
                    opened, closed = (text_of(MARKED - timedelta(days=age, hours=hours)) for hours in (1, 0))
                    about = {"dataset": name, "transaction": f"S{order}", "type": "SNAPSHOT", "status": "COMMITTED", "bytes": 1}
                    log.write(json.dumps({**about, "opened_at": opened, "closed_at": closed}) + "\n")
                log.write(json.dumps({"dataset": name, "branch": "main", "head": "S2"}) + "\n")
    return names


def spark_jobs(spark: "SparkSession") -> set[int]:
    """The jobs that the session has run so far."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup())


@pytest.mark.spark
@pytest.mark.long
def test_many_partitions_are_one_run_with_one_spark_job_per_asset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    """From reading to a sweep that finds nothing due; more than have events of ours beside Dagster's, of which there is one for
    each partition. The checks are beside: one of them looks through the log with a job of its own.
    """
    monkeypatch.setenv("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", "1")
    monkeypatch.setattr(partitions, "_MOST_PARTITIONS", MANY - 1)
    lake = Lake(tmp_path / "lake")
    names = shallow(lake, MANY)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("datasets", names)
        before = spark_jobs(spark)
        tags = {"dagster/asset_partition_range_start": names[0], "dagster/asset_partition_range_end": names[-1]}
        assets = ("retention_policies", *IN_WAREHOUSE, "swept_transactions")
        assert materialize(lake.settings, instance, assets, MARKED, tags=tags).success
        for name in (*IN_WAREHOUSE, "swept_transactions"):
            events = instance.fetch_materializations(dg.AssetKey(name), limit=3 * MANY).records
            assert Counter(one.partition_key for one in events) == Counter([*names, None])
    by_checks = sum(check.name == "latest_view_is_never_marked" for checks in CHECKS.values() for check in checks)
    assert len(spark_jobs(spark) - before) == len(IN_WAREHOUSE) + by_checks
    with lake.opened() as ledger:
        assert len(ledger.marks.table(statuses=["MARKED"])) == 2 * MANY
    folders = {name: list((lake.folder / "warehouse" / name).iterdir()) for name in IN_WAREHOUSE}
    assert {name: len(found) for name, found in folders.items()} == dict.fromkeys(IN_WAREHOUSE, 1)
    assert all(len(list(found[0].rglob("*.parquet"))) <= 60 for found in folders.values()), "few files, however many datasets"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.large
def test_thousands_of_datasets_are_one_partition_where_partitions_are_stores(tmp_path: Path, spark: object) -> None:
    """All five assets, to the report of a day on which a hundredth of the datasets has something to sweep."""
    lake = Lake(tmp_path / "lake")
    names = shallow(lake, VERY_MANY, one_in=ONE_IN)
    lake.configures(partition_by="store")
    # Without the folder of any transaction the store refuses: its disk may not be mounted.
    lake.place(names[1], "S2").mkdir(parents=True)
    assets = ("retention_policies", *IN_WAREHOUSE, "swept_transactions", "purge_report")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("datasets", ["lake"])
        for as_of in (MARKED, DUE):
            assert materialize(lake.settings, instance, assets, as_of, partition_key="lake").success
        assert instance.get_materialized_partitions(dg.AssetKey("swept_transactions")) == {"lake"}
        swept = instance.get_latest_materialization_event(dg.AssetKey("swept_transactions"))
    assert swept
    assert swept.asset_materialization
    assert swept.asset_materialization.metadata["already gone"].value == 2 * VERY_MANY // ONE_IN
    with lake.opened() as ledger:
        marks = ledger.marks.table()
        (folder,) = {one.folder for one in ledger.publications.of("candidate_marks")}
    assert Counter(marks["status"].to_pylist()) == {"SWEPT": 2 * VERY_MANY // ONE_IN}
    assert set(marks["dataset"].to_pylist()) == set(names[::ONE_IN])
    verdicts = read_output(folder, VERDICTS, columns=["dataset"])
    assert Counter(verdicts["dataset"].to_pylist()) == dict.fromkeys(names, 3)


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """Programs that execute a run anew find it."""
    return instance_on_disk


# --- a run that failed goes on ---


def cycle() -> dg.JobDefinition:
    """The job as a program finds it that executes a run anew."""
    spark = dg.ResourceDefinition.hardcoded_resource(LocalSpark())
    return build_defs(pyspark=spark).resolve_job_def("delete_cycle")


def executed(instance: dg.DagsterInstance, as_of: datetime, again: str | None = None) -> dg.JobExecutionResult:
    """A run of it, or one that goes on where another one failed."""
    config = step_config(as_of=text_of(as_of))
    options = dg.ReexecutionOptions.from_failure(again, instance) if again else None
    with dg.execute_job(
        dg.reconstructable(cycle), instance, run_config=config, reexecution_options=options, raise_on_error=False
    ) as result:
        return result


def made(result: dg.JobExecutionResult) -> set[str]:
    """The assets that a run made."""
    return {event.asset_key.path[-1] for event in result.all_events if event.is_step_materialization and event.asset_key}


def published_by(lake: Lake, asset: str) -> set[str]:
    """The runs in whose folders the newest rows of an asset are."""
    with lake.opened() as ledger:
        return {one.run for one in ledger.publications.of(asset)}


@pytest.mark.long
def test_a_run_that_failed_is_executed_again_as_a_whole(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one step: what it had read is read anew, and of what came since nothing waits."""

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(assets, "write_already_marked", full)
        first = executed(instance, MARKED)
    assert not first.success
    assert made(first) == {"retention_policies", "transaction_log", "branch_views"}
    lake.has(HISTORY, "lake/c")
    again = executed(instance, MARKED, first.run_id)
    assert again.success
    assert made(again) == {*IN_WAREHOUSE, "retention_policies", "swept_transactions", "purge_report"}
    assert {run for name in IN_WAREHOUSE for run in published_by(lake, name)} == {again.run_id}
    with lake.opened() as ledger:
        assert set(ledger.marks.table()["dataset"].to_pylist()) == {"lake/a", "lake/b", "lake/c"}


@pytest.mark.usefixtures("local_spark")
def test_a_run_over_partitions_that_failed_goes_on_with_what_it_had_read(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the assets that are left, it judges the very log that the run before it has read."""

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    instance.add_dynamic_partitions("datasets", ["lake/a", "lake/b"])
    names = ("retention_policies", *IN_WAREHOUSE, "swept_transactions", "purge_report")
    with monkeypatch.context() as patch:
        patch.setattr(assets, "write_already_marked", full)
        first = materialize(lake.settings, instance, names, MARKED, partition_key="lake/a")
    assert not first.success
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    again = materialize(lake.settings, instance, names[3:], MARKED, partition_key="lake/a", tags=tags)
    assert again.success
    assert published_by(lake, "transaction_log") == {first.run_id}
    assert published_by(lake, "candidate_marks") == {again.run_id}


# --- a run that is killed ---


def run_until(where: str, as_of: datetime, environment: Mapping[str, str]) -> None:
    """A run in a program that kills itself: after an asset is made, or where it is about to write to the ledger."""
    os.environ.update(environment)

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    handle = dg.DagsterInstance.handle_new_event

    def new_event(instance: dg.DagsterInstance, event: dg.EventLogEntry, *rest: Any, **options: Any) -> None:
        handle(instance, event, *rest, **options)
        said = event.dagster_event
        if said and said.is_step_materialization and said.asset_key == dg.AssetKey(where) and said.partition is None:
            die()

    if where == "publish":
        Publications.publish = die  # type: ignore[method-assign]
    elif where == "mark":
        Marks.mark = die  # type: ignore[method-assign,assignment]
    else:
        dg.DagsterInstance.handle_new_event = new_event  # type: ignore[method-assign,assignment]
    cycle().execute_in_process(run_config=step_config(as_of=text_of(as_of)), instance=dg.DagsterInstance.get())


def killed(where: str, as_of: datetime) -> None:
    """A run in a program of its own, which does not come to its end."""
    environment = {name: os.environ[name] for name in ("RETENTION_CONFIG", "DAGSTER_HOME")}
    program = forking().Process(target=run_until, args=(where, as_of, environment))
    program.start()
    program.join()
    assert program.exitcode == -signal.SIGKILL


def unfinished(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Runs of which Dagster thinks that they are going on."""
    return instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))


def found_dead(instance: dg.DagsterInstance) -> None:
    """What Dagster's run monitoring does with a run whose program is gone."""
    (dead,) = unfinished(instance)
    instance.report_run_failed(dead, "Its program is gone.")


def complete(lake: Lake, instance: dg.DagsterInstance, as_of: datetime) -> None:
    """A new run comes to the end, and leaves what it would have left had nothing happened."""
    ran = cycle().execute_in_process(run_config=step_config(as_of=text_of(as_of)), instance=instance)
    assert ran.success
    with lake.opened() as ledger:
        folders = ledger.publications.folders()
    warehouse = lake.folder / "warehouse"
    assert {str(folder) for name in IN_WAREHOUSE for folder in (warehouse / name).iterdir()} == folders
    assert lake.verified() == ()


@pytest.mark.long
@pytest.mark.parametrize("where", deaths(["publish", "branch_views", "mark", "candidate_marks"], ["publish", "mark"]))
def test_a_run_killed_while_it_judges_leaves_a_next_one_nothing_but_its_folders(
    lake: Lake, instance: dg.DagsterInstance, where: str
) -> None:
    """What it wrote and did not publish is removed. What it published and marked stands: marks are never made twice."""
    killed(where, MARKED)
    assert any((lake.folder / "warehouse" / "transaction_log").iterdir())
    found_dead(instance)
    complete(lake, instance, MARKED)
    assert lake.statuses("lake/a") == lake.statuses("lake/b") == {"S1": "MARKED", "S2": "MARKED"}
    assert lake.there("lake/a") == {"S1", "S2", "S3"}


@pytest.mark.long
def test_a_run_killed_before_it_reads_has_loaded_the_policies(lake: Lake, instance: dg.DagsterInstance) -> None:
    killed("retention_policies", MARKED)
    found_dead(instance)
    with lake.opened() as ledger:
        assert [one.name for one in ledger.policy_book.newest()] == ["old"]


@pytest.mark.long
def test_a_run_killed_after_its_sweep_has_swept_and_the_next_one_reports_it(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    killed("swept_transactions", DUE)
    assert lake.there("lake/a") == lake.there("lake/b") == {"S3"}
    found_dead(instance)
    complete(lake, instance, DUE)
    assert (lake.report(dataset="lake/a")["to_delete"], lake.report(dataset="lake/a")["deleted"]) == (2, 2)
