"""The independent check: where the re-check itself is at fault, or nobody checked the marks, nothing goes that a check would stop."""

import re
from dataclasses import replace
from typing import Any

import pytest

from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.sweep.recheck import Recheck, RecheckResult
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake
from retention_assets_tests.sweep.test_engine import ALL, FIVE, Complete, loses

OTHER = re.sub(r"S(\d)", r"K\1", FIVE)


def test_a_mark_in_a_latest_view_stops_its_dataset_and_no_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch came after the mark, and the door lets everything through."""
    lake.has(FIVE).has(OTHER, "lake/other").marks()
    lake.branches("rescue", "S2")
    monkeypatch.setattr(Recheck, "check", lambda *about: RecheckResult(frozenset(about[2]["id"].to_pylist())))
    results = lake.sweeps()
    assert str(results["lake/d"].refused).startswith(
        "nothing of lake/d is swept: S2 is in the latest view of branch rescue, and policy old marked it, which may not (1 such"
    )
    assert (lake.there(), lake.there("lake/other")) == (ALL, {"K6"})
    assert set(lake.statuses().values()) == {"MARKED"}


def test_a_policy_that_may_select_in_latest_views_is_let_through(lake: Lake) -> None:
    lake.says(OLD.replace("select:", "latest_view: allow, select:"))
    lake.has(FIVE).marks()
    lake.branches("rescue", "S2")
    assert lake.sweeps()["lake/d"].refused is None
    assert lake.there() == {"S6"}


def marks_without_limits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> int:
    """An evaluation that overlooks all limits; how many marks it makes."""
    in_force = Rulebook.rules

    def unlimited(book: Rulebook, *about: Any) -> Any:
        rules = in_force(book, *about)
        return replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))

    with monkeypatch.context() as patch:
        patch.setattr(Rulebook, "rules", unlimited)
        return lake.marks(MARKED)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        pytest.param({"transactions": 4}, "policy old marked 5 of 6 transactions", id="transactions"),
        pytest.param({"fraction": 0.5}, "policy old marked 5 of 6 transactions", id="fraction"),
        pytest.param({"bytes": 49}, "50 bytes at a time: over its limits", id="bytes"),
    ],
)
def test_more_than_the_limits_of_a_policy_is_not_swept_however_often_it_was_judged_since(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], said: str
) -> None:
    """An evaluation that overlooked them; the next one marks nothing new, so that it keeps to them."""
    lake.says(OLD.replace("sweep:", f"limits: {limits}, sweep:"))
    lake.has(FIVE)
    assert marks_without_limits(lake, monkeypatch) == 5
    assert lake.marks(DUE) == 0
    (result,) = lake.sweeps().values()
    assert said in str(result.refused)
    assert "retention unmark" in str(result.refused)
    assert lake.there() == ALL


@pytest.mark.parametrize(("fraction", "refused"), [(0.49, True), (0.5, False)])
@pytest.mark.parametrize("complete", [pytest.param(False, id="a log keeps them"), pytest.param(True, id="the log is the data")])
def test_a_fraction_is_of_what_the_log_has_and_had_each_transaction_counted_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, complete: bool, fraction: float, refused: bool
) -> None:
    """Two of six were swept: a log that keeps them has six transactions, one that does not has four."""
    lake.says(OLD.replace("30d", "75d"))
    lake.has(FIVE).marks()
    lake.sweeps()
    if complete:
        loses(lake, "S1")
        loses(lake, "S2")
    lake.says(OLD.replace("sweep:", f"limits: {{fraction: {fraction}}}, sweep:"))
    assert marks_without_limits(lake, monkeypatch) == 3
    store = (Complete if complete else RecordingStore)(lake.stores["lake"])
    (result,) = lake.sweeps(stores={"lake": store}).values()
    assert (result.refused is not None) is refused
    assert "marked 3 of 6 transactions" in str(result.refused) or not refused
    assert len(store.recorded) == (0 if refused else 3)
