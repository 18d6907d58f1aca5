"""What is set aside, on both databases: nothing of it goes before its time, twice at once, or by a lease that is lost."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from retention_assets.ledger import AskedBy, Lease, Ledger, Planned, Settlement
from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.clocks import set_clock
from retention_assets_tests.ledger.states import (
    FIRST_LIFE,
    LATER,
    T0,
    candidates,
    ids,
    lose_lease,
    plan_of,
    set_aside_in,
    take_lease,
)

MICROSECOND, MINUTE = timedelta(microseconds=1), timedelta(minutes=1)
ANN = AskedBy("ann", "the disk is full")


def set_aside(ledger: Ledger, until: datetime, *names: str, dataset: str = "lake/d") -> tuple[Lease, list[int]]:
    """Transactions in the trash until an instant: the lease of their dataset, and their marks."""
    ledger.marks.mark(candidates(names, dataset, life=FIRST_LIFE), T0, "evaluation")
    lease, marks = take_lease(ledger, dataset), ids(ledger, *names, dataset=dataset)
    assert sorted(ledger.sweeps.begin([lease], [plan_of(ledger, lease, marks)], marks, until).marks) == marks
    ledger.sweeps.settle([lease], [Settlement(mark, Outcome.SET_ASIDE, 10) for mark in marks])
    return lease, marks


@pytest.mark.parametrize(("ahead", "goes"), [(MINUTE, False), (-MINUTE, True)], ids=["before", "after"])
def test_nothing_is_deleted_for_good_before_its_time_has_come_by_the_ledgers_clock(
    ledger: Ledger, ahead: timedelta, goes: bool
) -> None:
    lease, marks = set_aside(ledger, ledger.clock.present() + ahead, "T1", "T2")
    begun = ledger.trash.begin([lease], marks, Order.DELETE_ASIDE)
    assert (sorted(begun.marks), dict(begun.lost)) == (marks if goes else [], {})
    assert set_aside_in(ledger, "lake/d") == ({} if goes else dict(zip(("T1", "T2"), marks, strict=True)))


def test_a_machine_whose_clock_is_ahead_empties_no_trash(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a server counts where there is one; a file has that of the machine, to the very microsecond."""
    until = ledger.clock.present() + timedelta(days=1)
    lease, marks = set_aside(ledger, until, "T1")
    is_file = ledger.clock.server_time() is None
    set_clock(monkeypatch, until - MICROSECOND)
    assert ledger.trash.begin([lease], marks, Order.DELETE_ASIDE).marks == {}
    set_clock(monkeypatch, until)
    assert [*ledger.trash.begin([lease], marks, Order.DELETE_ASIDE).marks] == (marks if is_file else [])


@pytest.mark.parametrize("order", [Order.DELETE_ASIDE, Order.RESTORE])
def test_a_person_need_not_wait(ledger: Ledger, order: Order) -> None:
    lease, marks = set_aside(ledger, ledger.clock.present() + MINUTE, "T1")
    assert [*ledger.trash.begin([lease], marks, order, ANN).marks] == marks


@pytest.mark.parametrize("loss", ["given up", "expired", "taken"])
@pytest.mark.parametrize("order", [Order.DELETE_ASIDE, Order.RESTORE])
def test_of_two_leases_only_the_lost_one_begins_nothing(ledger: Ledger, order: Order, loss: str) -> None:
    over = ledger.clock.present() - MINUTE
    first, lost_marks = set_aside(ledger, over, "T1", dataset="lake/lost")
    why = lose_lease(ledger, first, loss)
    second, marks = set_aside(ledger, over, "T1", dataset="lake/kept")
    for asked in (ANN, None):
        begun = ledger.trash.begin([first, second], [*lost_marks, *marks], order, asked)
        assert begun.lost.keys() == {"lake/lost"}
        assert why in begun.lost["lake/lost"]
        assert [*begun.marks] == (marks if asked else [])
    assert [mark.order for mark in ledger.trash.marks(["lake/lost", "lake/kept"])] == [None, order]


@pytest.mark.parametrize("first", [Order.DELETE_ASIDE, Order.RESTORE])
@pytest.mark.parametrize("second", [Order.DELETE_ASIDE, Order.RESTORE])
@pytest.mark.parametrize("asked", [ANN, None], ids=["a person", "a sweep"])
def test_what_is_in_an_open_batch_is_not_begun_again(
    ledger: Ledger, first: Order, second: Order, asked: AskedBy | None
) -> None:
    lease, marks = set_aside(ledger, ledger.clock.present() - MINUTE, "T1", "T2", "T3")
    assert [*ledger.trash.begin([lease], marks[:2], first, ANN).marks] == marks[:2]
    assert [*ledger.trash.begin([lease], marks, second, asked).marks] == marks[2:]
    assert _orders(ledger) == [first, first, second]
    # what failed is set aside as before, and may be begun again
    ledger.sweeps.settle([lease], [Settlement(marks[0], Outcome.FAILED, error="no")])
    assert _orders(ledger) == [None, first, second]
    assert [*ledger.trash.begin([lease], marks, second, asked).marks] == marks[:1]


def test_a_deletion_for_good_that_failed_is_known_of_its_marks_alone(ledger: Ledger) -> None:
    lease, marks = set_aside(ledger, ledger.clock.present() - MINUTE, "T1", "T2", "T3")
    ledger.trash.begin([lease], marks[1:2], Order.DELETE_ASIDE, ANN)
    ledger.sweeps.settle([lease], [Settlement(marks[1], Outcome.FAILED, error="no")])
    ledger.trash.begin([lease], marks[2:], Order.RESTORE, ANN)
    assert [ledger.trash.ever_deleted([mark]) for mark in marks] == [set(), {marks[1]}, set()]
    assert ledger.trash.ever_deleted(marks) == {marks[1]}
    assert ledger.trash.ever_deleted([]) == set()


def test_places_are_those_of_what_is_set_aside_alone(ledger: Ledger) -> None:
    until = ledger.clock.present() + MINUTE
    for dataset, outcome in (("lake/aside", Outcome.SET_ASIDE), ("lake/deleted", Outcome.DELETED)):
        ledger.marks.mark(candidates(["T1"], dataset, life=FIRST_LIFE), T0, "evaluation")
        lease, marks = take_lease(ledger, dataset), ids(ledger, "T1", dataset=dataset)
        plans = ledger.sweeps.plan([lease], dict.fromkeys(marks, Planned()), LATER, {dataset: f"place of {dataset}"}).plans
        ledger.sweeps.begin([lease], [plans[dataset]], marks, until if outcome is Outcome.SET_ASIDE else None)
        ledger.sweeps.settle([lease], [Settlement(mark, outcome, 10) for mark in marks])
    assert ledger.trash.places(["lake/aside", "lake/deleted"]) == [("lake/aside", "place of lake/aside")]


def _orders(ledger: Ledger) -> Sequence[str | None]:
    return [mark.order for mark in ledger.trash.marks(["lake/d"])]


def test_an_id_may_have_several_lives_in_the_trash(ledger: Ledger) -> None:
    until = ledger.clock.present() + MINUTE
    lease, (first,) = set_aside(ledger, until, "T1")
    ledger.leases.give_up([lease])
    later = tuple(at + timedelta(days=1) for at in FIRST_LIFE)
    ledger.marks.mark(candidates(["T1"], life=(later[0], later[1])), T0, "evaluation")
    lease, (second,) = take_lease(ledger), ids(ledger, "T1")
    ledger.sweeps.begin([lease], [plan_of(ledger, lease, [second])], [second], until)
    ledger.sweeps.settle([lease], [Settlement(second, Outcome.SET_ASIDE, 10)])
    assert [mark.id for mark in ledger.trash.marks(["lake/d"], ["T1"])] == [first, second]
    assert set_aside_in(ledger, "lake/d") == {"T1": second}
    ledger.trash.begin([lease], [second], Order.DELETE_ASIDE, ANN)
    ledger.sweeps.settle([lease], [Settlement(second, Outcome.DELETED, 10)])
    ends = ledger.marks.by_ids([second, first], columns=("id", "outcome", "freed")).to_pylist()
    assert [tuple(end.values()) for end in ends] == [(first, "SET_ASIDE", None), (second, "DELETED", 10)]
    assert ledger.verify().faults == ()
