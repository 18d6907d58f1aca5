"""What Dagster knows of single datasets: pages that answer, refused ones that say so, one event for each
change. Against a real instance.

Belongs here: events of partitions, from jobs over lists and from runs over partitions. What a page says in which words is
render's.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from retention_assets.dagster import partitions as module
from retention_assets.dagster.headless import run_job
from retention_assets.dagster.naming import BY_STORE
from retention_assets.dagster.partitions import DatasetPage, few, partition_events
from retention_assets.dagster.step import Step
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets_tests.dagster.launch import materialize
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@1d=30"
YOUNG = "main: S1:SNAPSHOT@3d=10"
PARTS = dg.DynamicPartitionsDefinition(name="datasets")
READING = ("transaction_log", "branch_views", "candidate_marks")
NAMES = ["lake/a", "lake/quiet", "lake/sick"]
GREEN = AssetPartitionStatus.MATERIALIZED


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """What a machine has: files of its own, and every dataset is a partition."""
    instance_on_disk.add_dynamic_partitions("datasets", NAMES)
    return instance_on_disk


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One dataset with old transactions, one without, and one whose log is not sound."""
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a").has(YOUNG, "lake/quiet")
    sicken(lake)
    return lake


def sicken(lake: Lake) -> None:
    lake._log("lake/sick", ['{"dataset": "lake/sick", "branch": "main", "head": "nowhere"}'])


def heal(lake: Lake) -> None:
    (lake.folder / "log" / "lake-sick.jsonl").unlink()
    lake._log("lake/sick", to_lines([history(SOME, dataset="lake/sick")]))


def status(instance: dg.DagsterInstance, asset: str, name: str) -> AssetPartitionStatus | None:
    found = instance.get_status_by_partition(dg.AssetKey(asset), [name], PARTS)
    return found[name] if found else None


def page(instance: dg.DagsterInstance, asset: str, name: str) -> dict[str, Any]:
    """What the newest materialization of a partition says."""
    where = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[name])
    (newest,) = instance.fetch_materializations(where, limit=1).records
    assert newest.asset_materialization
    return {key: value.value for key, value in newest.asset_materialization.metadata.items()}


def events(instance: dg.DagsterInstance, asset: str, name: str) -> int:
    where = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[name])
    return len(instance.fetch_materializations(where, limit=1000).records)


@pytest.mark.usefixtures("local_spark")
def test_a_refused_dataset_says_so_once_and_fails_no_run_and_no_partition(lake: Lake, instance: dg.DagsterInstance) -> None:
    heal(lake)
    run_job(lake.settings, "evaluate", MARKED, log_level="critical")
    sicken(lake)
    for tick in range(3):
        # Others are judged in between, and this one now and then.
        about = NAMES if tick % 2 == 0 else ["lake/a"]
        run_job(lake.settings, "evaluate", MARKED + timedelta(minutes=tick + 1), about, "critical")
        assert [status(instance, asset, "lake/sick") for asset in READING] == [GREEN] * 3
    assert [events(instance, asset, "lake/sick") for asset in READING] == [2, 2, 2]
    for asset in READING:
        assert page(instance, asset, "lake/sick")["summary"].startswith(
            "`lake/sick`\n\n**Refused**: Head on an unknown transaction: main"
        )
    assert not instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    check = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(dg.AssetKey("transaction_log"), "log_is_sound"))
    assert check
    assert isinstance(check.evaluation, dg.AssetCheckEvaluation)
    table = check.evaluation.metadata["offending_datasets"]
    assert isinstance(table, dg.TableMetadataValue)
    assert (check.evaluation.passed, [row.data["dataset"] for row in table.records]) == (False, ["lake/sick"])
    heal(lake)
    run_job(lake.settings, "evaluate", MARKED + timedelta(hours=1), log_level="critical")
    assert "Refused" not in page(instance, "candidate_marks", "lake/sick")["summary"]


def launch(
    lake: Lake, instance: dg.DagsterInstance, first: str, last: str, assets: Sequence[str] = ("retention_policies", *READING)
) -> bool:
    """A run over partitions, as a page launches it, at first of all assets but the sweep and the report."""
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    tags = {"dagster/partition": first} if first == last else tags
    return materialize(lake.settings, instance, assets, MARKED, tags=tags).success


@pytest.mark.usefixtures("local_spark")
def test_runs_over_partitions_have_the_same_pages(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert launch(lake, instance, "lake/a", "lake/sick")
    policies = [page(instance, "retention_policies", name)["policies"] for name in NAMES]
    assert policies == policies[:1] * 3
    assert policies[0]
    for asset in READING:
        assert [status(instance, asset, name) for name in NAMES] == [GREEN] * 3
        assert page(instance, asset, "lake/sick")["summary"].startswith("`lake/sick`\n\n**Refused**")
    # A sweep with nothing to do for the others fails for none of them.
    assert launch(lake, instance, "lake/a", "lake/sick", assets=("swept_transactions",))
    assert [status(instance, "swept_transactions", name) for name in NAMES] == [GREEN] * 3
    said = page(instance, "candidate_marks", "lake/a")
    assert {name: said[name] for name in ("transactions", "size (KiB)", "marked", "due", "kept", "swept")} == {
        "transactions": 3, "size (KiB)": 0.1, "marked": 2, "due": 0, "kept": 1, "swept": 0,
    }  # fmt: skip
    assert "**2 transactions are marked** (30 B)" in said["summary"]
    assert "For example `S1`: This transaction has been scheduled for deletion. Policy 'old' selects it." in said["summary"]
    assert page(instance, "transaction_log", "lake/a")["transactions"] == 3
    # The run of one partition says the same of it.
    assert launch(lake, instance, "lake/a", "lake/a")
    assert page(instance, "candidate_marks", "lake/a") == said
    assert launch(lake, instance, "lake/sick", "lake/sick")
    assert page(instance, "transaction_log", "lake/sick")["summary"].startswith("`lake/sick`\n\n**Refused**")
    # About everything is the last event, whichever run it was.
    last = instance.get_latest_materialization_event(dg.AssetKey("candidate_marks"))
    assert last
    assert last.asset_materialization
    assert last.asset_materialization.partition is None
    assert {"newly marked", "data", "summary"} <= set(last.asset_materialization.metadata)


@pytest.mark.usefixtures("local_spark")
def test_what_has_nothing_to_sweep_is_materialized_once_for_each_change(lake: Lake, instance: dg.DagsterInstance) -> None:
    run_job(lake.settings, "evaluate", MARKED, log_level="critical")
    # Only a sweep says anything of what is swept: its events are also how old the last sweep is.
    assert instance.get_latest_materialization_event(dg.AssetKey("swept_transactions")) is None
    run_job(lake.settings, "sweep", MARKED, log_level="critical")
    assert status(instance, "swept_transactions", "lake/quiet") is GREEN
    assert "Nothing has been swept yet." in page(instance, "swept_transactions", "lake/quiet")["summary"]
    for minute in range(2):
        run_job(lake.settings, "cycle", MARKED + timedelta(minutes=minute), log_level="critical")
    assert [events(instance, "swept_transactions", name) for name in ("lake/a", "lake/quiet")] == [1, 1]
    # While something is due nobody may believe that a sweep was here.
    run_job(lake.settings, "evaluate", DUE, log_level="critical")
    assert [events(instance, "swept_transactions", name) for name in ("lake/a", "lake/quiet")] == [1, 1]
    run_job(lake.settings, "sweep", DUE, log_level="critical")
    assert events(instance, "swept_transactions", "lake/quiet") == 1
    said = page(instance, "swept_transactions", "lake/a")
    assert (said["deleted"], said["failed"]) == (2, 0)
    assert "Last sweep on 7 April 2026: 2 deleted" in said["summary"]
    assert page(instance, "swept_transactions", "lake/sick")["summary"].startswith("`lake/sick`\n\n**Refused**")
    # What was swept is in the log no less than before, and is no mark any more.
    judged = run_job(lake.settings, "evaluate", DUE + timedelta(days=1), log_level="critical").said["candidate_marks"]
    numbers = {name: judged[name] for name in ("mark", "swept_before", "marked_before", "swept")}
    assert numbers == {"mark": 0, "swept_before": 2, "marked_before": 0, "swept": 2}
    assert page(instance, "candidate_marks", "lake/a")["swept"] == 2
    assert "scheduled" not in page(instance, "candidate_marks", "lake/a")["summary"]


@pytest.mark.usefixtures("local_spark")
def test_pages_do_not_call_due_what_is_held_or_will_be_spared(lake: Lake, instance: dg.DagsterInstance) -> None:
    heal(lake)
    run_job(lake.settings, "evaluate", MARKED, log_level="critical")
    lake.says(OLD.replace("lake/*", "lake/a"), "{name: legal, datasets: ['lake/a'], transactions: ['S1'], reason: case 7}")
    ran = run_job(lake.settings, "evaluate", DUE, log_level="critical").said["candidate_marks"]
    numbers = {name: ran[name] for name in ("marked", "due", "waiting", "held", "to_be_spared")}
    assert numbers == {"marked": 4, "due": 1, "waiting": 0, "held": 1, "to_be_spared": 2}
    said = page(instance, "candidate_marks", "lake/a")
    assert (said["due"], said["held"]) == (1, 1)
    assert "For example `S1`: This transaction is marked, and the hold legal keeps it." in said["summary"]
    said = page(instance, "candidate_marks", "lake/sick")
    assert (said["due"], said["to be spared"]) == (0, 2)
    assert "will spare it: no policy in force matches its dataset" in said["summary"]


# --- without Spark ---


def step(lake: Lake, instance: dg.DagsterInstance) -> Step:
    run = instance.add_run(dg.DagsterRun(job_name="act_evaluate", status=dg.DagsterRunStatus.STARTED))
    nothing: Any = None
    key, warehouse = dg.AssetKey(["team", "transaction_log"]), Warehouse(str(lake.folder / "warehouse"))
    return Step(key, run, instance, nothing, Environment(lake.settings), nothing, warehouse, DatasetFilter(("*",)), MARKED)


def test_a_fault_with_other_numbers_is_the_same_fault_and_another_one_is_told(lake: Lake, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("team__datasets", ["lake/x"])
    faults = ("timed out after 3.1 s", "timed out after 3.2 s", "no such host", "timed out after 3.1 s")
    told = []
    for why in faults:
        events = list(partition_events(step(lake, instance), [DatasetPage("lake/x", "", refused=why)]))
        told.append(len(events))
        for event in events:
            instance.report_runless_asset_event(event)
    assert told == [1, 0, 1, 1]


def test_no_more_events_than_a_step_may_have(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PARTITIONS", 2)
    run = step(lake, instance)
    pages = [DatasetPage(f"lake/{name}", "- Read", {"bytes": 2}) for name in "abc"]
    assert list(partition_events(run, pages)) == []
    made = list(partition_events(run, [*pages[:2], DatasetPage("lake/a...b", "")]))
    assert [event.partition for event in made] == ["lake/a", "lake/b"], "three dots are a range to Dagster"
    assert list(few(run, ["lake/a", "lake/b", "lake/c"])) == []
    stores = replace(run, retention=Environment(lake.settings.model_copy(update={"partition_by": BY_STORE})))
    assert list(few(stores, ["lake/a", "lake/b", "lake/c"])) == ["lake/a", "lake/b", "lake/c"]
    (event,) = partition_events(stores, [*pages, DatasetPage("lake/d", "", refused="a cycle")])
    assert (event.partition, event.metadata["bytes"].value) == ("lake", 6)
    assert "1 refused: `lake/d`" in str(event.metadata["summary"].value)
