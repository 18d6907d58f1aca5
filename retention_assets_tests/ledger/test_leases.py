"""Parts of a dataset under one lease, on both databases: the newest attempt writes, no older one does, and nobody waits in vain."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Thread

import pytest
from sqlalchemy import select

from retention_assets.ledger import (
    ALL_NAMES,
    SILENCE,
    DatasetPart,
    JoinedPart,
    Lease,
    LeaseLost,
    Ledger,
    NameRange,
    Plan,
    open_ledger,
    scan_lease,
)
from retention_assets.ledger.database import WriteTransaction
from retention_assets.ledger.leases import fence
from retention_assets.ledger.schema import LEASE_PARTS, LEASES, TASK_PROGRESS
from retention_assets.policy import Hold
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import (
    EXPIRED,
    LATER,
    T0,
    candidates,
    change_leases,
    ids,
    lose_lease,
    plan_of,
    statuses,
    take_lease,
    write_past_ledger,
)
from retention_assets_tests.ledger.test_sweeps import WRITES, Write

pytestmark = pytest.mark.dialect

NAMES = [f"T{number}" for number in range(1, 7)]
LONG = 60.0


@pytest.fixture
def marked(ledger: Ledger) -> Ledger:
    ledger.marks.mark(candidates(NAMES), T0, "evaluation")
    return ledger


def dealt(ledger: Ledger, number: int = 0, seconds: float = 120) -> DatasetPart:
    return DatasetPart(take_lease(ledger, "lake/d", "run 1", seconds), number, NameRange(end="T4"), 3)


def begun(ledger: Ledger, joined: JoinedPart) -> tuple[Plan, list[int]]:
    batch = ids(ledger, *NAMES[:3])
    plan = plan_of(ledger, joined.lease, batch)
    assert sorted(ledger.sweeps.begin([joined.lease], [plan], batch[:1]).marks) == batch[:1]
    return plan, batch


def beats(ledger: Ledger, lease: Lease, plan: Plan, batch: list[int]) -> Mapping[str, str]:
    try:
        ledger.parts.beat(JoinedPart(lease, 0))
    except LeaseLost as fault:
        return {lease.dataset: str(fault)}
    return {}


PART_WRITES = {**WRITES, "beats": beats}


@pytest.mark.parametrize("write", PART_WRITES.values(), ids=PART_WRITES)
def test_an_attempt_writes_nothing_once_another_has_joined(marked: Ledger, write: Write) -> None:
    part = dealt(marked)
    older = marked.parts.join(part)
    plan, batch = begun(marked, older)
    newer = marked.parts.join(part)
    assert (older.lease.attempt, newer.lease.attempt) == (1, 2)
    before = (marked.marks.table(), marked.verify().head)
    lost = write(marked, older.lease, plan, batch)["lake/d"]
    assert re.match(r"part 0 of lake/d was begun again .*attempt 1. Nothing was written", lost)
    assert (marked.marks.table(), marked.verify().head) == before
    # The newer one does, also for what the older one had begun.
    assert not write(marked, newer.lease, plan, batch)
    assert marked.verify().faults == ()


@pytest.mark.parametrize(
    ("write", "loss"),
    [*((write, "expired") for write in PART_WRITES.values()), (WRITES["begins"], "taken"), (WRITES["begins"], "given up")],
)
def test_a_part_writes_nothing_without_the_lease_of_its_dataset(marked: Ledger, write: Write, loss: str) -> None:
    part = dealt(marked)
    joined = marked.parts.join(part)
    plan, batch = begun(marked, joined)
    if loss == "given up":
        assert marked.parts.leave(joined.lease)
    taken = lose_lease(marked, part.lease, loss)
    before = (marked.marks.table(), marked.verify().head)
    assert taken in write(marked, joined.lease, plan, batch)["lake/d"]
    with pytest.raises(LeaseLost):
        marked.parts.join(part)
    assert (marked.marks.table(), marked.verify().head) == before


def test_who_writes_for_a_part_names_it_in_the_record(marked: Ledger) -> None:
    part = dealt(marked, 3)
    begun(marked, marked.parts.join(part))
    said = [json.loads(line) for line in marked.audit_lines()]
    details = [one["detail"] for one in said if one["deed"] in ("PLAN", "BEGIN")]
    assert [(one["lease"], one["part"], one["attempt"]) for one in details] == [(part.lease.token, 3, 1)] * 2


def test_parts_of_a_dataset_do_not_wait_for_each_other(marked: Ledger) -> None:
    part = dealt(marked)
    one, other = marked.parts.join(part), marked.parts.join(replace(part, number=1))
    done: list[JoinedPart] = []
    query = select(LEASE_PARTS).where(LEASE_PARTS.c.part == 0).with_for_update()
    # Somebody writes for the first; a SQLite file has one writer anyhow.
    with marked.database.engine.connect() as connection, connection.begin():
        connection.execute(query)
        if connection.dialect.name == "postgresql":
            thread = Thread(target=lambda: done.append(marked.parts.beat(other)), daemon=True)
            thread.start()
            thread.join(LONG)
            assert done
    assert marked.parts.beat(one).seconds > 0


def test_whoever_takes_a_lease_waits_for_who_writes_for_a_part(server: str) -> None:
    """Otherwise what a part has written, and not committed yet, would come after the taking. (A SQLite file has one writer.)"""
    with open_ledger(new_schema(server)) as ledger:
        joined, taken = ledger.parts.join(dealt(ledger)), list[Lease]()
        thread = Thread(target=lambda: taken.append(take_lease(ledger, "lake/d", "second")), daemon=True)

        def writes(tx: WriteTransaction) -> None:
            fence(tx, joined.lease)
            # The lease itself is not locked, and its time passes.
            change_leases(ledger, EXPIRED)
            thread.start()
            thread.join(0.2)
            assert taken == []

        ledger.database.write(writes)
        thread.join(LONG)
        assert [one.token for one in taken] == [joined.lease.token + 1]


def test_the_beat_of_a_part_says_what_is_left_of_the_lease_and_extends_nothing(marked: Ledger) -> None:
    part = dealt(marked, seconds=1_000)
    joined = marked.parts.join(part)
    assert 900 < joined.seconds <= 1_000
    assert marked.leases.holder_of("lake/d") == part.lease
    assert marked.parts.beat(joined).lease.expires_at == part.lease.expires_at
    marked.leases.beat([part.lease], 2_000)
    longer = marked.parts.beat(joined)
    assert 1_900 < longer.seconds <= 2_000
    # It also learns of what protects anything, as every beat does.
    assert (longer.lease.protections, longer.lease.database) == (marked.leases.protections(), part.lease.database)


def test_a_newer_attempt_waits_until_the_older_ones_have_ended(marked: Ledger) -> None:
    part = dealt(marked)
    first = marked.parts.join(part)
    assert marked.parts.may_begin(first)
    second = marked.parts.join(part)
    third = marked.parts.join(part)
    assert [marked.parts.may_begin(one) for one in (second, third)] == [False, False]
    assert not marked.parts.leave(first.lease)
    # The second may act now, if it has not heard of the third.
    assert [marked.parts.may_begin(one) for one in (second, third)] == [True, False]
    assert not marked.parts.leave(second.lease)
    assert marked.parts.may_begin(third)
    assert marked.parts.leave(third.lease)
    fourth = marked.parts.join(part)
    assert (fourth.lease.attempt, marked.parts.may_begin(fourth)) == (4, True)
    taken_over = [json.loads(line)["detail"] for line in marked.audit_lines() if '"TAKE_OVER"' in line]
    assert [one["attempt"] for one in taken_over] == [2, 3]
    assert marked.verify().faults == ()


def test_a_newer_attempt_waits_no_longer_than_the_lease_that_the_older_one_knew(marked: Ledger) -> None:
    part = dealt(marked, seconds=1_000)
    older = marked.parts.join(part)
    marked.leases.beat([part.lease], 2_000)
    newer = marked.parts.join(part)
    assert newer.older_until == older.lease.expires_at < newer.lease.expires_at
    assert marked.parts.may_begin(newer._replace(older_until=T0))


def test_a_part_of_another_lease_is_nobody_to_wait_for(marked: Ledger) -> None:
    marked.parts.join(dealt(marked))
    change_leases(marked, EXPIRED)
    part = dealt(marked)
    joined = marked.parts.join(part)
    assert (joined.lease.attempt, joined.older_until) == (2, None)


def test_a_lease_is_not_given_up_while_a_part_of_it_may_be_at_work(marked: Ledger) -> None:
    """A task that nobody hears of may still delete: until the lease is over nobody else takes it."""
    part = dealt(marked)
    one, other = marked.parts.join(part), marked.parts.join(replace(part, number=1))
    assert marked.parts.leave(one.lease)
    marked.leases.give_up([part.lease])
    assert marked.leases.holder_of("lake/d") == part.lease
    assert marked.parts.leave(other.lease)
    marked.leases.give_up([part.lease])
    assert marked.leases.holder_of("lake/d") is None


MANY = [f"T{number}" for number in range(23)]
URNS = [f"urn:li:x:{urn}@{version}" for urn in ("a", "a@1", "a1", "b@é", "c") for version in (1, 2, 10, 11)]


@pytest.mark.parametrize("parts", [5, 60])
@pytest.mark.parametrize(("names", "together"), [(MANY, ""), (URNS, "@"), (["", "a", "é", "\U0001f600", "~"], "")])
def test_each_mark_is_in_exactly_one_part(ledger: Ledger, names: Sequence[str], together: str, parts: int) -> None:
    ledger.marks.mark(candidates(names), T0, "evaluation")
    ledger.marks.mark(candidates(["later"], grace="9d"), T0, "evaluation")
    ledger.marks.mark(candidates(["T99"], "lake/e"), T0, "evaluation")
    ranges = ledger.parts.cut("lake/d", LATER, len(names), parts, together)
    assert len(ranges) <= parts
    everything = ledger.marks.table(["lake/d"])
    found = [one.of(everything)["transaction"].to_pylist() for one in ranges]
    assert sorted(name for mine in found for name in mine) == sorted([*names, "later"])
    # As the database sees it, too, and what is due alone.
    due = [ledger.sweeps.due(["lake/d"], LATER, one).tolist() for one in ranges]
    assert sorted(mark for mine in due for mark in mine) == ledger.sweeps.due(["lake/d"], LATER).tolist()
    assert all(due)
    columns = ("transaction",)
    asked = [
        ledger.marks.table(["lake/d"], to_sweep_by=LATER, names=one, columns=columns)["transaction"].to_pylist()
        for one in ranges
    ]
    assert sorted(name for mine in asked for name in mine) == sorted(names)
    if together:
        starts = [{name.partition(together)[0] for name in mine if together in name} for mine in asked]
        assert sum(map(len, starts)) == len(set().union(*starts))
    else:
        assert max(map(len, due)) - min(map(len, due)) <= max(1, -(-len(names) // parts))


def test_what_an_earlier_sweep_had_begun_is_in_the_part_of_its_name(marked: Ledger) -> None:
    joined = marked.parts.join(dealt(marked))
    plan = plan_of(marked, joined.lease, ids(marked))
    marked.sweeps.begin([joined.lease], [plan], ids(marked, "T2", "T5"))
    assert statuses(marked)["T5"] == "SWEEPING"
    ranges = marked.parts.cut("lake/d", LATER, 6, 2, "")
    assert ranges == [NameRange(end="T4"), NameRange("T4")]
    assert [
        marked.sweeps.planned(begun_in=["lake/d"], names=one)["transaction"].to_pylist() for one in (*ranges, ALL_NAMES)
    ] == [
        ["T2"],
        ["T5"],
        ["T2", "T5"],
    ]


def test_the_policies_of_what_is_due_are_named_with_their_versions(marked: Ledger) -> None:
    marked.marks.mark(candidates(["L"], policy="later", grace="9d"), T0, "evaluation")
    marked.marks.mark(candidates(["E"], "lake/e", policy="other"), T0, "evaluation")
    assert marked.parts.policies("lake/d", LATER) == {("p", 1)}


RUN = "run 1"


def test_a_task_hears_that_it_has_to_stop_and_the_first_reason_stands(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    runs.beat(RUN)
    runs.beat("run 2")
    assert runs.report(RUN, 0, "a") is None
    runs.stop(RUN, "They said so.")
    runs.stop(RUN, "Others too.")
    assert (runs.report(RUN, 0, "b"), runs.stop_requested(RUN)) == ("They said so.", "They said so.")
    assert runs.report("run 2", 0, "c") is None


def test_a_task_stops_when_whoever_started_its_run_is_silent(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    assert "gave no sign of life" in (runs.report(RUN, 0, "") or "")
    runs.beat(RUN)
    assert runs.report(RUN, 0, "") is None
    with ledger.database.reading() as connection:
        told = max(row.told_at for row in connection.execute(TASK_PROGRESS.select()))
    for seconds, is_silent in ((SILENCE / 2, False), (SILENCE + 1, True)):
        earlier = TASK_PROGRESS.update().where(TASK_PROGRESS.c.task < 0)
        write_past_ledger(ledger, earlier.values(told_at=told - timedelta(seconds=seconds)))
        assert (runs.stop_requested(RUN) is not None) == is_silent


def test_a_task_that_is_started_once_more_takes_the_others_place(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    runs.beat(RUN)
    for task, words in ((1, "b"), (0, "a"), (1, "more of b")):
        runs.report(RUN, task, words)
    runs.report("run 2", 0, "another")
    assert runs.progress(RUN) == ["a", "more of b"]


def test_what_is_abandoned_was_this_runs_and_is_over(ledger: Ledger) -> None:
    for dataset in ("lake/held", "lake/lost", "lake/given up", scan_lease("blobs")):
        lease = take_lease(ledger, dataset, RUN)
        if dataset == "lake/given up":
            ledger.leases.give_up([lease])
    take_lease(ledger, "lake/another's", "run 2")
    for dataset in ("lake/lost", "lake/another's", scan_lease("blobs")):
        write_past_ledger(
            ledger, LEASES.update().where(LEASES.c.dataset == dataset).values(expires_at=T0 - timedelta(days=9_000))
        )
    assert ledger.sweep_runs.abandoned(RUN) == ["lake/lost"]


def test_a_hold_of_a_file_changes_what_protects_and_is_read_back_as_it_was(ledger: Ledger) -> None:
    until = T0 + timedelta(days=9)
    holds = (
        Hold.model_validate({"name": "court", "reason": "r", "datasets": {"include": ["lake/*"], "with": {"realm": "x"}}}),
        Hold.model_validate({"reason": "r", "until": until, "datasets": {"include": ["*"]}, "transactions": ("T1*",)}),
    )
    said = [ledger.leases.protections()]
    for some in (holds[:1], holds, holds[1:], ()):
        ledger.holds.note_files(some, "me")
        assert sorted(str(row.keeper) for row in ledger.holds.recorded().files) == sorted(map(str, some))
        said.append(ledger.leases.protections())
    assert len(set(said[:4])) == 4
    assert said[4] == said[0]
