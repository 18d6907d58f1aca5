"""What is verified before each sweep, and that nobody who changes a row later makes it look sound: on both databases."""

import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from retention_assets.ledger import Ledger, OpenedReport, Settlement, due_mark_faults, rule_faults
from retention_assets.ledger.audit import verify
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets_tests.ledger.audit.test_edits import DAY, EDITS, hold
from retention_assets_tests.ledger.states import (
    LATER,
    T0,
    candidates,
    ids,
    plan_of,
    raise_visibility,
    take_lease,
    write_past_ledger,
)

RULES = ("holds", "file holds", "realms", "policies", "visibility", "clock", "objections", "places", "noted heads")


def faults_after(ledger: Ledger, statements: list[str] | str, *datasets: str) -> list[str]:
    """What a sweep would find after somebody wrote past the ledger. Nothing of it stays."""
    with ledger.database.engine.connect() as connection, connection.begin() as transaction:
        for statement in [statements] if isinstance(statements, str) else statements:
            assert connection.exec_driver_sql(statement.replace("%", "%%")).rowcount, statement
        found = [*rule_faults(connection), *due_mark_faults(connection, datasets or ["lake/d"], LATER)]
        transaction.rollback()
    return [sentence for _, sentence in found]


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.partition(":")[0] in RULES])
def test_a_sweep_names_every_row_of_the_rules_that_was_changed(on_file: Ledger, edit: str) -> None:
    statements, sentence = EDITS[edit]
    assert [fault for fault in faults_after(on_file, statements) if sentence in fault]


def test_a_sweep_names_every_row_of_the_rules_that_was_changed_on_postgresql(on_server: Ledger) -> None:
    for edit, (statements, sentence) in EDITS.items():
        if edit.partition(":")[0] in RULES:
            assert [fault for fault in faults_after(on_server, statements) if sentence in fault], edit


MARKS = {
    "another transaction": ("UPDATE marks SET \"transaction\" = 'T9' WHERE id = 5", "Mark 5 (T9 of lake/d) was changed"),
    "due earlier": ("UPDATE marks SET due_at = marked_at WHERE id = 4", "Mark 4 (T4 of lake/d) was changed"),
    "brought back": ("UPDATE marks SET status = 'MARKED' WHERE id = 1", "Mark 1 (T1 of lake/d) is said to be MARKED"),
    "not begun": ("UPDATE marks SET status = 'MARKED' WHERE id = 5", "Mark 5 (T5 of lake/d) is said to be MARKED"),
    "no attempt": ("UPDATE marks SET attempts = 0 WHERE id = 4", "its attempts is 0, and its steps say 1"),
    "changed at another time": (
        "UPDATE marks SET changed_at = marked_at WHERE id = 4",
        "Mark 4 (T4 of lake/d) was changed: its changed_at",
    ),
    "of an act that marks nothing": (
        "UPDATE marks SET act = (SELECT act FROM audit WHERE deed = 'UNMARK') WHERE id = 4",
        "Marks 4 to 4 (lake/d among others) were added past the ledger",
    ),
    "of no act": ("UPDATE marks SET act = 1 WHERE id = 4", "Marks 4 to 4 (lake/d among others) were added past the ledger"),
    "an act that was changed": ("UPDATE audit SET actor = 'x' WHERE deed = 'RELEASE'", "(RELEASE) was changed"),
}


@pytest.mark.parametrize("edit", MARKS)
def test_a_sweep_names_every_due_mark_that_was_changed(on_file: Ledger, on_server: Ledger, edit: str) -> None:
    statement, sentence = MARKS[edit]
    for ledger in (on_file, on_server):
        found = faults_after(ledger, statement)
        assert [fault for fault in found if sentence in fault], found


def test_marks_beyond_those_that_act_reserved_are_named(on_file: Ledger) -> None:
    """Sealed as the ledger seals: only the ids say that no act has made it."""
    row = on_file.marks.table(["lake/d"], ["MARKED"]).slice(0, 1)
    forged = row.set_column(0, "id", pa.array([99])).set_column(2, "transaction", pa.array(["LIVE"]))
    (seal,) = mark_seals(forged)
    names = ", ".join(f'"{name}"' for name in row.column_names if name not in ("id", "transaction", "seal"))
    statement = (
        f'INSERT INTO marks (id, "transaction", seal, {names}, changed_act)'
        f" SELECT 99, 'LIVE', '{seal}', {names}, changed_act FROM marks WHERE id = {row['id'][0].as_py()}"
    )
    assert "Marks 4 to 99 (lake/d among others) were added past the ledger: no act made them." in faults_after(
        on_file, statement
    )


def test_marks_that_are_not_due_and_other_datasets_stop_nobody(on_file: Ledger) -> None:
    earlier = "UPDATE marks SET due_at = marked_at WHERE id = 4"
    assert faults_after(on_file, earlier, "lake/other") == []
    with on_file.database.engine.connect() as connection:
        assert [*rule_faults(connection), *due_mark_faults(connection, ["lake/d", "lake/e"], LATER)] == []


# --- nobody seals what somebody else has changed ---


def settles(ledger: Ledger) -> None:
    lease = take_lease(ledger)
    plan = plan_of(ledger, lease, ids(ledger), LATER + timedelta(days=1))
    (begun,) = ledger.sweeps.begin([lease], [plan], ids(ledger, "T1")).marks
    ledger.sweeps.settle([lease], [Settlement(begun, Outcome.DELETED, 10)], DAY)


LAUNDERED: dict[str, tuple[str, Callable[[Ledger], object], str]] = {
    "a hold that is released": (
        "UPDATE holds SET content = replace(content, 'lake/*', 'x/y') WHERE name = 'h'", lambda one: one.holds.release("h", "bob", "over"), "of holds",
    ),
    "a hold of a file that goes": ("UPDATE file_holds SET content = 'x'", lambda one: one.holds.note_files([], "run"), "of file_holds"),
    "a realm that goes on": ("UPDATE realms SET grace = 'P0D'", lambda one: one.realms.change("acme", "ACTIVE", "bob", "r"), "Row acme of realms"),
    "a clock that is accepted": (
        "UPDATE clock SET newest_seen_at = newest_mark_at", lambda one: one.clock.accept(LATER, "bob", "r"), "Row 1 of clock",
    ),
    "a clock that sees": (
        "UPDATE clock SET accepted_until = newest_mark_at", lambda one: one.clock.check(LATER, None), "Row 1 of clock",
    ),
    "a clock that marks": (
        "UPDATE clock SET accepted_until = newest_mark_at", lambda one: one.marks.mark(candidates(["T9"]), LATER, "run"), "Row 1 of clock",
    ),
    "a visibility mark that rises": (
        "UPDATE visibility SET raised_by = 'x'", lambda one: raise_visibility(one, "lake/d", LATER, "bob"), "Row lake/d of visibility",
    ),
    "an objection that is taken back": (
        "UPDATE objections SET sentence = 'x'", lambda one: one.objections.withdraw(["lake/d"], "c", "run"), "Row lake/d, c of objections",
    ),
    "a report that counts": ("UPDATE reports SET to_delete = 0", settles, "Row 2026-01-08, lake/d of reports"),
    "a report that counts what was taken back": (
        "UPDATE reports SET to_delete = 0", lambda one: one.unmark.all_of("bob", "r", "lake/d"), "Row 2026-01-08, lake/d of reports",
    ),
}  # fmt: skip


@pytest.fixture
def lived(ledger: Ledger) -> Ledger:
    ledger.holds.place(hold("h"), "ann")
    ledger.holds.note_files([hold("f")], "run")
    ledger.realms.change("acme", "INACTIVE", "ann", "r", Duration(days=3))
    raise_visibility(ledger, "lake/d", T0)
    ledger.objections.object({"lake/d": "a reason"}, "c", "run")
    ledger.clock.check(T0 + timedelta(hours=1), None)
    ledger.marks.mark(candidates(["T1", "T2"]), T0 + timedelta(hours=2), "run")
    ledger.reports.open(DAY, {"lake/d": OpenedReport(classes={"due": 2})}, LATER + timedelta(days=1), "sweeper")
    return ledger


@pytest.mark.parametrize("case", LAUNDERED)
def test_who_changes_a_row_next_does_not_seal_what_was_changed_past_the_ledger(lived: Ledger, case: str) -> None:
    statement, act, name = LAUNDERED[case]
    assert lived.verify().faults == ()
    assert write_past_ledger(lived, statement)
    act(lived)
    assert [fault for fault in lived.verify().faults if name in fault and "was changed past the ledger" in fault]
    # Until a person vouches for it.
    accepted = lived.accept("ann", "looked at", None)
    assert [fault for fault in accepted.faults if name in fault]
    assert lived.verify().faults == ()
    with lived.database.reading() as connection:
        assert [*rule_faults(connection)] == []


def test_a_row_that_was_removed_is_accepted_and_comes_back_by_an_act_alone(lived: Ledger) -> None:
    write_past_ledger(lived, "DELETE FROM realms")
    assert lived.accept("ann", "looked at", None).faults[0].startswith("Row acme of realms was removed past the ledger")
    assert lived.verify().faults == ()
    write_past_ledger(
        lived,
        "INSERT INTO realms (name, status, grace, changed_at, changed_by, act)"
        " SELECT 'acme', 'INACTIVE', '3d', placed_at, 'ann', act FROM holds",
    )
    assert [fault for fault in lived.verify().faults if "Row acme of realms was added past the ledger" in fault]


# --- verifications that are acts ---


def test_a_verification_without_a_fault_is_recorded_and_the_next_new_one_begins_there(lived: Ledger) -> None:
    whole = lived.verify_and_record("ann")
    assert whole.faults == ()
    (line,) = [line for line in lived.audit_lines() if '"VERIFY"' in line]
    assert whole.head.hash in line
    # Nothing new but the verification itself: nothing is recorded.
    assert lived.verify_and_record("ann", only_new=True).rows == 1
    assert len([line for line in lived.audit_lines() if '"VERIFY"' in line]) == 1
    lived.realms.change("beta", "INACTIVE", "ann", "r")
    lived.unmark.transactions("lake/d", ["T1"], "ann", "r")
    fresh = lived.verify_and_record("ann", only_new=True)
    assert (fresh.faults, fresh.rows, fresh.members) == ((), 3, 1)
    assert lived.verify().faults == ()


NEW = {
    "a new row": ("UPDATE realms SET grace = 'x' WHERE name = 'beta'", "Row beta of realms was changed"),
    "a new row removed": ("DELETE FROM realms WHERE name = 'beta'", "Row beta of realms was removed"),
    "a new mark": ("UPDATE marks SET policy = 'x' WHERE \"transaction\" = 'T8'", "(T8 of lake/d) was changed"),
    "a new step": ("UPDATE steps SET why = 'x'", "The step of mark 1 to UNMARKED was changed"),
    "a new life": ("UPDATE marks SET why = 'x' WHERE \"transaction\" = 'T1'", "its why is x"),
    "a new plan": ("UPDATE planned SET bytes = 99", "of plan"),
    "a new act": ("UPDATE audit SET actor = 'x' WHERE position = (SELECT max(position) FROM audit)", "was changed"),
    "the act up to which all was verified": (
        "UPDATE audit SET hash = 'x' WHERE position = (SELECT min(position) - 1 FROM audit WHERE deed = 'VERIFY')", "is not the one up to which",
    ),
    "what is new removed": (
        "DELETE FROM audit WHERE position > (SELECT min(position) FROM audit WHERE deed = 'VERIFY')", "are missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", NEW)
def test_what_came_after_the_last_verification_is_verified_by_the_next_new_one(lived: Ledger, edit: str) -> None:
    lived.verify_and_record("ann")
    lived.realms.change("beta", "INACTIVE", "ann", "r")
    lived.marks.mark(candidates(["T8"]), T0 + timedelta(hours=3), "run")
    lived.unmark.transactions("lake/d", ["T1"], "ann", "r")
    lease = take_lease(lived)
    plan_of(lived, lease, ids(lived, "T2"), LATER + timedelta(days=1))
    statement, sentence = NEW[edit]
    assert write_past_ledger(lived, statement)
    faults = lived.verify_and_record("ann", only_new=True).faults
    assert [fault for fault in faults if sentence in fault], faults
    # A verification with a fault is no act: the next one begins where this one did.
    assert lived.verify_and_record("ann", only_new=True).faults == faults


def test_without_an_earlier_verification_a_new_one_is_of_everything(lived: Ledger) -> None:
    write_past_ledger(lived, "UPDATE holds SET reason = 'x'")
    assert [fault for fault in lived.verify_and_record("ann", only_new=True).faults if "of holds was changed" in fault]


def test_a_run_verifies_what_is_new_and_the_whole_once_a_day(lived: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lived.verify_in_run("run").rows > 3
    lived.realms.change("beta", "INACTIVE", "ann", "r")
    # The act of the verification, and that of the realm.
    assert lived.verify_in_run("run").rows == 2
    # Before the head: nobody sees it until all is verified.
    assert write_past_ledger(lived, "UPDATE marks SET policy = 'x' WHERE \"transaction\" = 'T1'")
    assert lived.verify_in_run("run").faults == ()
    # After the head: it is seen at once, and by each run until it is mended.
    lived.realms.change("gamma", "INACTIVE", "ann", "r")
    assert write_past_ledger(lived, "UPDATE realms SET grace = 'x' WHERE name = 'gamma'")
    for _ in range(2):
        (fault,) = lived.verify_in_run("run").faults
        assert "Row gamma of realms was changed" in fault
    with monkeypatch.context() as patched:
        patched.setattr(verify, "WHOLE_EVERY", timedelta(0))
        faults = lived.verify_in_run("run").faults
    assert {"T1 of lake/d" in fault for fault in faults} == {True, False}
    # An act that is said to be of everything and is not what was written puts nothing off.
    assert write_past_ledger(lived, "UPDATE audit SET actor = 'x' WHERE deed = 'VERIFY' AND position < 30")
    assert len(lived.verify_in_run("run").faults) > len(faults)


# --- what the record says of holds ---


def test_the_act_of_a_hold_says_what_is_held(ledger: Ledger) -> None:
    ledger.holds.place(hold("case", transactions=["T*"], until="2099-01-01T00:00:00Z"), "ann")
    ledger.holds.note_files([hold("filed")], "run")
    ledger.holds.note_files([hold("filed")], "run")
    ledger.holds.note_files([], "run")
    ledger.holds.note_files([hold("filed")], "run")
    lines = [json.loads(line) for line in ledger.audit_lines()]
    said = [{name: line["detail"].get(name) for name in ("name", "source")} for line in lines]
    assert [(line["deed"], one["name"], one["source"]) for line, one in zip(lines, said, strict=True)] == [
        ("HOLD", "case", "ledger"), ("HOLD", "filed", "file"), ("RELEASE", "filed", "file"), ("HOLD", "filed", "file"),
    ]  # fmt: skip
    first = {name: lines[0]["detail"][name] for name in ("datasets", "transactions", "owner", "until")}
    assert first == {
        "datasets": {"include": ["lake/*"]}, "transactions": ["T*"], "owner": "legal", "until": "2099-01-01T00:00:00Z",
    }  # fmt: skip
    assert lines[1]["detail"]["datasets"] == {"include": ["lake/*"]}
    assert ledger.verify().faults == ()
