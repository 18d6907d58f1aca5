"""Pending and past deletions: sums of what waits, of what was freed and of what was spared, against marks one by one."""

from datetime import timedelta

from retention_assets.ledger import FreedGroup, Ledger, OpenedReport, PendingGroup, Settlement, SparedGroup
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, plan_of, planned, swept, take_lease

DAY = timedelta(days=1)


def test_what_waits_is_summed_by_policy_time_and_state(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    ledger.marks.mark(candidates(["T3"], policy="q", grace="9d", size=5), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"], dataset="lake/other"), T0 + DAY, "evaluation")
    ledger.unmark.transactions("lake/d", ["T2"], "ann", "still needed")
    lease, plan, _ = planned(ledger)
    ledger.sweeps.begin([lease], [plan], ids(ledger, "T1"))
    assert ledger.pending.waiting() == [
        PendingGroup("p", T0, LATER, True, 1, 10, "lake/d"),
        PendingGroup("p", T0 + DAY, LATER + DAY, False, 1, 10, "lake/other"),
        PendingGroup("q", T0, T0 + 9 * DAY, False, 1, 5, "lake/d"),
    ]
    assert [group.policy for group in ledger.pending.waiting(["lake/other"])] == ["p"]


def test_marks_of_unknown_size_count_and_weigh_nothing(ledger: Ledger) -> None:
    rows = candidates(["T1", "T2"]).set_column(6, "bytes", [[None, 7]])
    assert rows.schema.names[6] == "bytes"
    ledger.marks.mark(rows, T0, "evaluation")
    (found,) = ledger.pending.waiting()
    assert (found.marks, found.bytes) == (2, 7)


def test_what_was_freed_counts_once_on_the_day_of_the_plan_that_did_it(ledger: Ledger) -> None:
    """T2 fails first: it is in two plans, and was freed by the second one."""
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    lease, plan, marks = planned(ledger)
    first, second = sorted(ledger.sweeps.begin([lease], [plan], marks).marks)
    ledger.sweeps.settle(
        [lease], [Settlement(first, Outcome.DELETED, 11), Settlement(second, Outcome.FAILED, error="disk is full")]
    )
    again = plan_of(ledger, lease, [second], LATER + DAY)
    ledger.sweeps.begin([lease], [again], [second])
    ledger.sweeps.settle([lease], [Settlement(second, Outcome.DELETED, 13)])
    assert ledger.pending.freed(T0) == [FreedGroup(LATER, "p", 1, 11), FreedGroup(LATER + DAY, "p", 1, 13)]
    assert ledger.pending.freed(LATER + DAY) == [FreedGroup(LATER + DAY, "p", 1, 13)]
    assert ledger.pending.freed(LATER + 2 * DAY) == []


def test_what_was_gone_already_freed_nothing(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    lease, plan, marks = planned(ledger)
    ledger.sweeps.begin([lease], [plan], marks)
    ledger.sweeps.settle([lease], [Settlement(marks[0], Outcome.ALREADY_GONE)])
    assert ledger.pending.freed(T0) == []


def test_what_is_swept_waits_no_more(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    swept(ledger)
    assert ledger.pending.waiting() == []
    assert ledger.pending.freed(T0) == [FreedGroup(LATER, "p", 2, 20)]


def test_what_a_sweep_spared_is_told_by_reason_and_only_of_that_sweep(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2", "T3", "T4"]), T0, "evaluation")
    names = dict(zip(("T1", "T2", "T3", "T4"), ids(ledger), strict=True))
    mine = take_lease(ledger, "lake/d", "run 1")
    ledger.sweeps.spare([mine], {names["T1"]: "a tag pins it", names["T3"]: "a tag pins it", names["T2"]: "held"})
    ledger.unmark.transactions("lake/d", ["T4"], "ann", "still needed")
    expected = [SparedGroup("lake/d", "a tag pins it", 2, "T1"), SparedGroup("lake/d", "held", 1, "T2")]
    assert ledger.pending.spared(["lake/d"], "run 1") == expected
    assert ledger.pending.spared(["lake/d"], "run 2") == []
    assert ledger.pending.spared(["lake/other"], "run 1") == []
    assert ledger.pending.spared([], "run 1") == []


def test_marks_whose_bytes_are_more_than_a_number_holds_are_reported_swept_and_summed(ledger: Ledger) -> None:
    """Nobody has so many bytes, but a log may say so, and nothing of the dataset would ever be swept."""
    most = 2**63 - 1
    ledger.marks.mark(candidates(["T1", "T2", "T3"], size=most), T0, "evaluation")
    assert [(group.marks, group.bytes) for group in ledger.pending.waiting()] == [(3, most)]
    assert ledger.reports.open(LATER.date(), {"lake/d": OpenedReport()}, LATER, "sweeper")
    lease, plan, marks = planned(ledger)
    assert (plan.marks, plan.bytes) == (3, most)
    begun = ledger.sweeps.begin([lease], [plan], marks).marks
    for mark in begun:
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, most)], LATER.date())
    ledger.sweeps.finish([lease], [plan])
    (report,) = ledger.reports.of(LATER.date())
    assert (report["bytes_to_free"], report["bytes_freed"], report["deleted"]) == (most, most, 3)
    assert ledger.pending.freed(T0) == [FreedGroup(LATER, "p", 3, most)]
    assert ledger.verify().faults == ()


def test_so_many_bytes_that_a_late_sweep_counts_for_the_next_day_fit_it(ledger: Ledger) -> None:
    most = 2**63 - 1
    assert ledger.reports.open(LATER.date(), {"lake/d": OpenedReport()}, LATER, "sweeper")
    ledger.marks.mark(candidates(["T1", "T2"], size=most), T0, "evaluation")
    lease, plan, marks = planned(ledger)
    begun = ledger.sweeps.begin([lease], [plan], marks).marks
    ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, most) for mark in begun], LATER.date())
    tomorrow = (LATER + DAY).date()
    (report,) = ledger.reports.of(tomorrow)
    assert (report["bytes_to_free"], report["bytes_freed"], report["deleted"]) == (most, most, 2)
    assert ledger.reports.open(tomorrow, {"lake/d": OpenedReport()}, LATER + DAY, "sweeper")
    assert ledger.reports.of(tomorrow)[0]["bytes_to_free"] == most
