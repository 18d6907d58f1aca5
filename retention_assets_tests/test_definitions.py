"""What Dagster sees: definitions load without Java, and the job judges an environment from its settings."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from retention_assets.definitions import build_defs
from retention_assets.demo.environment import build
from retention_assets.demo.lake import AS_OF
from retention_assets.policy.instants import text_of
from retention_assets.settings import load_settings


def test_definitions_load_without_java_and_without_a_session(tmp_path: Path) -> None:
    """Loading must not start Spark, nor import what would."""
    settings_file = build(tmp_path / "demo")
    code = (
        "import os, sys; os.environ['RETENTION_CONFIG'] = sys.argv[1]; os.environ['JAVA_HOME'] = '/nowhere'; os.environ['PATH'] = '';"
        "from retention_assets.definitions import defs; import dagster as dg;"
        "dg.Definitions.validate_loadable(defs());"
        "from pyspark.sql import SparkSession; assert SparkSession.getActiveSession() is None"
    )
    done = subprocess.run([sys.executable, "-c", code, str(settings_file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_asset_graph() -> None:
    """The names that people and other tools rely on."""
    repository = build_defs().get_repository_def()
    graph = repository.asset_graph
    found = {key.to_user_string(): sorted(up.to_user_string() for up in graph.get(key).parent_keys) for key in graph.get_all_asset_keys()}
    assert found == {
        "transaction_log": [],
        "branch_views": ["transaction_log"],
        "candidate_marks": ["branch_views", "transaction_log"],
        "swept_transactions": ["candidate_marks"],
        "purge_report": ["swept_transactions"],
    }
    assert all(repository.has_job(name) for name in ("evaluate", "sweep", "cycle"))


@pytest.mark.spark
def test_the_job_judges_the_demonstration(tmp_path: Path, spark: object) -> None:
    """All three assets in one run; numbers in the metadata; a refused dataset is named and stops nobody."""
    settings = load_settings(build(tmp_path / "demo"))
    config = {"config": {"as_of": text_of(AS_OF)}}
    with dg.instance_for_test() as instance:
        result = (
            build_defs(settings)
            .resolve_job_def("evaluate")
            .execute_in_process(run_config={"ops": {"branch_views": config, "candidate_marks": config}}, instance=instance)
        )
        assert result.success
        seen = {
            name: instance.get_latest_materialization_event(dg.AssetKey(name)).asset_materialization.metadata  # type: ignore[union-attr]
            for name in ("transaction_log", "branch_views", "candidate_marks")
        }
    assert seen["transaction_log"]["refused"].value == 1
    assert seen["transaction_log"]["refused_datasets"].value.records[0].data["dataset"] == "lake/broken.log"  # type: ignore[union-attr]
    rows = seen["transaction_log"]["dagster/row_count"].value
    assert seen["branch_views"]["dagster/row_count"].value == rows
    numbers = {verdict: seen["candidate_marks"][verdict].value for verdict in ("mark", "spare", "keep", "open")}
    assert sum(int(str(count)) for count in numbers.values()) == rows
    assert int(str(numbers["mark"])) > 0
    assert numbers["mark"] == seen["candidate_marks"]["newly_marked"].value


def test_an_asset_without_its_upstream_says_what_to_do(tmp_path: Path) -> None:
    """Launched alone on a fresh instance."""
    definitions = build_defs(load_settings(build(tmp_path / "demo")), pyspark=dg.ResourceDefinition.none_resource())
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def("evaluate").execute_in_process(
            asset_selection=[dg.AssetKey("branch_views")], instance=instance, raise_on_error=False
        )
        failure = result.failure_data_for_node("branch_views")
    assert not result.success
    assert "Materialize it first" in str(failure and failure.error)
