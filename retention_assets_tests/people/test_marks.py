"""`marks`, `unmark` and `keep`: what people see before bytes go, how they take marks back, and how they keep something for good."""

import json
import shlex
import socket
from datetime import timedelta

import pytest

from retention_assets.ledger import Ledger, Settlement
from retention_assets.ledger.schema import MARKS
from retention_assets.ledger.unmarking import AGAIN
from retention_assets.outcomes import Outcome
from retention_assets.people.marks import MarkStatus
from retention_assets.sql import streams
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, many, planned, statuses, swept
from retention_assets_tests.people.conftest import Json, Run, error_of
from retention_assets_tests.sweep.lakes import DUE, Lake

BEFORE, ON_TIME = "2026-01-07T23:59:59Z", "2026-01-08T00:00:00Z"


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
        "last_error": None, "opened_at": None, "closed_at": None, "until": None,
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
        (("--due", "--as-of", ON_TIME), {"T2"}),
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
    code, out, _ = run("marks", "--most", "0")
    assert (code, "SWEPT" in out, "Marks: " in out) == (0, True, False)


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
    "typed",
    [
        "--due --status SWEPT",
        f"--as-of {ON_TIME}",
        "--status marked",
        "--due --as-of 2026-01-01T00:00:00",
        "--most -1",
        "--format xml",
    ],
)
def test_options_of_marks_that_make_no_sense_are_bad_input(typed: str, marked: Ledger, run: Run) -> None:
    code, out, err = run("marks", *typed.split())
    assert (code, out, bool(err)) == (2, "", True)


def test_the_statuses_that_one_may_ask_for_are_those_of_the_ledger() -> None:
    [said] = [str(one.sqltext) for one in MARKS.constraints if str(one.name).endswith("status")]  # type: ignore[attr-defined]
    marked, *shown = [status.value for status in MarkStatus if status is not MarkStatus.SWEEPING]
    assert said == f"status = '{marked}' OR status IN ({', '.join(map(repr, shown))})"


# --- unmark ---


def test_unmark_takes_back_and_says_what_comes_next(marked: Ledger, run: Run) -> None:
    code, out, err = run("unmark", "lake/d", "T2", "--reason", "audit of the year")
    assert (code, out, err) == (0, "1 mark taken back.\n", f"Next: t{AGAIN[1:]}\n")
    assert statuses(marked) == {"T1": "UNMARKED", "T2": "UNMARKED"}
    [row] = [row for row in marked.marks.table(["lake/d"]).to_pylist() if row["transaction"] == "T2"]
    assert (row["changed_by"], row["why"]) == ("ann", "audit of the year")


@pytest.mark.parametrize(
    ("typed", "late"), [("--dataset lake/d", 0), ("--policy long", 0), ("--policy p", 2), ("--policy p --dataset lake/d", 0)]
)
def test_unmark_takes_back_all_of_a_dataset_or_policy(typed: str, late: int, marked: Ledger, run: Run) -> None:
    code, out, _ = run("unmark", *typed.split(), "--reason", "r", "--actor", "carol")
    too_late = f"Too late for 0 being swept and {late} swept.\n" if late else ""
    assert (code, out) == (0, f"1 mark taken back.\n{too_late}")
    assert "carol" in marked.marks.table(statuses=["UNMARKED"])["changed_by"].to_pylist()


def test_unmark_as_json_counts(marked: Ledger, found: Json) -> None:
    assert found("unmark", "--policy", "p", "--reason", "r") == {"unmarked": 1, "sweeping": 0, "swept": 2, "note": AGAIN}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake/swept", "S1"), "its bytes are gone and can't be restored"),
        (("lake/d", "T2", "T1"), "T1 of lake/d was taken back already"),
        (("lake/d", "T9"), "T9 of lake/d is not marked and never was"),
        (("--dataset", "lake/swept"), "No mark in lake/swept can be taken back. 0 are being swept, 2 were swept."),
    ],
    ids=["swept", "one of two", "never marked", "a dataset swept"],
)
def test_what_cannot_be_taken_back_is_refused_and_nothing_is(
    arguments: tuple[str, ...], words: str, marked: Ledger, run: Run
) -> None:
    err = error_of(run("unmark", *arguments, "--reason", "r"), 1)
    assert words in err
    assert "Nothing was taken back." in err
    assert statuses(marked)["T2"] == "MARKED"


@pytest.mark.parametrize(
    "typed",
    [
        "", "-r r", "lake/d -r r", "lake/d T2 --dataset lake/d -r r", "lake/d T2", "lake/d T2 -r '  '", "lake/d T2 -r r --actor ''",
        "lake/d T2 -r r --actor ::system",
    ],
)  # fmt: skip
def test_unmark_without_whose_who_or_why_is_bad_input(typed: str, marked: Ledger, run: Run) -> None:
    err = error_of(run("unmark", *shlex.split(typed)), 2)
    assert err.startswith(("Usage: ", "reason: is empty", "actor: is empty", "actor: begins with ::"))
    assert statuses(marked)["T2"] == "MARKED"


@pytest.mark.parametrize(("variable", "who"), [("RETENTION_ACTOR", "zoe"), ("LOGNAME", f"zoe@{socket.gethostname()}")])
def test_the_record_names_whom_the_environment_says_or_the_user_and_the_machine(
    variable: str, who: str, marked: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETENTION_ACTOR")
    monkeypatch.setenv(variable, "zoe")
    assert run("unmark", "lake/d", "T2", "--reason", "r")[0] == 0
    assert who in marked.marks.table(["lake/d"])["changed_by"].to_pylist()


def test_what_was_taken_back_is_marked_again_with_a_new_clock(marked: Ledger, found: Json) -> None:
    found("unmark", "lake/d", "T2", "--reason", "r")
    marked.marks.mark(candidates(["T2"]), LATER + timedelta(days=1), "evaluation")
    assert len(ids(marked, "T2")) == 1
    assert [row["due_at"] for row in found("marks", "--dataset", "lake/d", "--status", "MARKED")] == ["2026-01-16T00:00:00Z"]


SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHY = ("--reason", "the audit", "--actor", "ann")


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Two datasets, of each two transactions marked."""
    lake.has(SOME, "lake/a").has(SOME, "lake/b")
    assert lake.marks() == 4
    return lake


def test_what_is_kept_is_neither_swept_nor_marked_again(lake: Lake, run: Run) -> None:
    assert run("keep", "lake/a", "S1", *WHY) == (
        0,
        "1 transaction of lake/a is kept until the hold is released.\n1 mark was taken back.\nThe hold keep-lake/a-S1 was "
        "placed: no policy marks or sweeps what it holds.\nTo end it: `retention release keep-lake/a-S1 --reason …`, or "
        "the job `act_release`. After that, the policies decide.\n",
        "",
    )
    assert lake.marks() == 0
    lake.sweeps()
    assert (lake.there("lake/a"), lake.there("lake/b")) == ({"S1", "S3"}, {"S3"})
    assert run("release", "keep-lake/a-S1", *WHY)[0] == 0
    assert lake.marks(DUE) == 1


def test_a_dataset_is_kept_as_a_whole(lake: Lake, found: Json) -> None:
    assert found("keep", "lake/a", "--until", "2999-01-01", "--name", "year's end", *WHY) == {
        "dataset": "lake/a", "transactions": [], "known": 3, "until": "2999-01-01T00:00:00Z", "hold": "year's end",
        "placed": True, "unmarked": 2, "sweeping": 0, "swept": 0,
        "release": "retention release 'year'\"'\"'s end' --reason …", "warnings": [],
    }  # fmt: skip
    assert lake.marks() == 0
    assert set(lake.statuses("lake/a").values()) == {"UNMARKED"}
    assert set(lake.statuses("lake/b").values()) == {"MARKED"}


@pytest.mark.usefixtures("lake")
def test_keeping_once_more_says_so(run: Run) -> None:
    run("keep", "lake/a", "S1", "S2", *WHY)
    code, out, _ = run("keep", "lake/a", "S2", "S1", *WHY)
    assert code == 0
    assert "None of it was marked." in out
    assert "The hold keep-lake/a-S1-and-1-more was in force already" in out
    code, _, err = run("keep", "lake/a", "--name", "keep-lake/a-S1-and-1-more", *WHY)
    assert (code, "is in force for something else." in err) == (1, True)


def test_what_is_too_late_is_refused_and_nothing_is_changed(lake: Lake, run: Run) -> None:
    lake.sweeps()
    lake.has("main: T1:SNAPSHOT@90d=10 - T2:SNAPSHOT@1d=10", "lake/c")
    err = error_of(run("keep", "lake/a", "S3", "S1", *WHY), 1)
    assert err.startswith("S1 of lake/a was swept at ")
    assert err.endswith("\n  Nothing was changed.\n")
    assert run("hold", "--list")[1].startswith("No hold is in force")
    assert "Too late for 0 being swept and 2 swept." in run("keep", "lake/a", *WHY)[1]


def test_a_new_transaction_under_an_old_id_is_kept(lake: Lake, run: Run) -> None:
    lake.sweeps()
    lake.comes_again("S1", "lake/a", opened_at="2026-03-30T00:00:00Z", closed_at="2026-03-30T00:00:01Z")
    assert run("keep", "lake/a", "S1", *WHY)[0] == 0


def test_a_name_with_signs_of_a_glob_is_kept_alone(lake: Lake, found: Json) -> None:
    lake.has("main: A*:SNAPSHOT@90d=10 - AB:SNAPSHOT@80d=10 - AC:SNAPSHOT@1d=10", "lake/signs")
    assert found("keep", "lake/signs", "A*", *WHY)["hold"] == "keep-lake/signs-A*"
    assert lake.marks() == 1
    assert lake.statuses("lake/signs") == {"AB": "MARKED"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake/a", "S4"), "transaction 'S4' was never marked, and is not in the log of lake/a. Did you mean S3, S2 or S1?\n"),
        (("lake/z",), "dataset 'lake/z' is not in store lake. Did you mean lake/b or lake/a?\n"),
        (("laek/a",), "dataset: the settings have no store named laek (found 'laek/a'). Did you mean lake?\n"),
        (("b",), "dataset: the settings have no store named b (found 'b'). Did you mean lake/b?\n"),
        (("LAKE/A",), "dataset: the settings have no store named LAKE (found 'LAKE/A'). Did you mean lake/a?\n"),
        (("lake/a", "--until", "2001-01-01"), "until: is past (found 2001-01-01T00:00:00Z); expected an instant to come, such as 'in 30d'\n"),
        (("lake/a", " "), "transactions: is empty (found (' ',)); expected the ids of transactions\n"),
    ],
)  # fmt: skip
def test_what_is_nowhere_is_not_kept(arguments: tuple[str, ...], words: str, lake: Lake, run: Run) -> None:
    assert run("keep", *arguments, *WHY) == (2, "", words)
    with lake.opened() as ledger:
        assert ledger.holds.recorded(AS_OF).placed == []


def test_where_the_log_cannot_be_read_it_is_kept_all_the_same(lake: Lake, run: Run) -> None:
    """A hold can be released again, and what is deleted can't be brought back."""
    (lake.folder / "log").rename(lake.folder / "away")
    code, out, err = run("keep", "lake/a", "S1", *WHY)
    assert (code, out.splitlines()[1]) == (0, "1 mark was taken back.")
    assert err.startswith("The names are not checked, because the log can't be read. ")


def test_a_dataset_whose_log_is_not_sound_is_kept(lake: Lake, run: Run) -> None:
    line = {"dataset": "lake/a", "transaction": "S9", "parent": "S8", "type": "APPEND", "opened_at": "2026-01-01T00:00:00Z"}
    with (lake.folder / "log" / "lake-a.jsonl").open("a") as log:
        log.write(json.dumps({**line, "status": "OPEN"}) + "\n")
    code, out, err = run("keep", "lake/a", *WHY)
    assert (code, out.splitlines()[1]) == (0, "2 marks were taken back.")
    assert "lake/a is refused: unknown parent: S8" in err


def test_what_is_kept_before_anything_is_marked_needs_no_ledger_of_before(lake: Lake, run: Run) -> None:
    (lake.folder / "ledger.db").unlink()
    assert run("keep", "lake/a", *WHY)[0] == 0
    assert lake.marks() == 2
    assert lake.statuses("lake/a") == {}
