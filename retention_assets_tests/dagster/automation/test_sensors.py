"""Which sensors and jobs there are, which run from the start, what discovery finds, and what every tick keeps to."""

import json
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster import automation
from retention_assets.definitions import build_defs
from retention_assets.ledger.audit.chain import ActType
from retention_assets.policy.durations import Duration
from retention_assets.settings.model import Settings
from retention_assets.settings.sections import AutomationSettings
from retention_assets_tests.dagster.automation.conftest import AWAY, SOME, changed
from retention_assets_tests.dagster.automation.test_policy_files import AB
from retention_assets_tests.dagster.launch import create_run, tick
from retention_assets_tests.sweep.lakes import DUE, Lake

# --- which there are, and which run from the start ---


OFF = {
    "dataset_discovery",
    "evaluation_loop",
    "policy_files",
    "sweep_tick",
    "store_health",
    "daily_report",
    "daily_housekeeping",
    "daily_verification",
}


@pytest.mark.parametrize(
    ("automation", "running"),
    [
        pytest.param({}, set(), id="nothing by itself"),
        pytest.param({"discover": True}, {"dataset_discovery"}, id="discover"),
        pytest.param({"policies": True}, {"policy_files"}, id="policies"),
        pytest.param({"evaluate": Duration(seconds=300)}, {"evaluation_loop", "store_health"}, id="evaluate"),
        pytest.param({"sweep": Duration(seconds=300)}, {"sweep_tick", "store_health"}, id="sweep"),
        pytest.param({"report": True}, {"daily_report"}, id="report"),
        pytest.param({"housekeeping": True}, {"daily_housekeeping"}, id="housekeeping"),
        pytest.param({"verify": True}, {"daily_verification"}, id="verify"),
    ],
)
def test_only_what_the_settings_ask_for_runs_from_the_start(automation: dict[str, Any], running: set[str]) -> None:
    repository = build_defs(Settings(automation=AutomationSettings(**automation))).get_repository_def()
    found = {one.name: one.default_status.value for one in repository.sensor_defs}
    found |= {one.name: one.default_status.value for one in repository.schedule_defs}
    assert found == {name: "RUNNING" if name in running else "STOPPED" for name in OFF}


def test_every_sensor_schedule_and_job_says_what_it_does() -> None:
    repository = build_defs().get_repository_def()
    said = {one.name: one.description for one in repository.sensor_defs}
    said |= {one.name: one.description for one in repository.schedule_defs}
    said |= {one.name: one.description for one in repository.get_all_jobs() if one.name != "__ASSET_JOB"}
    assert [name for name, description in said.items() if not description] == []


@pytest.mark.parametrize(("every", "seconds"), [(None, 900), (Duration(seconds=300), 300), (Duration(days=1), 86_400)])
def test_how_often_is_looked_for_due_marks_is_a_setting(every: Duration | None, seconds: int) -> None:
    defs = build_defs(Settings(automation=AutomationSettings(sweep=every)))
    assert defs.get_repository_def().get_sensor_def("sweep_tick").minimum_interval_seconds == seconds


# --- discovery ---


def keys(instance: dg.DagsterInstance) -> list[str]:
    return sorted(instance.get_dynamic_partitions("datasets"))


def test_every_listed_dataset_becomes_a_partition(lake: Lake, instance: dg.DagsterInstance) -> None:
    found = tick(lake.settings, instance, "dataset_discovery")
    assert keys(instance) == ["lake/a", "lake/b"]
    assert found.skip_message == "2 new: lake/a, lake/b."
    again = tick(lake.settings, instance, "dataset_discovery", found.cursor)
    assert again.skip_message == "Nothing new among 2; 0 that no store lists; 0 stores away."
    lake.has(SOME, "lake/c")
    assert tick(lake.settings, instance, "dataset_discovery", again.cursor).skip_message == "1 new: lake/c."
    assert keys(instance) == ["lake/a", "lake/b", "lake/c"]


def test_more_keys_than_one_statement_takes_are_added_in_several(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automation, "_KEYS", 2)
    for name in ("lake/c", "lake/d", "lake/e"):
        lake.has(SOME, name)
    tick(lake.settings, instance, "dataset_discovery")
    assert keys(instance) == [f"lake/{name}" for name in "abcde"]


def test_a_vanished_dataset_keeps_its_partition_and_is_reported_once(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = tick(lake.settings, instance, "dataset_discovery")
    log = lake.folder / "log" / "lake-b.jsonl"
    log.rename(lake.folder / "elsewhere")
    second = tick(lake.settings, instance, "dataset_discovery", first.cursor)
    assert "1 that no store lists any more keep their partitions: lake/b." in second.skip_message
    assert keys(instance) == ["lake/a", "lake/b"]
    third = tick(lake.settings, instance, "dataset_discovery", second.cursor)
    assert third.skip_message == "Nothing new among 1; 1 that no store lists; 0 stores away."
    (lake.folder / "elsewhere").rename(log)
    assert tick(lake.settings, instance, "dataset_discovery", third.cursor).skip_message.startswith(
        "Every partition is a dataset"
    )


def test_a_store_that_is_away_hides_no_other_and_its_partitions_have_not_vanished(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    instance.add_dynamic_partitions("datasets", ["gone/x"])
    found = tick(changed(lake, store=AWAY), instance, "dataset_discovery")
    assert keys(instance) == ["gone/x", "lake/a", "lake/b"]
    assert "The store gone can't be listed" in found.skip_message
    assert "no store lists any more" not in found.skip_message


def test_a_name_that_no_partition_can_have_is_left_out_and_said(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.has(SOME, "lake/x...y")
    assert "can't be partitions by their names" in tick(lake.settings, instance, "dataset_discovery").skip_message
    assert keys(instance) == ["lake/a", "lake/b"]


def test_by_store_the_keys_are_the_stores_also_one_that_is_away(lake: Lake, instance: dg.DagsterInstance) -> None:
    tick(changed(lake, store=AWAY, partition_by="store"), instance, "dataset_discovery")
    assert keys(instance) == ["gone", "lake"]


# --- what every tick keeps to ---


@pytest.mark.parametrize("name", ["sweep_tick", "evaluation_loop", "policy_files"])
def test_a_run_at_work_is_waited_for_and_the_tick_says_since_when_and_what_to_do(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its machine may be gone, and then nobody but a person or run monitoring ends it: every tick would wait for ever."""
    lake.marks()
    monkeypatch.setattr(automation, "now", lambda: DUE)
    made = create_run(instance, build_defs(lake.settings).resolve_job_def("cycle"), dg.DagsterRunStatus.STARTED)
    record = instance.get_run_record_by_id(made.run_id)
    assert record
    found = tick(lake.settings, instance, name)
    assert found.run_requests == []
    assert f"cycle {made.run_id} is at work, since {record.create_timestamp:%Y-%m-%d %H:%M} UTC." in found.skip_message
    assert "terminate the run in Dagster" in found.skip_message


@pytest.mark.parametrize("name", ["sweep_tick", "policy_files"])
def test_a_ledger_that_is_away_fails_the_tick_without_telling_its_password(
    lake: Lake, instance: dg.DagsterInstance, name: str
) -> None:
    settings = changed(lake, ledger="postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=1")
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
        tick(settings, instance, name)
    assert "hunter2" not in str(caught.value)


def test_a_tick_alone_writes_nothing_into_the_record(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.says(AB % "30d")
    for name in ("dataset_discovery", "policy_files", "evaluation_loop", "sweep_tick"):
        tick(lake.settings, instance, name)
    with lake.opened() as ledger:
        deeds = [json.loads(line)["deed"] for line in ledger.audit_lines()]
    # The first head comes with the ledger.
    assert [deed for deed in deeds if deed not in (ActType.CLOCK, ActType.HEAD)] == []


# --- how old anything may be ---


@pytest.mark.parametrize(
    ("automation", "hours"),
    [
        pytest.param({}, {}, id="nothing runs by itself"),
        pytest.param({"evaluate": Duration(seconds=3600)}, {"candidate_marks": 7 * 24 + 2}, id="evaluate"),
        pytest.param(
            {"evaluate": Duration(seconds=3600), "everything": Duration(days=1)}, {"candidate_marks": 26}, id="everything"
        ),
        pytest.param({"sweep": Duration(seconds=7200)}, {"swept_transactions": 27}, id="sweep"),
    ],
)
def test_only_what_runs_by_itself_can_be_overdue(automation: dict[str, Any], hours: dict[str, int]) -> None:
    """A tick and an hour for the run are added to what the settings promise."""
    graph = build_defs(Settings(automation=AutomationSettings(**automation))).get_repository_def().asset_graph
    found = {key.to_user_string(): graph.get(key).freshness_policy_or_from_metadata for key in graph.get_all_asset_keys()}
    assert {name: one for name, one in found.items() if one} == {
        name: dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=number)) for name, number in hours.items()
    }
