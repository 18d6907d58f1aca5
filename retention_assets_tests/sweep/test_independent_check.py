"""The second look: where the door itself is at fault, or nobody has checked the marks, nothing goes that a check would stop."""

import re
from dataclasses import replace
from typing import Any

import pytest

from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.sweep.recheck import Recheck, RecheckResult
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake
from retention_assets_tests.sweep.test_engine import ALL, FIVE

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
    with monkeypatch.context() as patch:
        in_force = Rulebook.rules

        def unlimited(book: Rulebook, *about: Any) -> Any:
            rules = in_force(book, *about)
            return replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))

        patch.setattr(Rulebook, "rules", unlimited)
        assert lake.marks(MARKED) == 5
    assert lake.marks(DUE) == 0
    (result,) = lake.sweeps().values()
    assert said in str(result.refused)
    assert "retention unmark" in str(result.refused)
    assert lake.there() == ALL
