"""What a sweep only hid: counted for itself, and marked again once its store deletes every version."""

from collections import Counter

import pytest

from retention_assets.ledger import Ledger, OpenedReport, Settlement, TransactionLife, life_of
from retention_assets.ledger.invariants import reports_add_up
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, planned, statuses

TODAY = LATER.date()
NAMES = ["T1", "T2", "T3"]


def swept(ledger: Ledger, outcomes: dict[str, Outcome]) -> Counter[Outcome]:
    """Everything that is due, with these outcomes."""
    lease, plan, marks = planned(ledger)
    begun = ledger.sweeps.begin([lease], [plan], marks).marks
    names = dict(
        zip(*(ledger.marks.table(["lake/d"], ["SWEEPING"])[name].to_pylist() for name in ("id", "transaction")), strict=True)
    )
    settlements = [
        Settlement(mark, Outcome.HIDDEN, bytes_hidden=25)
        if outcomes[names[mark]] is Outcome.HIDDEN
        else Settlement(mark, outcomes[names[mark]], 10)
        for mark in begun
    ]
    settled = ledger.sweeps.settle([lease], settlements, TODAY).marks
    ledger.sweeps.finish([lease], [plan])
    ledger.leases.give_up([lease])
    return Counter(one.outcome for one in settlements if one.mark in settled)


@pytest.fixture
def hidden(ledger: Ledger) -> Ledger:
    """T1 was deleted, T2 and T3 are hidden."""
    ledger.marks.mark(candidates(NAMES), T0, "evaluation")
    ledger.reports.open(TODAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    found = swept(ledger, {"T1": Outcome.DELETED, "T2": Outcome.HIDDEN, "T3": Outcome.HIDDEN})
    assert found == {Outcome.DELETED: 1, Outcome.HIDDEN: 2}
    return ledger


def test_what_is_hidden_frees_nothing_and_is_counted_for_itself(hidden: Ledger) -> None:
    assert statuses(hidden) == dict.fromkeys(NAMES, "SWEPT")
    (report,) = hidden.reports.of(TODAY)
    names = ("to_delete", "deleted", "already_gone", "hidden", "failed", "bytes_to_free", "bytes_freed", "bytes_hidden")
    assert [report[name] for name in names] == [3, 1, 0, 2, 0, 30, 10, 50]
    with hidden.database.reading() as connection:
        assert list(reports_add_up(connection)) == []
    assert hidden.verify().faults == ()


def test_the_history_says_that_nothing_became_free(hidden: Ledger) -> None:
    marks = hidden.histories.of("lake/d", ["T2"])["T2"]
    life = life_of("lake/d", TransactionLife("T2", True, marks=marks), (), LATER)
    assert life.said is None
    assert hidden.histories.hidden([1, marks[-1].id, 2**40]) == {marks[-1].id}
    assert life.words.startswith("hidden: its place keeps versions of it, and nothing became free, at ")
    assert (marks[-1].events[-1].outcome, marks[-1].events[-1].bytes) == ("HIDDEN", 0)


@pytest.mark.parametrize("again", [(), ("other",), ("lak",), ("lake/d",)])
def test_what_is_hidden_is_not_marked_again_as_long_as_its_store_deletes_no_versions(
    hidden: Ledger, again: tuple[str, ...]
) -> None:
    result = hidden.marks.mark(candidates(NAMES), LATER, "evaluation", hidden_again=again)
    assert (result.new, result.known) == (0, 3)
    assert hidden.marks.table(["lake/d"], hidden_again=again).num_rows == 3


def test_what_is_hidden_is_marked_again_once_its_store_deletes_versions_and_what_is_deleted_never(hidden: Ledger) -> None:
    again = ("other", "lake")
    left = hidden.marks.table(["lake/d"], ["MARKED", "SWEPT"], hidden_again=again)
    assert left["transaction"].to_pylist() == ["T1"]
    assert hidden.marks.mark(candidates(NAMES), LATER, "evaluation", hidden_again=again).new == 2
    # A grace of its own, and one mark alone.
    assert hidden.marks.mark(candidates(NAMES), LATER, "evaluation", hidden_again=again).new == 0
    marked = hidden.marks.table(["lake/d"], ["MARKED"], hidden_again=again)
    assert marked["transaction"].to_pylist() == ["T2", "T3"]
    assert set(marked["marked_at"].to_pylist()) == {LATER}


def test_what_was_hidden_and_then_deleted_is_over(hidden: Ledger) -> None:
    hidden.marks.mark(candidates(["T2"], grace="0s"), LATER, "evaluation", hidden_again=("lake",))
    assert swept(hidden, {"T2": Outcome.DELETED}) == {Outcome.DELETED: 1}
    assert hidden.marks.mark(candidates(["T1", "T2"]), LATER, "evaluation", hidden_again=("lake",)).new == 0
    assert hidden.verify().faults == ()
    assert [mark.status for mark in hidden.histories.of("lake/d", ["T2"])["T2"]] == ["SWEPT", "SWEPT"]
