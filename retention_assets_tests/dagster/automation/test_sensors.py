"""What the daemon's ticks find, launch and say: something to do, nothing to do, broken input, a store or the ledger away."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.clock import now
from retention_assets.dagster.automation import evaluation_sensor, sensors
from retention_assets.definitions import build_defs
from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.evaluations import EVALUATION_ROWS
from retention_assets.ledger.marks.candidates import CANDIDATES
from retention_assets.ledger.sweeps import Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.settings.model import AutomationSettings, Settings
from retention_assets_tests.dagster.automation.ticks import run, stands, tick
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
SWEPT = dg.AssetKey("swept_transactions")
AWAY = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/b")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In memory: one on disk takes longer to make than a tick."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def changed(lake: Lake, **settings: Any) -> Settings:
    """The settings of a lake with other values."""
    file = lake.folder / "retention.yaml"
    data = json.loads(file.read_text())
    extra = settings.pop("store", None)
    file.write_text(json.dumps({**data, **settings, "stores": [*data["stores"], *([extra] if extra else [])]}))
    return lake.settings


# --- which there are, and which run from the start ---

OFF = {
    "dataset_discovery",
    "evaluation_loop",
    "policy_files",
    "sweep_tick",
    "alert_on_failure",
    "alert_on_trouble",
    "daily_report",
    "daily_housekeeping",
}


@pytest.mark.parametrize(
    ("automation", "running"),
    [
        pytest.param({}, set(), id="nothing by itself"),
        pytest.param({"discover": True}, {"dataset_discovery"}, id="discover"),
        pytest.param({"policies": True}, {"policy_files"}, id="policies"),
        pytest.param({"evaluate": Duration(seconds=300)}, {"evaluation_loop"}, id="evaluate"),
        pytest.param({"sweep": Duration(seconds=300)}, {"sweep_tick"}, id="sweep"),
        pytest.param({"report": True}, {"daily_report"}, id="report"),
        pytest.param({"housekeeping": True}, {"daily_housekeeping"}, id="housekeeping"),
        pytest.param({"alerts": True}, {"alert_on_failure", "alert_on_trouble"}, id="alerts"),
    ],
)
def test_only_what_the_settings_ask_for_runs_from_the_start(automation: dict[str, Any], running: set[str]) -> None:
    repository = build_defs(Settings(automation=AutomationSettings(**automation))).get_repository_def()
    found = {one.name: one.default_status.value for one in repository.sensor_defs}
    found |= {one.name: one.default_status.value for one in repository.schedule_defs}
    assert found == {name: "RUNNING" if name in running else "STOPPED" for name in OFF}


def test_the_jobs_that_people_and_sensors_launch() -> None:
    assert set(build_defs().get_repository_def().job_names) == {
        "__ASSET_JOB", "advance_visibility", "change_realm", "cycle", "evaluate", "hold", "housekeeping", "policy_overwrite",
        "policy_revoke", "preview", "release", "report", "sweep", "unmark",
    }  # fmt: skip


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
    monkeypatch.setattr(sensors, "_KEYS", 2)
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


# --- policy files ---

AB = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: %s}}"


def policy_tick(lake: Lake, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    return tick(lake.settings, instance, "policy_files", cursor)


def loaded(lake: Lake) -> None:
    """The files, taken into the book as a run does."""
    lake.marks()


def test_a_changed_policy_has_exactly_the_datasets_judged_that_it_can_reach(lake: Lake, instance: dg.DagsterInstance) -> None:
    other = "{name: other, datasets: {include: ['lake/*'], exclude: ['lake/a']}, select: {older_than: %s}}"
    lake.says(f"{OLD}, {other % '30d'}")
    loaded(lake)
    first = policy_tick(lake, instance)
    assert first.run_requests == []
    assert first.skip_message == "The policy files changed. They say what the book says."
    lake.says(f"{OLD}, {other % '40d'}")
    (request,) = policy_tick(lake, instance, first.cursor).run_requests
    assert request.run_config == {"datasets": ["lake/b"]}
    dg.validate_run_config(build_defs(lake.settings).resolve_job_def("evaluate"), request.run_config)


def test_a_policy_that_moves_has_both_its_old_and_its_new_datasets_judged(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.says("{name: p, datasets: {include: ['lake/a']}, select: {older_than: 30d}}")
    loaded(lake)
    first = policy_tick(lake, instance)
    lake.says("{name: p, datasets: {include: ['lake/b']}, select: {older_than: 30d}}")
    (request,) = policy_tick(lake, instance, first.cursor).run_requests
    assert request.run_config == {"datasets": ["lake/a", "lake/b"]}


def test_a_hold_in_a_file_has_the_datasets_judged_that_it_can_reach(lake: Lake, instance: dg.DagsterInstance) -> None:
    """The policy book knows nothing of holds in files: what they were is in the looks."""
    lake.says(OLD)
    loaded(lake)
    names = ["lake/a", "lake/b"]
    with lake.opened() as ledger:
        digests = rules_digests(load_rulebook(ledger, lake.settings, "test").rules(names, MARKED), names, MARKED)
        looks = {"dataset": names, "token": ["", ""], "rules": digests, "looked_at": [MARKED] * 2, "next_look": [None] * 2}
        ledger.marks.mark(CANDIDATES.empty_table(), MARKED, "test", evaluations=pa.table(looks, schema=EVALUATION_ROWS))
    first = policy_tick(lake, instance)
    assert first.run_requests == []
    lake.says(OLD, "{name: legal, datasets: ['lake/a'], reason: case 7}")
    held = policy_tick(lake, instance, first.cursor)
    assert [request.run_config for request in held.run_requests] == [{"datasets": ["lake/a"]}]


def test_unchanged_files_launch_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = policy_tick(lake, instance)
    assert len(first.run_requests) == 1
    again = policy_tick(lake, instance, first.cursor)
    assert (again.run_requests, again.skip_message) == ([], "The policy files are as they were.")


def test_a_comment_or_a_policy_about_nothing_launches_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    first = policy_tick(lake, instance)
    file = lake.folder / "policies" / "p.yaml"
    file.write_text(f"# a remark\n{file.read_text()}")
    second = policy_tick(lake, instance, first.cursor)
    assert (second.run_requests, second.cursor != first.cursor) == ([], True)
    lake.says(f"{OLD}, {{name: none, datasets: {{include: ['lake/z*']}}, select: all}}")
    third = policy_tick(lake, instance, second.cursor)
    assert third.run_requests == []
    assert "none: no dataset is touched" in third.skip_message


def test_broken_files_fail_every_tick_until_they_are_mended(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    first = policy_tick(lake, instance)
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    for _ in range(2):
        with pytest.raises(Exception, match=r"oldr_than.*Did you mean older_than"):
            policy_tick(lake, instance, first.cursor)
    with lake.opened() as ledger:
        assert [entry.name for entry in ledger.policy_book.in_force()] == ["old"]
    lake.says(OLD)
    assert policy_tick(lake, instance, first.cursor).skip_message == "The policy files are as they were."


def test_files_that_went_away_fail_the_tick(lake: Lake, instance: dg.DagsterInstance) -> None:
    first = policy_tick(lake, instance)
    (lake.folder / "policies" / "p.yaml").rename(lake.folder / "p.yaml")
    with pytest.raises(Exception, match="holds no policy file"):
        policy_tick(lake, instance, first.cursor)


def test_a_run_key_is_never_repeated_also_when_files_go_back(lake: Lake, instance: dg.DagsterInstance) -> None:
    cursor, run_keys = None, []
    for age in ("30d", "40d", "30d", "40d"):
        lake.says(AB % age)
        found = policy_tick(lake, instance, cursor)
        run_keys += [request.run_key for request in found.run_requests]
        cursor = found.cursor
        loaded(lake)
    assert len(run_keys) == len(set(run_keys)) == 4


def test_a_cursor_that_somebody_reset_repeats_no_run_key_either(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "now", lambda: MARKED)
    (before,) = policy_tick(lake, instance).run_requests
    monkeypatch.setattr(sensors, "now", lambda: MARKED + timedelta(minutes=1))
    (after,) = policy_tick(lake, instance).run_requests
    assert before.run_key != after.run_key


def test_what_a_person_wrote_stays_and_launches_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded(lake)
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "too early")
    lake.says(AB % "40d")
    found = policy_tick(lake, instance)
    assert (found.run_requests, found.skip_message) == ([], "The policy files changed. They say what the book says.")


@pytest.mark.parametrize(
    ("glob", "asked"),
    [
        ("*/a", ["lake/a", "gone/*", "lost/*"]),
        ("*", ["lake/a", "lake/b", "gone/*", "lost/*"]),
        ("gon*", ["gone/*", "lost/*"]),  # a star matches slashes, so this could be about any store
        ("g[o]ne/a", ["gone/*", "lost/*"]),
        ("gone/a", ["gone/*"]),
        ("lake/*", ["lake/a", "lake/b"]),
        ("lost/a", ["lost/*"]),
    ],
)
def test_a_store_that_cannot_be_listed_is_handed_to_the_run_whole(
    lake: Lake, instance: dg.DagsterInstance, glob: str, asked: list[str]
) -> None:
    """The run may find it back; left out, its datasets would go on with verdicts of the old policy."""
    changed(lake, store=AWAY)
    settings = changed(lake, store={**AWAY, "name": "lost", "data": "lost/{dataset}/{transaction}"})
    lake.says(f"{{name: p, datasets: {{include: ['{glob}']}}, select: {{older_than: 30d}}}}")
    found = tick(settings, instance, "policy_files")
    assert [name for one in found.run_requests for name in one.run_config["datasets"]] == asked


# --- the sweep ---


def test_what_is_due_is_swept_and_then_there_is_nothing_to_do(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request's own configuration, run: bytes are gone, of those datasets alone."""
    lake.says(OLD.replace("lake/*", "lake/a"))
    assert lake.marks() == 2
    monkeypatch.setattr(sensors, "now", lambda: DUE)
    (request,) = tick(lake.settings, instance, "sweep_tick").run_requests
    assert request.run_config == {"datasets": ["lake/a"]}
    assert request.tags["retention/kind"] == "sweep"
    config = {**request.run_config, "as_of": DUE.isoformat(), "log_level": "CRITICAL"}
    assert run(lake.settings, instance, "sweep", config).success
    assert (lake.there("lake/a"), lake.there("lake/b")) == ({"S3"}, {"S1", "S2", "S3"})
    after = tick(lake.settings, instance, "sweep_tick")
    assert (after.run_requests, after.skip_message) == ([], "No mark is due.")


def test_marks_in_their_grace_are_left_alone(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.marks() > 0
    monkeypatch.setattr(sensors, "now", lambda: DUE - timedelta(microseconds=1))
    assert tick(lake.settings, instance, "sweep_tick").run_requests == []


def begun(lake: Lake) -> None:
    """A sweep has begun on all marks of lake/a: it was killed, or its store is to expire them by itself."""
    assert lake.marks() > 0
    with lake.opened() as ledger:
        lease = ledger.leases.take("lake/a", "earlier")
        marks = ledger.marks.due("lake/a", DUE)["id"].to_pylist()
        assert ledger.sweeps.begin(lease, ledger.sweeps.plan(lease, marks, DUE), marks) == marks
        ledger.leases.give_up(lease)


def test_what_was_only_begun_has_a_run_once_an_hour_and_goes_with_any_other(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It mostly waits for its store to expire it, which takes a day, while a tick comes every few minutes."""
    begun(lake)
    at = DUE - timedelta(days=1)
    asked: list[Any] = []
    cursor = None
    for minutes in (0, 15, 59, 60, 75):
        monkeypatch.setattr(sensors, "now", lambda minutes=minutes: at + timedelta(minutes=minutes))
        found = tick(lake.settings, instance, "sweep_tick", cursor)
        cursor = found.cursor
        asked.append([request.run_config["datasets"] for request in found.run_requests])
    assert asked == [[["lake/a"]], [], [], [["lake/a"]], []]
    monkeypatch.setattr(sensors, "now", lambda: DUE)
    (request,) = tick(lake.settings, instance, "sweep_tick", cursor).run_requests
    assert request.run_config == {"datasets": ["lake/a", "lake/b"]}


@pytest.mark.parametrize(
    "ahead", [timedelta(microseconds=1), timedelta(minutes=59), timedelta(hours=2), timedelta(days=1, microseconds=-1)]
)
def test_a_cursor_of_a_clock_that_was_fast_does_not_silence_the_sweep(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    """By less than a day: later the marks of lake/b are due as well, and what there is to do is not the same."""
    begun(lake)
    at = DUE - timedelta(days=1)
    asked: list[Any] = []
    cursor = None
    # From the second one on it is an hour again.
    for time_of_tick in (at + ahead, at, at, at + timedelta(minutes=59)):
        monkeypatch.setattr(sensors, "now", lambda time_of_tick=time_of_tick: time_of_tick)
        found = tick(lake.settings, instance, "sweep_tick", cursor)
        cursor = found.cursor
        asked.append([request.run_config["datasets"] for request in found.run_requests])
    assert asked == [[["lake/a"]], [["lake/a"]], [], []]


def test_what_was_refused_is_tried_again_once_an_hour_and_what_failed_at_the_next_tick(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsound log waits for somebody to mend it: a run and an alert every few minutes would help nobody."""
    assert lake.marks() > 0
    at = DUE
    monkeypatch.setattr(sensors, "now", lambda: at)
    first = tick(lake.settings, instance, "sweep_tick")
    assert [request.run_config["datasets"] for request in first.run_requests] == [["lake/a", "lake/b"]]
    at += timedelta(minutes=15)
    refused = tick(lake.settings, instance, "sweep_tick", first.cursor)
    assert refused.run_requests == []
    assert refused.skip_message == "The last sweep has changed nothing on lake/a, lake/b: tried again once an hour."
    with lake.opened() as ledger:
        lease = ledger.leases.take("lake/a", "earlier")
        marks = ledger.marks.due("lake/a", DUE)["id"].to_pylist()[:1]
        ledger.sweeps.begin(lease, ledger.sweeps.plan(lease, marks, DUE), marks)
        ledger.sweeps.settle(lease, [Settlement(mark, Outcome.FAILED, error="busy") for mark in marks])
        ledger.leases.give_up(lease)
    failed = tick(lake.settings, instance, "sweep_tick", first.cursor)
    assert [request.run_config["datasets"] for request in failed.run_requests] == [["lake/a", "lake/b"]]


@pytest.mark.parametrize(
    ("job", "status", "launches"),
    [
        ("sweep", dg.DagsterRunStatus.QUEUED, False),
        ("sweep", dg.DagsterRunStatus.NOT_STARTED, False),
        ("sweep", dg.DagsterRunStatus.STARTING, False),
        ("sweep", dg.DagsterRunStatus.STARTED, False),
        ("sweep", dg.DagsterRunStatus.CANCELING, False),
        ("sweep", dg.DagsterRunStatus.SUCCESS, True),
        ("sweep", dg.DagsterRunStatus.FAILURE, True),
        ("sweep", dg.DagsterRunStatus.CANCELED, True),
        ("cycle", dg.DagsterRunStatus.STARTED, False),
        ("evaluate", dg.DagsterRunStatus.STARTED, True),
    ],
)
def test_while_a_sweep_is_on_its_way_no_other_is_launched(
    lake: Lake,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    status: dg.DagsterRunStatus,
    launches: bool,
) -> None:
    lake.marks()
    monkeypatch.setattr(sensors, "now", lambda: DUE)
    made = stands(instance, build_defs(lake.settings).resolve_job_def(job), status)
    found = tick(lake.settings, instance, "sweep_tick")
    assert bool(found.run_requests) == launches
    assert launches or found.skip_message == f"2 datasets have marks that are due; {job} {made.run_id} is at work."


@pytest.mark.parametrize("name", ["sweep_tick", "evaluation_loop", "policy_files"])
def test_a_run_that_says_nothing_for_long_is_still_waited_for_and_told_of(
    lake: Lake,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """Its machine may be gone, and then nobody but a person or run monitoring ends it: every tick would wait for ever."""
    lake.marks()
    job = build_defs(lake.settings).resolve_job_def("cycle")
    made = stands(instance, job, dg.DagsterRunStatus.STARTED)

    def said_after(hours: int) -> str:
        for module in (sensors, evaluation_sensor):
            monkeypatch.setattr(module, "now", lambda: now() + timedelta(hours=hours))
        found = tick(lake.settings, instance, name)
        assert found.run_requests == []
        assert ("run monitoring" in capfd.readouterr().err) == ("run monitoring" in found.skip_message)
        return str(found.skip_message)

    assert said_after(5).endswith(f"{job.name} {made.run_id} is at work.")
    assert "terminate the run in Dagster" in said_after(7)
    # A word in its log is a sign of life.
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: (now() + timedelta(hours=6)).timestamp())
        instance.report_engine_event("still at it", made)
    assert said_after(7).endswith(f"{job.name} {made.run_id} is at work.")


def test_names_with_marks_of_globs_are_handed_over_as_themselves(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lake/[ab]` is one dataset; as a glob it would be two others."""
    lake.has(SOME, "lake/[ab]")
    lake.says(OLD.replace("lake/*", "lake/[[]ab]"))
    assert lake.marks() == 2
    monkeypatch.setattr(sensors, "now", lambda: DUE)
    (request,) = tick(lake.settings, instance, "sweep_tick").run_requests
    config = {**request.run_config, "as_of": DUE.isoformat(), "log_level": "CRITICAL"}
    ran = run(lake.settings, instance, "sweep", config)
    about, swept = [one.materialization for one in ran.get_asset_materialization_events() if one.asset_key == SWEPT]
    assert (about.partition, swept.partition) == ("lake/[ab]", None)
    table = swept.metadata["by_dataset"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["dataset"] for record in table.records] == ["lake/[ab]"]


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
    assert [deed for deed in deeds if deed != ActType.CLOCK] == []
