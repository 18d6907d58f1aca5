"""`advance` and `as-of`: what of a history may still be read. What is shown must be whole, and the current view never hidden."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.ledger import Ledger
from retention_assets.policy.durations import parse_duration, parse_instant, text_of
from retention_assets_tests.commands.conftest import Json, Run
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.ledger.states import T0, candidates, planned, swept

LOG = ("--log", "log.jsonl")
FAR = parse_instant("9000-01-01")
NOW = ("--as-of", text_of(AS_OF))
# dev forks from main after B. C is ABORTED, so D follows B for readers.
FORKED = """
    main: A:SNAPSHOT@50d=1 - B:APPEND@40d=2 - C:SNAPSHOT!@35d - D:SNAPSHOT@30d=4 - E:APPEND@10d=8 - F:APPEND?@1d
    dev: B - X:APPEND@20d
    -: R:RECORD@5d
"""


def ago(age: str) -> str:
    return text_of(parse_duration(age).before(AS_OF))


@pytest.fixture
def log(run: Run) -> None:
    """The log of lake/d, and one that is not sound."""
    bad = '{"dataset":"lake/bad","transaction":"X","parent":"X","type":"APPEND","status":"ABORTED"}\n'
    Path("log.jsonl").write_text("\n".join(to_lines([history(FORKED)])) + "\n" + bad)


def views(said: dict[str, Any]) -> dict[str, str]:
    return {one["branch"]: "".join(row["transaction"] for row in one["transactions"]) for one in said["branches"]}


# --- as-of ---


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("at", "main", "dev"),
    [
        (ago("51d"), "", ""),
        (ago("50d"), "A", "A"),  # committed at that very instant
        (text_of(AS_OF - timedelta(days=50, microseconds=1)), "", ""),
        (ago("36d"), "AB", "AB"),
        (ago("31d"), "AB", "AB"),  # C was aborted: it began no view
        (ago("30d"), "D", "AB"),
        (ago("15d"), "D", "ABX"),
        (ago("0s"), "DE", "ABX"),  # F is open
    ],
)
def test_a_reader_sees_the_view_that_was_current_on_each_branch(at: str, main: str, dev: str, found: Json) -> None:
    assert views(found("as-of", "lake/d", at, *LOG)) == {"dev": dev, "main": main}


def test_transactions_that_closed_in_another_order_are_seen_by_their_own_times(run: Run, found: Json) -> None:
    Path("log.jsonl").write_text(
        "\n".join(to_lines([history("main: A:SNAPSHOT@9d - B:SNAPSHOT@3d - C:APPEND@5d - D:APPEND@1d")]))
    )
    assert views(found("as-of", "lake/d", ago("4d"), *LOG)) == {"main": "AC"}
    assert views(found("as-of", "lake/d", ago("2d"), *LOG)) == {"main": "BC"}


@pytest.mark.usefixtures("log")
def test_one_branch_can_be_asked_for(found: Json, run: Run) -> None:
    [view] = found("as-of", "lake/d", ago("15d"), *LOG, "--branch", "dev")["branches"]
    assert (view["branch"], view["current"]) == ("dev", True)
    assert view["transactions"][-1] == {
        "transaction": "X", "type": "APPEND", "closed_at": ago("20d"), "bytes": None, "swept": False,
    }  # fmt: skip
    code, out, err = run("as-of", "lake/d", ago("15d"), *LOG, "--branch", "devel")
    assert (code, out, err) == (2, "", "branch 'devel' is not a live branch of lake/d. Did you mean dev?\n")


@pytest.mark.usefixtures("log")
def test_the_table_says_what_each_view_is(run: Run) -> None:
    code, out, _ = run("as-of", "lake/d", ago("15d"), *LOG)
    assert code == 0
    words = " ".join(out.split())
    assert "on dev at 2026-03-16T12:00:00Z: the current view" in words
    assert "on main at 2026-03-16T12:00:00Z: the view that was current" in words


@pytest.mark.usefixtures("log")
def test_what_was_swept_since_is_flagged(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["A", "GONE"]), AS_OF - timedelta(days=400), "evaluation")
    ledger.marks.mark(candidates(["B"]), AS_OF - timedelta(days=400), "evaluation")
    ledger.unmark.transactions("lake/d", ["B"], "ann", "r")
    ledger.leases.give_up(swept(ledger))
    # What is being swept may be there still.
    ledger.marks.mark(candidates(["B"]), AS_OF - timedelta(days=400), "evaluation")
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin(lease, plan, due)
    said = found("as-of", "lake/d", ago("31d"), *LOG, "--branch", "main")
    assert [(row["transaction"], row["swept"]) for row in said["branches"][0]["transactions"]] == [("A", True), ("B", False)]
    assert said["swept_and_unlisted"] == 1
    _, out, err = run("as-of", "lake/d", ago("31d"), *LOG)
    assert "swept since" in out
    assert "1 swept transactions of lake/d are not in its log any more" in err


@pytest.mark.usefixtures("log")
def test_what_came_again_under_the_id_of_something_swept_is_not_flagged(ledger: Ledger, found: Json) -> None:
    """A and B, opened when they closed, and B a microsecond later than the one that was swept."""
    first, second = (parse_duration(age).before(AS_OF) for age in ("50d", "40d"))
    lives = {"A": (first, first), "B": (second - timedelta(microseconds=1), second), "GONE": (first, first)}
    for name, life in lives.items():
        ledger.marks.mark(candidates([name], life=life), AS_OF - timedelta(days=400), "evaluation")
    ledger.leases.give_up(swept(ledger))
    said = found("as-of", "lake/d", ago("31d"), *LOG, "--branch", "main")
    assert [(row["transaction"], row["swept"]) for row in said["branches"][0]["transactions"]] == [("A", True), ("B", False)]
    assert said["swept_and_unlisted"] == 1


@pytest.mark.usefixtures("log")
def test_before_the_visibility_mark_nothing_is_shown_but_what_is_current(ledger: Ledger, run: Run, found: Json) -> None:
    ledger.visibility.raise_to("lake/d", parse_duration("15d").before(AS_OF), "ann", "r")
    assert views(found("as-of", "lake/d", ago("15d"), *LOG)) == {"dev": "ABX", "main": "D"}
    code, out, err = run("as-of", "lake/d", ago("16d"), *LOG, "--format", "json")
    assert (code, out) == (1, "")
    assert err.startswith("The history of lake/d before 2026-03-16T12:00:00Z is not to be read: ")
    # What dev's readers saw then they see today.
    assert views(found("as-of", "lake/d", ago("16d"), *LOG, "--branch", "dev")) == {"dev": "ABX"}
    assert run("as-of", "lake/d", ago("21d"), *LOG, "--branch", "dev")[0] == 1


@pytest.mark.usefixtures("log")
def test_the_current_view_is_visible_past_any_mark(ledger: Ledger, found: Json) -> None:
    ledger.visibility.raise_to("lake/d", AS_OF + timedelta(days=900), "ann", "a clock that was wrong")
    assert views(found("as-of", "lake/d", text_of(AS_OF), *LOG)) == {"dev": "ABX", "main": "DE"}


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "command", [("as-of", "lake/{}", text_of(AS_OF)), ("advance", "lake/{}", "--retention", "1d"), ("history", "lake/{}")]
)
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("dd", 2, "dataset 'lake/dd' is not in the log. Did you mean lake/d or lake/bad?"),
        ("bad", 1, "lake/bad is refused: cycle (transaction X)"),
    ],
)
def test_a_dataset_that_is_not_there_or_not_sound_stops_the_command(
    command: tuple[str, ...], name: str, code: int, words: str, run: Run
) -> None:
    left, out, err = run(*(part.format(name) for part in command), *LOG)
    assert (left, out) == (code, "")
    assert words in err


@pytest.mark.parametrize(
    "command", [("as-of", "lake/d", text_of(AS_OF)), ("advance", "lake/d", "--retention", "1d")], ids=" ".join
)
def test_without_a_log_there_is_nothing_to_read(command: tuple[str, ...], run: Run) -> None:
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err == "dataset: the settings have no store named lake (found 'lake/d'). Name a log with --log FILE.\n"


@pytest.mark.usefixtures("log")
def test_the_log_of_the_store_is_read_where_none_is_named(found: Json, run: Run) -> None:
    lines = [line for line in Path("log.jsonl").read_text().splitlines() if "lake/bad" not in line]
    Path("log").mkdir()
    Path("log/all.jsonl").write_text("\n".join(lines))
    Path("retention.yaml").write_text("stores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n")
    assert views(found("as-of", "lake/d", text_of(AS_OF))) == {"dev": "ABX", "main": "DE"}
    code, _, err = run("as-of", "lake/e", text_of(AS_OF))
    assert (code, err) == (2, "dataset 'lake/e' is not in store lake. Did you mean lake/d?\n")


# --- advance ---


@pytest.mark.usefixtures("log")
def test_advance_raises_by_a_retention_and_only_rises(ledger: Ledger, found: Json, run: Run) -> None:
    said = found("advance", "lake/d", "--retention", "30d", *LOG, *NOW)
    assert said == {"dataset": "lake/d", "visible_from": ago("30d"), "before": None, "raised": True}
    assert found("advance", "lake/d", "--retention", "20d", *LOG, *NOW)["visible_from"] == ago("20d")
    lower = found("advance", "lake/d", "--retention", "90d", *LOG, *NOW)
    assert (lower["visible_from"], lower["raised"]) == (ago("20d"), False)
    code, out, err = run("advance", "lake/d", "--retention", "90d", *LOG, *NOW)
    assert (code, err) == (0, "")
    assert out.startswith(f"The history of lake/d is readable from {ago('20d')} on.\nNothing was changed: ")


@pytest.mark.usefixtures("log")
def test_a_fast_clock_cannot_hide_the_current_view(found: Json) -> None:
    # The record closed five days ago; the newest of a branch ten.
    said = found("advance", "lake/d", "--retention", "1d", *LOG, "--as-of", "2036-01-01")
    assert said["visible_from"] == ago("5d")
    assert views(found("as-of", "lake/d", text_of(AS_OF), *LOG))["main"] == "DE"


def test_a_dataset_without_a_committed_transaction_has_nothing_to_advance_to(run: Run) -> None:
    Path("log.jsonl").write_text("\n".join(to_lines([history("main: A:APPEND!@5d - B:APPEND?@1d")])))
    code, out, err = run("advance", "lake/d", "--retention", "1d", *LOG)
    assert (code, out) == (1, "")
    assert "Nothing of lake/d was ever committed" in err


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "arguments", [(), ("--retention", "soon"), ("--retention", "1d", "--as-of", "2026-01-01T00:00")], ids=" ".join
)
def test_advance_without_a_retention_is_bad_input(arguments: tuple[str, ...], ledger: Ledger, run: Run) -> None:
    assert run("advance", "lake/d", *arguments, *LOG)[:2] == (2, "")
    assert ledger.visibility.of("lake/d") is None


# --- history ---


def lives(said: dict[str, Any]) -> dict[str, str]:
    return {life["transaction"]: life["words"] for life in said["transactions"]}


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("mark", "shown"),
    [
        (None, "ABCDEFXR"),
        (ago("60d"), "ABCDEFXR"),
        (ago("36d"), "ABCDEFXR"),
        # A and B are in dev's current view; C closed before it, in no view.
        (ago("34d"), "ABDEFXR"),
        (ago("4d"), "ABDEFX"),
        (text_of(AS_OF + timedelta(days=900)), "ABDEFX"),
    ],
)
def test_history_lists_what_is_in_a_view_that_can_be_read(
    mark: str | None, shown: str, ledger: Ledger, found: Json, run: Run
) -> None:
    if mark:
        ledger.visibility.raise_to("lake/d", parse_instant(mark), "ann", "r")
    said = found("history", "lake/d", *LOG, *NOW)
    assert (sorted(lives(said)), said["visible_from"]) == (sorted(shown), mark)
    assert len(lives(found("history", "lake/d", *LOG, *NOW, "--all"))) == 8
    hidden = 8 - len(shown)
    _, out, err = run("history", "lake/d", *LOG, *NOW)
    assert f"{8 - hidden} of {8 - hidden} transactions" in out
    assert (f"{hidden} more are in no view that is visible from" in err) == bool(hidden)


def test_a_view_that_was_current_at_the_mark_is_listed_and_an_older_one_is_not(ledger: Ledger, found: Json, run: Run) -> None:
    drawn = history("main: A:SNAPSHOT@50d - B:SNAPSHOT@40d - C:SNAPSHOT@30d - D:SNAPSHOT@20d | #v1=A", as_of=AS_OF)
    Path("log.jsonl").write_text("\n".join(to_lines([drawn])))
    ledger.visibility.raise_to("lake/d", parse_duration("25d").before(AS_OF), "ann", "r")
    # A is pinned by a tag; B was superseded by C five days before the mark.
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "C", "D"]
    assert views(found("as-of", "lake/d", ago("25d"), *LOG)) == {"main": "C"}
    ledger.visibility.raise_to("lake/d", parse_duration("20d").before(AS_OF), "ann", "r")
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "D"]
    # What is named is told.
    assert sorted(lives(found("history", "lake/d", "B", *LOG, *NOW))) == ["B"]


def test_what_never_closed_is_listed_if_it_was_opened_after_the_mark(ledger: Ledger, found: Json) -> None:
    """A store may have lost when it was aborted."""
    drawn = history(
        "main: A:SNAPSHOT@50d | -: A - X:APPEND!@10d.. | -: A - Y:APPEND!@30d.. | -: A - Z:APPEND!@30d..10d", as_of=AS_OF
    )
    Path("log.jsonl").write_text("\n".join(to_lines([drawn])))
    ledger.visibility.raise_to("lake/d", parse_duration("20d").before(AS_OF), "ann", "r")
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "X", "Z"]


def test_what_is_to_go_and_in_no_log_is_listed_however_old(ledger: Ledger, found: Json) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin(lease, plan, due[:1])
    ledger.visibility.raise_to("lake/d", FAR, "ann", "r")
    words = lives(found("history", "lake/d"))
    assert "being swept since" in words["T1"]
    assert "due since" in words["T2"]


def test_what_is_over_and_in_no_log_is_listed_if_it_ended_after_the_mark(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "r")
    ledger.visibility.raise_to("lake/d", AS_OF, "ann", "r")
    assert list(lives(found("history", "lake/d"))) == ["T1"]
    ledger.visibility.raise_to("lake/d", FAR, "ann", "r")
    code, out, err = run("history", "lake/d", "--format", "json")
    assert (code, json.loads(out)["transactions"]) == (0, [])
    assert "1 more are in no view that is visible from" in err
    assert list(lives(found("history", "lake/d", "--all"))) == ["T1"]
