"""The audit on both databases: whatever somebody writes past the ledger, verifying names it."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from retention_assets.ledger import Act, ActType, ChainHead, Ledger, Settlement
from retention_assets.ledger.schema import REALMS
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import (
    T0,
    candidates,
    ids,
    many,
    planned,
    statuses,
    swept,
    take_lease,
    write_past_ledger,
)

COLUMNS = "act, at, actor, deed, dataset, policy, policy_version, reason, detail, members, digest, previous, hash"


@pytest.fixture
def written(ledger: Ledger) -> Ledger:
    """Rows 1 MARK, 2 UNMARK, 3 PLAN, 4 BEGIN, 5 SETTLE, 6 FINISH."""
    ledger.marks.mark(candidates(["T1", "T2", "T3"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    swept(ledger, outcomes={"T3": Outcome.FAILED})
    return ledger


def test_a_record_that_nobody_touched_verifies(written: Ledger) -> None:
    verdict = written.verify()
    assert verdict.faults == ()
    assert (verdict.rows, verdict.members, verdict.head.position) == (6, 3 + 1 + 2 + 1 + 2, 6)


def swap(first: int, second: int) -> list[str]:
    moves = ((first, -1), (second, first), (-1, second))
    return [f"UPDATE audit SET position = {new} WHERE position = {old}" for old, new in moves]


def act_of(position: int) -> str:
    return f"(SELECT act FROM audit WHERE position = {position})"


# Marks as they were before they ended or failed.
NOT_ENDED = (
    "status = 'MARKED', why = NULL, changed_act = NULL, changed_by = NULL, changed_at = NULL, outcome = NULL, freed = NULL,"
    " end_seal = NULL, attempts = 0, last_error = NULL"
)
TAMPERED = {
    "removed rows": (["DELETE FROM audit WHERE position IN (3, 4)"], "Rows 3 to 4 of the audit are missing"),
    "a removed end": (["DELETE FROM audit WHERE position >= 5"], "Rows 5 to 6 of the audit are missing"),
    "rows in another order": (swap(2, 3), "Row 2 of the audit (PLAN) was moved: it was written as row 3"),
    "an added row": (
        [
            f"INSERT INTO audit (position, {COLUMNS}) SELECT 7, act + 1, {COLUMNS.partition(', ')[2]} FROM audit WHERE position = 6"
        ],
        "Row 7 of the audit (FINISH) was changed",
    ),
    "a mark sealed anew": (["UPDATE marks SET seal = 'x'"], "Row 1 of the audit (MARK) names other marks than there are"),
    "an earlier step": (
        ["UPDATE marks SET status = 'MARKED', changed_act = (SELECT act FROM audit WHERE position = 4) WHERE id = 2"],
        "Mark 2 (T2 of lake/d) has the status MARKED, but its last step led to SWEPT",
    ),
    "all marks removed": (
        ["DELETE FROM planned", "DELETE FROM marks"],
        "Row 1 of the audit (MARK) counts 3 members, but there are none",
    ),
    # As if it had never been: the marks are put back where they were before.
    "an unmarking undone": (
        [f"UPDATE marks SET {NOT_ENDED} WHERE id = 1"],
        "Row 2 of the audit (UNMARK) counts 1 members, but there are none",
    ),
    "a settlement undone": (
        ["DELETE FROM steps", f"UPDATE marks SET {NOT_ENDED} WHERE id > 1", "UPDATE batches SET open_ids = ids"],
        "Row 5 of the audit (SETTLE) counts 2 members, but there are none",
    ),
    "a whole sweep undone": (
        ["DELETE FROM steps", f"UPDATE marks SET {NOT_ENDED} WHERE id > 1", "DELETE FROM batches"],
        "Row 4 of the audit (BEGIN) counts 1 members, but there are none",
    ),
    "a step sealed anew": (
        ["UPDATE steps SET seal = 'x'"],
        "Row 5 of the audit (SETTLE) names other steps than there are",
    ),
    "an end sealed anew": (
        ["UPDATE marks SET end_seal = 'x' WHERE id = 2"],
        "Row 5 of the audit (SETTLE) names other steps than there are",
    ),
    "a batch sealed anew": (
        ["UPDATE batches SET seal = 'x'"],
        "Row 4 of the audit (BEGIN) names other batches than there are",
    ),
}


@pytest.mark.parametrize(("statements", "sentence"), TAMPERED.values(), ids=TAMPERED)
def test_what_was_written_past_the_ledger_is_named(written: Ledger, statements: list[str], sentence: str) -> None:
    assert all(write_past_ledger(written, statement) for statement in statements)
    assert [fault for fault in written.verify().faults if sentence in fault]


ENDS = {"spared": "SPARE", "failed": "SETTLE", "spared by its store": "SETTLE", "deleted": "SETTLE"}


@pytest.mark.parametrize("end", ENDS)
def test_an_act_whose_members_were_all_removed_is_named_whatever_it_did(ledger: Ledger, end: str) -> None:
    """Steps and marks are made to fit each other again, and what is left to say it is the act alone."""
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    lease, plan, batch = planned(ledger)
    if end == "spared":
        ledger.sweeps.spare([lease], dict.fromkeys(batch, "a tag"))
    else:
        outcome = {"failed": Outcome.FAILED, "spared by its store": Outcome.SPARED}.get(end, Outcome.DELETED)
        ledger.sweeps.begin([lease], [plan], batch)
        ledger.sweeps.settle([lease], [Settlement(mark, outcome) for mark in batch])
    row = ledger.verify().head.position
    assert write_past_ledger(ledger, f"DELETE FROM steps WHERE act = {act_of(row)}") == 2 * (end == "failed")
    write_past_ledger(ledger, "UPDATE batches SET open_ids = ids")
    assert write_past_ledger(ledger, f"UPDATE marks SET {NOT_ENDED}") == 2
    assert ledger.verify().faults == (f"Row {row} of the audit ({ENDS[end]}) counts 2 members, but there are none.",)


def test_a_chain_written_anew_is_found_by_who_noted_its_head(written: Ledger) -> None:
    noted = written.verify().head
    assert written.verify(noted).faults == ()
    (fault,) = written.verify(ChainHead(noted.position, "0" * 64)).faults
    assert fault == "Row 6 of the audit is not the row that was noted before: the audit was rewritten."
    (fault,) = written.verify(ChainHead(99, noted.hash)).faults
    assert fault == "Row 99 of the audit was noted before, but the audit ends with row 6."


def test_a_line_holds_all_that_its_hash_is_over(written: Ledger) -> None:
    lines = [json.loads(line) for line in written.audit_lines()]
    names = [name for name in lines[0] if name != "hash"]
    previous = "0" * 64
    for line in lines:
        values = [
            json.dumps(line[name], sort_keys=True, ensure_ascii=False) if name == "detail" else line[name] for name in names
        ]
        said = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        assert (line["hash"], line["previous"]) == (hashlib.sha256(said.encode()).hexdigest(), previous)
        previous = line["hash"]
    assert [line["position"] for line in map(json.loads, written.audit_lines(after=4))] == [5, 6]


def test_markers_at_once_mark_everything_once_and_times_rise(ledger: Ledger) -> None:
    table = many(500, 100)

    def marks(number: int) -> int:
        return ledger.marks.mark(table, T0 + timedelta(seconds=number % 3), f"marker {number}").new

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(marks, range(8))) == 500
    assert len(ids(ledger, dataset="lake/d0")) == 100
    assert set(statuses(ledger, "lake/d4").values()) == {"MARKED"}
    assert ledger.verify().faults == ()


def test_an_act_seals_only_tables_that_such_acts_write(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="HOLD is no act that writes to realms"):
        ledger.database.write(lambda tx: tx.seal(REALMS, REALMS.c.name == "x", Act(ActType.HOLD, "ann")))


def test_a_row_without_an_act_that_was_changed_stays_named_whoever_writes_it_next(ledger: Ledger) -> None:
    ledger.leases.give_up([take_lease(ledger)])
    write_past_ledger(ledger, "UPDATE leases SET token = 7")
    assert take_lease(ledger, "lake/d", "another").token == 8
    assert [fault for fault in ledger.verify().faults if "Row lake/d of leases was changed or added" in fault]
