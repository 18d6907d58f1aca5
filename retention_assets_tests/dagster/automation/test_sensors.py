"""Sensors but the evaluation loop: which there are, what discovery, changed policy files and due marks launch, and what every tick
keeps to."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.dagster import automation
from retention_assets.definitions import build_defs
from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.ledger import CANDIDATES, EVALUATION_ROWS, ActType, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy import Duration
from retention_assets.settings import Settings
from retention_assets.settings.sections import AutomationSettings, DagsterSettings
from retention_assets_tests.dagster.automation.conftest import AWAY, SOME, Clock, Ticks
from retention_assets_tests.dagster.launch import create_run, run, typed
from retention_assets_tests.ledger.states import candidates, plan_of, take_lease
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

Status = dg.DagsterRunStatus
AB = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: %s}}"

# --- which there are, which run from the start, and how old anything may be ---

OFF = {
    "dataset_discovery", "evaluation_loop", "policy_files", "sweep_tick", "store_health", "daily_report", "daily_housekeeping",
    "daily_verification",
}  # fmt: skip
MINUTES, HOUR, DAY = Duration(seconds=300), Duration(seconds=3600), Duration(days=1)


@pytest.mark.parametrize(
    ("automation", "running", "hours"),
    [
        pytest.param({}, set(), {}, id="nothing by itself"),
        pytest.param({"discover": True}, {"dataset_discovery"}, {}, id="discover"),
        pytest.param({"policies": True}, {"policy_files"}, {}, id="policies"),
        pytest.param({"evaluate": HOUR}, {"evaluation_loop", "store_health"}, {"candidate_marks": 7 * 24 + 2}, id="evaluate"),
        pytest.param(
            {"evaluate": HOUR, "everything": DAY}, {"evaluation_loop", "store_health"}, {"candidate_marks": 26}, id="everything"
        ),
        pytest.param({"sweep": Duration(seconds=7200)}, {"sweep_tick", "store_health"}, {"swept_transactions": 27}, id="sweep"),
        pytest.param({"report": True}, {"daily_report"}, {}, id="report"),
        pytest.param({"housekeeping": True}, {"daily_housekeeping"}, {}, id="housekeeping"),
        pytest.param({"verify": True}, {"daily_verification"}, {}, id="verify"),
    ],
)
def test_only_what_the_settings_ask_for_runs_from_the_start_and_can_be_overdue(
    automation: dict[str, Any], running: set[str], hours: dict[str, int]
) -> None:
    """A tick and an hour for the run are added to what the settings promise."""
    settings = Settings(automation=AutomationSettings(**automation), dagster=DagsterSettings(jobs="all"))
    repository = build_defs(settings).get_repository_def()
    made: list[Any] = [*repository.sensor_defs, *repository.schedule_defs]
    statuses = {one.name: one.default_status.value for one in made}
    assert statuses == {name: "RUNNING" if name in running else "STOPPED" for name in OFF}
    graph = repository.asset_graph
    policies = {key.to_user_string(): graph.get(key).freshness_policy_or_from_metadata for key in graph.get_all_asset_keys()}
    assert {name: one for name, one in policies.items() if one} == {
        name: dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=number)) for name, number in hours.items()
    }


def test_every_sensor_schedule_and_job_says_what_it_does() -> None:
    repository = build_defs().get_repository_def()
    jobs = [job for job in repository.get_all_jobs() if job.name != "__ASSET_JOB"]
    named: list[Any] = [*repository.sensor_defs, *repository.schedule_defs, *jobs]
    assert [one.name for one in named if not one.description] == []


@pytest.mark.parametrize(("every", "seconds"), [(None, 900), (MINUTES, 300), (DAY, 86_400)])
def test_how_often_is_looked_for_due_marks_is_a_setting(every: Duration | None, seconds: int) -> None:
    defs = build_defs(Settings(automation=AutomationSettings(sweep=every)))
    assert defs.get_repository_def().get_sensor_def("sweep_tick").minimum_interval_seconds == seconds


# --- discovery ---


def keys(instance: dg.DagsterInstance) -> list[str]:
    return sorted(instance.get_dynamic_partitions("datasets"))


def test_every_listed_dataset_becomes_a_partition(lake: Lake, ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ticks("dataset_discovery")
    assert (keys(ticks.instance), first.skip_message) == (["lake/a", "lake/b"], "Added 2 partitions: lake/a, lake/b.")
    again = ticks("dataset_discovery", first.cursor)
    assert again.skip_message == "No new dataset among 2. Away: 0 stores. Vanished: 0."
    # More than one statement takes, and one with a name that no partition can have.
    monkeypatch.setattr(automation, "_KEYS", 2)
    lake.has(SOME, "lake/c", "lake/d", "lake/e", "lake/x...y")
    assert "have names that Dagster does not allow for partitions" in ticks("dataset_discovery", again.cursor).skip_message
    assert keys(ticks.instance) == [f"lake/{name}" for name in "abcde"]


def test_a_vanished_dataset_keeps_its_partition_and_is_reported_once(lake: Lake, ticks: Ticks) -> None:
    first = ticks("dataset_discovery")
    log = lake.folder / "log" / "lake-b.jsonl"
    log.rename(lake.folder / "elsewhere")
    second = ticks("dataset_discovery", first.cursor)
    assert "1 keep their partitions although no store lists them any more: lake/b." in second.skip_message
    assert keys(ticks.instance) == ["lake/a", "lake/b"]
    third = ticks("dataset_discovery", second.cursor)
    assert third.skip_message == "No new dataset among 1. Away: 0 stores. Vanished: 1."
    (lake.folder / "elsewhere").rename(log)
    assert ticks("dataset_discovery", third.cursor).skip_message.startswith("Every store answers and lists")


def test_a_store_that_is_away_hides_no_other_and_its_partitions_have_not_vanished(lake: Lake, ticks: Ticks) -> None:
    ticks.instance.add_dynamic_partitions("datasets", ["gone/x"])
    lake.configures(AWAY)
    message = ticks("dataset_discovery").skip_message
    assert keys(ticks.instance) == ["gone/x", "lake/a", "lake/b"]
    assert "The store gone can't be listed" in message
    assert "no store lists them any more" not in message


def test_by_store_the_keys_are_the_stores_also_one_that_is_away(lake: Lake, ticks: Ticks) -> None:
    lake.configures(AWAY, partition_by="store")
    ticks("dataset_discovery")
    assert keys(ticks.instance) == ["gone", "lake"]


# --- what every tick keeps to ---


@pytest.mark.parametrize("name", ["sweep_tick", "policy_files"])
def test_a_ledger_that_is_away_fails_the_tick_without_telling_its_password(lake: Lake, ticks: Ticks, name: str) -> None:
    lake.configures(ledger="postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=1")
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
        ticks(name)
    assert "hunter2" not in str(caught.value)


def test_a_tick_alone_writes_nothing_into_the_record(lake: Lake, ticks: Ticks) -> None:
    lake.says(AB % "30d")
    for name in ("dataset_discovery", "policy_files", "evaluation_loop", "sweep_tick"):
        ticks(name)
    with lake.opened() as ledger:
        deeds = [json.loads(line)["deed"] for line in ledger.audit_lines()]
    # The first head comes with the ledger.
    assert [deed for deed in deeds if deed not in (ActType.CLOCK, ActType.HEAD)] == []


# --- policy files ---


def ends(ticks: Ticks, ticked: Any, status: dg.DagsterRunStatus) -> None:
    """The run that a tick asked for is in a state."""
    (request,) = ticked.run_requests
    ticks.instance.add_run(dg.DagsterRun(job_name="act_evaluate", run_id=str(uuid4()), tags=request.tags, status=status))


OTHER = "{name: other, datasets: {include: ['lake/*'], exclude: ['lake/a']}, select: {older_than: %s}}"
MOVED = "{name: p, datasets: {include: ['lake/%s']}, select: {older_than: 30d}}"
NONE = "{name: none, datasets: {include: ['lake/z*']}, select: all}"
# Policies and holds before and after, and the datasets that are judged again.
CHANGED: dict[str, tuple[str, str, str, list[str]]] = {
    "another age": (f"{OLD}, {OTHER % '30d'}", f"{OLD}, {OTHER % '40d'}", "", ["lake/b"]),
    "a policy that moves": (MOVED % "a", MOVED % "b", "", ["lake/a", "lake/b"]),
    "one about nothing": (OLD, f"{OLD}, {NONE}", "", []),
    # The policy book knows nothing of holds in files: what they were is in the looks.
    "a hold": (OLD, OLD, "{name: legal, datasets: ['lake/a'], reason: case 7}", ["lake/a"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_change_has_exactly_the_datasets_judged_that_it_can_reach(change: str, lake: Lake, ticks: Ticks) -> None:
    before, after, holds, datasets = CHANGED[change]
    lake.says(before)
    lake.marks()
    names = ["lake/a", "lake/b"]
    with lake.opened() as ledger:
        digests = rules_digests(load_rulebook(ledger, lake.settings, "test").rules(names, MARKED), names, MARKED)
        looks = {"dataset": names, "token": ["", ""], "rules": digests, "looked_at": [MARKED] * 2, "next_look": [None] * 2}
        ledger.marks.mark(CANDIDATES.empty_table(), MARKED, "test", evaluations=pa.table(looks, schema=EVALUATION_ROWS))
    first = ticks("policy_files")
    assert (first.run_requests, first.skip_message) == ([], "The policy files changed. The policy book is up to date.")
    file = lake.folder / "policies" / "p.yaml"
    file.write_text(f"# a remark\n{file.read_text()}")
    remarked = ticks("policy_files", first.cursor)
    assert (remarked.run_requests, remarked.cursor != first.cursor) == ([], True)
    lake.says(after, holds)
    ticked = ticks("policy_files", remarked.cursor)
    assert [typed(request) for request in ticked.run_requests] == ([{"datasets": datasets}] if datasets else [])
    assert datasets or "none: no dataset is affected" in ticked.skip_message
    for request in ticked.run_requests:
        dg.validate_run_config(build_defs(lake.settings).resolve_job_def("act_evaluate"), request.run_config)


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.FAILURE])
def test_files_that_were_judged_launch_nothing_again(status: dg.DagsterRunStatus, ticks: Ticks) -> None:
    """A run that dies is launched again by Dagster, where run retries are on."""
    first = ticks("policy_files")
    assert first.run_requests[0].tags["dagster/max_retries"] == "2"
    ends(ticks, first, status)
    for _ in range(2):
        first = ticks("policy_files", first.cursor)
        assert (first.run_requests, first.skip_message) == ([], "The policy files have not changed.")


def break_policy(lake: Lake) -> None:
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")


def lose_policies(lake: Lake) -> None:
    (lake.folder / "policies" / "p.yaml").unlink()


@pytest.mark.parametrize(
    ("breaks", "words"), [(break_policy, r"oldr_than.*Did you mean older_than"), (lose_policies, "holds no policy file")]
)
def test_broken_files_fail_every_tick_until_they_are_mended(
    breaks: Callable[[Lake], None], words: str, lake: Lake, ticks: Ticks
) -> None:
    lake.marks()
    first = ticks("policy_files")
    breaks(lake)
    for sensor in ("policy_files", "evaluation_loop", "policy_files"):
        with pytest.raises(Exception, match=words):
            ticks(sensor, first.cursor if sensor == "policy_files" else None)
    with lake.opened() as ledger:
        assert [entry.name for entry in ledger.policy_book.in_force()] == ["old"]
    lake.says(OLD)
    assert ticks("policy_files", first.cursor).skip_message == "The policy files have not changed."


def test_files_that_go_back_are_a_change_again(lake: Lake, ticks: Ticks) -> None:
    cursor, asked = None, list[Any]()
    for age in ("30d", "40d", "30d", "40d"):
        lake.says(AB % age)
        ticked = ticks("policy_files", cursor)
        asked += [(request.run_key, typed(request)) for request in ticked.run_requests]
        cursor = ticked.cursor
        lake.marks()
    assert asked == [(None, {"datasets": ["lake/a", "lake/b"]})] * 4


def test_what_a_person_wrote_stays_and_launches_nothing(lake: Lake, ticks: Ticks) -> None:
    lake.marks()
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "too early")
    lake.says(AB % "40d")
    ticked = ticks("policy_files")
    assert (ticked.run_requests, ticked.skip_message) == ([], "The policy files changed. The policy book is up to date.")


@pytest.mark.parametrize(
    ("glob", "asked"),
    [
        ("*/a", ["lake/a", "gone/*", "lost/*"]),
        ("*", ["lake/a", "lake/b", "gone/*", "lost/*"]),
        ("gon*", ["gone/*"]),
        ("*t*", ["gone/*", "lost/*"]),  # a star matches slashes, so this could be about any store
        ("g[o]ne/a", ["gone/*"]),
        ("gone/a", ["gone/*"]),
        ("lake/*", ["lake/a", "lake/b"]),
        ("lost/a", ["lost/*"]),
    ],
)
def test_a_store_that_cannot_be_listed_is_handed_to_the_run_whole(
    lake: Lake, ticks: Ticks, glob: str, asked: list[str]
) -> None:
    """The run may find it back; left out, its datasets would go on with verdicts of the old policy."""
    lake.configures(AWAY, {**AWAY, "name": "lost", "data": "lost/{dataset}/{transaction}"})
    lake.says(f"{{name: p, datasets: {{include: ['{glob}']}}, select: {{older_than: 30d}}}}")
    assert ticks.asks_for("policy_files") == asked


# --- due marks ---


def test_what_is_due_is_swept_and_then_there_is_nothing_to_do(lake: Lake, ticks: Ticks, clock: Clock) -> None:
    """The request's own configuration, run: bytes are gone, of those datasets alone."""
    lake.says(OLD.replace("lake/*", "lake/a"))
    assert lake.marks() == 2
    clock.time = DUE - timedelta(microseconds=1)
    assert ticks.asks_for("sweep_tick") == []
    clock.time = DUE
    (request,) = ticks("sweep_tick").run_requests
    assert typed(request) == {"datasets": ["lake/a"]}
    assert request.tags["retention/automation"] == "sweep"
    config = {**typed(request), "as_of": DUE.isoformat()}
    assert run(lake.settings, ticks.instance, "delete_sweep", config).success
    assert (lake.there("lake/a"), lake.there("lake/b")) == ({"S3"}, {"S1", "S2", "S3"})
    after = ticks("sweep_tick")
    assert (after.run_requests, after.skip_message) == ([], "No mark is due.")


SECOND = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("ticked", "asked"),
    [
        # It mostly waits for its store to expire it, which takes a day, while a tick comes every few minutes.
        ([0 * MINUTE, 15 * MINUTE, 59 * MINUTE, 60 * MINUTE, 75 * MINUTE], [True, False, False, True, False]),
        # A cursor of a clock that was fast silences nothing. By less than a day: later the marks of lake/b are due as well.
        ([SECOND, 0 * MINUTE, 0 * MINUTE, 59 * MINUTE], [True, True, False, False]),
        ([59 * MINUTE, 0 * MINUTE, 0 * MINUTE, 59 * MINUTE], [True, True, False, False]),
        ([120 * MINUTE, 0 * MINUTE, 0 * MINUTE, 59 * MINUTE], [True, True, False, False]),
        ([1440 * MINUTE - SECOND, 0 * MINUTE, 0 * MINUTE, 59 * MINUTE], [True, True, False, False]),
    ],
)
def test_what_was_only_begun_has_a_run_once_an_hour_and_goes_with_any_other(
    ticked: list[timedelta], asked: list[bool], lake: Lake, ticks: Ticks, clock: Clock
) -> None:
    """A sweep was killed, or its store is to expire the marks by itself."""
    assert lake.marks() > 0
    lake.begins("S1", "S2", dataset="lake/a")
    cursor, datasets = None, []
    for after in ticked:
        clock.time = DUE - timedelta(days=1) + after
        made = ticks("sweep_tick", cursor)
        cursor = made.cursor
        datasets.append([typed(request)["datasets"] for request in made.run_requests])
    assert datasets == [[["lake/a"]] if each else [] for each in asked]
    clock.time = DUE
    assert ticks.asks_for("sweep_tick", cursor) == ["lake/a", "lake/b"]


def test_what_was_refused_is_tried_again_once_an_hour_and_what_failed_at_the_next_tick(
    lake: Lake, ticks: Ticks, clock: Clock
) -> None:
    """An unsound log waits for somebody to mend it: a run and an alert every few minutes would help nobody."""
    assert lake.marks() > 0
    clock.time = DUE
    first = ticks("sweep_tick")
    assert [typed(request)["datasets"] for request in first.run_requests] == [["lake/a", "lake/b"]]
    clock.goes_on(timedelta(minutes=15))
    refused = ticks("sweep_tick", first.cursor)
    assert refused.run_requests == []
    assert refused.skip_message == "The last sweep changed nothing in lake/a, lake/b. It is repeated once an hour."
    with lake.opened() as ledger:
        lease = take_lease(ledger, "lake/a", "earlier")
        marks = ledger.marks.table(["lake/a"], ["MARKED"], DUE)["id"].to_pylist()[:1]
        ledger.sweeps.begin([lease], [plan_of(ledger, lease, marks, DUE)], marks)
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="busy") for mark in marks])
        ledger.leases.give_up([lease])
    assert ticks.asks_for("sweep_tick", first.cursor) == ["lake/a", "lake/b"]


@pytest.mark.parametrize(
    ("job", "status", "launches"),
    [
        ("delete_sweep", Status.QUEUED, False),
        ("delete_sweep", Status.NOT_STARTED, False),
        ("delete_sweep", Status.STARTING, False),
        ("delete_sweep", Status.STARTED, False),
        ("delete_sweep", Status.CANCELING, False),
        ("delete_sweep", Status.SUCCESS, True),
        ("delete_sweep", Status.FAILURE, True),
        ("delete_sweep", Status.CANCELED, True),
        ("delete_cycle", Status.STARTED, False),
        ("act_evaluate", Status.STARTED, True),
    ],
)
def test_while_a_sweep_is_on_its_way_no_other_is_launched(
    lake: Lake, ticks: Ticks, clock: Clock, job: str, status: dg.DagsterRunStatus, launches: bool
) -> None:
    lake.marks()
    clock.time = DUE
    made = create_run(ticks.instance, build_defs(lake.settings).resolve_job_def(job), status)
    ticked = ticks("sweep_tick")
    assert bool(ticked.run_requests) == launches
    begin = f"2 datasets have due marks. {job} {made.run_id} is running since "
    assert launches or ticked.skip_message.startswith(begin)


def test_names_with_marks_of_globs_are_handed_over_as_themselves(lake: Lake, ticks: Ticks, clock: Clock) -> None:
    """`lake/[ab]` is one dataset; as a glob it would be two others."""
    with lake.opened() as ledger:
        ledger.marks.mark(candidates(["S1", "S2"], "lake/[ab]"), MARKED, "test")
    clock.time = DUE
    assert ticks.asks_for("sweep_tick") == ["lake/[[]ab]"]
