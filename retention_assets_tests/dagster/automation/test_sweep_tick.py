"""The tick that sweeps: what is due, what was only begun, what was refused, and while another sweep is on its way."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster import automation
from retention_assets.definitions import build_defs
from retention_assets.ledger.batches import Settlement
from retention_assets.outcomes import Outcome
from retention_assets_tests.dagster.launch import create_run, run, tick
from retention_assets_tests.ledger.states import candidates, plan_of, take_lease
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

SWEPT = dg.AssetKey("swept_transactions")


def test_what_is_due_is_swept_and_then_there_is_nothing_to_do(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request's own configuration, run: bytes are gone, of those datasets alone."""
    lake.says(OLD.replace("lake/*", "lake/a"))
    assert lake.marks() == 2
    monkeypatch.setattr(automation, "now", lambda: DUE)
    (request,) = tick(lake.settings, instance, "sweep_tick").run_requests
    assert request.run_config == {"datasets": ["lake/a"]}
    assert request.tags["retention/automation"] == "sweep"
    config = {**request.run_config, "as_of": DUE.isoformat(), "log_level": "CRITICAL"}
    assert run(lake.settings, instance, "sweep", config).success
    assert (lake.there("lake/a"), lake.there("lake/b")) == ({"S3"}, {"S1", "S2", "S3"})
    after = tick(lake.settings, instance, "sweep_tick")
    assert (after.run_requests, after.skip_message) == ([], "No mark is due.")


def test_marks_in_their_grace_are_left_alone(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.marks() > 0
    monkeypatch.setattr(automation, "now", lambda: DUE - timedelta(microseconds=1))
    assert tick(lake.settings, instance, "sweep_tick").run_requests == []


def begun(lake: Lake) -> None:
    """A sweep has begun on all marks of lake/a: it was killed, or its store is to expire them by itself."""
    assert lake.marks() > 0
    with lake.opened() as ledger:
        lease = take_lease(ledger, "lake/a", "earlier")
        marks = ledger.marks.table(["lake/a"], ["MARKED"], DUE)["id"].to_pylist()
        assert sorted(ledger.sweeps.begin([lease], [plan_of(ledger, lease, marks, DUE)], marks).marks) == marks
        ledger.leases.give_up([lease])


def test_what_was_only_begun_has_a_run_once_an_hour_and_goes_with_any_other(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It mostly waits for its store to expire it, which takes a day, while a tick comes every few minutes."""
    begun(lake)
    at = DUE - timedelta(days=1)
    asked: list[Any] = []
    cursor = None
    for minutes in (0, 15, 59, 60, 75):
        monkeypatch.setattr(automation, "now", lambda minutes=minutes: at + timedelta(minutes=minutes))
        found = tick(lake.settings, instance, "sweep_tick", cursor)
        cursor = found.cursor
        asked.append([request.run_config["datasets"] for request in found.run_requests])
    assert asked == [[["lake/a"]], [], [], [["lake/a"]], []]
    monkeypatch.setattr(automation, "now", lambda: DUE)
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
        monkeypatch.setattr(automation, "now", lambda time_of_tick=time_of_tick: time_of_tick)
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
    monkeypatch.setattr(automation, "now", lambda: at)
    first = tick(lake.settings, instance, "sweep_tick")
    assert [request.run_config["datasets"] for request in first.run_requests] == [["lake/a", "lake/b"]]
    at += timedelta(minutes=15)
    refused = tick(lake.settings, instance, "sweep_tick", first.cursor)
    assert refused.run_requests == []
    assert refused.skip_message == "The last sweep has changed nothing on lake/a, lake/b: tried again once an hour."
    with lake.opened() as ledger:
        lease = take_lease(ledger, "lake/a", "earlier")
        marks = ledger.marks.table(["lake/a"], ["MARKED"], DUE)["id"].to_pylist()[:1]
        ledger.sweeps.begin([lease], [plan_of(ledger, lease, marks, DUE)], marks)
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="busy") for mark in marks])
        ledger.leases.give_up([lease])
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
    monkeypatch.setattr(automation, "now", lambda: DUE)
    made = create_run(instance, build_defs(lake.settings).resolve_job_def(job), status)
    found = tick(lake.settings, instance, "sweep_tick")
    assert bool(found.run_requests) == launches
    assert launches or found.skip_message.startswith(f"2 datasets have marks that are due; {job} {made.run_id} is at work,")


def test_names_with_marks_of_globs_are_handed_over_as_themselves(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lake/[ab]` is one dataset; as a glob it would be two others."""
    with lake.opened() as ledger:
        ledger.marks.mark(candidates(["S1", "S2"], "lake/[ab]"), MARKED, "test")
    monkeypatch.setattr(automation, "now", lambda: DUE)
    (request,) = tick(lake.settings, instance, "sweep_tick").run_requests
    assert request.run_config["datasets"] == ["lake/[[]ab]"]
