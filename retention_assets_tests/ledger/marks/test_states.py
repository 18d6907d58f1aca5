"""How things stand: added up over all datasets, and one by one, on both databases; and days on which somebody looked."""

from datetime import timedelta

import pyarrow as pa

from retention_assets.ledger import FOUND_ROWS, Ledger, OpenedReport, Settlement, VerdictCount, Waiting, counts_text
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, planned

DAY = LATER.date()


def judge(ledger: Ledger, names: list[str], *counts: VerdictCount, fault: str | None = None, dataset: str = "lake/d") -> None:
    """An evaluation that found something of a dataset."""
    row = {"dataset": dataset, "token": "1", "rules": "r", "looked_at": T0, "next_look": None}
    found = pa.Table.from_pylist([{**row, "counts": counts_text(counts), "fault": fault}], FOUND_ROWS)
    ledger.marks.mark(candidates(names), T0, "evaluation", evaluations=found)


def test_what_was_swept_before_is_counted_apart(ledger: Ledger) -> None:
    judge(ledger, ["T1", "T2"], VerdictCount("mark", "p", 3, 30), VerdictCount("keep", "", 4, 40))
    assert ledger.states.totals().counts == [VerdictCount("keep", "", 4, 40), VerdictCount("mark", "p", 3, 30)]
    ledger.reports.open(DAY, {"lake/d": OpenedReport(classes={"due": 2})}, LATER, "sweeper", {"lake/d": 2})
    lease, plan, marks = planned(ledger)
    begun = ledger.sweeps.begin([lease], [plan], marks).marks
    ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in begun], DAY)
    judge(ledger, ["T1", "T2", "T3"], VerdictCount("mark", "p", 3, 30), VerdictCount("keep", "", 4, 40))
    totals = ledger.states.totals()
    assert totals.counts == [
        VerdictCount("keep", "", 4, 40), VerdictCount("mark", "p", 1, 10), VerdictCount("swept", "p", 2, 20),
    ]  # fmt: skip
    assert (totals.transactions, totals.datasets) == (7, 1)
    last = ledger.states.last_sweep()
    assert last
    assert (last.day, last.counters["deleted"]) == (DAY, 2)


def test_a_dataset_says_what_waits_and_why_it_is_refused(ledger: Ledger) -> None:
    judge(ledger, ["T1", "T2"], VerdictCount("mark", "p", 2, 20))
    judge(ledger, [], fault="a cycle (transaction X)", dataset="lake/sick")
    ledger.objections.object({"lake/d": "2 more than it should be"}, "some_check", "run 1")
    found = ledger.states.of(["lake/d", "lake/sick", "lake/unknown"], T0, ledger.pending.waiting())
    one, sick, unknown = found.values()
    (due,) = {group.due_at for group in ledger.pending.waiting()}
    assert one.waiting == Waiting(2, 20, 0, 0, due, 2)
    assert ledger.states.of(["lake/d"], due, ledger.pending.waiting())["lake/d"].waiting == Waiting(2, 20, 2, 20, None)
    assert one.objections == ["some_check failed in run 1: 2 more than it should be"]
    assert (sick.fault, sick.counts, unknown.judged_at, unknown.waiting) == ("a cycle (transaction X)", [], None, Waiting())
    assert ledger.states.faults({"lake/sick", "lake/d"}) == {"lake/sick": "a cycle (transaction X)"}
    assert ledger.states.totals().refused == {"lake/sick": "a cycle (transaction X)"}
    assert ledger.states.totals(["lake/sick"]).refused == {}


def test_a_day_without_anything_due_has_a_look_and_a_day_without_a_look_has_none(ledger: Ledger) -> None:
    judge(ledger, ["T1"], VerdictCount("mark", "p", 1, 10))
    assert ledger.reports.days() == []
    ledger.reports.note_look(T0, "run 1", 0)
    look = ledger.reports.look(T0.date())
    assert look
    assert (look.as_of, look.judged_at, look.datasets, look.due) == (T0, T0, 1, 0)
    assert ledger.reports.days() == [T0.date()]
    assert ledger.reports.look(DAY) is None
    # A later look of the day takes its place, an earlier one does not.
    ledger.reports.note_look(T0 + timedelta(hours=9), "run 2", 0)
    ledger.reports.note_look(T0 + timedelta(hours=3), "run 3", 0)
    newest = ledger.reports.look(T0.date())
    assert newest
    assert newest.as_of == T0 + timedelta(hours=9)
    ledger.reports.note_look(LATER + timedelta(days=99), "run 4", 1)
    due = ledger.reports.look((LATER + timedelta(days=99)).date())
    assert due
    assert due.due == 1
    assert ledger.verify().faults == ()
