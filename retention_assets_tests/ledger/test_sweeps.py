"""Sweeps and leases on both databases: nothing unplanned begins, nothing counts twice, who lost the lease writes nothing."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, update

from retention_assets.errors import Refused
from retention_assets.ledger import AskedBy, Lease, Ledger, OpenedReport, Plan, Planned, Settlement, open_ledger
from retention_assets.ledger.schema import PLANS
from retention_assets.outcomes import Order, Outcome
from retention_assets_tests.ledger.states import (
    EXPIRED,
    FIRST_LIFE,
    LATER,
    T0,
    candidates,
    change_leases,
    ids,
    lose_lease,
    marks_of,
    plan_of,
    planned,
    statuses,
    swept,
    take_lease,
    write_past_ledger,
)

TODAY = date(2026, 1, 8)
TOMORROW = date(2026, 1, 9)
DAY = timedelta(days=1)


@pytest.fixture
def marked(ledger: Ledger) -> Ledger:
    ledger.marks.mark(candidates(["T1", "T2", "T3"]), T0, "evaluation")
    ledger.reports.open(TODAY, {"lake/d": OpenedReport()}, LATER, "sweeper")
    return ledger


def test_only_what_is_due_is_planned(marked: Ledger) -> None:
    marked.marks.mark(candidates(["T4"], grace="8d"), T0, "evaluation")
    lease, plan, batch = planned(marked)
    assert (plan.marks, plan.bytes) == (3, 30)
    assert batch == ids(marked, "T1", "T2", "T3")
    assert sorted(marked.sweeps.begin([lease], [plan], ids(marked)).marks) == batch


def test_a_mark_is_due_from_its_very_instant_and_says_what_it_is_of_once_it_is_swept(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"], life=FIRST_LIFE), T0, "evaluation")
    swept(ledger)
    ledger.marks.mark(candidates(["T2"], life=FIRST_LIFE), T0, "evaluation")
    ledger.marks.mark(candidates(["T3"], grace="8d", life=FIRST_LIFE), T0, "evaluation")
    due_at = {row["transaction"]: row["due_at"] for row in ledger.marks.table().to_pylist()}
    for as_of in (due_at["T2"], due_at["T2"] - timedelta(microseconds=1)):
        found = ledger.sweeps.classed(["lake/d", "lake/other"], as_of).sort_by("transaction").to_pylist()
        assert [(row["transaction"], row["status"], row["is_due"]) for row in found] == [
            (name, "SWEPT" if name == "T1" else "MARKED", due_at[name] <= as_of) for name in ("T1", "T2", "T3")
        ]
        assert [(row["opened_at"], row["closed_at"]) for row in found] == [FIRST_LIFE, (None, None), (None, None)]


def test_what_is_in_another_plan_alone_does_not_begin(marked: Ledger) -> None:
    earlier = planned(marked, holder="earlier")
    marked.leases.give_up([earlier[0]])
    lease = take_lease(marked)
    plan = plan_of(marked, lease, ids(marked, "T1"))
    later = plan_of(marked, lease, ids(marked, "T1", "T2"))
    assert [[row["transaction"] for row in marks_of(marked, one)] for one in (earlier[1], plan, later)] == [
        ["T1", "T2", "T3"],
        ["T1"],
        ["T1", "T2"],
    ]
    assert sorted(marked.sweeps.begin([lease], [plan], ids(marked)).marks) == ids(marked, "T1")
    assert statuses(marked) == {"T1": "SWEEPING", "T2": "MARKED", "T3": "MARKED"}
    assert sorted(marked.sweeps.begin([lease], [later], ids(marked)).marks) == ids(marked, "T2")
    assert [[row["transaction"] for row in marks_of(marked, one)] for one in (earlier[1], plan, later)] == [["T3"], [], []]


def test_what_is_in_a_plan_of_another_dataset_does_not_begin(marked: Ledger) -> None:
    marked.marks.mark(candidates(["T1"], "lake/other"), T0, "evaluation")
    lease, plan, batch = planned(marked)
    other_lease, other_plan, others = planned(marked, "lake/other")
    for one, its, wanted in ((lease, other_plan, others), (other_lease, plan, batch), (lease, plan, others)):
        assert not marked.sweeps.begin([one], [its], wanted).marks
    assert plan_of(marked, lease, others).marks == 0
    assert not marked.sweeps.spare([lease], dict.fromkeys(others, "why")).marks
    marked.sweeps.finish([lease], [other_plan])
    assert sorted(marked.sweeps.begin([lease], [plan], batch).marks) == batch
    assert sorted(marked.sweeps.begin([other_lease], [other_plan], others).marks) == others
    # What the other has begun is not this one's to settle.
    assert not marked.sweeps.settle([lease], [Settlement(one, Outcome.DELETED) for one in others]).marks
    assert statuses(marked, "lake/other") == {"T1": "SWEEPING"}
    assert marked.sweeps.planned(begun_in=["lake/d"])["id"].to_pylist() == batch
    assert '"FINISH"' not in "".join(marked.audit_lines())


def test_what_was_unmarked_after_the_plan_does_not_begin(marked: Ledger) -> None:
    lease, plan, batch = planned(marked)
    marked.unmark.transactions("lake/d", ["T2"], "ann", "still needed")
    assert sorted(marked.sweeps.begin([lease], [plan], batch).marks) == ids(marked, "T1", "T3")


def test_outcomes_are_settled_and_counted_once(marked: Ledger) -> None:
    lease, plan, batch = planned(marked)
    outcomes = [
        Settlement(batch[0], Outcome.DELETED, 10, left=3),
        Settlement(batch[1], Outcome.ALREADY_GONE, left=4),
        Settlement(batch[2], Outcome.FAILED, error="disk on fire", left=5),
    ]
    # What never began is not settled.
    assert not marked.sweeps.settle([lease], outcomes, TODAY).marks
    marked.sweeps.begin([lease], [plan], batch)
    assert sorted(marked.sweeps.settle([lease], outcomes, TODAY).marks) == batch
    assert not marked.sweeps.settle([lease], outcomes, TODAY).marks
    (report,) = marked.reports.of(TODAY)
    assert [report[name] for name in ("deleted", "already_gone", "failed", "bytes_freed")] == [1, 1, 1, 10]
    # What failed is tried again, and is not left.
    assert report["left"] == 7
    failed = marked.marks.table(statuses=["MARKED"]).to_pylist()
    assert [(row["transaction"], row["attempts"], row["last_error"]) for row in failed] == [("T3", 1, "disk on fire")]
    assert marked.verify().faults == ()


def test_what_has_begun_neither_begins_again_nor_is_spared_nor_planned(marked: Ledger) -> None:
    lease, plan, batch = planned(marked)
    assert sorted(marked.sweeps.begin([lease], [plan], batch[:2]).marks) == batch[:2]
    assert sorted(marked.sweeps.begin([lease], [plan], batch).marks) == batch[2:]
    assert not marked.sweeps.spare([lease], dict.fromkeys(batch, "a tag")).marks
    assert plan_of(marked, lease, batch).marks == 0
    assert set(statuses(marked).values()) == {"SWEEPING"}
    # What was settled once is not settled otherwise, and what was not begun not at all.
    marked.sweeps.settle(
        [lease], [Settlement(batch[0], Outcome.DELETED, 10), Settlement(batch[1], Outcome.FAILED, 10, "no")], TODAY
    )
    otherwise = [Settlement(one, Outcome.SPARED, error="why") for one in batch[:2]]
    assert not marked.sweeps.settle([lease], otherwise, TODAY).marks
    assert statuses(marked) == {"T1": "SWEPT", "T2": "MARKED", "T3": "SWEEPING"}
    (report,) = marked.reports.of(TODAY)
    assert [report[name] for name in ("deleted", "failed", "spared", "bytes_freed")] == [1, 1, 0, 10]
    assert marked.verify().faults == ()


def test_members_of_an_act_fit_its_digest_in_whatever_order_they_come(marked: Ledger) -> None:
    lease, plan, batch = planned(marked)
    marked.sweeps.begin([lease], [plan], batch[::-1])
    outcomes = (Outcome.FAILED, Outcome.SPARED, Outcome.DELETED)
    marked.sweeps.settle([lease], [Settlement(one, outcome) for one, outcome in zip(batch[::-1], outcomes, strict=True)])
    assert statuses(marked) == {"T1": "SWEPT", "T2": "SPARED", "T3": "MARKED"}
    assert marked.verify().faults == ()


def test_what_is_spared_says_why_and_can_be_marked_again(marked: Ledger) -> None:
    lease = take_lease(marked)
    first, second = ids(marked, "T1", "T2")
    assert sorted(marked.sweeps.spare([lease], {first: "Tag 'v1'", second: "Hold 'h'"}, TODAY).marks) == [first, second]
    rows = {row["transaction"]: row["why"] for row in marked.marks.table(statuses=["SPARED"]).to_pylist()}
    assert rows == {"T1": "Tag 'v1'", "T2": "Hold 'h'"}
    assert marked.reports.of(TODAY)[0]["spared"] == 2
    assert marked.marks.mark(candidates(["T1"]), LATER, "evaluation").new == 1
    assert marked.verify().faults == ()


def test_the_next_sweeper_finds_what_the_last_one_left(marked: Ledger) -> None:
    lease, plan, batch = planned(marked, holder="first")
    marked.sweeps.begin([lease], [plan], batch[:2])
    change_leases(marked, EXPIRED)
    assert marked.marks.datasets_to_sweep(T0) == ["lake/d"]
    second = take_lease(marked, "lake/d", "second")
    left = marked.sweeps.planned(begun_in=["lake/d"])["id"].to_pylist()
    assert left == batch[:2]
    assert sorted(marked.sweeps.settle([second], [Settlement(mark, Outcome.ALREADY_GONE) for mark in left]).marks) == left
    assert [row for row in marked.audit_lines() if '"TAKE_OVER"' in row]
    assert marked.verify().faults == ()


def test_one_sweeper_per_dataset(marked: Ledger) -> None:
    take_lease(marked, "lake/d", "first")
    taken = marked.leases.take(["lake/d", "lake/other"], "second")
    assert re.search("is being swept by first, whose last sign of life was at .*ends by itself", taken.others["lake/d"])
    assert {name: lease.token for name, lease in taken.leases.items()} == {"lake/other": 1}


def test_a_lease_is_that_of_its_dataset(marked: Ledger) -> None:
    lease, other = (take_lease(marked, name, "sweeper", 3600) for name in ("lake/d", "lake/e"))
    assert lease.token == other.token
    longer = marked.leases.beat([other], 7200).leases[other.dataset]
    assert (marked.leases.holder_of("lake/d"), marked.leases.holder_of("lake/e")) == (lease, longer)
    marked.leases.give_up([other])
    assert (marked.leases.holder_of("lake/d"), marked.leases.holder_of("lake/e")) == (lease, None)
    another = take_lease(marked, "lake/e", "another", 3600)
    marked.leases.give_up([other])
    assert (marked.leases.holder_of("lake/d"), marked.leases.holder_of("lake/e")) == (lease, another)
    assert another.token == other.token + 1
    change_leases(marked, EXPIRED + " WHERE dataset = 'lake/e'")
    assert marked.leases.holder_of("lake/e") is None
    # Who has a lease has it for its own dataset.
    assert marked.leases.beat([replace(lease, dataset="lake/e")]).others.keys() == {"lake/e"}
    assert marked.leases.beat([lease]).leases[lease.dataset].token == lease.token


Write = Callable[[Ledger, Lease, Plan, list[int]], Mapping[str, str]]
# Writes under a lease; each returns why it is lost, by dataset.
WRITES: dict[str, Write] = {
    "beats": lambda ledger, lease, *_: ledger.leases.beat([lease]).others,
    "spares": lambda ledger, lease, _, batch: ledger.sweeps.spare([lease], dict.fromkeys(batch, "why")).lost,
    "plans": lambda ledger, lease, _, batch: (
        ledger.sweeps.plan([lease], dict.fromkeys(batch, Planned()), LATER, {lease.dataset: None}).lost
    ),
    "begins": lambda ledger, lease, plan, batch: ledger.sweeps.begin([lease], [plan], batch).lost,
    "settles": lambda ledger, lease, _, batch: ledger.sweeps.settle([lease], [Settlement(batch[0], Outcome.DELETED)]).lost,
    "finishes": lambda ledger, lease, plan, _: ledger.sweeps.finish([lease], [plan]),
}


@pytest.mark.parametrize("loss", ["expired", "taken", "given up"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_who_lost_the_lease_writes_nothing(marked: Ledger, write: Write, loss: str) -> None:
    lease, plan, batch = planned(marked, holder="first")
    marked.sweeps.begin([lease], [plan], batch[:1])
    taken = lose_lease(marked, lease, loss)
    before = (marked.marks.table(), marked.verify().head)
    assert taken in write(marked, lease, plan, batch)["lake/d"]
    assert (marked.marks.table(), marked.verify().head) == before


def test_a_report_opens_once_and_adds_up(marked: Ledger) -> None:
    marked.marks.mark(candidates(["T1", "T2", "T3", "T4"], "lake/e"), T0, "evaluation")
    assert not marked.reports.open(TODAY, {"lake/d": OpenedReport({"q": 9})}, LATER, "sweeper")
    assert marked.reports.open(
        TODAY, {"lake/e": OpenedReport({"p": 1}, classes={"mark": 4, "keep": 2})}, LATER, "sweeper", {"lake/e": 6}
    )
    assert [report["to_delete"] for report in marked.reports.of(TODAY)] == [3, 4]
    with pytest.raises(Refused, match="classes of lake/f add up to 1, but its log has 2"):
        marked.reports.open(TODAY, {"lake/f": OpenedReport(classes={"mark": 1})}, LATER, "sweeper", {"lake/f": 2})
    assert marked.reports.days() == [TODAY]
    assert marked.verify().faults == ()


def test_a_report_is_finished_when_nothing_of_its_set_is_open(marked: Ledger) -> None:
    assert marked.reports.finish_done("sweeper", ["lake/d"]) == []
    lease, plan, batch = planned(marked)
    marked.sweeps.begin([lease], [plan], batch)
    marked.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in batch[:2]], TODAY)
    assert marked.reports.finish_done("sweeper", ["lake/d"]) == []
    marked.sweeps.settle([lease], [Settlement(batch[2], Outcome.SPARED, error="branch 'b' points at it")], TODAY)
    assert marked.reports.finish_done("sweeper", ["lake/d"]) == [(TODAY, "lake/d")]
    assert marked.reports.finish_done("sweeper", ["lake/d"]) == []
    (report,) = marked.reports.of(TODAY)
    assert [report[name] for name in ("to_delete", "deleted", "spared", "bytes_freed")] == [3, 2, 1, 20]
    assert marked.marks.table(statuses=["SPARED"])["why"].to_pylist() == ["branch 'b' points at it"]
    assert marked.verify().faults == ()


def test_a_mark_made_right_after_the_opening_does_not_keep_the_report_open(marked: Ledger) -> None:
    swept(marked, day=TODAY)
    marked.marks.mark(candidates(["L1"]), T0, "evaluation")
    assert statuses(marked)["L1"] == "MARKED"
    assert marked.reports.finish_done("sweeper") == [(TODAY, "lake/d")]


def test_what_comes_due_after_the_opening_counts_the_next_day(marked: Ledger) -> None:
    marked.marks.mark(candidates(["L1", "L2", "L3"]), T0, "evaluation")
    lease, plan, batch = planned(marked)
    begun = marked.sweeps.begin([lease], [plan], batch).marks
    outcomes = [Outcome.DELETED] * 3 + [Outcome.DELETED, Outcome.ALREADY_GONE, Outcome.FAILED]
    settlements = [Settlement(mark, outcome, 10) for mark, outcome in zip(begun, outcomes, strict=True)]
    marked.sweeps.settle([lease], settlements, TODAY)
    counted = ("to_delete", "deleted", "already_gone", "failed", "bytes_to_free", "bytes_freed")
    assert [marked.reports.of(TODAY)[0][name] for name in counted] == [3, 3, 0, 0, 30, 30]
    assert [marked.reports.of(TOMORROW)[0][name] for name in counted] == [2, 1, 1, 1, 20, 20]
    assert marked.reports.open(TOMORROW, {"lake/d": OpenedReport()}, LATER + DAY, "sweeper")
    # What failed is still open, so it is part of what tomorrow is to delete.
    assert [marked.reports.of(TOMORROW)[0][name] for name in counted] == [3, 1, 1, 1, 30, 20]
    assert marked.reports.days() == [TOMORROW, TODAY]


def test_what_is_open_of_a_dataset_keeps_its_own_report_open_alone(marked: Ledger) -> None:
    marked.marks.mark(candidates(["T1", "T2"], "lake/e"), T0, "evaluation")
    marked.reports.open(TODAY, {"lake/e": OpenedReport()}, LATER, "sweeper")
    leases = {}
    for name in ("lake/d", "lake/e"):
        leases[name], plan, batch = planned(marked, name)
        marked.sweeps.begin([leases[name]], [plan], batch)
    marked.sweeps.settle(
        [leases["lake/e"]], [Settlement(one, Outcome.DELETED, 10) for one in ids(marked, dataset="lake/e")], TODAY
    )
    assert marked.reports.finish_done("sweeper") == [(TODAY, "lake/e")]
    told = {one["dataset"]: (one["to_delete"], one["deleted"], one["bytes_freed"]) for one in marked.reports.of(TODAY)}
    assert told == {"lake/d": (3, 0, 0), "lake/e": (2, 2, 20)}
    assert [one["dataset"] for one in marked.reports.of(TODAY, "lake/e")] == ["lake/e"]


def test_what_people_take_back_is_counted_in_the_newest_report_that_is_not_finished(marked: Ledger) -> None:
    marked.marks.mark(candidates(["T1"], "lake/e"), T0, "evaluation")
    for day, at in ((TOMORROW, LATER + DAY), (TODAY, LATER)):
        for name in ("lake/d", "lake/e"):
            marked.reports.open(day, {name: OpenedReport()}, at, "sweeper")
    # One that was marked after the opening is in no report.
    marked.marks.mark(candidates(["L1"]), T0, "evaluation")
    marked.unmark.transactions("lake/d", ["T1", "T2", "L1"], "ann", "still needed")
    told = {
        (one["execution_date"], one["dataset"]): one["unmarked"] for day in (TODAY, TOMORROW) for one in marked.reports.of(day)
    }
    assert told == {(TODAY, "lake/d"): 0, (TODAY, "lake/e"): 0, (TOMORROW, "lake/d"): 2, (TOMORROW, "lake/e"): 0}


def test_what_a_store_says_of_bytes_counts_even_if_it_is_none_and_its_notes_are_kept(marked: Ledger) -> None:
    one, two, three = ids(marked, "T1", "T2", "T3")
    plan = plan_of(marked, take_lease(marked), {one: Planned(7, "here"), two: Planned(), three: Planned(0, "there")})
    assert (plan.marks, plan.bytes) == (3, 7 + 10 + 0)
    rows = marks_of(marked, plan)
    assert [(row["id"], row["bytes"], row["note"]) for row in rows] == [(one, 7, "here"), (two, 10, None), (three, 0, "there")]


def test_a_plan_is_finished_once_and_leaves_others_as_they_are(marked: Ledger) -> None:
    lease = take_lease(marked)
    first, second = (plan_of(marked, lease, ids(marked)) for _ in range(2))
    for plan in (first, first, second, first):
        marked.sweeps.finish([lease], [plan])
    said = [json.loads(line) for line in marked.audit_lines()]
    assert [one["detail"]["plan"] for one in said if one["deed"] == "FINISH"] == [first.id, second.id]


def test_the_newest_note_of_a_mark_counts(marked: Ledger) -> None:
    one, two, three = ids(marked)
    lease = take_lease(marked)
    # Which of them is the newest is told by their times, in whatever order the database keeps them.
    for day, notes in (
        (1, {one: Planned(note="a second"), two: Planned(note="a second"), three: Planned()}),
        (2, {one: Planned(note="m third"), two: Planned(), three: Planned()}),
        (0, {one: Planned(note="z first"), two: Planned(note="z first"), three: Planned(note="z first")}),
    ):
        plan = plan_of(marked, lease, notes)
        write_past_ledger(marked, update(PLANS).where(PLANS.c.id == plan.id).values(planned_at=LATER + day * DAY))
        assert [row["note"] for row in marks_of(marked, plan)] == [notes[mark].note for mark in notes]
        begun = marked.sweeps.begin([lease], [plan], notes).marks
        marked.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="no") for mark in begun])
    newest = {one: "m third", two: "a second", three: "z first"}
    assert marked.sweeps.notes([one, two, three]) == newest
    assert marked.sweeps.notes([two]) == {two: "a second"}
    plan = plan_of(marked, lease, {one: Planned(note=newest[one]), two: Planned(note=newest[two]), three: Planned()})
    marked.sweeps.begin([lease], [plan], [one, three])
    left = marked.sweeps.planned(begun_in=["lake/d"])
    assert (left["id"].to_pylist(), left["note"].to_pylist()) == ([one, three], [newest[one], None])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("until", [None, LATER + timedelta(days=14)])
def test_what_was_begun_has_the_note_of_the_plan_by_which_it_began(marked: Ledger, which: int, until: datetime | None) -> None:
    """Of two plans that have it, by ids in any order: the first or the second."""
    lease, (mark, *_) = take_lease(marked), ids(marked)
    plans = [plan_of(marked, lease, {mark: Planned(size, note)}) for size, note in ((1, "first"), (2, "second"))]
    assert marked.sweeps.begin([lease], [plans[which]], [mark], until).marks == {mark: "lake/d"}
    (row,) = marked.sweeps.planned(begun_in=["lake/d"]).to_pylist()
    assert (row["plan"], row["planned"], row["note"]) == (plans[which].id, which + 1, ("first", "second")[which])


@pytest.mark.parametrize("outcomes", [(Outcome.FAILED, Outcome.FAILED), (Outcome.FAILED, Outcome.SET_ASIDE)])
def test_what_failed_and_was_planned_again_has_its_second_note(marked: Ledger, outcomes: Sequence[Outcome]) -> None:
    lease, marks = take_lease(marked), ids(marked)
    for note, outcome in zip(("first", "second"), outcomes, strict=True):
        plan = plan_of(marked, lease, {mark: Planned(7, f"{note} {mark}") for mark in marks})
        marked.sweeps.begin([lease], [plan], marks, LATER + timedelta(days=14))
        left = marked.sweeps.planned(begun_in=["lake/d"])
        assert left["note"].to_pylist() == [f"{note} {mark}" for mark in marks]
        marked.sweeps.settle([lease], [Settlement(mark, outcome, error="no") for mark in marks])
    if Outcome.SET_ASIDE in outcomes:
        assert marked.sweeps.planned(marks)["note"].to_pylist() == [f"second {mark}" for mark in marks]
        marked.trash.begin([lease], marks, Order.RESTORE, AskedBy("ann", "needed"))
        assert marked.sweeps.planned(begun_in=["lake/d"])["note"].to_pylist() == [f"second {mark}" for mark in marks]


EDITED_BATCH = {
    "its plan": "UPDATE batches SET plan = 7",
    "its ids": "UPDATE batches SET open_ids = {}",
    "the plan's marks": "UPDATE planned SET mark = mark + 100",
    "the plan's number": "UPDATE plans SET id = 7",
}


@pytest.mark.parametrize("edit", EDITED_BATCH)
def test_a_batch_that_was_edited_is_refused_with_a_remedy(marked: Ledger, edit: str) -> None:
    lease, marks = take_lease(marked), ids(marked)
    marked.sweeps.begin([lease], [plan_of(marked, lease, marks[:2])], marks[:2])
    ids_of = "'[3]'" if marked.database.engine.dialect.name == "sqlite" else "ARRAY[3]"
    assert write_past_ledger(marked, EDITED_BATCH[edit].format(ids_of))
    with pytest.raises(
        Refused, match=r"which has no such mark: .* `retention audit verify` names the row\. Write back"
    ) as fault:
        marked.sweeps.planned(begun_in=["lake/d"])
    assert str(fault.value).startswith("Mark ")


def test_what_was_swept_late_is_told_even_if_the_next_day_never_begins(marked: Ledger) -> None:
    marked.marks.mark(candidates(["L1"]), T0, "evaluation")
    swept(marked, day=TODAY)
    assert marked.reports.finish_done("sweeper") == [(TODAY, "lake/d"), (TOMORROW, "lake/d")]
    assert [report["deleted"] for day in (TODAY, TOMORROW) for report in marked.reports.of(day)] == [3, 1]
    # Should it begin after all, it is not finished before what is due then is done.
    marked.marks.mark(candidates(["M1"]), T0, "evaluation")
    assert marked.reports.open(TOMORROW, {"lake/d": OpenedReport()}, LATER + DAY, "sweeper")
    (report,) = marked.reports.of(TOMORROW)
    assert (report["to_delete"], report["deleted"], report["finished_at"]) == (2, 1, None)


def test_a_batch_is_found_by_its_ids_and_not_among_all_open_marks(tmp_path: Path) -> None:
    """By the index of a dataset's open marks SQLite would read all of them for each batch."""
    said: list[tuple[str, Any]] = []
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        ledger.marks.mark(candidates([f"T{number}" for number in range(60)]), T0, "run")
        event.listen(
            ledger.database.engine,
            "before_cursor_execute",
            lambda _, __, statement, values, *___: said.append((statement, values)),
        )
        swept(ledger)
        moves = [one for one in said if one[0].startswith("UPDATE marks")]
        assert len(moves) == 1
        with ledger.database.reading() as connection:
            for statement, values in moves:
                steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
                assert any("marks USING INTEGER PRIMARY KEY" in step[3] for step in steps), steps
