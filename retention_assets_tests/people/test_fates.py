"""What becomes of a mark is one answer: `explain`, `marks` and `plan` say the same of what is held or will be spared."""

from datetime import timedelta

import pytest

from retention_assets.ledger import Waiting
from retention_assets.people.history import explain_dataset, fates_of
from retention_assets_tests.ledger.states import plan_of, take_lease
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake

HOLD = "{name: legal, datasets: ['lake/*'], transactions: ['S1'], reason: case 7}"
AT = ("--as-of", DUE.isoformat())


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Five marks that are due, of which a hold keeps one."""
    lake.has(FIVE).marks()
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


@pytest.mark.parametrize("name", ["old", "elsewhere"], ids=["narrowed", "removed"])
def test_what_no_policy_selects_any_more_is_said_to_be_spared_before_the_files_are_loaded(
    name: str, lake: Lake, run: Run
) -> None:
    lake.says(OLD.replace("name: old", f"name: {name}").replace("lake/*", "lake/other"))
    assert due(run) == set()
    assert "the sweep will spare it: no policy selects it, so it stays" in run("explain", "lake/d", "S2", *AT)[1]
    lake.sweeps()
    assert set(lake.statuses().values()) == {"SPARED"}


def test_a_longer_grace_is_waited_out_in_every_answer(lake: Lake, run: Run) -> None:
    lake.says(OLD[:-1] + ", grace: 20d}")
    assert due(run) == set()
    assert '"deleted":[]' in run("plan", "-f", "json", *AT)[1].replace(" ", "")
    for command in ("history", "explain"):
        assert f"due at {LATER:%Y-%m-%d}" in run(command, "lake/d", "S2", "-f", "json", *AT)[1]


WIDE = "{name: all, datasets: ['lake/*'], reason: case 8}"
LATER = DUE + timedelta(days=13)
SUMS = [
    pytest.param(OLD, HOLD, Waiting(5, 50, 4, 40, held=1), id="a hold of one transaction"),
    pytest.param(OLD, WIDE, Waiting(5, 50, held=5), id="a hold of a dataset"),
    pytest.param(OLD, f"{HOLD}, {WIDE}", Waiting(5, 50, held=5), id="two holds"),
    pytest.param(OLD.replace("lake/*", "lake/other"), "", Waiting(5, 50, spared=5), id="a narrower policy"),
    pytest.param(OLD.replace("lake/*", "lake/other"), HOLD, Waiting(5, 50, held=1, spared=4), id="both"),
    pytest.param(OLD[:-1] + ", grace: 20d}", "", Waiting(5, 50, 0, 0, LATER, 5), id="a longer grace"),
    pytest.param(OLD[:-1] + ", grace: 1d}", "", Waiting(5, 50, 5, 50), id="a shorter grace"),
]


@pytest.mark.parametrize(("policies", "holds", "sums"), SUMS)
def test_sums_call_due_what_marks_due_lists(lake: Lake, run: Run, policies: str, holds: str, sums: Waiting) -> None:
    lake.says(policies, holds)
    with lake.opened() as ledger:
        fates = fates_of(lake.environment, ledger, DUE)
        assert Waiting.of(fates.pending(ledger), DUE) == sums
        assert Waiting.of(fates.pending(ledger, ["lake/none"]), DUE) == Waiting()
    assert len(due(run)) == sums.due
    told = run("history", "lake/d", "S2", "-f", "json", *AT)[1]
    assert ("the sweep will spare it: no policy in force" in told) == ("lake/other" in policies)


def test_what_is_begun_is_due_unless_it_is_held(lake: Lake, run: Run) -> None:
    with lake.opened() as ledger:
        lease = take_lease(ledger, "lake/d", "killed")
        marks = ledger.marks.table(["lake/d"])["id"].to_pylist()
        plan = plan_of(ledger, lease, marks, DUE)
        ledger.sweeps.begin([lease], [plan], marks[:2])
        lake.says(OLD.replace("lake/*", "lake/other"), HOLD)
        waiting = Waiting.of(fates_of(lake.environment, ledger, DUE).pending(ledger), DUE)
    assert (waiting.due, waiting.held, waiting.spared) == (1, 1, 3)


def test_a_summary_of_a_dataset_calls_scheduled_what_goes(lake: Lake) -> None:
    found = explain_dataset(lake.environment, "lake/d", DUE)
    assert {name: amount for name, (amount, _) in found.states.items()} == {"MARKED": 4, "MARKED, stays": 1, "keep": 1}
    assert [row["transaction"] for row in found.next_due] == ["S2", "S3", "S4", "S5"]
    assert [row.why for row in found.oldest if row.transaction == "S1"] == ["Hold 'legal' keeps it."]
    lake.branches("kept", "S3")
    assert [row["transaction"] for row in explain_dataset(lake.environment, "lake/d", DUE).next_due] == ["S2", "S4", "S5"]
    lake.says(OLD[:-1] + ", grace: 20d}")
    assert {row["due_at"] for row in explain_dataset(lake.environment, "lake/d", DUE).next_due} == {LATER}
