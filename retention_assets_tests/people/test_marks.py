"""`marks` and `unmark`: what people see before bytes go, and how they keep them."""

import json
import socket
from datetime import timedelta

import pytest

from retention_assets.ledger import Ledger
from retention_assets.ledger.batches import Settlement
from retention_assets.ledger.schema import MARKS
from retention_assets.ledger.unmarking import AGAIN
from retention_assets.outcomes import Outcome
from retention_assets.people.marks import MarkStatus
from retention_assets.sql import streams
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, many, planned, statuses, swept
from retention_assets_tests.people.conftest import Json, Run

BEFORE, DUE = "2026-01-07T23:59:59Z", "2026-01-08T00:00:00Z"


@pytest.fixture
def marked(ledger: Ledger) -> Ledger:
    """T1 of lake/d taken back, T2 MARKED; S1 and S2 of lake/swept SWEPT; L1 of ice/l MARKED by another policy for longer."""
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    ledger.marks.mark(candidates(["S1", "S2"], dataset="lake/swept"), T0, "evaluation")
    ledger.marks.mark(candidates(["L1"], dataset="ice/l", policy="long", grace="30d", size=7), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "bob", "still needed")
    swept(ledger, "lake/swept")
    return ledger


def names(rows: list[dict[str, object]]) -> set[object]:
    return {row["transaction"] for row in rows}


def test_marks_prints_every_field_of_a_mark(marked: Ledger, found: Json) -> None:
    [row] = found("marks", "--dataset", "ice/l")
    assert row == {
        "dataset": "ice/l", "transaction": "L1", "policy": "long", "policy_version": 1, "reason": "SELECTED",
        "marked_at": "2026-01-01T00:00:00Z", "due_at": "2026-01-31T00:00:00Z", "status": "MARKED", "bytes": 7, "attempts": 0,
        "last_error": None, "opened_at": None, "closed_at": None,
        "message": "This transaction has been scheduled for deletion.",
    }  # fmt: skip
    said = {row["transaction"]: row["message"] for row in found("marks")}
    assert (said["T1"], said["S1"]) == (None, "Transaction data has been deleted.")


@pytest.mark.parametrize(
    ("options", "transactions"),
    [
        ((), {"T1", "T2", "S1", "S2", "L1"}),
        (("--dataset", "lake/*"), {"T1", "T2", "S1", "S2"}),
        (("--dataset", "lake/d", "--dataset", "ice/l"), {"T1", "T2", "L1"}),
        (("--dataset", "lake/d", "--dataset", "i*"), {"T1", "T2", "L1"}),
        (("--dataset", "lake"), set()),
        (("--policy", "long"), {"L1"}),
        (("--status", "MARKED"), {"T2", "L1"}),
        (("--status", "SWEPT", "--status", "UNMARKED"), {"S1", "S2", "T1"}),
        (("--due", "--as-of", BEFORE), set()),
        (("--due", "--as-of", DUE), {"T2"}),
        (("--due", "--status", "MARKED", "--as-of", "2026-02-01"), {"T2", "L1"}),
        (("--due", "--policy", "long", "--as-of", "2026-02-01"), {"L1"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_marks_lists_what_was_asked_for(options: tuple[str, ...], transactions: set[str], marked: Ledger, found: Json) -> None:
    assert names(found("marks", *options)) == transactions


def test_the_table_counts_by_status_and_lists_the_first(marked: Ledger, run: Run) -> None:
    code, out, err = run("marks", "--most", "2")
    assert (code, err) == (0, "")
    lines = [line.replace("│", " ").split() for line in out.splitlines()]
    for counted in (["MARKED", "2", "17", "B"], ["SWEPT", "2", "20", "B"], ["UNMARKED", "1", "10", "B"]):
        assert counted in lines
    assert "Marks: 2 of 5" in out
    assert "p@1" in out


def test_a_table_of_none_lists_none(marked: Ledger, run: Run) -> None:
    code, out, _ = run("marks", "--most", "0")
    assert code == 0
    assert "SWEPT" in out
    assert "Marks: " not in out


def test_a_failed_mark_says_how_often_and_why(marked: Ledger, found: Json) -> None:
    lease, plan, due = planned(marked)
    marked.sweeps.begin([lease], [plan], due)
    marked.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, error="the disk is on fire") for mark in due])
    [row] = found("marks", "--dataset", "lake/d", "--status", "MARKED")
    assert (row["attempts"], row["last_error"]) == (1, "the disk is on fire")


def test_marks_over_many_batches_are_one_array(ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BATCH", 2_500)
    ledger.marks.mark(many(6_000, 3_000), T0, "evaluation")
    code, out, _ = run("marks", "--format", "json", "--dataset", "lake/*")
    rows = json.loads(out)
    assert (code, len(rows), len(names(rows))) == (0, 6_000, 6_000)
    assert "6,000" in run("marks", "--dataset", "lake/*")[1]


@pytest.mark.parametrize(
    "options",
    [
        ("--due", "--status", "SWEPT"),
        ("--as-of", DUE),
        ("--status", "marked"),
        ("--due", "--as-of", "2026-01-01T00:00:00"),
        ("--most", "-1"),
        ("--format", "xml"),
    ],
    ids=" ".join,
)
def test_options_of_marks_that_make_no_sense_are_bad_input(options: tuple[str, ...], marked: Ledger, run: Run) -> None:
    code, out, err = run("marks", *options)
    assert (code, out) == (2, "")
    assert err


def test_the_statuses_that_one_may_ask_for_are_those_of_the_ledger() -> None:
    [said] = [str(one.sqltext) for one in MARKS.constraints if str(one.name).endswith("status")]  # type: ignore[attr-defined]
    assert said == f"status IN ({', '.join(map(repr, [status.value for status in MarkStatus]))})"


# --- unmark ---


def test_unmark_takes_back_and_says_what_comes_next(marked: Ledger, run: Run) -> None:
    code, out, err = run("unmark", "lake/d", "T2", "--reason", "audit of the year")
    assert (code, out, err) == (0, "1 mark taken back.\n", f"Next: w{AGAIN[1:]}\n")
    assert statuses(marked) == {"T1": "UNMARKED", "T2": "UNMARKED"}
    [row] = [row for row in marked.marks.table(["lake/d"]).to_pylist() if row["transaction"] == "T2"]
    assert (row["changed_by"], row["why"]) == ("ann", "audit of the year")


@pytest.mark.parametrize(
    ("options", "unmarked"),
    [
        (("--dataset", "lake/d"), 1),
        (("--policy", "long"), 1),
        (("--policy", "p"), 1),
        (("--policy", "p", "--dataset", "lake/d"), 1),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_unmark_takes_back_all_of_a_dataset_or_policy(
    options: tuple[str, ...], unmarked: int, marked: Ledger, found: Json
) -> None:
    late = 2 if options == ("--policy", "p") else 0
    said = found("unmark", *options, "--reason", "r", "--actor", "carol")
    assert said == {"unmarked": unmarked, "sweeping": 0, "swept": late, "note": AGAIN}
    assert "carol" in marked.marks.table(statuses=["UNMARKED"])["changed_by"].to_pylist()


def test_unmark_says_for_how_many_it_was_too_late(marked: Ledger, run: Run) -> None:
    code, out, _ = run("unmark", "--policy", "p", "--reason", "r")
    assert (code, out) == (0, "1 mark taken back.\nToo late for 0 that are being swept and 2 that were swept.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake/swept", "S1"), "its bytes are gone, and no mark can bring them back"),
        (("lake/d", "T2", "T1"), "T1 of lake/d was taken back already"),
        (("lake/d", "T9"), "T9 of lake/d is not marked and never was"),
        (
            ("--dataset", "lake/swept"),
            "There is no mark in lake/swept that can be taken back. 0 are being swept and 2 were swept.",
        ),
    ],
    ids=["swept", "one of two", "never marked", "a dataset swept"],
)
def test_what_cannot_be_taken_back_is_refused_and_nothing_is(
    arguments: tuple[str, ...], words: str, marked: Ledger, run: Run
) -> None:
    code, out, err = run("unmark", *arguments, "--reason", "r")
    assert (code, out) == (1, "")
    assert words in err
    assert "Nothing was taken back." in err
    assert statuses(marked)["T2"] == "MARKED"


def test_what_is_being_swept_is_refused(marked: Ledger, run: Run) -> None:
    lease, plan, due = planned(marked)
    marked.sweeps.begin([lease], [plan], due)
    code, _, err = run("unmark", "lake/d", "T2", "--reason", "r")
    assert code == 1
    assert "T2 of lake/d is being swept since" in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--reason", "r"),
        ("lake/d", "--reason", "r"),
        ("lake/d", "T2", "--dataset", "lake/d", "--reason", "r"),
        ("lake/d", "T2"),
        ("lake/d", "T2", "--reason", "  "),
        ("lake/d", "T2", "--reason", "r", "--actor", ""),
        ("lake/d", "T2", "--reason", "r", "--actor", "::system"),
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_unmark_without_whose_who_or_why_is_bad_input(arguments: tuple[str, ...], marked: Ledger, run: Run) -> None:
    code, out, err = run("unmark", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(("Usage: ", "reason: is empty", "actor: is empty", "actor: begins with ::"))
    assert statuses(marked)["T2"] == "MARKED"


def test_the_environment_may_say_who_it_is(marked: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETENTION_ACTOR", "nightly job")
    assert run("unmark", "lake/d", "T2", "--reason", "r")[0] == 0
    assert "nightly job" in marked.marks.table(["lake/d"])["changed_by"].to_pylist()


def test_the_record_names_the_user_and_the_machine_where_nobody_says_who(
    marked: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETENTION_ACTOR")
    monkeypatch.setenv("LOGNAME", "ann")
    assert run("unmark", "lake/d", "T2", "--reason", "r")[0] == 0
    assert f"ann@{socket.gethostname()}" in marked.marks.table(["lake/d"])["changed_by"].to_pylist()


def test_what_was_taken_back_is_marked_again_with_a_new_clock(marked: Ledger, found: Json) -> None:
    found("unmark", "lake/d", "T2", "--reason", "r")
    marked.marks.mark(candidates(["T2"]), LATER + timedelta(days=1), "evaluation")
    assert len(ids(marked, "T2")) == 1
    assert [row["due_at"] for row in found("marks", "--dataset", "lake/d", "--status", "MARKED")] == ["2026-01-16T00:00:00Z"]
