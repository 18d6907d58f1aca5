"""How things stand: added up over all datasets, and one by one, on both databases; and days on which somebody looked."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import (
    EVALUATION_ROWS,
    FOUND_ROWS,
    FreedGroup,
    Ledger,
    OpenedReport,
    PendingGroup,
    Settlement,
    SparedGroup,
    VerdictCount,
    Waiting,
    counts_text,
)
from retention_assets.ledger.mark_rows import OPENED
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, plan_of, planned, swept, take_lease

TODAY = LATER.date()


def judge(ledger: Ledger, names: list[str], *counts: VerdictCount, fault: str | None = None, dataset: str = "lake/d") -> None:
    row = {"dataset": dataset, "token": "1", "rules": "r", "looked_at": T0, "next_look": None}
    found = pa.Table.from_pylist([{**row, "counts": counts_text(counts), "fault": fault}], FOUND_ROWS)
    ledger.marks.mark(candidates(names), T0, "evaluation", evaluations=found)


def test_what_was_swept_before_is_counted_apart(ledger: Ledger) -> None:
    judge(ledger, ["T1", "T2"], VerdictCount("mark", "p", 3, 30), VerdictCount("keep", "", 4, 40))
    assert ledger.states.totals().counts == [VerdictCount("keep", "", 4, 40), VerdictCount("mark", "p", 3, 30)]
    ledger.reports.open(TODAY, {"lake/d": OpenedReport(classes={"due": 2})}, LATER, "sweeper", {"lake/d": 2})
    swept(ledger, day=TODAY)
    judge(ledger, ["T1", "T2", "T3"], VerdictCount("mark", "p", 3, 30), VerdictCount("keep", "", 4, 40))
    totals = ledger.states.totals()
    assert totals.counts == [
        VerdictCount("keep", "", 4, 40), VerdictCount("mark", "p", 1, 10), VerdictCount("swept", "p", 2, 20),
    ]  # fmt: skip
    assert (totals.transactions, totals.datasets) == (7, 1)
    last = ledger.states.last_sweep()
    assert last
    assert (last.day, last.counters["deleted"]) == (TODAY, 2)


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


def test_a_day_without_anything_due_has_a_look_and_a_day_without_a_look_has_none(ledger: Ledger) -> None:
    judge(ledger, ["T1"], VerdictCount("mark", "p", 1, 10))
    assert ledger.reports.days() == []
    ledger.reports.note_look(T0, "run 1", 0)
    look = ledger.reports.look(T0.date())
    assert look
    assert (look.as_of, look.judged_at, look.datasets, look.due) == (T0, T0, 1, 0)
    assert ledger.reports.days() == [T0.date()]
    assert ledger.reports.look(TODAY) is None
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


DAY = timedelta(days=1)


def test_what_waits_is_summed_by_policy_time_and_state(ledger: Ledger) -> None:
    # One of unknown size counts and weighs nothing.
    rows = candidates(["T1", "T2", "T4"]).set_column(6, "bytes", [[10, 10, None]])
    ledger.marks.mark(rows, T0, "evaluation")
    ledger.marks.mark(candidates(["T3"], policy="q", grace="9d", size=5), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"], dataset="lake/other"), T0 + DAY, "evaluation")
    ledger.unmark.transactions("lake/d", ["T2"], "ann", "still needed")
    lease, plan, _ = planned(ledger)
    ledger.sweeps.begin([lease], [plan], ids(ledger, "T1"))
    assert ledger.pending.waiting() == [
        PendingGroup("p", T0, LATER, False, 1, 0, "lake/d"),
        PendingGroup("p", T0, LATER, True, 1, 10, "lake/d"),
        PendingGroup("p", T0 + DAY, LATER + DAY, False, 1, 10, "lake/other"),
        PendingGroup("q", T0, T0 + 9 * DAY, False, 1, 5, "lake/d"),
    ]
    assert [group.policy for group in ledger.pending.waiting(["lake/other"])] == ["p"]


def test_the_next_that_are_due_are_few_and_in_order(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T3", "T1"]), T0 + DAY, "evaluation")
    ledger.marks.mark(candidates(["T2"]), T0 + 2 * DAY, "evaluation")

    def first(most: int, until: datetime) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ledger.marks.table(None, OPENED, until, first=most).to_pylist()
        return rows

    due = first(2, T0 + 30 * DAY)
    assert [row["transaction"] for row in due] == ["T1", "T3"]
    assert [row["transaction"] for row in first(9, due[0]["due_at"])] == ["T1", "T3"]
    assert first(9, T0) == []


def test_what_was_freed_counts_once_on_the_day_of_the_plan_that_did_it(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    lease, plan, marks = planned(ledger)
    first, second = sorted(ledger.sweeps.begin([lease], [plan], marks).marks)
    ledger.sweeps.settle(
        [lease], [Settlement(first, Outcome.DELETED, 11), Settlement(second, Outcome.FAILED, error="disk is full")]
    )
    again = plan_of(ledger, lease, [second], LATER + DAY)
    ledger.sweeps.begin([lease], [again], [second])
    ledger.sweeps.settle([lease], [Settlement(second, Outcome.DELETED, 13)])
    assert ledger.pending.freed(T0) == [
        FreedGroup(LATER, "p", "sweeper", 1, 11),
        FreedGroup(LATER + DAY, "p", "sweeper", 1, 13),
    ]
    assert ledger.pending.freed(LATER + DAY) == [FreedGroup(LATER + DAY, "p", "sweeper", 1, 13)]
    assert ledger.pending.freed(LATER + 2 * DAY) == []


def test_what_is_swept_waits_no_more_and_what_was_gone_already_freed_nothing(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2", "T3"]), T0, "evaluation")
    swept(ledger, outcomes={"T3": Outcome.ALREADY_GONE})
    assert ledger.pending.waiting() == []
    assert ledger.pending.freed(T0) == [FreedGroup(LATER, "p", "sweeper", 2, 20)]


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


def test_bytes_that_are_more_than_a_number_holds_are_reported_swept_and_summed(ledger: Ledger) -> None:
    """Nobody has so many bytes, but a log may say so, and nothing of the dataset would ever be swept."""
    most, today = 2**63 - 1, LATER.date()
    ledger.marks.mark(candidates(["T1", "T2", "T3"], size=most), T0, "evaluation")
    assert [(group.marks, group.bytes) for group in ledger.pending.waiting()] == [(3, most)]
    assert ledger.reports.open(today, {"lake/d": OpenedReport()}, LATER, "sweeper")
    # These count for the next day.
    ledger.marks.mark(candidates(["L1", "L2"], size=most), T0, "evaluation")
    lease, plan, marks = planned(ledger)
    assert (plan.marks, plan.bytes) == (5, most)
    for mark in sorted(ledger.sweeps.begin([lease], [plan], marks).marks):
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, most)], today)
    ledger.sweeps.finish([lease], [plan])
    reports = [*ledger.reports.of(today), *ledger.reports.of(today + DAY)]
    assert [(one["bytes_to_free"], one["bytes_freed"], one["deleted"]) for one in reports] == [(most, most, 3), (most, most, 2)]
    assert ledger.pending.freed(T0) == [FreedGroup(LATER, "p", "sweeper", 5, most)]
    assert ledger.verify().faults == ()
    assert ledger.reports.open(today + DAY, {"lake/d": OpenedReport()}, LATER + DAY, "sweeper")
    assert ledger.reports.of(today + DAY)[0]["bytes_to_free"] == most


NOW = T0 + timedelta(microseconds=1)


def row(
    dataset: str, token: str | None = "1", rules: str = "r", at: datetime = NOW, then: datetime | None = None
) -> dict[str, Any]:
    return {"dataset": dataset, "token": token, "rules": rules, "looked_at": at, "next_look": then}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=EVALUATION_ROWS)


def test_evaluations_are_read_as_they_were_written_and_leave_nothing_in_the_audit(ledger: Ledger) -> None:
    before = ledger.verify()
    noted = [row("lake/a", then=LATER), row("lake/b", token=None), row("lake/ü 'x'", rules="")]
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(*noted))
    assert ledger.evaluations.all().to_pylist() == noted
    assert ledger.evaluations.all().schema == EVALUATION_ROWS
    assert ledger.verify() == before
    assert before.faults == ()


def test_the_newest_evaluation_of_a_dataset_takes_the_place_of_the_one_before(ledger: Ledger) -> None:
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", then=LATER), row("lake/b")))
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", token="2", rules="s", at=LATER)))
    assert ledger.evaluations.all().to_pylist() == [row("lake/a", token="2", rules="s", at=LATER), row("lake/b")]


def test_an_evaluation_is_there_only_with_the_marks_that_came_of_it(ledger: Ledger) -> None:
    """Were it noted alone, nobody would come back for marks that are lost."""
    with pytest.raises(ValueError, match="null"):
        ledger.marks.mark(
            candidates(["T1"]), T0, "evaluation", evaluations=pa.table({name: [None] for name in EVALUATION_ROWS.names})
        )
    assert ledger.marks.table().num_rows == 0
    assert ledger.evaluations.all().num_rows == 0


@pytest.fixture
def evaluated(ledger: Ledger) -> Ledger:
    for name in ("lake/d", "lake/e"):
        ledger.marks.mark(candidates(["T1", "T2"], name), T0, "evaluation", evaluations=table(row(name)))
    return ledger


def standing(ledger: Ledger) -> list[str]:
    rows = ledger.evaluations.all().to_pylist()
    assert all(row["next_look"] in (None, row["looked_at"]) for row in rows)
    return [row["dataset"] for row in rows if row["next_look"] is None]


def test_a_mark_that_is_taken_back_has_its_dataset_evaluated_again(evaluated: Ledger) -> None:
    """What is still selected is to be marked by the next evaluation, so there has to be one."""
    with pytest.raises(Refused):
        evaluated.unmark.transactions("lake/d", ["T1", "T9"], "ann", "still needed")
    assert standing(evaluated) == ["lake/d", "lake/e"]
    evaluated.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    assert standing(evaluated) == ["lake/e"]
    evaluated.unmark.all_of("ann", "still needed", policy="p")
    assert standing(evaluated) == []
    assert evaluated.verify().faults == ()


def test_a_mark_that_a_sweep_spares_has_its_dataset_evaluated_again(evaluated: Ledger) -> None:
    lease = take_lease(evaluated)
    assert not evaluated.sweeps.spare([lease], {}).marks
    assert standing(evaluated) == ["lake/d", "lake/e"]
    assert sorted(evaluated.sweeps.spare([lease], dict.fromkeys(ids(evaluated, "T1"), "a hold")).marks)
    assert standing(evaluated) == ["lake/e"]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.EXPIRING, Outcome.WITHHELD}))
def test_of_all_outcomes_only_the_spared_one_has_its_dataset_evaluated_again(evaluated: Ledger, outcome: Outcome) -> None:
    swept(evaluated, outcomes={"T1": outcome})
    assert standing(evaluated) == (["lake/e"] if outcome.value in ("SPARED", "KEPT_READABLE") else ["lake/d", "lake/e"])


def test_who_marks_meanwhile_either_sees_that_a_mark_was_taken_back_or_leaves_no_evaluation_that_stands(
    evaluated: Ledger,
) -> None:
    """An evaluation that stood beside a mark that is no more would keep it from being made for days."""

    def evaluates_again(number: int) -> None:
        for _ in range(20):
            evaluated.marks.mark(candidates(["T1"]), T0, f"evaluation {number}", evaluations=table(row("lake/d")))

    def takes_back() -> None:
        for _ in range(20):
            with suppress(Refused):
                evaluated.unmark.transactions("lake/d", ["T1"], "ann", "race")

    with ThreadPoolExecutor(3) as pool:
        for done in [*(pool.submit(evaluates_again, number) for number in range(2)), pool.submit(takes_back)]:
            done.result()
    marked = evaluated.marks.table(["lake/d"], ["MARKED"])["transaction"].to_pylist()
    assert "T1" in marked or "lake/d" not in standing(evaluated)
