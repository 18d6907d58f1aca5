"""What becomes of a mark is one answer: `explain`, `marks` and `plan` say the same of what is held or will be spared."""

from pathlib import Path

import pytest

from retention_assets_tests.commands.conftest import Run
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake
from retention_assets_tests.sweep.test_engine import FIVE

HOLD = "{name: legal, datasets: ['lake/*'], transactions: ['S1'], reason: case 7}"
AT = ("--as-of", DUE.isoformat())


@pytest.fixture
def lake(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with five marks that are due, of which a hold keeps one."""
    lake = Lake(tmp_path / "lake").has(FIVE)
    monkeypatch.setenv("RETENTION_CONFIG", str(lake.settings_file))
    lake.marks()
    lake.says(OLD, HOLD)
    return lake


def due(run: Run) -> set[str]:
    lines = run("marks", "--due", "-f", "json", *AT)[1].splitlines()
    return {f"S{number}" for number in range(1, 7) for line in lines if f'"S{number}"' in line}


def test_held_is_neither_due_nor_scheduled(lake: Lake, run: Run) -> None:
    assert due(run) == {"S2", "S3", "S4", "S5"}
    said = run("explain", "lake/d", "S1", *AT)[1]
    assert "scheduled for deletion" not in said.splitlines()[0]
    assert "This transaction is marked, and the hold legal keeps it." in said
    assert "held by legal" in run("marks")[1]
    assert "it is released" in run("hold", "--list")[1]
    assert lake.sweeps()["lake/d"].outcomes.total() == 5
    assert lake.statuses()["S1"] == "SPARED"


def test_what_no_policy_selects_any_more_is_said_to_be_spared(lake: Lake, run: Run) -> None:
    lake.says(OLD.replace("lake/*", "lake/other"))
    assert due(run) == set()
    said = run("explain", "lake/d", "S2", *AT)[1]
    assert "the sweep will spare it: no policy selects it, so it stays" in said
    lake.sweeps()
    assert set(lake.statuses().values()) == {"SPARED"}


def test_a_longer_grace_is_waited_out_in_every_answer(lake: Lake, run: Run) -> None:
    lake.says(OLD[:-1] + ", grace: 20d}")
    assert due(run) == set()
    plan = run("plan", "-f", "json", *AT)[1]
    assert '"deleted":[]' in plan.replace(" ", "")


def test_what_a_removed_policy_marked_is_said_to_be_spared_before_the_files_are_loaded(lake: Lake, run: Run) -> None:
    lake.says(OLD.replace("name: old", "name: elsewhere").replace("lake/*", "lake/other"))
    assert due(run) == set()
    lake.sweeps()
    assert set(lake.statuses().values()) == {"SPARED"}
