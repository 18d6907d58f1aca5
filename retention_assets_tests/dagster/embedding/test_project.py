"""The shop's project: retention as one of its components, loaded as Dagster loads it, and one run through all of it."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.definitions import build_defs
from retention_assets_tests.dagster.embedding.shop.defs.orders import REPORT
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

HERE = Path(__file__).parent
HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
STEPS = ("transaction_log", "branch_views", "candidate_marks", "swept_transactions", "purge_report", "retention_policies")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the project lies, as if it had been cloned."""
    return tmp_path / "project"


@pytest.fixture(autouse=True)
def lake(root: Path) -> Lake:
    """The project, with a lake beside the settings of its component."""
    made = Lake(root / "shop" / "defs" / "retention" / "settings").has(HISTORY, "lake/a").has(HISTORY, "lake/b")
    (made.folder / "policies" / "p.yaml").unlink()
    shutil.copytree(HERE, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("test_*.py", "__pycache__"))
    return made


@pytest.fixture
def defs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.Definitions]:
    """What Dagster loads of it."""
    monkeypatch.syspath_prepend(str(root))
    yield importlib.import_module("shop.definitions").defs()
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_the_component_stands_beside_the_projects_own_assets(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "orders", "bill", "keep/store/lake", *(f"keep/{step}" for step in STEPS),
    }  # fmt: skip
    assert graph.get(dg.AssetKey("bill")).parent_keys == {REPORT}
    assert {"keep__act_evaluate", "keep__delete_sweep", "keep__act_unmark"} <= set(repository.job_names)
    assert defs.executor is None, "whoever embeds this chooses the executor"


def test_what_the_settings_say_of_the_catalog_is_on_the_assets(defs: dg.Definitions) -> None:
    graph = defs.get_repository_def().asset_graph
    report = graph.get(REPORT)
    assert (report.group_name, report.owners, report.tags["cost"]) == ("cleaning", ["team:platform"], "storage")
    assert graph.get(dg.AssetKey("orders")).group_name == "default"


def test_a_definition_leads_to_the_yaml_and_to_the_code(defs: dg.Definitions, root: Path) -> None:
    """From its page a person comes to where the component is set up, and to what computes the asset."""
    metadata = defs.get_repository_def().asset_graph.get(REPORT).metadata["dagster/code_references"]
    assert isinstance(metadata, dg.CodeReferencesMetadataValue)
    local = [Path(one.file_path) for one in metadata.code_references if isinstance(one, dg.LocalFileCodeReference)]
    assert [path.name for path in local] == ["sweeping.py", "defs.yaml"]
    assert all(path.is_file() for path in local)


@pytest.mark.usefixtures("local_spark")
@pytest.mark.parametrize("kind", ["list", "partition"])
def test_an_asset_behind_the_report_is_made_after_each_though_some_partitions_have_none(
    defs: dg.Definitions, lake: Lake, kind: str
) -> None:
    """Dagster's own `eager` waits until each partition has a report; the page of the documents names the condition."""
    page = (Path(__file__).parents[3] / "docs" / "embedding.md").read_text("utf-8")
    assert "dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())" in page
    eager = dg.Definitions.merge(build_defs(lake.settings, key_prefix="keep"), dg.Definitions([waiting]))

    def asks(on: dg.Definitions, cursor: Any = None) -> Any:
        keys = dg.AssetSelection.assets("bill" if on is defs else "waiting")
        return dg.evaluate_automation_conditions(on, instance, asset_selection=keys, cursor=cursor)

    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("keep__datasets", ["lake/a", "lake/b"])
        bills, waits = asks(defs), asks(eager)
        assert (bills.total_requested, waits.total_requested) == (0, 0)
        where: dict[str, Any] = {"datasets": ["lake/a"]} if kind == "list" else {}
        ran = eager.resolve_job_def("keep__delete_cycle").execute_in_process(
            instance=instance,
            run_config={"ops": {"keep__retention": {"config": {"as_of": MARKED.isoformat(), **where}}}},
            partition_key=None if kind == "list" else "lake/a",
        )
        assert ran.success
        bills, waits = asks(defs, bills.cursor), asks(eager, waits.cursor)
        assert (bills.total_requested, waits.total_requested) == (1, 0)


@dg.asset(deps=[REPORT], automation_condition=dg.AutomationCondition.eager())
def waiting() -> None:
    """An asset that waits for a report of each dataset."""


@pytest.mark.spark
def test_one_run_goes_through_retention_and_on_to_the_projects_own_asset(
    defs: dg.Definitions, lake: Lake, spark: object
) -> None:
    """The partitions are found by the component's sensor; bytes are gone at the end, and the asset behind the report knows."""
    before = lake.left()
    with dg.instance_for_test() as instance:
        resources = dict(defs.resources or {})
        with dg.build_sensor_context(instance=instance, definitions=defs, resources=resources) as context:
            defs.get_repository_def().get_sensor_def("keep__dataset_discovery").evaluate_tick(context)
        assert set(instance.get_dynamic_partitions("keep__datasets")) == {"lake/a", "lake/b"}
        assert instance.get_dynamic_partitions("datasets") == []
        for as_of in (MARKED, DUE):
            ran = defs.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance,
                run_config={
                    "ops": {"keep__retention": {"config": {"as_of": as_of.isoformat()}}},
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
                asset_selection=[*(dg.AssetKey(["keep", step]) for step in STEPS), dg.AssetKey("bill")],
                tags={"dagster/asset_partition_range_start": "lake/a", "dagster/asset_partition_range_end": "lake/b"},
            )
            assert ran.success
        event = instance.get_latest_materialization_event(dg.AssetKey("bill"))
    assert lake.there("lake/a") == lake.there("lake/b") == {"S3"}
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["not_paid_for"].value == sum(
        len(text) for name, text in before.items() if name not in lake.left()
    )
    assert (lake.folder / "warehouse" / "keep" / "transaction_log").is_dir(), "folders are below the prefix"
    with lake.opened() as ledger:
        assert {one.dataset for one in ledger.publications.of("keep/candidate_marks")} == {"lake/a", "lake/b"}
