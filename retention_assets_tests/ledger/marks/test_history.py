"""The history of marks: every mark of a transaction and every event, in order, however many names are asked for."""

from retention_assets.ledger import Ledger, MarkEvent
from retention_assets_tests.ledger.states import LATER, T0, candidates, many, swept


def test_a_history_has_every_mark_and_every_event_in_order(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "bob", "still needed")
    ledger.marks.mark(candidates(["T1"], grace="0s"), LATER, "evaluation")
    ledger.marks.mark(candidates(["T1"], dataset="lake/other"), LATER, "evaluation")
    swept(ledger)
    found = ledger.histories.of("lake/d", ["T1", "T2", "T3"])
    assert {name: [mark.status for mark in marks] for name, marks in found.items()} == {
        "T1": ["UNMARKED", "SWEPT"],
        "T2": ["SWEPT"],
    }
    first, second = found["T1"]
    assert [(event.by, event.status, event.why) for event in first.events] == [("bob", "UNMARKED", "still needed")]
    assert [event.status for event in second.events] == ["SWEEPING", "SWEPT"]
    assert second.events[-1] == MarkEvent(second.events[-1].at, "sweeper", "SWEPT", "DELETED", 10, None)
    assert second.events[-1].at.tzinfo is not None
    assert ledger.histories.transactions("lake/d").to_pylist() == ["T1", "T2"]


def test_the_histories_of_many_names_are_read_in_parts(ledger: Ledger) -> None:
    ledger.marks.mark(many(25_000, 25_000), T0, "evaluation")
    names = [f"T{number}" for number in range(25_000)]
    assert ledger.histories.of("lake/d0", names).keys() == set(names)
    assert ledger.histories.transactions("lake/d0").to_pylist() == names
