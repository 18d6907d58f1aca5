"""Runs of assets, which are one step: over a list, a partition, a range, in a backfill, each asset alone, checks alone; and what a
failed blocking check keeps from being deleted.

Belongs here: which assets and checks a run of the step makes, and in which order. What an asset computes is tested where it is.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from retention_assets.dagster import partitions
from retention_assets.dagster.check_queries import CHECKS
from retention_assets.definitions import build_defs
from retention_assets.ledger import Violation
from retention_assets_tests.dagster.launch import (
    LAUNCHED_HERE,
    evaluations,
    failure,
    run,
    run_backfills,
    step_config,
    workspace_of,
)
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.local_spark import place_here
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHOLE = {"S1", "S2", "S3"}
ALL = ("retention_policies", "transaction_log", "branch_views", "candidate_marks", "swept_transactions", "purge_report")
RANGE = {"dagster/asset_partition_range_start": "lake/d", "dagster/asset_partition_range_end": "lake/e"}
BACKFILL = {"dagster/backfill": "b"}
pytestmark = pytest.mark.usefixtures("local_spark")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two datasets of which everything but the last SNAPSHOT may go."""
    return Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/e")


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("datasets", ["lake/d", "lake/e"])
    return instance


def launch(
    lake: Lake,
    instance: dg.DagsterInstance,
    assets: Sequence[str] = ALL,
    checks: Collection[dg.AssetCheckKey] | None = None,
    foreign: Sequence[Any] = (),
    as_of: Any = DUE,
    **how: Any,
) -> dg.ExecuteInProcessResult:
    """Assets and checks as Dagster's pages launch them; left out, `checks` are all of the assets'."""
    defs = dg.Definitions.merge(build_defs(lake.settings), dg.Definitions(asset_checks=foreign))
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection={dg.AssetKey(name) for name in assets}, asset_check_selection=None if checks is None else set(checks)
    )
    config = step_config(as_of=as_of.isoformat())
    return job.execute_in_process(run_config=config, instance=instance, raise_on_error=False, **how)


def made(result: dg.ExecuteInProcessResult) -> dict[str, set[str | None]]:
    """Partitions of each materialized asset."""
    partitions: dict[str, set[str | None]] = {}
    for event in result.get_asset_materialization_events():
        assert event.asset_key
        partitions.setdefault(event.asset_key.to_user_string(), set()).add(event.partition)
    return partitions


def evaluated(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Results of checks: true where one passed."""
    return {name: one.passed for name, one in evaluations(result).items()}


def names(assets: Collection[str]) -> set[str]:
    """Checks of some assets."""
    return {check.name for asset in assets for check in CHECKS.get(asset, ())}


def test_all_of_a_partition_is_one_step(lake: Lake, instance: dg.DagsterInstance) -> None:
    """So it is one process and one Spark session under any executor, from reading to the report."""
    lake.marks()
    result = launch(lake, instance, partition_key="lake/d")
    assert [event.step_key for event in result.all_events if event.is_step_start] == ["retention"]
    assert (result.success, evaluated(result)) == (True, dict.fromkeys(names(CHECKS), True))
    assert made(result) == {name: {"lake/d", None} for name in ALL}
    assert (lake.there(), lake.there("lake/e")) == ({"S3"}, WHOLE)


def test_each_asset_alone_is_made_with_its_checks_and_nothing_else_is(lake: Lake, instance: dg.DagsterInstance) -> None:
    for name in ALL:
        result = launch(lake, instance, [name], as_of=MARKED, partition_key="lake/d")
        assert (result.success, set(made(result)), set(evaluated(result))) == (True, {name}, names([name])), name
    assert set(lake.statuses().values()) == {"MARKED"}


def test_a_run_that_names_no_partition_does_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    for assets in (ALL, ["swept_transactions", "purge_report"], ["purge_report"]):
        result = launch(lake, instance, assets)
        assert (result.success, made(result), lake.there()) == (False, {}, WHOLE)
        assert "this run names none" in failure(result)


def test_a_job_over_a_list_is_the_same_step_without_partitions(lake: Lake, instance: dg.DagsterInstance) -> None:
    """What it logs says of checks that they were evaluated, and of each dataset and of the report that they were made."""
    lake.marks()
    result = run(lake.settings, instance, "delete_cycle", {"as_of": DUE.isoformat(), "datasets": ["lake/d"]})
    assert [event.step_key for event in result.all_events if event.is_step_start] == ["retention"]
    assert (result.success, evaluated(result)) == (True, dict.fromkeys(names(CHECKS), True))
    assert made(result) == {name: {None} if name == "retention_policies" else {"lake/d", None} for name in ALL}
    assert (lake.there(), lake.there("lake/e")) == ({"S3"}, WHOLE)
    keys = [check.key(dg.AssetKey(asset)) for asset, checks in CHECKS.items() for check in checks]
    records = [instance.get_latest_asset_check_evaluation_record(key) for key in keys]
    assert {record.status.value if record else None for record in records} == {"SUCCEEDED"}


def test_the_page_of_a_day_is_the_same_whichever_partition_made_it(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where partitions are many it stands in full in the last event alone."""
    lake.marks()
    assert launch(lake, instance, tags=RANGE).success
    first, *others = metadata_of(instance, "purge_report")
    assert [first, first] == others
    assert {"summary", "by policy", "data", "marked"} <= set(first)
    monkeypatch.setattr(partitions, "_MOST_WHOLE_PAGES", 1)
    assert launch(lake, instance, ["purge_report"], tags=RANGE).success
    whole, *short = metadata_of(instance, "purge_report")[:3]
    assert "by policy" in whole
    assert [page["summary"] for page in short] == [whole["summary"]] * 2
    assert "by policy" not in short[0]
    result = launch(lake, instance, ["purge_report"], tags={**RANGE, **BACKFILL})
    assert made(result) == {"purge_report": {"lake/d", "lake/e"}}
    assert len(result.get_asset_observation_events()) == 1


# --- blocking checks ---


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Have a check find something wrong with lake/d."""

    def fail(asset: str, name: str) -> None:
        checks = CHECKS[asset]
        broken = [replace(one, query=lambda _: [Violation("lake/d", "wrong")]) if one.name == name else one for one in checks]
        monkeypatch.setitem(CHECKS, asset, tuple(broken))

    return fail


@pytest.mark.parametrize("kind", ["list", "partition", "range", "backfill", "store"])
def test_a_failed_check_of_the_marks_stops_the_sweep_in_each_kind_of_run(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None], kind: str
) -> None:
    if kind == "store":
        lake.configures(partition_by="store")
        instance.add_dynamic_partitions("datasets", ["lake"])
    lake.marks()
    failing("candidate_marks", "limits_are_respected")
    before = lake.left()
    if kind == "list":
        result = run(lake.settings, instance, "delete_cycle", {"as_of": DUE.isoformat()})
    elif kind in ("partition", "store"):
        result = launch(lake, instance, partition_key="lake/d" if kind == "partition" else "lake")
    else:
        result = launch(lake, instance, tags={**RANGE, **(BACKFILL if kind == "backfill" else {})})
    assert failure(result) == "The run stops here. limits_are_respected failed. 1 violation in 1 dataset. lake/d: wrong"
    assert set(made(result)) == set(ALL[:4])
    assert evaluated(result)["limits_are_respected"] is False
    assert lake.left() == before


def test_a_retry_from_failure_of_a_run_over_partitions_begins_with_the_asset_whose_check_failed(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.marks()
    before, sound = lake.left(), CHECKS["candidate_marks"]
    failing("candidate_marks", "limits_are_respected")
    first = launch(lake, instance, tags=RANGE)
    retry = {**RANGE, "dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    assets, checks = chosen_for_retry(instance, first.dagster_run)
    assert set(assets) == set(ALL[3:])
    again = launch(lake, instance, assets, checks, tags=retry)
    assert failure(again).startswith("The run stops here. limits_are_respected failed.")
    assert (set(made(again)), lake.left()) == ({"candidate_marks"}, before)
    monkeypatch.setitem(CHECKS, "candidate_marks", sound)
    assert launch(lake, instance, assets, checks, tags=retry).success
    assert (lake.there(), lake.there("lake/e")) == ({"S3"}, {"S3"})


def chosen_for_retry(instance: dg.DagsterInstance, run: dg.DagsterRun) -> tuple[list[str], Collection[dg.AssetCheckKey]]:
    """Assets and checks with which Dagster begins again from failure."""
    assert run.execution_plan_snapshot_id
    plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
    assets, checks = instance.run_domain.get_keys_to_reexecute(run.run_id, plan)
    return [key.to_user_string() for key in assets], checks


@pytest.mark.parametrize(
    ("name", "checks"),
    [("latest_view_is_never_marked", None), ("visibility_marks_only_rise", None), ("limits_are_respected", ())],
)
def test_a_failed_blocking_check_stands_before_the_sweep_of_the_same_step(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None], name: str, checks: Any
) -> None:
    lake.marks()
    failing("candidate_marks", name)
    before = lake.left()
    result = launch(lake, instance, checks=checks, tags=RANGE)
    assert failure(result) == f"The run stops here. {name} failed. 1 violation in 1 dataset. lake/d: wrong"
    assert set(made(result)) == set(ALL[:4])
    assert evaluated(result)[name] is False
    assert lake.left() == before
    # The sweep alone refuses the dataset, and no other.
    swept = launch(lake, instance, ["swept_transactions"], tags=RANGE)
    assert swept.success
    assert (lake.there(), lake.there("lake/e")) == (WHOLE, {"S3"})


@pytest.mark.parametrize("partition", ["lake/d", "lake/e"])
def test_the_sweep_alone_stops_at_a_ledger_that_was_changed(lake: Lake, instance: dg.DagsterInstance, partition: str) -> None:
    lake.marks()
    before = lake.left()
    with lake.opened() as ledger:
        assert write_past_ledger(ledger, "UPDATE marks SET reason = 'BECAUSE'") == 4
    result = launch(lake, instance, ["swept_transactions"], partition_key=partition)
    assert "Nothing is swept. marks_have_a_policy_and_a_reason failed." in failure(result)
    assert lake.left() == before


def test_a_range_is_one_step_as_well_and_a_failed_check_that_does_not_block_stops_nothing(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None]
) -> None:
    instance.add_dynamic_partitions("datasets", ["lake/f"])
    lake.has(HISTORY, "lake/f").marks()
    failing("candidate_marks", "nothing_deleted_is_back")
    result = launch(lake, instance, tags=RANGE)
    assert (result.success, evaluated(result)["nothing_deleted_is_back"]) == (True, False)
    assert [event.step_key for event in result.all_events if event.is_step_success] == ["retention"]
    assert made(result)["swept_transactions"] == {"lake/d", "lake/e", None}
    assert (lake.there(), lake.there("lake/e"), lake.there("lake/f")) == ({"S3"}, {"S3"}, WHOLE)


def test_no_report_follows_a_sweep_whose_check_failed(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None]
) -> None:
    failing("swept_transactions", "nothing_is_swept_without_a_mark")
    result = launch(lake, instance, tags=RANGE)
    assert (result.success, set(made(result))) == (False, set(ALL[:5]))


def test_checks_alone_make_nothing_and_one_that_fails_keeps_none_from_its_result(
    lake: Lake, instance: dg.DagsterInstance, failing: Callable[[str, str], None]
) -> None:
    assert launch(lake, instance, as_of=MARKED, tags=RANGE).success
    failing("candidate_marks", "limits_are_respected")
    keys = {check.key(dg.AssetKey(asset)) for asset, checks in CHECKS.items() for check in checks}
    result = launch(lake, instance, (), keys)
    assert (result.success, made(result)) == (False, {})
    assert evaluated(result) == {name: name != "limits_are_respected" for name in names(CHECKS)}


@pytest.mark.parametrize("asset", ["transaction_log", "candidate_marks"])
def test_a_blocking_check_of_a_project_is_not_overtaken_by_the_sweep(
    lake: Lake, instance: dg.DagsterInstance, asset: str
) -> None:
    """Dagster evaluates it only after the step."""

    @dg.asset_check(asset=dg.AssetKey(asset), blocking=True)
    def of_the_project() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    lake.marks()
    before = lake.left()
    result = launch(lake, instance, foreign=[of_the_project], tags=RANGE)
    assert failure(result).startswith(f"Nothing is swept: the blocking check of_the_project of {asset} is evaluated only after")
    assert (lake.left(), set(made(result))) == (before, set(ALL[:4]))
    assert launch(lake, instance, ALL[:4], foreign=[of_the_project], tags=RANGE).success
    assert launch(lake, instance, ALL[4:], foreign=[of_the_project], tags=RANGE).success
    assert lake.there() == {"S3"}


# --- a backfill, as Dagster's daemon runs it ---


OPENING = "all partitions of the run"


@pytest.mark.parametrize("first", ["lake/d", "lake/f"])
def test_the_page_that_a_backfill_leaves_opens_with_what_the_whole_run_found(
    lake: Lake, instance: dg.DagsterInstance, first: str
) -> None:
    """Dagster shows the last event of a partition, here of one that has nothing marked, as the page of the asset."""
    instance.add_dynamic_partitions("datasets", ["lake/f"])
    lake.has("main: S1:SNAPSHOT@1d=10", "lake/f")
    if first == "lake/f":
        lake.marks()
    scope = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": "lake/f"}
    result = launch(lake, instance, ALL[:5], as_of=MARKED, tags={**scope, **BACKFILL})
    assert result.success
    for name in ALL[1:5]:
        key = dg.AssetKey(name)
        (whole,) = (event for event in result.get_asset_observation_events() if event.asset_key == key)
        said = whole.asset_observation_data.asset_observation.metadata["summary"]
        pages = metadata_of(instance, name)
        assert [next(iter(page.items())) for page in pages] == [(OPENING, said)] * len(pages)
        assert not [text for page in pages for text in page.values() if "Nothing is marked" in str(text)]
        assert not [name for page in pages for name in page if name.startswith("all: dagster/")]
    shown = metadata_of(instance, "candidate_marks")[0]
    marked = "**4 transactions are newly marked.**" if first == "lake/d" else "4 are marked in all."
    assert marked in str(shown[OPENING].value)
    assert "`lake/f`" in str(shown["summary"].value)


def metadata_of(instance: dg.DagsterInstance, asset: str) -> list[Mapping[str, dg.MetadataValue[Any]]]:
    """Of its newest materializations, the last one first."""
    records = instance.fetch_materializations(dg.AssetKey(asset), limit=9).records
    return [event.metadata for record in records if (event := record.asset_materialization)]


def backfill(environment: Mapping[str, str]) -> None:
    """All assets for partitions that stand together, and for some that don't, in a program of its own."""
    os.environ.update(environment)
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.instance_for_test(overrides=LAUNCHED_HERE) as instance,
        workspace_of(instance) as workspace,
    ):
        place_here(patch)
        instance.add_dynamic_partitions("datasets", ["lake/d", "lake/between", "lake/e"])
        graph, assets = workspace.create_request_context().asset_graph, [dg.AssetKey(name) for name in ALL]
        config, at = step_config(as_of=MARKED.isoformat()), MARKED.timestamp()
        for id, wanted, runs in (("whole", ["lake/d", "lake/between", "lake/e"], 1), ("parts", ["lake/d", "lake/e"], 2)):
            instance.add_backfill(
                PartitionBackfill.from_asset_partitions(id, graph, wanted, assets, at, {}, instance, False, None, None, config)
            )
            run_backfills(workspace)
            made, ended = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": id})), instance.get_backfill(id)
            assert ended
            assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
            # Dagster separates partitions that do not stand together.
            assert len(made) == runs
            assert [stats.step_key for run in made for stats in instance.get_run_step_stats(run.run_id)] == ["retention"] * runs
            for name in ALL:
                assert instance.get_materialized_partitions(dg.AssetKey(name)) == {"lake/d", "lake/between", "lake/e"}


@pytest.mark.long
@pytest.mark.program
def test_materializing_all_partitions_is_one_run_of_one_step(lake: Lake) -> None:
    lake.has(HISTORY, "lake/between")
    program = forking().Process(target=backfill, args=({"RETENTION_CONFIG": str(lake.folder / "retention.yaml")},))
    program.start()
    program.join()
    assert program.exitcode == 0
    assert set(lake.statuses().values()) == {"MARKED"}
