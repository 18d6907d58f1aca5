"""The brake on the whole: what would take far more of a store than usual takes nothing, until a person agrees."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.people.plan import PlanRequest, RetentionPlan, make_plan
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.people.terminals import at_terminal
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

DAY = timedelta(days=1)
NOW = DUE + 8 * DAY


def history(old: int, size: int = 10) -> str:
    return "main: " + " - ".join([*(f"S{n}:SNAPSHOT@{90 - n}d={size}" for n in range(old)), "L:SNAPSHOT@1d"])


def lake_of_days(folder: Path, days: int) -> Lake:
    """A lake in which one transaction went on each of some days."""
    lake = Lake(folder / "lake")
    for day in range(days):
        lake.has(history(1), f"lake/day{day}").marks(MARKED + day * DAY)
        assert lake.sweeps(DUE + day * DAY)[f"lake/day{day}"].refused is None
    return lake


def due_now(lake: Lake, old: int, size: int = 10) -> Lake:
    lake.has(history(old, size), "lake/big").marks(MARKED + 8 * DAY)
    return lake


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def swept(lake: Lake, instance: dg.DagsterInstance, **form: Any) -> int:
    """How many transactions of the large dataset the job `sweep` takes."""
    before = len(lake.there("lake/big"))
    assert run(lake.settings, instance, "delete_sweep", {"as_of": NOW.isoformat(), **form}).success
    return before - len(lake.there("lake/big"))


@pytest.mark.parametrize(
    ("days", "old", "size", "goes"),
    [
        # Ten times the largest day is usual, one more is not.
        (7, 10, 10, True),
        (7, 11, 10, False),
        (7, 2, 600, False),
        # Six days say nothing about what is usual.
        (6, 11, 10, True),
        (0, 11, 10, True),
    ],
)
def test_ten_times_the_largest_day_takes_nothing(
    days: int, old: int, size: int, goes: bool, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    lake = due_now(lake_of_days(tmp_path, days), old, size)
    assert swept(lake, instance) == (old if goes else 0)
    assert set(lake.statuses("lake/big").values()) == {"SWEPT" if goes else "MARKED"}
    if not goes:
        assert swept(lake, instance, accept_large=True) == old


def test_what_went_earlier_on_the_day_counts(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = due_now(lake_of_days(tmp_path, 7), 6)
    assert swept(lake, instance) == 6
    lake.has(history(5), "lake/more").marks(MARKED + 8 * DAY)
    assert run(lake.settings, instance, "delete_sweep", {"as_of": NOW.isoformat()}).success
    assert len(lake.there("lake/more")) == 6


def test_a_quiet_month_is_forgotten(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = lake_of_days(tmp_path, 7)
    lake.has(history(11), "lake/big").marks(MARKED + 40 * DAY)
    assert run(lake.settings, instance, "delete_sweep", {"as_of": (DUE + 40 * DAY).isoformat()}).success
    assert lake.there("lake/big") == {"L"}


@pytest.mark.parametrize(
    ("settings", "goes"),
    [("off", True), ({"usual": 11}, True), ({"usual": 100, "share": 0.9}, True), ({"usual": 100, "share": 0.5}, False)],
)
@pytest.mark.usefixtures("local_spark")
def test_settings_say_how_much_is_usual(settings: object, goes: bool, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = due_now(lake_of_days(tmp_path, 7), 11)
    lake.configures(brake=settings)
    # How many transactions a store has, an evaluation says.
    assert run(lake.settings, instance, "act_evaluate", {"as_of": NOW.isoformat()}).success
    assert swept(lake, instance) == (11 if goes else 0)


def plan_of(lake: Lake, accept_large: bool = False) -> RetentionPlan:
    return make_plan(PlanRequest(as_of=NOW, accept_large=accept_large), lake.environment)


def test_a_plan_says_what_the_run_says(tmp_path: Path) -> None:
    lake = due_now(lake_of_days(tmp_path, 7), 11)
    braked, accepted = plan_of(lake), plan_of(lake, accept_large=True)
    fault = "nothing of lake is swept: it would lose 11 transactions, 110 bytes today, more than 10 times the largest day of"
    assert (len(braked.deleted), len(accepted.deleted)) == (0, 11)
    assert braked.refused["lake/big"].startswith(fault)
    assert "--accept-large" in braked.refused["lake/big"]
    assert not accepted.refused
    assert [note.startswith(f"Without your consent {fault}") for note in accepted.notes] == [True]


def test_the_question_at_a_terminal_names_it(tmp_path: Path) -> None:
    lake = due_now(lake_of_days(tmp_path, 7), 11)
    code, lines = at_terminal(lake.folder, "run", "--as-of", NOW.isoformat(), types="n\n")
    shown = " ".join(lines)
    assert code == 1
    assert "Without your consent nothing of lake is swept" in shown
    assert "This run would delete 11" in shown
    assert len(lake.there("lake/big")) == 12
