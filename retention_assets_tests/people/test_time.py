"""Time through every door, in environments with the real clock: what is still to come is refused, what is past has full grace.

Belongs here: commands, jobs and assets as people and sensors launch them. The guard itself is ledger/test_clock_guard.py's, what
a sweep makes of time sweep/test_engine.py's.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.clock import now
from retention_assets.dagster.headless import run_job
from retention_assets.definitions import build_defs
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.policy import text_of
from retention_assets_tests.clocks import set_clock
from retention_assets_tests.dagster.launch import failure, materialize, run, typed
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@40d=10"
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
STILL_TO_COME = "is later than now"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An environment with the real clock, marked just now; and a database that expires units of work by itself."""
    made = Lake(tmp_path / "lake", clock={}).has(SOME, "lake/a")
    (made.folder / "ods.db").touch()
    units = Units(f"sqlite:///{made.folder / 'ods.db'}", ttl={"document_ttl": "180d"}).has("open", closed=None)
    made.configures(units.settings, automation={"housekeeping": True})
    assert made.marks(now()) == 2
    return made


def command(lake: Lake, *arguments: str) -> BaseException | None:
    settings = {"RETENTION_CONFIG": str(lake.settings_file)}
    return CliRunner(env=settings).invoke(retention, arguments, standalone_mode=False).exception


def state(lake: Lake) -> tuple[object, ...]:
    with lake.opened() as ledger:
        return ledger.marks.table(), lake.left(), ledger.verify().head


# --- an as_of that is still to come -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("run",), ("run", "--mark-only"), ("housekeeping", "--actor", "ann")], ids=" ".join)
def test_no_command_that_acts_takes_a_time_that_is_still_to_come(lake: Lake, arguments: tuple[str, ...]) -> None:
    before = state(lake)
    fault = command(lake, *arguments, "--as-of", text_of(now() + DAY))
    assert isinstance(fault, Refused)
    assert STILL_TO_COME in str(fault)
    assert state(lake) == before


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        # The step is of no account to the job, so that each is once with one that acts.
        ("act_evaluate", DAY),
        ("delete_sweep", 14 * DAY),
        ("delete_cycle", 8000 * DAY),
        ("act_report", DAY),
        ("act_housekeeping", 14 * DAY),
    ],
)
def test_no_job_that_acts_takes_a_time_that_is_still_to_come(
    lake: Lake, job: str, steps: timedelta, instance: dg.DagsterInstance
) -> None:
    """As the launchpad, a sensor's request or a schedule's gives it; in small steps or large ones, again and again."""
    before = state(lake)
    for step in (1, 2):
        ran = run(lake.settings, instance, job, {"as_of": text_of(now() + step * steps)})
        assert STILL_TO_COME in failure(ran)
    assert state(lake) == before


@pytest.mark.parametrize("asset", ["branch_views", "candidate_marks", "swept_transactions", "purge_report"])
def test_no_asset_takes_a_time_that_is_still_to_come(lake: Lake, asset: str, instance: dg.DagsterInstance) -> None:
    before = state(lake)
    instance.add_dynamic_partitions("datasets", ["lake/a"])
    ran = materialize(lake.settings, instance, [asset], now() + DAY, partition_key="lake/a")
    assert STILL_TO_COME in failure(ran)
    assert state(lake) == before


def test_the_report_of_a_day_that_has_not_ended_yet_is_refused_to_the_schedule(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    schedule = build_defs(lake.settings).get_repository_def().get_schedule_def("daily_report")
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=now() + 2 * DAY) as context:
        (request,) = schedule.evaluate_tick(context).run_requests or ()
    assert STILL_TO_COME in failure(run(lake.settings, instance, "act_report", typed(request)))


def test_a_time_that_is_a_little_ahead_is_that_of_another_clock(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, at = Environment(lake.settings), datetime.fromisoformat("2026-01-01T00:00:00Z")
    set_clock(monkeypatch, at)
    assert environment.instant(at + 5 * MINUTE) == at + 5 * MINUTE
    assert environment.instant(None) == at
    assert environment.instant(at - 8000 * DAY) == at - 8000 * DAY
    with pytest.raises(Refused, match=STILL_TO_COME):
        environment.instant(at + 5 * MINUTE + timedelta(microseconds=1))
    with pytest.raises(Refused, match=STILL_TO_COME):
        run_job(lake.settings, "cycle", at + DAY)


def test_the_present_is_that_of_the_ledgers_server(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is years ahead brings nothing forward."""
    lake, present = Lake(tmp_path / "lake", new_schema(server), clock={}), now()
    set_clock(monkeypatch, present + 1000 * DAY)
    environment = Environment(lake.settings)
    assert abs(environment.present() - present) < 5 * MINUTE
    with pytest.raises(Refused, match=STILL_TO_COME):
        environment.instant(present + DAY)


@pytest.mark.parametrize(
    "typed",
    [
        "plan", "plan --detail", "marks --due", "history lake/a", "preview", "explain lake/a S1",
        "housekeeping --dry-run --actor ann",
    ],
)  # fmt: skip
def test_whoever_only_looks_may_look_ahead(lake: Lake, typed: str) -> None:
    before = state(lake)
    assert command(lake, *typed.split(), "--as-of", text_of(now() + 8000 * DAY)) is None
    assert state(lake) == before


def test_looking_ahead_a_plan_shows_what_will_be_due(lake: Lake) -> None:
    plans = [make_plan(PlanRequest(as_of=now() + ahead), Environment(lake.settings)) for ahead in (timedelta(), 8 * DAY)]
    assert [len(plan.deleted) for plan in plans] == [0, 2]


def test_after_a_long_pause_a_plan_says_what_the_sweep_does(url: str, tmp_path: Path) -> None:
    """A server and this machine agree about the time. Beside a file there is no other clock."""
    lake, before = Lake(tmp_path / "lake", url, clock={}).has(SOME, "lake/a"), now() - 20 * DAY
    lake.marks(before)
    with lake.opened() as ledger:
        ledger.clock.check(before, None)
    is_file = url.startswith("sqlite")
    assert bool(make_plan(PlanRequest(), Environment(lake.settings)).refused) is is_file
    assert bool(lake.sweeps(now())["lake/a"].refused) is is_file
    assert lake.there("lake/a") == ({"S1", "S2", "S3"} if is_file else {"S3"})


# --- an as_of that is past --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_spark")
def test_a_run_for_a_past_day_judges_as_of_then_and_gives_the_full_grace_from_now_on(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """S3 was too young in March. What it marks is not due at once, also not by a second run for a later past day."""
    lake = Lake(tmp_path / "lake", clock={}).has(SOME.replace("S3:SNAPSHOT@40d", "S3:SNAPSHOT@10d"), "lake/a")
    begin = now()
    assert run(lake.settings, instance, "delete_cycle", {"as_of": text_of(MARKED)}).success
    with lake.opened() as ledger:
        marks = ledger.marks.table().to_pylist()
    assert {row["transaction"] for row in marks} == {"S1", "S2"}
    assert all(begin <= row["marked_at"] <= now() for row in marks)
    assert all(row["due_at"] == row["marked_at"] + 7 * DAY for row in marks)
    assert run(lake.settings, instance, "delete_sweep", {"as_of": text_of(DUE)}).success
    assert run(lake.settings, instance, "delete_sweep", {}).success
    assert lake.there("lake/a") == {"S1", "S2", "S3"}


@pytest.mark.usefixtures("local_spark")
def test_a_grace_of_nothing_is_over_in_the_same_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Each step asks what time it is: what was marked a moment ago is due by then. An as_of of before is a bound."""
    policy = "{name: now, datasets: {include: ['lake/*']}, select: {older_than: 30d}, grace: 0s, confirm: no-grace}"
    lake = Lake(tmp_path / "lake", policies=policy, clock={}).has(SOME, "lake/a")
    assert run(lake.settings, instance, "delete_cycle", {"as_of": text_of(now() - DAY)}).success
    assert lake.there("lake/a") == {"S1", "S2", "S3"}
    assert run(lake.settings, instance, "delete_cycle", {}).success
    assert lake.there("lake/a") == {"S3"}


@pytest.mark.usefixtures("local_spark")
def test_the_first_run_over_a_lake_that_was_quiet_for_a_year_marks_and_may_sweep(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "{name: now, datasets: {include: ['lake/*']}, select: {older_than: 30d}, grace: 0s, confirm: no-grace}"
    lake = Lake(tmp_path / "lake", policies=policy, clock={}).has(SOME, "lake/a")
    set_clock(monkeypatch, MARKED + 400 * DAY)
    assert run(lake.settings, instance, "delete_cycle", {}).success
    assert lake.there("lake/a") == {"S3"}
    # A month later: one line is of yesterday, another of next century.
    for name, closed in (("Y", MARKED + 429 * DAY), ("F", MARKED + 40_000 * DAY)):
        line = {"dataset": "lake/b", "transaction": name, "type": "RECORD", "status": "COMMITTED", "closed_at": text_of(closed)}
        lake._log("lake/b", [json.dumps({**line, "opened_at": text_of(MARKED)})])
    seen = []
    for at in (MARKED + 400 * DAY, MARKED + 430 * DAY):
        set_clock(monkeypatch, at)
        assert run(lake.settings, instance, "act_evaluate", {}).success
        with lake.opened() as ledger:
            seen.append(ledger.clock.times().newest_seen_at)
    assert seen == [MARKED + 400 * DAY, MARKED + 430 * DAY]


@pytest.mark.usefixtures("local_spark")
def test_a_clock_that_jumped_marks_and_sweeps_nothing_until_a_person_vouches_for_it(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log line of next century neither freezes the ledger nor makes any time right."""
    with lake.opened() as ledger:
        ledger.clock.check(now(), None)
    line = {"transaction": "F", "type": "SNAPSHOT", "status": "COMMITTED", "closed_at": "2126-01-01T00:00:00Z", "bytes": 1}
    lake._log("lake/b", [json.dumps({"dataset": "lake/b", "opened_at": "2026-01-01T00:00:00Z", **line})])
    later = now() + 30 * DAY
    set_clock(monkeypatch, later)
    lake.has(SOME, "lake/c")
    ran = run_job(lake.settings, "cycle", log_level="critical")
    assert [trouble.partition(": ")[0] for trouble in ran.troubles] == ["lake/a was not swept"]
    assert "`retention clock accept`" in ran.troubles[0]
    assert ran.number("candidate_marks", "newly_marked") == 2
    assert lake.there("lake/a") == {"S1", "S2", "S3"}
    assert command(lake, "clock", "accept", "--actor", "ann") is None
    set_clock(monkeypatch, later + MINUTE)
    assert run_job(lake.settings, "cycle", log_level="critical").troubles == ()
    assert lake.there("lake/a") == {"S3"}


# --- accept and reset -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["accept", "reset"])
def test_nobody_vouches_for_another_time_than_the_present(lake: Lake, what: str) -> None:
    before = state(lake)
    fault = command(lake, "clock", what, "--as-of", "2100-01-01T00:00:00Z", "--reason", "r", "--actor", "ann")
    assert isinstance(fault, BadInput)
    assert "is for simulated clocks alone" in str(fault)
    assert state(lake) == before


# --- simulated clocks -------------------------------------------------------------------------------------------------


def test_a_simulated_environment_leaves_a_real_ledger_alone_and_the_other_way_round(lake: Lake) -> None:
    settings: Mapping[str, Any] = json.loads(lake.settings_file.read_text())
    before = state(lake)
    lake.settings_file.write_text(json.dumps({**settings, "clock": {"simulated": True}}))
    for arguments in (("run", "--as-of", text_of(now() + 8 * DAY)), ("marks",), ("clock", "accept", "--actor", "ann")):
        assert "but the ledger is real" in str(command(lake, *arguments))
    simulated = {**settings, "clock": {"simulated": True}, "ledger": f"sqlite:///{lake.folder}/other.db"}
    lake.settings_file.write_text(json.dumps(simulated))
    assert command(lake, "clock", "accept", "--as-of", "2100-01-01T00:00:00Z", "--actor", "ann") is None
    lake.settings_file.write_text(json.dumps({**simulated, "clock": {}}))
    for arguments in (("run",), ("marks",), ("clock", "accept", "--actor", "ann")):
        assert "made with a simulated clock" in str(command(lake, *arguments))
    lake.settings_file.write_text(json.dumps(settings))
    assert state(lake) == before
