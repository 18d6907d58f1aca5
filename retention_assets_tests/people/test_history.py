"""`history`: the life of each transaction, told from the record. Who asks why bytes are gone, or will be, is answered here."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.ledger import Ledger, Settlement, open_ledger
from retention_assets.outcomes import Outcome
from retention_assets.policy import Datasets, Hold, text_of
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.ledger.states import LATER, T0, Times, candidates, ids, planned, swept, take_lease
from retention_assets_tests.people.conftest import LEDGER, Json, Run, error_of
from retention_assets_tests.sweep.lakes import Lake

LOG = ("--log", "log.jsonl")
BEFORE, ON, AFTER = ("--as-of", "2026-01-07"), ("--as-of", "2026-01-08"), ("--as-of", "2026-01-09")
# of a change that a test made now
_MINUTE = re.compile(r"(at|since) (?!2026-01-0)\d{4}-\d\d-\d\d \d\d:\d\d UTC")
MARK = "marked at 2026-01-01 00:00 UTC by policy p@1"


def log(drawing: str, **about: Any) -> None:
    Path("log.jsonl").write_text("\n".join(to_lines([history(drawing, **about)])))


def begun(ledger: Ledger, outcome: Outcome | None, size: int = 10, error: str | None = None) -> None:
    """T, begun by a sweep, and settled if there is an outcome."""
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin([lease], [plan], due)
    if outcome:
        ledger.sweeps.settle([lease], [Settlement(mark, outcome, size, error) for mark in due])
    ledger.leases.give_up([lease])


def spared(ledger: Ledger) -> None:
    lease = take_lease(ledger)
    ledger.sweeps.spare([lease], dict.fromkeys(ids(ledger), "Branch main reads it again."))


def held(ledger: Ledger) -> None:
    ledger.holds.place(Hold(name="lawsuit", datasets=Datasets(include=("lake/*",)), transactions=("T*",), reason="r"), "bob")


def swept_and_then_held(ledger: Ledger) -> None:
    swept(ledger)
    held(ledger)


def twice_failed(ledger: Ledger) -> None:
    begun(ledger, Outcome.FAILED, 0, "the disk is on fire")
    begun(ledger, Outcome.FAILED, 0, "the disk is full")


# What happened to T after it was marked, the instant at which is asked, the mark's state, the words with `…` for times
LIVES: dict[str, tuple[Callable[[Ledger], object], tuple[str, str], str, str]] = {
    "scheduled": (Ledger.verify, BEFORE, "MARKED", f"scheduled for deletion at 2026-01-08 00:00 UTC, {MARK}"),
    "due this instant": (Ledger.verify, ON, "MARKED", f"due since 2026-01-08 00:00 UTC, {MARK}"),
    "due": (Ledger.verify, AFTER, "MARKED", f"due since 2026-01-08 00:00 UTC, {MARK}"),
    "taken back": (
        lambda ledger: ledger.unmark.transactions("lake/d", ["T"], "bob", "still needed"),
        AFTER, "UNMARKED", "taken back at … by bob: still needed",
    ),
    "spared": (spared, AFTER, "SPARED", "spared by the sweep at … by sweeper; the reason then: Branch main reads it again."),
    "being swept": (
        lambda ledger: begun(ledger, None),
        AFTER, "SWEEPING", "being swept since … by sweeper: its bytes may be gone; policy p@1 marked it",
    ),
    "deleted": (swept, AFTER, "SWEPT", "deleted (10 B) at … by sweeper; policy p@1 marked it"),
    "held too late": (swept_and_then_held, AFTER, "SWEPT", "deleted (10 B) at … by sweeper; policy p@1 marked it"),
    "gone already": (
        lambda ledger: begun(ledger, Outcome.ALREADY_GONE),
        AFTER, "SWEPT", "was already gone at … by sweeper; policy p@1 marked it",
    ),
    "failed once": (
        lambda ledger: begun(ledger, Outcome.FAILED, 0, "the disk is on fire"),
        AFTER, "MARKED", f"due since 2026-01-08 00:00 UTC, {MARK}; deleting it failed once, the last time with: the disk is on fire",
    ),
    "failed twice": (
        twice_failed,
        AFTER, "MARKED", f"due since 2026-01-08 00:00 UTC, {MARK}; deleting it failed 2 times, the last time with: the disk is full",
    ),
    "held": (held, AFTER, "MARKED", f"due since 2026-01-08 00:00 UTC, {MARK}; held by lawsuit, so it is not swept"),
}  # fmt: skip

MESSAGES = {
    "MARKED": "This transaction has been scheduled for deletion.",
    "SWEEPING": "This transaction has been scheduled for deletion.",
    "SWEPT": "Transaction data has been deleted.",
}


@pytest.mark.parametrize(("happens", "as_of", "state", "words"), LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("listed", [True, False], ids=["in a log", "without a log"])
def test_a_life_is_told_in_words(
    happens: Callable[[Ledger], object], as_of: tuple[str, str], state: str, words: str, listed: bool, ledger: Ledger, found: Json,
) -> None:  # fmt: skip
    ledger.marks.mark(candidates(["T"]), T0, "evaluation")
    happens(ledger)
    log("main: T:SNAPSHOT@90d=10 - U:SNAPSHOT@89d")
    said = found("history", "lake/d", "T", *as_of, *(LOG if listed else ()))
    [life] = said["transactions"]
    assert (life["mark"], life["policy"], life["in_log"], life["bytes"]) == (state, "p@1", listed, 10 if listed else None)
    kept = "This transaction is marked, and the hold lawsuit keeps it." if life["holds"] else None
    assert life["message"] == (kept or MESSAGES.get(state))
    assert _MINUTE.sub(r"\1 …", life["words"]) == words
    assert life["due_at"] == ("2026-01-08T00:00:00Z" if state in ("MARKED", "SWEEPING") else None)


def test_every_step_of_every_mark_is_a_field(ledger: Ledger, found: Json) -> None:
    ledger.marks.mark(candidates(["T"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T"], "bob", "still needed")
    ledger.marks.mark(candidates(["T"], grace="0s"), LATER, "evaluation")
    begun(ledger, Outcome.FAILED, 0, "the disk is on fire")
    begun(ledger, Outcome.DELETED, 9)
    [life] = found("history", "lake/d")["transactions"]
    first, second = life["marks"]
    assert [(event["status"], event["by"], event["why"]) for event in first["events"]] == [("UNMARKED", "bob", "still needed")]
    assert [(event["status"], event["outcome"], event["bytes"]) for event in second["events"]] == [
        ("SWEEPING", None, None), ("MARKED", "FAILED", 0), ("SWEEPING", None, None), ("SWEPT", "DELETED", 9),
    ]  # fmt: skip
    assert second["marked_at"] == "2026-01-08T00:00:00Z"


# T as its log has it, and one that had its id before.
NOW = (AS_OF - timedelta(days=90),) * 2
BEFORE_NOW = (NOW[0], NOW[1] - timedelta(microseconds=1))
SWEPT_BEFORE = "an earlier transaction of this name was deleted (10 B) at … by sweeper; policy p@1 marked it"


def came_again(ledger: Ledger, *marked: Times) -> None:
    ledger.marks.mark(candidates(["T"], life=BEFORE_NOW), T0, "evaluation")
    ledger.leases.give_up([swept(ledger)])
    for life in marked:
        ledger.marks.mark(candidates(["T"], life=life), T0, "evaluation")


def both_swept(ledger: Ledger) -> None:
    came_again(ledger, NOW)
    ledger.leases.give_up([swept(ledger)])


@pytest.mark.parametrize(
    ("happens", "state", "words"),
    [
        pytest.param(came_again, None, f"not marked; held by h; {SWEPT_BEFORE}", id="not marked yet"),
        pytest.param(
            lambda ledger: came_again(ledger, NOW), "MARKED",
            f"due since 2026-01-08 00:00 UTC, {MARK}; held by h, so it is not swept; {SWEPT_BEFORE}", id="marked",
        ),
        pytest.param(
            lambda ledger: came_again(ledger, (NOW[0], None)), "MARKED",
            f"due since 2026-01-08 00:00 UTC, {MARK}; its log has another transaction of this name now, so it is not swept; " f"held by h, so it is not swept; {SWEPT_BEFORE}", id="another is marked",
        ),
        pytest.param(
            both_swept, "SWEPT",
            f"{SWEPT_BEFORE.removeprefix('an earlier transaction of this name was ')}; {SWEPT_BEFORE}", id="both are swept",
        ),
    ],
)  # fmt: skip
def test_the_lives_of_an_id_are_told_newest_first_and_the_newest_is_what_the_log_has(
    happens: Callable[[Ledger], object], state: str | None, words: str, ledger: Ledger, found: Json
) -> None:
    happens(ledger)
    ledger.holds.place(Hold(name="h", datasets=Datasets(include=("lake/*",)), reason="r"), "bob")
    log("main: T:SNAPSHOT@90d=10 - U:SNAPSHOT@89d")
    [life] = found("history", "lake/d", "T", *AFTER, *LOG)["transactions"]
    assert (life["mark"], _MINUTE.sub(r"\1 …", life["words"])) == (state, words)
    assert (life["due_at"] is None) == (state != "MARKED")
    assert [(one["opened_at"], one["closed_at"]) for one in life["marks"]][:1] == [tuple(map(text_of, BEFORE_NOW))]
    without = found("history", "lake/d", "T", *AFTER)["transactions"][0]
    assert (without["mark"], len(without["marks"])) == (state or "SWEPT", len(life["marks"]))


@pytest.fixture
def logged(ledger: Ledger) -> Ledger:
    """A swept and in no log; S marked; main's latest view is T and U."""
    log("main: S:SNAPSHOT@90d=7 - T:SNAPSHOT@80d - U:APPEND@70d")
    ledger.marks.mark(candidates(["A"]), T0, "evaluation")
    swept(ledger)
    ledger.marks.mark(candidates(["S"]), LATER, "evaluation")
    return ledger


def test_first_comes_the_log_then_what_only_the_ledger_knows(logged: Ledger, found: Json, run: Run) -> None:
    rows = found("history", "lake/d", *LOG)["transactions"]
    assert [(row["transaction"], row["in_log"], row["mark"], row["protected_by"]) for row in rows] == [
        ("S", True, "MARKED", None), ("T", True, None, "main"), ("U", True, None, "main"), ("A", False, "SWEPT", None),
    ]  # fmt: skip
    assert rows[1]["words"] == "not marked; protected by main"
    code, out, err = run("history", "lake/d", *LOG, "--most", "2")
    assert (code, "2 of 4 transactions" in out) == (0, True)
    assert "no policy files" in err
    assert "(in no log)" in run("history", "lake/d", *LOG)[1]


def test_some_are_told_in_the_order_in_which_they_were_named(logged: Ledger, found: Json) -> None:
    rows = found("history", "lake/d", "U", "A", "U", "S", *LOG)["transactions"]
    assert [row["transaction"] for row in rows] == ["U", "A", "S"]


def test_one_that_nobody_knows_is_bad_input(logged: Ledger, run: Run) -> None:
    err = error_of(run("history", "lake/d", "UU", "S", *LOG, "--format", "json"), 2)
    assert "transaction 'UU' was never marked, and is not in the log of lake/d. Did you mean U?" in err
    assert "and is not in any log that was named" in run("history", "lake/d", "T")[2]
    assert "dataset: is empty (found ''); expected a dataset, as store/name" in error_of(run("history", ""), 2)


def test_the_ledger_may_be_missing_where_a_log_is(run: Run) -> None:
    log("main: S:SNAPSHOT@90d - T:SNAPSHOT@80d")
    code, out, err = run("history", "lake/d", *LOG, "--format", "json")
    assert [row["words"] for row in json.loads(out)["transactions"]] == ["not marked", "not marked; protected by main"]
    assert (code, LEDGER.exists()) == (0, False)
    assert "no ledger yet at" in err


RECORDS = (
    "{name: lake, kind: records, url: 'postgresql://nobody@localhost/none',"
    " root: {table: t, key: id, opened_at: a, closed_at: b}}"
)
EMPTIED = "{name: lake, kind: files, log: log.jsonl, data: 'data/{dataset}/{transaction}'}"


@pytest.mark.parametrize(
    ("store", "code"),
    [(RECORDS, 0), (EMPTIED, 0), (EMPTIED.replace("log.jsonl", "nothing-here"), 1)],
    ids=["a store that is not read", "a dataset that is gone", "a store that is away"],
)
def test_what_no_store_can_tell_any_more_the_ledger_does(store: str, code: int, logged: Ledger, run: Run) -> None:
    """A script has to hear that a store is away: what its log would add is missing."""
    Path("retention.yaml").write_text(f"stores: [{store}]\n")
    log("main: S:SNAPSHOT@90d", dataset="lake/other")
    ended, out, err = run("history", "lake/d", "--format", "json")
    rows = json.loads(out)["transactions"]
    assert [(row["transaction"], row["in_log"], row["mark"]) for row in rows] == [("A", False, "SWEPT"), ("S", False, "MARKED")]
    assert (ended, err.lower().count("this is what the ledger knows")) == (code, 1)


def test_a_hold_of_a_file_that_asks_for_attributes_needs_a_log(ledger: Ledger, found: Json, run: Run) -> None:
    Path("policies").mkdir()
    Path("retention.yaml").write_text("stores: []\n")
    Path("policies/p.yaml").write_text(
        "holds: [{name: gold, datasets: {include: ['*'], with: {tier: gold}}}, {datasets: '*', until: 2020-01-01}]\n"
    )
    log("main: T:SNAPSHOT@90d - U:SNAPSHOT@80d", attributes={"tier": "gold"})
    ledger.marks.mark(candidates(["T"]), T0, "evaluation")

    def holds(*options: str) -> list[Any]:
        return [row["holds"] for row in found("history", "lake/d", "T", *options)["transactions"]]

    assert (holds(*LOG), holds()) == ([["gold"]], [[]])
    assert "the hold gold selects by attributes of datasets" in run("history", "lake/d", "T")[2]
    assert run("history", "lake/d", "U", *LOG)[1].count("held by gold") == 1


def test_a_hold_that_is_over_holds_nothing(ledger: Ledger, found: Json) -> None:
    ledger.marks.mark(candidates(["T"]), T0, "evaluation")
    until = LATER + timedelta(days=1)
    ledger.holds.place(Hold(name="h", datasets=Datasets(include=("lake/d",)), reason="r", until=until), "bob")
    assert found("history", "lake/d", "--as-of", "2026-01-08")["transactions"][0]["holds"] == ["h"]
    assert found("history", "lake/d", "--as-of", "2026-01-09")["transactions"][0]["holds"] == []


def test_the_commands_find_the_ledger_of_the_settings_on_either_database(url: str, found: Json) -> None:
    with open_ledger(url) as ledger:
        ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    Path("retention.yaml").write_text(f'ledger: "{url}"\n')
    assert [row["due_at"] for row in found("marks", "--dataset", "lake/*")] == ["2026-01-08T00:00:00Z"] * 2
    assert found("unmark", "lake/d", "T1", "--reason", "r")["unmarked"] == 1
    assert [row["mark"] for row in found("history", "lake/d")["transactions"]] == ["UNMARKED", "MARKED"]
    assert found("audit", "verify")["faults"] == []


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda _: None, "it is marked, and swept when its grace is over."),
        (lambda lake: lake.sweeps(), "it was swept."),
        (lambda lake: lake.branches("late", "S1"), "is enough to spare it. It is marked. The sweep checks again"),
    ],
    ids=["marked", "swept", "needed again"],
)
def test_what_is_marked_is_not_explained_as_to_be_marked(
    happens: Callable[[Lake], object], words: str, lake: Lake, run: Run
) -> None:
    lake.has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@1d=10").marks()
    happens(lake)
    code, out, _ = run("explain", "lake/d", "S1", "--as-of", AS_OF.isoformat())
    assert (code, words in " ".join(out.split())) == (0, True), out
