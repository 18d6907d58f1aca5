"""A dataset that is swept slice by slice: its log is judged once as long as nothing changes, and anew as soon as anything does.

Slices and batches of two: what happens elsewhere happens while the first slice goes.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Hold, Policy
from retention_assets.sweep import independent_check, recheck
from retention_assets.sweep import round as sweep_round
from retention_assets.sweep.read import read_fresh
from retention_assets.sweep.recheck import JudgedRows
from retention_assets.sweep.round import _Round
from retention_assets_tests.sweep.lakes import DUE, OLD, Elsewhere, Lake
from retention_assets_tests.sweep.test_between_batches import Happens, holds_one
from retention_assets_tests.sweep.test_engine import ALL, DAY, FIVE


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Five marks that are due."""
    monkeypatch.setattr(sweep_round, "SLICE", 2)
    lake = Lake(tmp_path / "lake").has(FIVE)
    assert lake.marks() == 5
    return lake


def sweeps(lake: Lake, guards: bool, happens: Happens, during: str = "sweep", call: int = 1) -> Any:
    store = Elsewhere(lake.stores["lake"], guards, lambda: happens(lake), during, call)
    (result,) = lake.sweeps(stores={"lake": store}, wait=lambda *_: None).values()
    assert (result.refused, result.errors) == (None, [])
    return result


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    calls: list[str] = []
    real = getattr(module, name)

    def call(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    monkeypatch.setattr(module, name, call)
    return calls


def test_a_log_that_does_not_change_is_judged_once_for_all_slices(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, guards: bool
) -> None:
    judged = counted(monkeypatch, recheck, "candidate_marks")
    walked = counted(monkeypatch, independent_check, "rows_in_views")
    result = sweeps(marked, guards, lambda _: None)
    assert (result.planned, result.outcomes[Outcome.DELETED]) == (5, 5)
    assert (len(judged), len(walked)) == (1, 1)
    assert marked.verified() == ()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(holds_one, id="a hold"),
        pytest.param(lambda lake: lake.branches("rescue", "S4"), id="a branch"),
        pytest.param(lambda lake: lake.comes_again("S4", closed_at="2026-01-30T12:00:00.000001Z"), id="another life"),
    ],
)
def test_what_changes_between_slices_counts_in_the_next(marked: Lake, guards: bool, happens: Happens) -> None:
    result = sweeps(marked, guards, happens)
    assert {outcome: times for outcome, times in result.outcomes.items() if times} == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert marked.there() == {"S4", "S6"}
    assert marked.verified() == ()


def test_a_branch_that_the_re_check_overlooks_is_seen_by_the_independent_check_in_the_next_slice(
    marked: Lake, guards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The re-check goes on by what it judged of the first slice."""
    first: list[pa.Table] = []

    def stale(*given: Any) -> pa.Table:
        first.append(candidate_marks(*given))
        return first[0]

    monkeypatch.setattr(recheck, "candidate_marks", stale)
    store = Elsewhere(marked.stores["lake"], guards, lambda: marked.branches("rescue", "S4"), "sweep")
    (result,) = marked.sweeps(stores={"lake": store}, wait=lambda *_: None).values()
    assert "S4 is in the latest view of branch rescue" in str(result.refused)
    assert "S4" in marked.there()


def test_a_realm_that_is_not_purged_any_more_is_not_swept_in_the_next_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guards: bool
) -> None:
    monkeypatch.setattr(sweep_round, "SLICE", 2)
    lake = Lake(tmp_path / "lake")
    lake.says(OLD.replace("30d", "999d"))
    lake.has(FIVE)._log("lake/d", ['{"dataset": "lake/d", "realm": "acme"}'])
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "contract over", Duration(days=3))
    assert lake.marks() == 6

    def stops(lake: Lake) -> None:
        with lake.opened() as ledger:
            ledger.realms.change("acme", "ACTIVE", "ann", "they say so")

    before = lake.there()
    result = sweeps(lake, guards, stops)
    gone = before - lake.there()
    assert 0 < len(gone) == result.outcomes[Outcome.DELETED] < 6
    assert result.outcomes[Outcome.SPARED] == 6 - len(gone)


def test_another_round_counts_what_earlier_slices_planned(marked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold comes right before the second slice begins: its marks are withheld, and checked again in another round."""
    places: list[object] = []

    def check(*given: Any) -> None:
        places.append(given)
        if len(places) == 2:
            with marked.opened() as ledger:
                ledger.holds.place(Hold.model_validate({"name": "legal", "datasets": "lake/none", "reason": "case 7"}), "ann")

    rounds = counted(monkeypatch, _Round, "_once_more")
    monkeypatch.setattr("retention_assets.sweep.dataset_sweep.DatasetSweep.check_places", check)
    result = sweeps(marked, True, lambda _: None)
    assert (len(rounds), result.planned, result.outcomes[Outcome.DELETED]) == (1, 5, 5)
    assert marked.verified() == ()


def test_verdicts_are_known_again_only_by_everything_that_they_depend_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has(FIVE)
    log = read_fresh(lake.stores["lake"], ["lake/d"]).log
    judged = JudgedRows(log.transactions, log.datasets)
    policy = Policy.model_validate({"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "75d"}})
    other = policy.model_copy(update={"select": policy.select.model_copy(update={"older_than": None, "superseded": True})})
    hold = Hold.model_validate({"name": "legal", "datasets": "lake/*", "until": DUE + DAY, "reason": "case 7"})
    rules = RulesInForce((policy,), ())
    cases = [
        (rules, DUE),
        (rules, DUE + timedelta(days=30)),
        (replace(rules, holds=(hold,)), DUE),
        (replace(rules, holds=(hold,)), DUE + 2 * DAY),
        (replace(rules, holds=(hold.model_copy(update={"until": None}),)), DUE + 2 * DAY),
        (RulesInForce((other,), ()), DUE),
    ]
    for one, at in [*cases, *cases]:
        said = candidate_marks(log.transactions, log.datasets, one.policies, one.holds, at)
        assert judged.verdicts(one, at).to_pylist() == said.select(["verdict", "reasons", "policy"]).to_pylist()
    assert judged.verdicts(rules, DUE) is judged.verdicts(RulesInForce((policy.model_copy(),), ()), DUE)


def test_each_mark_finds_its_own_row_and_what_is_not_there_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has(FIVE).has(FIVE, "lake/e")
    for names in (["lake/d"], ["lake/d", "lake/e"]):
        log = read_fresh(lake.stores["lake"], names).log
        rows = log.transactions.select(["dataset", "transaction"]).to_pylist()
        wanted = [{"dataset": names[-1], "transaction": name} for name in ("S4", "gone", "S1", "S4", *sorted(ALL))]
        found = JudgedRows(log.transactions, log.datasets).positions(pa.Table.from_pylist(wanted))
        assert found.tolist() == [rows.index(one) if one in rows else -1 for one in wanted]
        assert np.count_nonzero(found < 0) == 1
