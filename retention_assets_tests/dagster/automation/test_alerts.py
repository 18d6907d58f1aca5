"""The page's example of Dagster's own sensors: who is told of failed runs, of what a sweep left, of red checks and overdue assets."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from retention_assets.definitions import build_defs
from retention_assets_tests.dagster.automation.conftest import SOME
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.sweep.lakes import DUE, Lake

PAGE = Path(__file__).parents[3] / "docs" / "automation.md"
SWEEP = {"as_of": DUE.isoformat()}


class Watch:
    """The sensors of the example beside the definitions of a lake, and what they send."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance, self._sent, self._cursors = instance, list[str](), dict[str, str | None]()
        project = ModuleType("my_project.alerts")
        vars(project)["send"] = self._sent.append
        monkeypatch.setitem(sys.modules, "my_project", ModuleType("my_project"))
        monkeypatch.setitem(sys.modules, "my_project.alerts", project)
        (code,) = re.findall(r"^```python\n(import json.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        example: dict[str, Any] = {}
        exec(code, example)
        sensors = [example[name] for name in ("failed_runs", "left_over", "red_assets")]
        self.defs = dg.Definitions.merge(build_defs(lake.settings), dg.Definitions(sensors=sensors))
        # A sensor of runs begins with those after its first tick.
        assert [self.sent_by(name) for name in ("failed_runs", "left_over", "red_assets")] == [[], [], []]

    def sent_by(self, name: str) -> list[str]:
        """Messages of one tick."""
        self._sent.clear()
        cursor = self._cursors.get(name)
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, definitions=self.defs) as context:
            self._cursors[name] = self.defs.get_repository_def().get_sensor_def(name).evaluate_tick(context).cursor
        return list(self._sent)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a")


@pytest.fixture
def watch(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(lake, instance, monkeypatch)


def test_a_failed_run_is_sent_once_with_its_sentence(lake: Lake, watch: Watch) -> None:
    with lake.opened():
        # A ledger without any hold.
        run(lake.settings, watch.instance, "act_release", {"name": "nowhere", "reason": "it is over", "actor": "ann"})
    failed = "act_release failed: No hold named nowhere is in force. `retention hold --list` lists the holds in force."
    assert watch.sent_by("failed_runs") == [failed]
    # No step of this one began.
    made = watch.instance.create_run_for_job(watch.defs.resolve_job_def("delete_sweep"), status=dg.DagsterRunStatus.STARTING)
    watch.instance.report_run_failed(made, "no machine")
    assert watch.sent_by("failed_runs") == ["delete_sweep failed: no machine"]
    assert watch.sent_by("failed_runs") == []


def test_what_a_sweep_could_not_delete_is_sent(lake: Lake, watch: Watch) -> None:
    """A link in the place of a folder could lead out of the root, so the store leaves it alone."""
    assert lake.has(SOME, "lake/x").marks() == 4
    for name in ("S1", "S2"):
        place = lake.place("lake/x", name)
        place.symlink_to(place.rename(lake.folder / f"moved-{name}"))
    assert run(lake.settings, watch.instance, "delete_sweep", SWEEP).success
    assert watch.sent_by("left_over") == ["delete_sweep: 2 transactions could not be deleted. The next sweep tries again."]
    assert run(lake.settings, watch.instance, "act_report", {"as_of": DUE.isoformat()}).success
    assert watch.sent_by("left_over") == []


def test_changes_of_checks_and_freshness_are_sent(watch: Watch) -> None:
    instance = watch.instance

    def report_check(passed: bool) -> None:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=dg.AssetKey("transaction_log"), check_name="stores_are_reachable", passed=passed)
        )

    report_check(False)
    assert watch.sent_by("red_assets") == ["Failed or overdue: transaction_log:stores_are_reachable"]
    assert watch.sent_by("red_assets") == []
    # A run at work has planned the check and not evaluated it.
    instance.create_run_for_job(watch.defs.resolve_implicit_global_asset_job_def())
    assert watch.sent_by("red_assets") == []
    late = FreshnessStateChange(
        key=dg.AssetKey("candidate_marks"),
        new_state=FreshnessState.FAIL,
        previous_state=FreshnessState.PASS,
        state_change_timestamp=DUE.timestamp(),
    )
    instance.report_runless_asset_event(late)
    assert watch.sent_by("red_assets") == ["Failed or overdue: candidate_marks, transaction_log:stores_are_reachable"]
    report_check(True)
    assert watch.sent_by("red_assets") == ["Failed or overdue: candidate_marks"]
