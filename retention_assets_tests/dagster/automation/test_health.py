"""A refused dataset and an absent store stay red until they are mended, over ticks and runs.

Belongs here: the loop as the daemon turns it, with a real instance and real runs.
"""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from retention_assets.definitions import build_defs
from retention_assets.ledger import Violation
from retention_assets.policy import text_of
from retention_assets_tests.dagster.automation.conftest import AWAY, SOME, Clock
from retention_assets_tests.dagster.launch import materialize, run, tick, typed
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import Lake

STEP = timedelta(minutes=5)


class Daemon:
    """Turns the sensors by hand as Dagster's daemon does, and has their runs run at once."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance, clock: Clock) -> None:
        self.lake, self.instance, self.clock = lake, instance, clock

    def evaluates(self) -> list[str]:
        """A tick of the loop, and its run; what the run was about."""
        self.clock.goes_on(STEP)
        found = tick(self.lake.settings, self.instance, "evaluation_loop")
        for request in found.run_requests:
            config = {**typed(request), "as_of": text_of(self.clock.time)}
            assert run(self.lake.settings, self.instance, "act_evaluate", config).success
        return [name for request in found.run_requests for name in typed(request)["datasets"]]

    def asks_stores(self) -> int:
        """A tick of the sensor that asks stores; how many checks it reported."""
        found = tick(self.lake.settings, self.instance, "store_health")
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        return len(found.asset_events)

    def says(self, check: str, asset: str = "transaction_log") -> dg.AssetCheckEvaluation:
        """The newest evaluation of a check, as its page shows it."""
        key = dg.AssetCheckKey(dg.AssetKey(asset), check)
        record = self.instance.get_latest_asset_check_evaluation_record(key)
        assert record is not None
        assert record.evaluation is not None
        return record.evaluation


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME, "lake/sick").configures(AWAY)


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """One on disk, as people have."""
    return instance_on_disk


@pytest.fixture
def daemon(lake: Lake, instance: dg.DagsterInstance, clock: Clock) -> Daemon:
    return Daemon(lake, instance, clock)


def breaks(lake: Lake) -> str:
    """The log of lake/sick gets a second branch of one name; its text as it was."""
    file = lake.folder / "log" / "lake-sick.jsonl"
    sound = file.read_text()
    lake.branches("main", "S1", "lake/sick")
    return sound


def mounts(lake: Lake) -> None:
    """The store that is away is there, with a dataset."""
    (lake.folder / "nothing-here").mkdir()
    line = {"dataset": "gone/x", "transaction": "X1", "type": "SNAPSHOT", "status": "OPEN", "opened_at": text_of(AS_OF)}
    (lake.folder / "nothing-here" / "x.jsonl").write_text(json.dumps(line))


@pytest.mark.usefixtures("local_spark")
def test_the_sick_dataset_and_the_absent_store_are_red_at_every_tick_and_green_once_they_are_mended(
    lake: Lake, daemon: Daemon
) -> None:
    sound = breaks(lake)
    reported = 0
    for number in range(4):
        # From the second tick on runs read lake/a alone, or there is none.
        if number % 2:
            lake.branches(f"dev{number}", "S1", "lake/a")
        read = daemon.evaluates()
        assert number == 0 or read == ["lake/a"] * (number % 2)
        reported += daemon.asks_stores()
        for check, who, what in (
            ("log_is_sound", "lake/sick", "two branches of one name"),
            ("stores_are_reachable", "gone", "nothing-here"),
        ):
            said = daemon.says(check)
            assert (said.passed, said.severity) == (False, dg.AssetCheckSeverity.ERROR)
            assert f"{who}: " in str(said.description)
            assert what in str(said.description)
            assert f"since {AS_OF + STEP:%Y-%m-%d %H:%M} UTC" in str(said.description)
    # The runs said so themselves.
    assert reported == 0
    # The store comes back, and somebody mends the log.
    mounts(lake)
    assert daemon.asks_stores() == 1
    assert daemon.says("stores_are_reachable").passed
    assert not daemon.says("log_is_sound").passed
    (lake.folder / "log" / "lake-sick.jsonl").write_text(sound)
    assert sorted(daemon.evaluates()) == ["gone/x", "lake/sick"]
    assert daemon.says("log_is_sound").passed
    assert (daemon.asks_stores(), daemon.evaluates()) == (0, [])


@pytest.mark.usefixtures("local_spark")
def test_a_refused_dataset_that_is_gone_is_over_though_nothing_is_left_to_read(lake: Lake, daemon: Daemon) -> None:
    breaks(lake)
    daemon.evaluates()
    assert not daemon.says("log_is_sound").passed
    (lake.folder / "log" / "lake-sick.jsonl").unlink()
    # While its store is away nobody knows.
    (lake.folder / "log").rename(lake.folder / "unmounted")
    daemon.asks_stores()
    assert not daemon.says("log_is_sound").passed
    (lake.folder / "unmounted").rename(lake.folder / "log")
    daemon.asks_stores()
    assert daemon.says("log_is_sound").passed
    # Nor does the look at everything, a day later, find it again in what is published.
    daemon.clock.goes_on(timedelta(days=1, hours=1))
    lake.branches("dev", "S1", "lake/a")
    assert daemon.evaluates() == ["lake/a"]
    assert daemon.says("log_is_sound").passed


@pytest.mark.usefixtures("local_spark")
def test_what_a_check_finds_in_other_datasets_is_red_and_stops_no_run(
    lake: Lake, daemon: Daemon, instance: dg.DagsterInstance
) -> None:
    """In a job, and in a run of assets, which Dagster would stop at an error: the sensor makes that red."""
    daemon.evaluates()
    with lake.opened() as ledger:
        for check in ("limits_are_respected", "verdicts_sum_to_the_log"):
            ledger.violations.update(check, {"lake/sick": Violation("lake/sick", "wrong")}, set(), AS_OF, "test")
            # Checks of assets go by the real time.
            ledger.violations.note_whole_look(check, AS_OF + timedelta(days=10_000))
    lake.branches("dev", "S1", "lake/a")
    assert daemon.evaluates() == ["lake/a"]
    said = daemon.says("limits_are_respected", "candidate_marks")
    assert (said.passed, said.severity, said.blocking) == (False, dg.AssetCheckSeverity.ERROR, False)
    table = said.metadata["offending_datasets"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [row.data for row in table.records] == [
        {"dataset": "lake/sick", "violations": 1, "what": "wrong", "since": text_of(AS_OF)}
    ]
    instance.add_dynamic_partitions("datasets", ["lake/a", "lake/sick"])
    assets = ("transaction_log", "candidate_marks")
    assert materialize(lake.settings, instance, assets, daemon.clock.time, partition_key="lake/a").success
    said = daemon.says("limits_are_respected", "candidate_marks")
    assert (said.passed, said.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert daemon.asks_stores() == 2
    assert daemon.says("limits_are_respected", "candidate_marks").severity is dg.AssetCheckSeverity.ERROR
    # Somebody judges it again, and it is in order.
    assert materialize(lake.settings, instance, assets, daemon.clock.time, partition_key="lake/sick").success
    assert daemon.says("limits_are_respected", "candidate_marks").passed


@pytest.mark.usefixtures("local_spark")
def test_once_a_day_a_run_of_few_datasets_looks_at_everything(lake: Lake, daemon: Daemon) -> None:
    """What was changed in what is published shows in the first run after a day, and keeps no run from its own work."""
    daemon.evaluates()
    with lake.opened() as ledger:
        (folder,) = {one.folder for one in ledger.publications.of("candidate_marks", ["lake/sick"])}
    shutil.move(f"{folder}/candidate_marks", f"{folder}/elsewhere")
    lake.branches("dev", "S1", "lake/a")
    assert daemon.evaluates() == ["lake/a"]
    assert daemon.says("verdicts_sum_to_the_log", "candidate_marks").passed
    daemon.clock.goes_on(timedelta(days=1))
    lake.branches("dev2", "S1", "lake/a")
    assert daemon.evaluates() == ["lake/a"]
    said = daemon.says("verdicts_sum_to_the_log", "candidate_marks")
    assert not said.passed
    assert (
        f"datasets outside of this run could not be checked: The folder {folder}/candidate_marks of the warehouse is gone"
        in str(said.description)
    )
    shutil.move(f"{folder}/elsewhere", f"{folder}/candidate_marks")
    lake.branches("dev3", "S1", "lake/a")
    assert daemon.evaluates() == ["lake/a"]
    assert daemon.says("verdicts_sum_to_the_log", "candidate_marks").passed


def test_a_store_that_goes_away_and_comes_back_between_runs_shows_within_a_tick(lake: Lake, daemon: Daemon) -> None:
    mounts(lake)
    assert daemon.asks_stores() == 1
    assert daemon.says("stores_are_reachable").passed
    assert daemon.asks_stores() == 0
    away: datetime = daemon.clock.time
    (lake.folder / "log").rename(lake.folder / "unmounted")
    assert daemon.asks_stores() == 1
    said = daemon.says("stores_are_reachable")
    assert "1 violation in 1 store. lake: " in str(said.description)
    daemon.clock.goes_on(STEP)
    assert daemon.asks_stores() == 0
    # Another one: the check is red already, and says more.
    shutil.rmtree(lake.folder / "nothing-here")
    assert daemon.asks_stores() == 1
    table = daemon.says("stores_are_reachable").metadata["offending_stores"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {row.data["store"]: row.data["since"] for row in table.records} == {
        "lake": text_of(away),
        "gone": text_of(away + STEP),
    }
    (lake.folder / "unmounted").rename(lake.folder / "log")
    assert daemon.asks_stores() == 1
    assert "1 violation in 1 store. gone: " in str(daemon.says("stores_are_reachable").description)
    # One comes back while the other goes: as many are away as before.
    mounts(lake)
    (lake.folder / "log").rename(lake.folder / "unmounted")
    assert daemon.asks_stores() == 1
    assert "1 violation in 1 store. lake: " in str(daemon.says("stores_are_reachable").description)


def test_a_check_that_a_run_has_planned_stops_no_tick(lake: Lake, daemon: Daemon, instance: dg.DagsterInstance) -> None:
    mounts(lake)
    assert daemon.asks_stores() == 1
    instance.create_run_for_job(build_defs(lake.settings).resolve_implicit_global_asset_job_def())
    (lake.folder / "log").rename(lake.folder / "unmounted")
    assert daemon.asks_stores() == 1
    assert not daemon.says("stores_are_reachable").passed


def test_a_sweep_looks_once_a_day_though_nothing_is_due(lake: Lake, instance: dg.DagsterInstance, clock: Clock) -> None:
    """Only where one has looked before: a new environment has nothing to be late with."""
    settings = lake.configures(automation={"sweep": "15m"}).settings
    assert tick(settings, instance, "sweep_tick").run_requests == []
    assert run(settings, instance, "delete_sweep", {"as_of": text_of(AS_OF)}).success
    last = instance.get_latest_materialization_event(dg.AssetKey("swept_transactions"))
    assert last is not None
    swept = datetime.fromtimestamp(last.timestamp, AS_OF.tzinfo)
    for hours, requests in ((19, []), (20, [{"datasets": ["*"]}])):
        clock.time = swept + timedelta(hours=hours)
        assert [typed(one) for one in tick(settings, instance, "sweep_tick").run_requests] == requests
