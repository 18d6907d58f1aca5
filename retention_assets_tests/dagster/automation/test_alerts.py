"""Notices of runs that failed or left something to look at, and the page's example for checks and freshness."""

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from retention_assets.dagster.automation.alerts import Notice
from retention_assets.definitions import build_defs
from retention_assets.settings.model import Settings
from retention_assets_tests.dagster.automation.conftest import SOME
from retention_assets_tests.dagster.launch import run, tick
from retention_assets_tests.sweep.lakes import DUE, Lake

PAGE = Path(__file__).parents[3] / "docs" / "dagster.md"
RELEASE = {"name": "nowhere", "reason": "it is over", "actor": "ann"}
SWEEP = {"as_of": DUE.isoformat(), "log_level": "CRITICAL"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a")


class Watch:
    """Both sensors, started before the run that they are to see."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.cursors = {name: self._tick(name).cursor for name in ("alert_on_failure", "alert_on_trouble")}

    def _tick(self, name: str, cursor: str | None = None, told: list[Notice] | None = None) -> Any:
        notices: list[Notice] = [] if told is None else told
        return tick(self.lake.settings, self.instance, name, cursor, notices.append)

    def told(self) -> list[Notice]:
        """What has been told since."""
        told: list[Notice] = []
        for name, cursor in self.cursors.items():
            self.cursors[name] = self._tick(name, cursor, told).cursor
        return told


def test_a_failed_run_is_told_once_with_the_sentence_of_its_refusal(lake: Lake, instance: dg.DagsterInstance) -> None:
    watch = Watch(lake, instance)
    with lake.opened():
        # A ledger without any hold.
        ran = run(lake.settings, instance, "release", RELEASE)
    (notice,) = watch.told()
    assert (notice.title, notice.run_id) == ("release failed", ran.run_id)
    assert notice.text == ("release_act: No hold named nowhere is in force. `retention hold --list` shows those that are.")
    assert watch.told() == []


def test_a_broken_policy_file_is_told_with_its_place(lake: Lake, instance: dg.DagsterInstance) -> None:
    watch = Watch(lake, instance)
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    run(lake.settings, instance, "sweep", SWEEP)
    (notice,) = watch.told()
    assert notice.title == "sweep failed"
    assert "p.yaml:1: policy 'p': select.oldr_than: is not a known key" in notice.text


def test_what_could_not_be_deleted_is_told_although_the_run_succeeded(lake: Lake, instance: dg.DagsterInstance) -> None:
    """A link in the place of a folder could lead out of the root, so the store leaves it alone."""
    watch = Watch(lake.has(SOME, "lake/x"), instance)
    assert lake.marks() == 4
    for name in ("S1", "S2"):
        place = lake.place("lake/x", name)
        place.symlink_to(place.rename(lake.folder / f"moved-{name}"))
    assert run(lake.settings, instance, "sweep", SWEEP).success
    (notice,) = watch.told()
    assert notice.title == "sweep succeeded, with something to look at"
    assert notice.text == "The sweep: 2 transactions could not be deleted, which the next sweep tries again."


def test_a_dataset_that_is_refused_is_told_once(lake: Lake, instance: dg.DagsterInstance) -> None:
    watch = Watch(lake, instance)
    lake.marks()
    (lake.folder / "log" / "lake-a.jsonl").rename(lake.folder / "elsewhere")
    (lake.folder / "log" / "other.jsonl").write_text("")
    run(lake.settings, instance, "sweep", SWEEP)
    (notice,) = watch.told()
    assert notice.title == "refused_datasets failed"
    assert notice.text.startswith("lake/a was refused: ")
    run(lake.settings, instance, "sweep", SWEEP)
    assert watch.told() == []


def test_a_run_that_left_nothing_is_not_told(lake: Lake, instance: dg.DagsterInstance) -> None:
    watch = Watch(lake, instance)
    lake.marks()
    assert run(lake.settings, instance, "sweep", SWEEP).success
    assert watch.told() == []


@pytest.mark.parametrize(
    ("asset", "passed", "titles"),
    [
        ("candidate_marks", False, ["looking succeeded, with something to look at"]),
        ("candidate_marks", True, []),
        pytest.param("orders", False, [], id="of an asset of other people"),
    ],
)
def test_a_check_that_failed_without_blocking_is_told(
    lake: Lake, instance: dg.DagsterInstance, asset: str, passed: bool, titles: list[str]
) -> None:
    @dg.op(out=dg.Out(dg.Nothing))
    def look() -> Iterator[Any]:
        key = dg.AssetKey(asset)
        yield dg.AssetCheckEvaluation(asset_key=key, check_name="fresh", passed=passed, blocking=False)

    @dg.job
    def looking() -> None:
        look()

    watch = Watch(lake, instance)
    assert looking.execute_in_process(instance=instance).success
    told = watch.told()
    assert [notice.title for notice in told] == titles
    assert all("The check fresh of candidate_marks failed." in notice.text for notice in told)


def test_no_notice_shows_a_password(lake: Lake, instance: dg.DagsterInstance) -> None:
    @dg.op(out=dg.Out(dg.Nothing))
    def ask() -> None:
        raise RuntimeError("cannot reach postgresql://u:hunter2@h/d")

    @dg.job(name="release")
    def asking() -> None:
        ask()

    watch = Watch(lake, instance)
    asking.execute_in_process(instance=instance, raise_on_error=False)
    (notice,) = watch.told()
    assert notice.text == "ask: RuntimeError: cannot reach postgresql://u:***@h/d"


@pytest.mark.parametrize(
    ("asset", "titles"), [("branch_views", ["nightly failed"]), pytest.param("orders", [], id="of other people")]
)
def test_a_failed_run_is_told_if_it_was_about_these_assets_whoever_has_the_job(
    lake: Lake, instance: dg.DagsterInstance, asset: str, titles: list[str]
) -> None:
    """A code location may hold more than retention, and people put assets into jobs of their own."""

    @dg.asset(name=asset)
    def broken() -> None:
        raise RuntimeError("no space left")

    watch = Watch(lake, instance)
    job = dg.Definitions([broken], jobs=[dg.define_asset_job("nightly")]).resolve_job_def("nightly")
    assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    assert [notice.title for notice in watch.told()] == titles


@pytest.mark.parametrize(
    ("asset", "titles"), [("branch_views", ["nightly failed"]), pytest.param("orders", [], id="of other people")]
)
def test_a_failed_run_is_told_if_it_only_checked_these_assets(
    lake: Lake, instance: dg.DagsterInstance, asset: str, titles: list[str]
) -> None:
    watch = Watch(lake, instance)
    checked = frozenset([dg.AssetCheckKey(dg.AssetKey(asset), "fresh")])
    made = dg.DagsterRun(
        "nightly", status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset(), asset_check_selection=checked
    )
    instance.add_run(made)
    instance.report_run_failed(made)
    assert [notice.title for notice in watch.told()] == titles


def test_a_run_of_which_no_step_began_is_told_with_what_became_of_it(lake: Lake, instance: dg.DagsterInstance) -> None:
    watch = Watch(lake, instance)
    made = instance.create_run_for_job(build_defs(lake.settings).resolve_job_def("sweep"), status=dg.DagsterRunStatus.STARTING)
    instance.report_run_failed(made, "The machine could not be had.")
    (notice,) = watch.told()
    assert (notice.title, notice.text) == ("sweep failed", "The machine could not be had.")


def test_a_failed_run_is_told_with_its_checks_and_not_without_end(lake: Lake, instance: dg.DagsterInstance) -> None:
    @dg.op(out=dg.Out(dg.Nothing))
    def look() -> Iterator[Any]:
        for number in range(25):
            yield dg.AssetCheckEvaluation(asset_key=dg.AssetKey("candidate_marks"), check_name=f"c{number}", passed=False)
        raise dg.Failure("Nothing that follows is done.")

    @dg.job(name="cycle")
    def looking() -> None:
        look()

    watch = Watch(lake, instance)
    looking.execute_in_process(instance=instance, raise_on_error=False)
    (notice,) = watch.told()
    checks = [f"The check c{number} of candidate_marks failed." for number in range(19)]
    assert notice.text.splitlines() == ["look: Nothing that follows is done.", *checks, "… and 6 more."]


def test_a_notifier_that_raises_fails_the_tick_and_not_the_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    def broken(notice: Notice) -> None:
        raise ConnectionError("nobody is there")

    cursor = tick(lake.settings, instance, "alert_on_failure", None, broken).cursor
    ran = run(lake.settings, instance, "release", RELEASE)
    before = len(instance.all_logs(ran.run_id))
    (reaction,) = tick(lake.settings, instance, "alert_on_failure", cursor, broken).dagster_run_reactions
    assert "nobody is there" in reaction.error.to_string()
    assert len(instance.all_logs(ran.run_id)) == before


def test_without_a_notifier_the_log_is_told(lake: Lake, instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture) -> None:
    cursor = tick(lake.settings, instance, "alert_on_failure").cursor
    with lake.opened():
        run(lake.settings, instance, "release", RELEASE)
    with caplog.at_level(logging.WARNING, "retention_assets.dagster.automation.alerts"):
        tick(lake.settings, instance, "alert_on_failure", cursor)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "retention_assets.dagster.automation.alerts"]
    assert said.startswith("release failed\nrelease_act: No hold named nowhere")


def test_the_example_of_the_page_sends_failed_runs_and_changes_of_checks_and_freshness(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    project = ModuleType("my_project.alerts")
    vars(project)["send"] = sent.append
    monkeypatch.setitem(sys.modules, "my_project", ModuleType("my_project"))
    monkeypatch.setitem(sys.modules, "my_project.alerts", project)
    (code,) = re.findall(r"^```python\n(import json.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    example: dict[str, Any] = {}
    exec(code, example)
    sensors = [example["failed_runs"], example["red_assets"]]
    defs = dg.Definitions.merge(build_defs(Settings()), dg.Definitions(sensors=sensors))
    cursors: dict[str, str | None] = {}

    def sent_by(name: str) -> list[str]:
        """A tick; its messages."""
        sent.clear()
        with dg.build_sensor_context(instance=instance, cursor=cursors.get(name), definitions=defs) as context:
            cursors[name] = defs.get_repository_def().get_sensor_def(name).evaluate_tick(context).cursor
        return list(sent)

    assert sent_by("failed_runs") == []
    run = instance.create_run_for_job(defs.resolve_job_def("sweep"), status=dg.DagsterRunStatus.STARTING)
    instance.report_run_failed(run, "no machine")
    assert sent_by("failed_runs") == ["sweep failed: no machine"]

    key = dg.AssetKey("transaction_log")

    def report_check(passed: bool) -> None:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=key, check_name="stores_are_reachable", passed=passed)
        )

    red = "Failed or overdue: transaction_log:stores_are_reachable"
    assert sent_by("red_assets") == []
    report_check(False)
    assert sent_by("red_assets") == [red]
    assert sent_by("red_assets") == []
    # A run at work has planned the check and not evaluated it.
    instance.create_run_for_job(defs.resolve_implicit_global_asset_job_def())
    assert sent_by("red_assets") == []
    late = FreshnessStateChange(
        key=dg.AssetKey("candidate_marks"),
        new_state=FreshnessState.FAIL,
        previous_state=FreshnessState.PASS,
        state_change_timestamp=DUE.timestamp(),
    )
    instance.report_runless_asset_event(late)
    assert sent_by("red_assets") == ["Failed or overdue: candidate_marks, transaction_log:stores_are_reachable"]
    report_check(True)
    assert sent_by("red_assets") == ["Failed or overdue: candidate_marks"]
