"""The stores as source assets: where the lineage begins, and that it is known when a store is another one."""

import json
from typing import Any

import dagster as dg

from retention_assets.definitions import build_defs
from retention_assets.settings import Settings, settings_of
from retention_assets.settings.yaml import Document
from retention_assets_tests.dagster.automation.conftest import AWAY, SOME
from retention_assets_tests.dagster.launch import tick
from retention_assets_tests.sweep.lakes import Lake

LAKE = dg.AssetKey(["store", "lake"])


def observed(settings: Settings, instance: dg.DagsterInstance) -> list[str]:
    """The stores that a tick has observed, as the daemon keeps it."""
    found: Any = tick(settings, instance, "evaluation_loop")
    for event in found.asset_events:
        instance.report_runless_asset_event(event)
    return [event.asset_key.to_user_string() for event in found.asset_events]


def version(instance: dg.DagsterInstance) -> str | None:
    """The data version of the lake, as Dagster has it."""
    (record,) = instance.fetch_observations(LAKE, limit=1).records
    return record.asset_observation.tags["dagster/data_version"] if record.asset_observation else None


def stores_named(*names: str) -> dg.Definitions:
    stores = [{"name": name, "kind": "files", "log": f"l{n}", "data": f"d{n}/{{dataset}}/{{transaction}}"}
              for n, name in enumerate(names)]  # fmt: skip
    return build_defs(settings_of(Document("retention.yaml", {"stores": stores}, {})), key_prefix="eu")


def test_the_lineage_begins_at_every_store() -> None:
    graph = stores_named("lake", "ice").get_repository_def().asset_graph
    above = graph.get(dg.AssetKey(["eu", "transaction_log"])).parent_keys
    assert above == {dg.AssetKey(["eu", "store", name]) for name in ("lake", "ice")}
    assert all(graph.get(key).is_observable for key in above)
    assert "files" in graph.get(dg.AssetKey(["eu", "store", "lake"])).kinds


def test_stores_have_names_of_their_own_whatever_characters_dagster_takes() -> None:
    defs = stores_named("data-lake", "data_lake", "räum.1", "plain-lake")
    dg.Definitions.validate_loadable(defs)
    keys = {key.path[-1] for key in defs.get_repository_def().asset_graph.get_all_asset_keys() if "store" in key.path}
    assert {"data_lake", "r_um_1", "plain_lake"} < keys
    assert len(keys) == 4


def test_a_tick_observes_a_store_once_per_change(lake: Lake, instance: dg.DagsterInstance) -> None:
    """Ticks come every few minutes, and each event is kept."""
    assert observed(lake.settings, instance) == ["store/lake"]
    before = version(instance)
    assert observed(lake.settings, instance) == []
    lake.branches("feature", "S1", "lake/a")
    assert observed(lake.settings, instance) == ["store/lake"]
    assert version(instance) != before
    lake.has(SOME, "lake/new")
    assert observed(lake.settings, instance) == ["store/lake"]


def test_a_store_that_is_away_is_not_observed_as_an_empty_one(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert observed(lake.configures(AWAY).settings, instance) == ["store/lake"]


def test_a_person_observes_what_a_tick_does(lake: Lake, instance: dg.DagsterInstance) -> None:
    job = build_defs(lake.settings).resolve_implicit_global_asset_job_def().get_subset(asset_selection={LAKE})
    assert job.execute_in_process(instance=instance).success
    assert observed(lake.settings, instance) == []


def test_a_store_that_a_person_has_observed_and_that_is_away_says_why(lake: Lake, instance: dg.DagsterInstance) -> None:
    (lake.folder / "log" / "broken.jsonl").write_text(json.dumps({"dataset": 1}))
    job = build_defs(lake.settings).resolve_implicit_global_asset_job_def().get_subset(asset_selection={LAKE})
    ran = job.execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = ran.get_step_failure_events()
    assert "The store lake can't be read: " in str(failure.step_failure_data.user_failure_data)
