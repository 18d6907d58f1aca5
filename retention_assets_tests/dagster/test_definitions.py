"""Definitions: they load without Java, their surface and resources, and runs of assets from settings alone."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from retention_assets.dagster.headless import plain_metadata
from retention_assets.definitions import Warehouse, build_defs
from retention_assets.demo.environment import build_environment
from retention_assets.demo.lake import AS_OF
from retention_assets.errors import BadInput
from retention_assets.policy import text_of
from retention_assets.settings import Settings, load_settings, settings_of
from retention_assets.settings.sections import DagsterSettings, SparkSettings
from retention_assets.settings.yaml import Document
from retention_assets_tests.dagster.launch import failure, materialize, resource, step_config
from retention_assets_tests.dagster.surface import all_on, surface
from retention_assets_tests.sweep.lakes import MARKED, Lake

# Dagster asks its own schedules for something that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition.environment_vars` is deprecated")


@pytest.mark.program
def test_definitions_load_without_java_and_without_a_session(tmp_path: Path) -> None:
    """Loading must not start Spark, nor import what would."""
    settings_file = build_environment(tmp_path / "demo")
    code = (
        "import os, sys; os.environ['RETENTION_CONFIG'] = sys.argv[1]; os.environ['JAVA_HOME'] = '/nowhere'; os.environ['PATH'] = '';"
        "from retention_assets.definitions import defs; import dagster as dg;"
        "dg.Definitions.validate_loadable(defs());"
        "from pyspark.sql import SparkSession; assert SparkSession.getActiveSession() is None;"
        "from pyspark import SparkContext; assert SparkContext._gateway is None;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(settings_file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Dagster tells of what may change in it; nobody who loads these definitions can do anything about it.
    assert "Warning" not in done.stderr
    # Each of them takes longer to import than all of the definitions; a daemon loads them anew for every run.
    heavy = {"boto3", "botocore", "duckdb", "fsspec", "moto", "pandas", "polars", "pyiceberg", "s3fs"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize(("settings", "made"), [("default", lambda: build_defs(Settings())), ("all_on", all_on)])
def test_the_surface_is_what_people_and_other_tools_rely_on(settings: str, made: Callable[[], dg.Definitions]) -> None:
    """A change that is meant is written down anew: see surface.py."""
    expected = json.loads((Path(__file__).parents[1] / "cases" / "surface.json").read_text())[settings]
    assert json.loads(json.dumps(surface(made()))) == expected


def test_every_asset_says_what_it_is_and_where_it_is_written() -> None:
    graph = build_defs(Settings()).get_repository_def().asset_graph
    for node in (graph.get(key) for key in graph.get_all_asset_keys()):
        assert len(node.description or "") > 50
        metadata = node.metadata["dagster/code_references"]
        assert isinstance(metadata, dg.CodeReferencesMetadataValue)
        (code,) = metadata.code_references
        assert isinstance(code, dg.LocalFileCodeReference)
        lines = Path(code.file_path).read_text().splitlines()
        assert lines[(code.line_number or 0) - 1].startswith("@retention_asset"), "the link leads to the asset"


def test_the_code_is_linked_to_where_the_settings_say_that_people_read_it() -> None:
    settings = Settings(dagster=DagsterSettings(source="https://git.example.com/data/retention/tree/main/"))
    metadata = build_defs(settings).get_repository_def().asset_graph.get(dg.AssetKey("purge_report")).metadata
    (code,) = metadata["dagster/code_references"].code_references
    assert code.url.startswith("https://git.example.com/data/retention/tree/main/retention_assets/dagster/sweeping.py#L")


@pytest.mark.spark
def test_the_job_judges_the_demonstration(tmp_path: Path, instance: dg.DagsterInstance, spark: object) -> None:
    """All steps in one run; numbers in the metadata; a refused dataset is named and stops nobody."""
    settings = load_settings(build_environment(tmp_path / "demo"))
    job = build_defs(settings).resolve_job_def("act_evaluate")
    assert job.execute_in_process(run_config=step_config(as_of=text_of(AS_OF)), instance=instance).success
    seen = {name: metadata(instance, name) for name in ("transaction_log", "branch_views", "candidate_marks")}
    assert seen["transaction_log"]["refused"] == 1
    assert seen["transaction_log"]["refused_datasets"][0]["dataset"] == "lake/broken.log"
    rows = seen["transaction_log"]["dagster/row_count"]
    assert seen["branch_views"]["dagster/row_count"] == rows
    numbers = {verdict: seen["candidate_marks"][verdict] for verdict in ("mark", "spare", "keep", "open")}
    assert sum(numbers.values()) == rows
    assert numbers["mark"] > 0
    assert numbers["mark"] == seen["candidate_marks"]["newly_marked"]


def metadata(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """What the newest materialization of an asset says that is about all of a run."""
    found = instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
    made = (one.event_log_entry.asset_materialization for one in found)
    return next(plain_metadata(one.metadata) for one in made if one and RUN_ROWS[asset] in one.metadata)


# A number that only what is about a whole run has.
RUN_ROWS = {"transaction_log": "datasets", "branch_views": "dagster/row_count", "candidate_marks": "newly marked"}
SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
ASSETS = ("transaction_log", "branch_views", "candidate_marks", "swept_transactions")


def marked(lake: Lake) -> set[str]:
    """Datasets with marks."""
    with lake.opened() as ledger:
        return set(ledger.marks.table()["dataset"].to_pylist())


@pytest.mark.long
@pytest.mark.usefixtures("local_spark")
def test_fewer_datasets_may_be_meant_than_the_partitions_have(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b").has(SOME, "lake/c")
    ranged = {"dagster/asset_partition_range_start": "lake/a", "dagster/asset_partition_range_end": "lake/c"}
    instance.add_dynamic_partitions("datasets", ["lake/a", "lake/b", "lake/c"])
    ran = materialize(lake.settings, instance, ASSETS[:3], MARKED, datasets=["lake/[ac]"], tags=ranged)
    assert ran.success
    numbers = metadata(instance, "candidate_marks")
    assert marked(lake) == {"lake/a", "lake/c"}
    assert [numbers[name] for name in ("mark", "newly_marked")] == [4, 4]
    with lake.opened() as ledger:
        assert ledger.publications.datasets("branch_views") == ["lake/a", "lake/c"]
        assert ledger.publications.datasets("candidate_marks") == ["lake/a", "lake/c"]


@pytest.mark.long
@pytest.mark.usefixtures("local_spark")
def test_a_realm_is_purged_once_a_look_at_everything_finds_nothing_of_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake(tmp_path / "lake", policies="{name: none, datasets: {include: ['lake/none']}, select: all}").has(SOME)
    lake._log("lake/d", ['{"dataset": "lake/d", "realm": "acme"}'])
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "contract over")
    statuses = []
    for day in range(3):
        if day == 1:
            # Whoever is purged goes on writing: under an id that was swept there is another one.
            lake.comes_again(lake.drawn[0].transactions[0]["transaction"], opened_at="2020-01-01T00:00:00Z")
        job = build_defs(lake.settings).resolve_job_def("delete_cycle")
        assert job.execute_in_process(run_config=step_config(as_of=text_of(MARKED)), instance=instance).success
        with lake.opened() as ledger:
            statuses.append(ledger.realms.of("acme").status)
    assert statuses == ["PURGING", "PURGING", "PURGED"]
    assert lake.there() == set()


@pytest.mark.long
@pytest.mark.usefixtures("local_spark")
def test_a_partition_that_no_store_knows_says_so(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a")
    instance.add_dynamic_partitions("datasets", ["lake/gone"])
    result = materialize(lake.settings, instance, ["transaction_log"], partition_key="lake/gone")
    assert "No store has a dataset of the partitions lake/gone" in failure(result)


@pytest.mark.long
@pytest.mark.usefixtures("local_spark")
def test_partitions_may_be_stores(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")
    lake.configures(partition_by="store")
    instance.add_dynamic_partitions("datasets", ["lake"])
    assert materialize(lake.settings, instance, ASSETS[:3], MARKED, partition_key="lake").success
    events = instance.fetch_materializations(dg.AssetKey("candidate_marks"), limit=2).records
    pages = [one.asset_materialization.metadata for one in events if one.asset_materialization and one.partition_key]
    assert [page["summary"].value for page in pages] == ["`lake`\n\n- 2 datasets of lake worked on"]
    assert marked(lake) == {"lake/a", "lake/b"}


def test_an_asset_without_its_upstream_says_what_to_do(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Launched alone on a fresh instance."""
    lake = Lake(tmp_path / "lake").has(SOME, "lake/a")
    instance.add_dynamic_partitions("datasets", ["lake/a"])
    result = materialize(lake.settings, instance, ["branch_views"], partition_key="lake/a")
    assert "Materialize it first" in failure(result)


STORE = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}


def shown(settings: Settings) -> str:
    """All that Dagster tells its pages of some definitions."""
    return repr(RepositorySnap.from_def(build_defs(settings).get_repository_def()))


def descriptions(settings: Settings) -> dict[str, str]:
    """What stands on the page of each resource."""
    snap = RepositorySnap.from_def(build_defs(settings).get_repository_def())
    return {one.name: str(one.resource_snapshot.description) for one in snap.resources or ()}


def test_each_says_what_it_is_and_whatever_runs_is_shown_with_it() -> None:
    settings = settings_of(Document("retention.yaml", {"stores": [STORE], "spark": {"master": "local[2]"}}, {}))
    found = descriptions(settings)
    assert "* store lake (files)" in found["retention"].splitlines()
    assert "* master: local[2]" in found["pyspark"].splitlines()
    assert found["warehouse"].endswith("/.retention/warehouse")
    snap = RepositorySnap.from_def(build_defs(settings).get_repository_def())
    for one in snap.resources or ():
        assert {"candidate_marks", "swept_transactions"} <= {key.to_user_string() for key in one.asset_keys_using}
        assert "evaluation_loop" in one.sensors_using


def test_no_secret_of_the_settings_is_shown() -> None:
    """Everybody who sees Dagster sees that page."""
    spark = SparkSettings(master="sc://host:15002/;token=T0KEN", conf={"spark.hadoop.fs.s3a.secret.key": "K3Y"})
    settings = Settings(ledger="postgresql://me:PA55WORD@host/ledger", warehouse="s3://KEY:PA55WORD@bucket/x", spark=spark)
    found = descriptions(settings)
    assert "* ledger: postgresql://me:***@host/ledger" in found["retention"].splitlines()
    assert "* configured: spark.hadoop.fs.s3a.secret.key" in found["pyspark"].splitlines()
    for secret in ("T0KEN", "K3Y", "PA55WORD"):
        assert secret not in shown(settings)


def test_each_can_be_replaced_by_whatever_does_its_work() -> None:
    """By a value, a resource of one's own, or a definition of one."""
    elsewhere = Warehouse(root="s3://elsewhere")
    defs = build_defs(Settings(), warehouse=dg.ResourceDefinition.hardcoded_resource(elsewhere))
    assert resource(defs, "warehouse") is elsewhere
    wrong: dict[str, Any] = {"warehose": elsewhere}
    with pytest.raises(TypeError, match="warehose"):
        build_defs(Settings(), **wrong)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("retention", Settings(), "Environment"),
        ("pyspark", "local[2]", "LazyPySparkResource"),
        ("warehouse", "s3://b", "Warehouse"),
    ],
)
def test_what_runs_could_not_use_is_refused_when_definitions_are_made(key: str, value: Any, expected: str) -> None:
    wrong: dict[str, Any] = {key: value}
    found = f"found '{type(value).__name__}'); expected a value of type {expected}, or a"
    with pytest.raises(BadInput, match=f"^{key}: has a wrong type .{re.escape(found)} Dagster resource that provides one$"):
        build_defs(Settings(), **wrong)
