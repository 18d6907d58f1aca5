"""`build_defs` with a prefix: no name is left that could clash, and everything finds everything below it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster.headless import run_job
from retention_assets.definitions import Environment, Warehouse, build_defs
from retention_assets.errors import BadInput
from retention_assets.policy import text_of
from retention_assets.settings import Settings
from retention_assets.settings.sections import DagsterSettings
from retention_assets_tests.dagster.launch import create_run, tick_of
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"


@dg.asset(deps=[dg.AssetKey(["eu", "purge_report"]), dg.AssetKey(["us", "purge_report"])])
def savings() -> None:
    """What some project makes of the reports of both its environments."""


@dg.asset
def transaction_log() -> None:
    """An asset of the project that is called like one of retention's."""


def names(defs: dg.Definitions) -> Mapping[str, set[str]]:
    """Every name by which Dagster knows anything of some definitions."""
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    keys = {key for key in graph.get_all_asset_keys() if key != dg.AssetKey("savings")}
    partitioned = [graph.get(key).partitions_def for key in keys]
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__ASSET")]
    nodes = [job.graph.node_defs for job in jobs]
    return {
        "assets": {key.to_user_string() for key in keys},
        "checks": {key.to_user_string() for key in graph.asset_check_keys},
        "jobs": {job.name for job in jobs},
        "ops": {one.name for some in nodes for one in some},
        "pools": {pool for some in nodes for one in some if isinstance(one, dg.OpDefinition) for pool in one.pools},
        "sensors": {one.name for one in repository.sensor_defs},
        "schedules": {one.name for one in repository.schedule_defs},
        "resources": set(defs.resources or {}),
        "partitions": {str(one.name) for one in partitioned if isinstance(one, dg.DynamicPartitionsDefinition)},
    }


@pytest.mark.parametrize(("prefix", "begins"), [("eu", "eu"), ("cold/eu", "cold__eu"), (["cold", "eu"], "cold__eu")])
def test_a_prefix_stands_before_every_name_and_changes_nothing_else(prefix: Any, begins: str) -> None:
    bare, prefixed = names(build_defs(Settings())), names(build_defs(Settings(), key_prefix=prefix))
    assert all(bare.values()), "a kind of name that nothing has was not looked for"
    below = begins.replace("__", "/")
    for kind, found in bare.items():
        before = f"{below}/" if kind in ("assets", "checks") else f"{begins}__"
        assert prefixed[kind] == {before + name for name in found}, kind


def test_whatever_a_sensor_or_a_schedule_launches_is_there() -> None:
    repository = build_defs(Settings(), key_prefix="eu").get_repository_def()
    launched = {target.job_name for one in repository.sensor_defs for target in one.targets}
    launched |= {one.job_name for one in repository.schedule_defs}
    assert {"eu__act_evaluate", "eu__delete_sweep", "eu__act_report"} <= launched <= set(repository.job_names)


def test_two_environments_and_a_project_of_its_own_are_one_code_location() -> None:
    """The project runs its assets as it likes: nothing that is merged into it chooses for it."""
    project = dg.Definitions([savings, transaction_log], executor=dg.multiprocess_executor)
    merged = dg.Definitions.merge(project, *(build_defs(Settings(), key_prefix=prefix) for prefix in ("eu", "us")))
    dg.Definitions.validate_loadable(merged)
    found = merged.get_repository_def().asset_graph.get_all_asset_keys()
    assert len(found) == 6 + 6 + 2
    assert merged.executor is dg.multiprocess_executor


def test_alone_it_brings_the_executor_that_shares_one_spark() -> None:
    assert build_defs(Settings()).executor is dg.in_process_executor


def test_twice_without_a_prefix_is_refused_by_dagster_itself() -> None:
    with pytest.raises(dg.DagsterInvariantViolationError, match="retention"):
        dg.Definitions.merge(build_defs(Settings()), build_defs(Settings()))


@pytest.mark.parametrize("prefix", ["a b", "a-b", "a//b", ["a/b"], "/a"])
def test_a_prefix_that_no_job_can_have_is_refused(prefix: Any) -> None:
    with pytest.raises(BadInput, match="key_prefix: can't be part of a name"):
        build_defs(Settings(), key_prefix=prefix)


def test_what_is_given_replaces_what_the_settings_say() -> None:
    settings = Settings(dagster=DagsterSettings(key_prefix=("eu",)))
    assert names(build_defs(settings))["resources"] == {"eu__retention", "eu__pyspark", "eu__warehouse"}
    assert names(build_defs(settings, key_prefix="us"))["resources"] == {"us__retention", "us__pyspark", "us__warehouse"}


def test_a_resource_is_replaced_below_a_prefix_as_well() -> None:
    elsewhere = Warehouse("s3://elsewhere")
    defs = build_defs(Settings(), key_prefix="eu", warehouse=elsewhere)
    assert dict(defs.resources or {})["eu__warehouse"] is elsewhere


@dg.asset
def open_marks(cold__eu__retention: dg.ResourceParam[Environment]) -> dg.MaterializeResult[Any]:
    """An asset of a project that reads the ledger."""
    with cold__eu__retention.ledger() as ledger:
        return dg.MaterializeResult(metadata={"marks": len(ledger.marks.table())})


def counting() -> dg.JobDefinition:
    """The project's job as a program finds it that executes a step."""
    job = dg.define_asset_job("counting", dg.AssetSelection.assets(open_marks))
    return dg.Definitions.merge(dg.Definitions([open_marks], jobs=[job]), build_defs()).resolve_job_def("counting")


@pytest.mark.parametrize("executor", ["in_process", "multiprocess"])
def test_an_asset_of_the_project_is_given_the_environment_by_its_type(
    executor: str, lake: Lake, instance_on_disk: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETENTION_CONFIG", str(lake.settings_file))
    lake.marks()
    config: dict[str, Any] = {"execution": {"config": {executor: {}}}}
    with dg.execute_job(dg.reconstructable(counting), instance_on_disk, config) as ran:
        (made,) = ran.asset_materializations_for_node("open_marks")
    assert made.metadata["marks"].value == 2


# --- everything finds everything ---


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An environment whose settings have a prefix."""
    return Lake(tmp_path / "lake").has(HISTORY).configures(dagster={"key_prefix": "cold/eu"})


@pytest.mark.usefixtures("local_spark")
def test_a_command_runs_the_cycle_below_the_prefix_of_the_settings(lake: Lake, instance_on_disk: dg.DagsterInstance) -> None:
    instance = instance_on_disk
    ran = run_job(lake.settings, "cycle", MARKED, log_level="critical")
    assert (ran.troubles, ran.number("candidate_marks", "newly_marked")) == ((), 2)
    assert instance.get_latest_materialization_event(dg.AssetKey(["cold", "eu", "candidate_marks"])) is not None
    assert instance.get_latest_materialization_event(dg.AssetKey("candidate_marks")) is None
    swept = run_job(lake.settings, "sweep", DUE, log_level="critical")
    assert (swept.troubles, swept.number("swept_transactions", "deleted")) == ((), 2)
    assert lake.there() == {"S3"}


def test_a_sweep_on_its_way_holds_back_the_tick_of_its_own_environment_only(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    defs = build_defs(lake.settings)
    # Runs that are being made are on their way.
    instance.create_run_for_job(
        build_defs(lake.settings, key_prefix="us").resolve_job_def("us__delete_sweep"), status=dg.DagsterRunStatus.STARTED
    )
    assert len(tick_of(defs, instance, "cold__eu__sweep_tick").run_requests) == 1
    mine = instance.create_run_for_job(defs.resolve_job_def("cold__eu__delete_sweep"), status=dg.DagsterRunStatus.STARTED)
    assert mine.run_id in str(tick_of(defs, instance, "cold__eu__sweep_tick").skip_message)


def test_the_loop_waits_for_what_judges_in_its_own_environment_only(lake: Lake, instance: dg.DagsterInstance) -> None:
    defs, others = build_defs(lake.settings), build_defs(lake.settings, key_prefix="us")
    started = dg.DagsterRunStatus.STARTED
    create_run(instance, others.resolve_job_def("us__act_evaluate"), started)
    create_run(instance, others.resolve_implicit_global_asset_job_def(), started, ["us/candidate_marks"])
    for name in ("evaluation_loop", "policy_files"):
        assert len(tick_of(defs, instance, f"cold__eu__{name}").run_requests) == 1
    judged = create_run(instance, defs.resolve_implicit_global_asset_job_def(), started, ["cold/eu/candidate_marks"])
    assert judged.run_id in str(tick_of(defs, instance, "cold__eu__evaluation_loop").skip_message)
    instance.report_run_canceled(judged)
    listed = create_run(instance, defs.resolve_job_def("cold__eu__act_evaluate"), started)
    assert listed.run_id in str(tick_of(defs, instance, "cold__eu__evaluation_loop").skip_message)


def test_the_report_of_a_day_is_written_below_the_prefix(lake: Lake, instance: dg.DagsterInstance) -> None:
    job = build_defs(lake.settings).resolve_job_def("cold__eu__act_report")
    ran = job.execute_in_process(
        run_config={"ops": {"cold__eu__retention": {"config": {"as_of": text_of(DUE)}}}}, instance=instance
    )
    page = lake.folder / "warehouse" / "cold" / "eu" / "purge_report" / ran.run_id / f"{DUE.date()}.html"
    assert page.is_file()
