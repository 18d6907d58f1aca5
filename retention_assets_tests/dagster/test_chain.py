"""Runs of assets, which are one step: all of a partition, each asset alone, checks alone, a report without partitions; and what
a failed blocking check keeps from being deleted.

Belongs here: which assets and checks a run of the step makes, and in which order. What an asset computes is tested where it is.
"""

import logging
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration

from retention_assets.dagster.check_queries import CHECKS
from retention_assets.definitions import build_defs
from retention_assets.ledger import Violation
from retention_assets_tests.dagster.launch import evaluations, failure, step_config
from retention_assets_tests.forked import forking
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.local_spark import place_here
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHOLE = {"S1", "S2", "S3"}
ALL = ("retention_policies", "transaction_log", "branch_views", "candidate_marks", "swept_transactions", "purge_report")
RANGE = {"dagster/asset_partition_range_start": "lake/d", "dagster/asset_partition_range_end": "lake/e"}
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
    alone: set[str | None] = {None}
    assert made(result) == {name: alone if name in ("retention_policies", "purge_report") else {"lake/d", None} for name in ALL}
    assert (lake.there(), lake.there("lake/e")) == ({"S3"}, WHOLE)


def test_each_asset_alone_is_made_with_its_checks_and_nothing_else_is(lake: Lake, instance: dg.DagsterInstance) -> None:
    for name in ALL:
        how: dict[str, Any] = {} if name in ("retention_policies", "purge_report") else {"partition_key": "lake/d"}
        result = launch(lake, instance, [name], as_of=MARKED, **how)
        assert (result.success, set(made(result)), set(evaluated(result))) == (True, {name}, names([name])), name
    assert set(lake.statuses().values()) == {"MARKED"}


def test_a_run_that_names_no_partition_does_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    result = launch(lake, instance, ["swept_transactions", "purge_report"])
    assert (result.success, made(result), lake.there()) == (False, {}, WHOLE)
    assert "this run names none" in failure(result)
    result = launch(lake, instance, ["retention_policies", "purge_report"])
    assert (result.success, set(made(result))) == (True, {"retention_policies", "purge_report"})


# --- blocking checks ---


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Have a check find something wrong with lake/d."""

    def fail(asset: str, name: str) -> None:
        checks = CHECKS[asset]
        broken = [replace(one, query=lambda _: [Violation("lake/d", "wrong")]) if one.name == name else one for one in checks]
        monkeypatch.setitem(CHECKS, asset, tuple(broken))

    return fail


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
BACKFILL = {"dagster/backfill": "b"}


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
    shown = metadata_of(instance, "candidate_marks")[0]
    marked = "**4 transactions are newly marked.**" if first == "lake/d" else "4 are marked in all."
    assert marked in str(shown[OPENING].value)
    assert "`lake/f`" in str(shown["summary"].value)


def metadata_of(instance: dg.DagsterInstance, asset: str) -> list[Mapping[str, dg.MetadataValue[Any]]]:
    """Of its newest materializations, the last one first."""
    records = instance.fetch_materializations(dg.AssetKey(asset), limit=9).records
    return [event.metadata for record in records if (event := record.asset_materialization)]


def backfill(environment: Mapping[str, str]) -> None:
    """All assets for two partitions that do not stand together, in a program of its own: Dagster leaves event loops open."""
    os.environ.update(environment)
    # Dagster's own backfill calls what it deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    target = ModuleTarget("retention_assets.definitions", "defs", working_directory=None, location_name="here")
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.instance_for_test(overrides=LAUNCHED_HERE) as instance,
        create_test_daemon_workspace_context(target, instance) as workspace,
    ):
        place_here(patch)
        instance.add_dynamic_partitions("datasets", ["lake/d", "lake/between", "lake/e"])
        graph, assets = workspace.create_request_context().asset_graph, [dg.AssetKey(name) for name in ALL]
        config, at = step_config(as_of=MARKED.isoformat()), MARKED.timestamp()
        wanted = ["lake/d", "lake/e"]
        instance.add_backfill(
            PartitionBackfill.from_asset_partitions("one", graph, wanted, assets, at, {}, instance, False, None, None, config)
        )
        for _ in range(5):
            assert not any(execute_backfill_iteration(workspace, logging.getLogger("backfill")))
        runs, ended = instance.get_runs(), instance.get_backfill("one")
        steps = {stats.step_key for run in runs for stats in instance.get_run_step_stats(run.run_id)}
        assert instance.get_materialized_partitions(dg.AssetKey("swept_transactions")) == set(wanted)
    assert ended
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    # Dagster separates partitions that do not stand together, and assets without any.
    assert (steps, len(runs)) == ({"retention"}, 6)


LAUNCHED_HERE = {
    "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"},
    "run_launcher": {"module": "dagster._core.launcher.sync_in_memory_run_launcher", "class": "SyncInMemoryRunLauncher"},
}


@pytest.mark.long
def test_a_backfill_comes_to_its_end_in_runs_of_one_step(lake: Lake) -> None:
    program = forking().Process(target=backfill, args=({"RETENTION_CONFIG": str(lake.folder / "retention.yaml")},))
    program.start()
    program.join()
    assert program.exitcode == 0
    assert set(lake.statuses().values()) == {"MARKED"}
