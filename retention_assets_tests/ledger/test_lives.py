"""An id that comes again after it was swept, on both databases: a transaction of its own, with a mark and a grace of its own."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event, update

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, MarkEvent, OpenedReport, Publication, Settlement, TransactionLife, life_of
from retention_assets.ledger.invariants import reports_add_up, swept_without_mark
from retention_assets.ledger.schema import MARKS
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import (
    CLOSED_LATER,
    FIRST_LIFE,
    LATER,
    NO_TIMES,
    OPENED_LATER,
    T0,
    WEEK,
    Times,
    candidates,
    many,
    planned,
    statuses,
    swept,
    write_past_ledger,
)

# Never closed: an unfinished record.
UNCLOSED = (FIRST_LIFE[0], None)
UNOPENED = (None, FIRST_LIFE[1])


def marks(ledger: Ledger, life: Times, *names: str) -> int:
    return ledger.marks.mark(candidates(names or ["T"], life=life), T0, "evaluation").new


def sweeps(ledger: Ledger) -> None:
    ledger.leases.give_up([swept(ledger)])


def rows(ledger: Ledger, *columns: str) -> list[tuple[Any, ...]]:
    found = sorted(ledger.marks.table(["lake/d"]).to_pylist(), key=lambda row: row["id"])
    return [tuple(row[name] for name in columns) for row in found]


def faults(ledger: Ledger) -> list[str]:
    with ledger.database.reading() as connection:
        return [found.what for found in swept_without_mark(connection)]


def test_a_mark_keeps_the_times_of_what_was_marked_to_the_microsecond(ledger: Ledger) -> None:
    for number, life in enumerate((OPENED_LATER, CLOSED_LATER, UNCLOSED, UNOPENED, NO_TIMES)):
        assert marks(ledger, life, f"T{number}") == 1
    assert rows(ledger, "opened_at", "closed_at") == [OPENED_LATER, CLOSED_LATER, UNCLOSED, UNOPENED, NO_TIMES]
    assert ledger.verify().faults == ()


LIVES = [
    pytest.param(FIRST_LIFE, FIRST_LIFE, 0, id="the same"),
    pytest.param(FIRST_LIFE, OPENED_LATER, 1, id="opened later"),
    pytest.param(OPENED_LATER, FIRST_LIFE, 1, id="opened earlier"),
    pytest.param(FIRST_LIFE, CLOSED_LATER, 1, id="closed later"),
    pytest.param(CLOSED_LATER, FIRST_LIFE, 1, id="closed earlier"),
    pytest.param(UNCLOSED, UNCLOSED, 0, id="the same that never closed"),
    pytest.param(UNOPENED, UNOPENED, 0, id="the same that says no opening"),
    pytest.param(UNCLOSED, FIRST_LIFE, 1, id="closed since"),
    pytest.param(FIRST_LIFE, UNCLOSED, 1, id="not closed"),
    pytest.param(UNOPENED, FIRST_LIFE, 1, id="opened at a time"),
    pytest.param(NO_TIMES, NO_TIMES, 0, id="that says no times"),
    pytest.param(NO_TIMES, FIRST_LIFE, 0, id="that said no times"),
    pytest.param(NO_TIMES, UNCLOSED, 0, id="that said no times, not closed"),
]


@pytest.mark.parametrize(("before", "again", "new"), LIVES)
def test_a_swept_id_is_marked_again_if_its_times_are_others(ledger: Ledger, before: Times, again: Times, new: int) -> None:
    marks(ledger, before)
    sweeps(ledger)
    assert marks(ledger, again) == new
    assert rows(ledger, "status") == [("SWEPT",), ("MARKED",)][: 1 + new]
    assert ledger.verify().faults == ()


def test_each_life_has_a_grace_of_its_own_and_is_swept_once(ledger: Ledger) -> None:
    graces = [T0 + WEEK * number for number in range(3)]
    for as_of, life in zip(graces, (FIRST_LIFE, OPENED_LATER, CLOSED_LATER), strict=True):
        done = ledger.marks.mark(candidates(["T"], life=life, size=7), as_of, "evaluation")
        assert (done.new, done.marked_at) == (1, as_of)
        ledger.leases.give_up([swept(ledger, as_of=as_of + WEEK)])
    assert rows(ledger, "status", "marked_at") == [("SWEPT", as_of) for as_of in graces]
    # Any of them that is there again is the one that was swept.
    assert [marks(ledger, life) for life in (FIRST_LIFE, OPENED_LATER, CLOSED_LATER)] == [0, 0, 0]
    assert (faults(ledger), ledger.verify().faults) == ([], ())
    assert all(one < other for one, other in pairwise(due for (due,) in rows(ledger, "due_at")))


def test_what_came_again_under_an_open_mark_waits_for_the_end_of_that_mark(ledger: Ledger) -> None:
    marks(ledger, FIRST_LIFE)
    assert marks(ledger, OPENED_LATER) == 0
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin([lease], [plan], due)
    assert marks(ledger, OPENED_LATER) == 0
    ledger.sweeps.settle([lease], [Settlement(due[0], Outcome.DELETED, 10)])
    assert marks(ledger, OPENED_LATER) == 1


@pytest.mark.parametrize("evaluated", ["before", "meanwhile", "afterwards"])
def test_who_evaluates_while_an_id_is_swept_is_asked_to_evaluate_once_more(ledger: Ledger, evaluated: str) -> None:
    """What came again under it could not be marked then, and nothing else may ever change in that dataset."""
    marks(ledger, FIRST_LIFE)

    def evaluates() -> None:
        row = {"dataset": ["lake/d", "lake/e"], "token": ["1", "1"], "rules": ["r", "r"]}
        seen = {**row, "looked_at": [LATER, LATER], "next_look": [None, None]}
        published = [Publication("candidate_marks", name, "runs/1", "1") for name in ("lake/d", "lake/e")]
        table = ledger.evaluations.all().schema.empty_table().from_pydict(seen, ledger.evaluations.all().schema)
        ledger.marks.mark(candidates([]), T0, "evaluation", published=published, evaluations=table)

    if evaluated == "before":
        evaluates()
        write_past_ledger(ledger, "UPDATE published SET published_at = (SELECT min(marked_at) FROM marks)")
    lease, plan, due = planned(ledger)
    ledger.sweeps.settle(
        [lease], [Settlement(mark, Outcome.DELETED) for mark in ledger.sweeps.begin([lease], [plan], due).marks]
    )
    if evaluated == "meanwhile":
        evaluates()
    ledger.sweeps.finish([lease], [plan])
    if evaluated == "afterwards":
        evaluates()
    asked = {row["dataset"]: row["next_look"] for row in ledger.evaluations.all().to_pylist()}
    assert asked == {"lake/d": LATER if evaluated == "meanwhile" else None, "lake/e": None}


def test_of_evaluations_that_find_the_same_new_lives_at_once_each_life_gets_one_mark(ledger: Ledger) -> None:
    names = [f"T{number}" for number in range(300)]
    marks(ledger, FIRST_LIFE, *names)
    sweeps(ledger)
    start = Barrier(4)

    def evaluates(_: int) -> int:
        start.wait()
        return marks(ledger, OPENED_LATER, *names)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(evaluates, range(4))) == [0, 0, 0, 300]
    assert len(ledger.marks.table(["lake/d"], ["MARKED"], LATER)) == 300
    assert ledger.verify().faults == ()


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        pytest.param(FIRST_LIFE, OPENED_LATER, False, id="another"),
        pytest.param(FIRST_LIFE, NO_TIMES, False, id="another, of which nobody knows"),
        pytest.param(NO_TIMES, FIRST_LIFE, True, id="nobody knows of the first"),
        pytest.param(NO_TIMES, NO_TIMES, True, id="nobody knows"),
        pytest.param(UNCLOSED, UNCLOSED, True, id="the same that never closed"),
    ],
)
def test_a_life_that_is_said_to_be_swept_twice_is_a_violation(ledger: Ledger, first: Times, second: Times, found: bool) -> None:
    lives = (FIRST_LIFE, OPENED_LATER)
    for life in lives:
        marks(ledger, life)
        sweeps(ledger)
    assert faults(ledger) == []
    for life, (opened, closed) in zip(lives, (first, second), strict=True):
        here = (MARKS.c.opened_at == life[0]) & (MARKS.c.closed_at == life[1])
        write_past_ledger(ledger, update(MARKS).where(here).values(opened_at=opened, closed_at=closed))
    assert faults(ledger) == ["T was swept twice, and is the same transaction"] * found


def test_a_mark_of_a_new_life_is_taken_back_and_the_one_that_was_swept_is_not(ledger: Ledger) -> None:
    marks(ledger, FIRST_LIFE)
    sweeps(ledger)
    with pytest.raises(Refused, match="was swept at"):
        ledger.unmark.transactions("lake/d", ["T"], "ann", "still needed")
    marks(ledger, OPENED_LATER)
    assert ledger.unmark.transactions("lake/d", ["T"], "ann", "still needed").unmarked == 1
    assert rows(ledger, "status", "opened_at") == [("SWEPT", FIRST_LIFE[0]), ("UNMARKED", OPENED_LATER[0])]
    # The policy selects it still.
    assert marks(ledger, OPENED_LATER) == 1
    assert marks(ledger, FIRST_LIFE) == 0


def test_all_marks_are_held_against_each_other_only_where_an_id_was_swept_more_than_once(ledger: Ledger) -> None:
    """A server without statistics takes the square of a dataset for that."""
    said: list[str] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *given: said.append(given[2]))
    for life, joined in ((FIRST_LIFE, False), (OPENED_LATER, True)):
        marks(ledger, life)
        sweeps(ledger)
        said.clear()
        assert faults(ledger) == []
        assert any("AS earlier" in one for one in said) is joined


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


def test_the_histories_of_many_names_are_read_in_parts(ledger: Ledger) -> None:
    ledger.marks.mark(many(11_000, 11_000), T0, "evaluation")
    names = [f"T{number}" for number in range(11_000)]
    assert ledger.histories.of("lake/d0", names).keys() == set(names)


TODAY = LATER.date()
THREE = ["T1", "T2", "T3"]


@pytest.fixture
def hidden(ledger: Ledger) -> Ledger:
    ledger.marks.mark(candidates(THREE), T0, "evaluation")
    ledger.reports.open(TODAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    ledger.leases.give_up([swept(ledger, outcomes=dict.fromkeys(("T2", "T3"), Outcome.HIDDEN), day=TODAY)])
    return ledger


def test_what_is_hidden_frees_nothing_and_is_counted_for_itself(hidden: Ledger) -> None:
    assert statuses(hidden) == dict.fromkeys(THREE, "SWEPT")
    (report,) = hidden.reports.of(TODAY)
    names = ("to_delete", "deleted", "already_gone", "hidden", "failed", "bytes_to_free", "bytes_freed", "bytes_hidden")
    assert [report[name] for name in names] == [3, 1, 0, 2, 0, 30, 10, 20]
    with hidden.database.reading() as connection:
        assert list(reports_add_up(connection)) == []
    assert hidden.verify().faults == ()


def test_the_history_says_that_nothing_became_free(hidden: Ledger) -> None:
    marks = hidden.histories.of("lake/d", ["T2"])["T2"]
    life = life_of("lake/d", TransactionLife("T2", True, marks=marks), (), LATER)
    assert life.said is None
    found = hidden.marks.by_ids([1, marks[-1].id, 2**40], columns=("transaction", "outcome", "until")).to_pylist()
    assert {row["transaction"]: row["outcome"] for row in found}["T2"] == "HIDDEN"
    assert life.words.startswith("hidden: its place keeps versions of it, so no space was freed, at ")
    assert (marks[-1].events[-1].outcome, marks[-1].events[-1].bytes) == ("HIDDEN", 0)


def test_what_a_store_finds_needed_is_spared_adds_up_and_is_marked_again(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(THREE), T0, "evaluation")
    ledger.reports.open(TODAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    ledger.leases.give_up([swept(ledger, outcomes={"T2": Outcome.SPARED}, day=TODAY)])
    (report,) = ledger.reports.of(TODAY)
    assert [report[name] for name in ("to_delete", "deleted", "spared", "bytes_freed")] == [3, 2, 1, 20]
    with ledger.database.reading() as connection:
        assert list(reports_add_up(connection)) == []
    assert ledger.reports.taken_by_day("lake", TODAY, TODAY)[TODAY].transactions == 2, "the brake knows how much is usual"
    assert ledger.marks.mark(candidates(THREE), LATER, "evaluation", hidden_again=["lake"]).new == 1
    assert ledger.verify().faults == ()


@pytest.mark.parametrize("again", [(), ("other",), ("lak",), ("lake/d",)])
def test_what_is_hidden_is_not_marked_again_while_its_store_deletes_no_versions(hidden: Ledger, again: tuple[str, ...]) -> None:
    result = hidden.marks.mark(candidates(THREE), LATER, "evaluation", hidden_again=again)
    assert (result.new, result.known) == (0, 3)
    assert hidden.marks.table(["lake/d"], hidden_again=again).num_rows == 3


def test_what_is_hidden_is_marked_again_once_its_store_deletes_versions_and_what_is_deleted_never(hidden: Ledger) -> None:
    again = ("other", "lake")
    left = hidden.marks.table(["lake/d"], ["MARKED", "SWEPT"], hidden_again=again)
    assert left["transaction"].to_pylist() == ["T1"]
    assert hidden.marks.mark(candidates(THREE), LATER, "evaluation", hidden_again=again).new == 2
    # A grace of its own, and one mark alone.
    assert hidden.marks.mark(candidates(THREE), LATER, "evaluation", hidden_again=again).new == 0
    marked = hidden.marks.table(["lake/d"], ["MARKED"], hidden_again=again)
    assert marked["transaction"].to_pylist() == ["T2", "T3"]
    assert set(marked["marked_at"].to_pylist()) == {LATER}


def test_what_was_hidden_and_then_deleted_is_over(hidden: Ledger) -> None:
    hidden.marks.mark(candidates(["T2"], grace="0s"), LATER, "evaluation", hidden_again=("lake",))
    swept(hidden)
    assert hidden.marks.mark(candidates(["T1", "T2"]), LATER, "evaluation", hidden_again=("lake",)).new == 0
    assert hidden.verify().faults == ()
    assert [mark.status for mark in hidden.histories.of("lake/d", ["T2"])["T2"]] == ["SWEPT", "SWEPT"]
