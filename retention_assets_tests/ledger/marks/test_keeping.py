"""Keeping: marks are taken back and a hold is placed in one transaction, on both databases; all of it or nothing."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import KeptMarks, Ledger, Settlement
from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Datasets, Hold
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, many, planned, statuses, swept

NAMES = ["T1", "T2", "T3"]


def hold_of(*transactions: str, name: str = "keep-lake/d", until: datetime | None = None, dataset: str = "lake/d") -> Hold:
    return Hold(
        name=name,
        datasets=Datasets(include=(dataset,)),
        transactions=transactions or None,
        reason="r",
        owner="ann",
        until=until,
    )


def keep(ledger: Ledger, *transactions: str, named: bool = False, until: datetime | None = None) -> KeptMarks:
    return ledger.keep.transactions("lake/d", transactions, hold_of(*transactions, until=until), "ann", named=named)


def acts(ledger: Ledger) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in ledger.audit_lines()]
    return [(line["deed"], line["actor"]) for line in lines]


def held(ledger: Ledger) -> list[str]:
    return [hold.name or "" for hold in ledger.holds.in_force(LATER)]


@pytest.fixture
def marked(ledger: Ledger) -> Ledger:
    """T1, T2 and T3 are marked, and of another dataset T1."""
    ledger.marks.mark(candidates(NAMES), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"], "lake/e"), T0, "evaluation")
    return ledger


def test_marks_are_taken_back_and_a_hold_is_placed(marked: Ledger) -> None:
    assert keep(marked, "T2", "T1", "T9") == KeptMarks("keep-lake/d", placed=True, unmarked=2)
    assert statuses(marked) == {"T1": "UNMARKED", "T2": "UNMARKED", "T3": "MARKED"}
    assert statuses(marked, "lake/e") == {"T1": "MARKED"}
    assert acts(marked)[-2:] == [("UNMARK", "ann"), ("HOLD", "ann")]
    (hold,) = marked.holds.in_force(LATER)
    assert (hold.datasets.include, hold.transactions) == (("lake/d",), ("T2", "T1", "T9"))
    assert marked.verify().faults == ()


@pytest.mark.parametrize(("state", "words"), [("SWEEPING", "is being swept since"), ("SWEPT", "its bytes are gone")])
def test_all_are_kept_or_none(marked: Ledger, state: str, words: str) -> None:
    lease, plan, _ = planned(marked)
    begun = sorted(marked.sweeps.begin([lease], [plan], ids(marked, "T2")).marks)
    if state == "SWEPT":
        marked.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in begun])
    before = acts(marked)
    with pytest.raises(Refused, match=f"T2 of lake/d .*{words}(.|\n)*Nothing was changed"):
        keep(marked, "T1", "T2")
    assert statuses(marked) == {"T1": "MARKED", "T2": state, "T3": "MARKED"}
    assert (acts(marked), held(marked)) == (before, [])


def test_a_dataset_is_kept_with_what_is_left_of_it(marked: Ledger) -> None:
    lease, plan, _ = planned(marked)
    begun = sorted(marked.sweeps.begin([lease], [plan], ids(marked, "T1", "T2")).marks)
    marked.sweeps.settle([lease], [Settlement(begun[0], Outcome.DELETED, 10)])
    done = marked.keep.dataset("lake/d", hold_of(), "ann", named=False)
    assert done == KeptMarks("keep-lake/d", placed=True, unmarked=1, sweeping=1, swept=1)
    assert sorted(statuses(marked).values()) == ["SWEEPING", "SWEPT", "UNMARKED"]


def test_keeping_once_more_changes_nothing(marked: Ledger) -> None:
    keep(marked, "T1", "T2")
    before = acts(marked)
    assert keep(marked, "T2", "T1") == KeptMarks("keep-lake/d", placed=False, unmarked=0)
    assert keep(marked, "T1", "T2", named=True).placed is False
    assert acts(marked) == before


def test_what_was_marked_again_is_taken_back_below_the_same_hold(marked: Ledger) -> None:
    """An evaluation that began before the hold was placed marks after it."""
    keep(marked, "T1")
    marked.marks.mark(candidates(["T1"]), LATER, "evaluation")
    assert keep(marked, "T1") == KeptMarks("keep-lake/d", placed=False, unmarked=1)


def test_a_name_that_is_taken_gets_a_number_and_one_that_was_typed_is_refused(marked: Ledger) -> None:
    keep(marked, "T1")
    assert keep(marked, "T2").hold == "keep-lake/d-2"
    assert keep(marked, "T3").hold == "keep-lake/d-3"
    with pytest.raises(Refused, match=r"A hold named keep-lake/d is in force, and is about something else\."):
        keep(marked, "T1", "T3", named=True)
    marked.holds.release("keep-lake/d-2", "ann", "r")
    assert keep(marked, "T2", "T3").hold == "keep-lake/d-2"


def test_the_name_of_a_hold_in_a_file_is_taken(marked: Ledger) -> None:
    """`release` would otherwise end the one that nobody meant."""
    marked.holds.note_files([hold_of(dataset="lake/other")], "files")
    assert keep(marked, "T1").hold == "keep-lake/d-2"


def test_a_hold_that_ends_sooner_is_another_one(marked: Ledger) -> None:
    keep(marked, "T1", until=datetime(2999, 1, 1, tzinfo=UTC))
    done = keep(marked, "T1")
    assert (done.placed, held(marked)) == (True, ["keep-lake/d", "keep-lake/d-2"])
    (_, forever) = marked.holds.in_force(LATER)
    assert forever.until is None


def test_a_long_name_is_cut_for_its_number(marked: Ledger) -> None:
    for number, transaction in enumerate(NAMES[:2]):
        hold = hold_of(transaction, name="n" * 200)
        name = marked.keep.transactions("lake/d", [transaction], hold, "ann", named=False).hold
        assert name == ("n" * 200, "n" * 198 + "-2")[number]


def test_a_new_one_under_the_id_of_something_swept_is_kept(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    swept(ledger)
    with pytest.raises(Refused, match="its bytes are gone"):
        keep(ledger, "T1")
    done = ledger.keep.transactions("lake/d", ["T1"], hold_of("T1"), "ann", named=False, again=["T1"])
    assert (done.placed, done.unmarked) == (True, 0)


def test_those_who_keep_at_once_get_one_hold_each_and_no_name_twice(ledger: Ledger) -> None:
    ledger.marks.mark(many(40, 40), T0, "evaluation")
    start = Barrier(8)

    def keep_some(number: int) -> KeptMarks:
        names = [f"T{row}" for row in range(number // 2, 40, 4)]
        hold = hold_of(*names, dataset="lake/d0")
        start.wait()
        return ledger.keep.transactions("lake/d0", names, hold, f"ann {number}", named=False)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(keep_some, range(8)))
    # Two of them ask for the same.
    assert sorted(one.placed for one in done) == [False] * 4 + [True] * 4
    assert sum(one.unmarked for one in done) == 40
    assert held(ledger) == ["keep-lake/d", *(f"keep-lake/d-{number}" for number in (2, 3, 4))]
    assert ledger.verify().faults == ()
