"""The story of marks on both databases, and the commands on PostgreSQL: what they read there is what SQLite tells."""

from pathlib import Path

import pytest

from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.marks.history import LedgerTimes, MarkEvent
from retention_assets_tests.commands.conftest import Json
from retention_assets_tests.ledger.acts import LATER, T0, candidates, many, swept

pytestmark = pytest.mark.long


def test_a_story_has_every_mark_and_every_event_in_order(either: Ledger) -> None:
    either.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    either.unmark.transactions("lake/d", ["T1"], "bob", "still needed")
    either.marks.mark(candidates(["T1"], grace="0s"), LATER, "evaluation")
    either.marks.mark(candidates(["T1"], dataset="lake/other"), LATER, "evaluation")
    swept(either)
    stories = either.histories.of("lake/d", ["T1", "T2", "T3"])
    assert {name: [mark.status for mark in marks] for name, marks in stories.items()} == {
        "T1": ["UNMARKED", "SWEPT"],
        "T2": ["SWEPT"],
    }
    first, second = stories["T1"]
    assert [(event.by, event.status, event.why) for event in first.events] == [("bob", "UNMARKED", "still needed")]
    assert [event.status for event in second.events] == ["SWEEPING", "SWEPT"]
    assert second.events[-1] == MarkEvent(second.events[-1].at, "sweeper", "SWEPT", "DELETED", 10, None)
    assert second.events[-1].at.tzinfo is not None
    assert either.histories.transactions("lake/d").to_pylist() == ["T1", "T2"]


def test_a_story_of_many_names_is_asked_for_in_parts(either: Ledger) -> None:
    either.marks.mark(many(25_000, 25_000), T0, "evaluation")
    names = [f"T{number}" for number in range(25_000)]
    assert either.histories.of("lake/d0", names).keys() == set(names)
    assert either.histories.transactions("lake/d0").to_pylist() == names


def test_the_times_are_those_of_the_guard(either: Ledger) -> None:
    assert either.histories.times() == LedgerTimes(None, None, None)
    either.marks.mark(candidates(["T1"]), T0, "evaluation")
    either.clock.check(LATER, None)
    either.clock.accept(LATER, "ann", "r")
    assert either.histories.times() == LedgerTimes(T0, LATER, LATER)


def test_the_commands_find_the_ledger_of_the_settings_on_either_database(url: str, found: Json) -> None:
    with open_ledger(url) as ledger:
        ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    Path("retention.yaml").write_text(f'ledger: "{url}"\n')
    assert [row["due_at"] for row in found("marks", "--dataset", "lake/*")] == ["2026-01-08T00:00:00Z"] * 2
    assert found("unmark", "lake/d", "T1", "--reason", "r")["unmarked"] == 1
    assert [row["mark"] for row in found("history", "lake/d")["transactions"]] == ["UNMARKED", "MARKED"]
    assert found("audit", "verify")["faults"] == []
