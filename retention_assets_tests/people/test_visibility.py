"""`advance` and `as-of`: what of a history may still be read. What is shown must be whole, and the current view never hidden."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.ledger import Ledger
from retention_assets.policy import parse_duration, parse_instant, text_of
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.ledger.states import T0, candidates, planned, raise_visibility, swept
from retention_assets_tests.people.conftest import Json, Run, error_of

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


def write(drawing: str) -> None:
    Path("log.jsonl").write_text("\n".join(to_lines([history(drawing, as_of=AS_OF)])))


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
    write("main: A:SNAPSHOT@9d - B:SNAPSHOT@3d - C:APPEND@5d - D:APPEND@1d")
    assert views(found("as-of", "lake/d", ago("4d"), *LOG)) == {"main": "AC"}
    assert views(found("as-of", "lake/d", ago("2d"), *LOG)) == {"main": "BC"}


@pytest.mark.usefixtures("log")
def test_one_branch_can_be_asked_for(found: Json, run: Run) -> None:
    [view] = found("as-of", "lake/d", ago("15d"), *LOG, "--branch", "dev")["branches"]
    assert (view["branch"], view["current"]) == ("dev", True)
    assert view["transactions"][-1] == {
        "transaction": "X", "type": "APPEND", "closed_at": ago("20d"), "bytes": None, "swept": False,
    }  # fmt: skip
    words = " ".join(run("as-of", "lake/d", ago("15d"), *LOG)[1].split())
    assert "on dev at 2026-03-16T12:00:00Z: the current view" in words
    assert "on main at 2026-03-16T12:00:00Z: the view of that time" in words
    code, out, err = run("as-of", "lake/d", ago("15d"), *LOG, "--branch", "devel")
    assert (code, out, err) == (2, "", "branch 'devel' is not a live branch of lake/d. Did you mean dev?\n")


@pytest.mark.usefixtures("log")
def test_what_was_swept_since_is_flagged(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["A", "GONE"]), AS_OF - timedelta(days=400), "evaluation")
    ledger.marks.mark(candidates(["B"]), AS_OF - timedelta(days=400), "evaluation")
    ledger.unmark.transactions("lake/d", ["B"], "ann", "r")
    ledger.leases.give_up([swept(ledger)])
    # What is being swept may be there still.
    ledger.marks.mark(candidates(["B"]), AS_OF - timedelta(days=400), "evaluation")
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin([lease], [plan], due)
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
    ledger.leases.give_up([swept(ledger)])
    said = found("as-of", "lake/d", ago("31d"), *LOG, "--branch", "main")
    assert [(row["transaction"], row["swept"]) for row in said["branches"][0]["transactions"]] == [("A", True), ("B", False)]
    assert said["swept_and_unlisted"] == 1


@pytest.mark.usefixtures("log")
def test_before_the_visibility_mark_nothing_is_shown_but_what_is_current(ledger: Ledger, run: Run, found: Json) -> None:
    raise_visibility(ledger, "lake/d", parse_duration("15d").before(AS_OF))
    assert views(found("as-of", "lake/d", ago("15d"), *LOG)) == {"dev": "ABX", "main": "D"}
    code, out, err = run("as-of", "lake/d", ago("16d"), *LOG, "--format", "json")
    assert (code, out) == (1, "")
    assert err.startswith("The history of lake/d before 2026-03-16T12:00:00Z can't be read: ")
    # What dev's readers saw then they see today.
    assert views(found("as-of", "lake/d", ago("16d"), *LOG, "--branch", "dev")) == {"dev": "ABX"}
    assert run("as-of", "lake/d", ago("21d"), *LOG, "--branch", "dev")[0] == 1
    raise_visibility(ledger, "lake/d", AS_OF + timedelta(days=900), "ann", "a clock that was wrong")
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
    assert words in error_of(run(*(part.format(name) for part in command), *LOG), code)


@pytest.mark.parametrize("typed", [f"as-of lake/d {text_of(AS_OF)}", "advance lake/d --retention 1d"])
def test_without_a_log_there_is_nothing_to_read(typed: str, run: Run) -> None:
    words = "dataset: the settings have no store named lake (found 'lake/d'). Name a log with --log FILE.\n"
    assert run(*typed.split()) == (2, "", words)


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
    write("main: A:APPEND!@5d - B:APPEND?@1d")
    assert "lake/d has no committed transaction" in error_of(run("advance", "lake/d", "--retention", "1d", *LOG), 1)


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
        raise_visibility(ledger, "lake/d", parse_instant(mark))
    said = found("history", "lake/d", *LOG, *NOW)
    assert (sorted(lives(said)), said["visible_from"]) == (sorted(shown), mark)
    assert len(lives(found("history", "lake/d", *LOG, *NOW, "--all"))) == 8
    hidden = 8 - len(shown)
    _, out, err = run("history", "lake/d", *LOG, *NOW)
    assert f"{8 - hidden} of {8 - hidden} transactions" in out
    assert (f"{hidden} more are hidden, because readers see only views from" in err) == bool(hidden)


def test_a_view_that_was_current_at_the_mark_is_listed_and_an_older_one_is_not(ledger: Ledger, found: Json, run: Run) -> None:
    write("main: A:SNAPSHOT@50d - B:SNAPSHOT@40d - C:SNAPSHOT@30d - D:SNAPSHOT@20d | #v1=A")
    raise_visibility(ledger, "lake/d", parse_duration("25d").before(AS_OF))
    # A is pinned by a tag; B was superseded by C five days before the mark.
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "C", "D"]
    assert views(found("as-of", "lake/d", ago("25d"), *LOG)) == {"main": "C"}
    raise_visibility(ledger, "lake/d", parse_duration("20d").before(AS_OF))
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "D"]
    # What is named is told.
    assert sorted(lives(found("history", "lake/d", "B", *LOG, *NOW))) == ["B"]


def test_what_never_closed_is_listed_if_it_was_opened_after_the_mark(ledger: Ledger, found: Json) -> None:
    """A store may have lost when it was aborted."""
    write("main: A:SNAPSHOT@50d | -: A - X:APPEND!@10d.. | -: A - Y:APPEND!@30d.. | -: A - Z:APPEND!@30d..10d")
    raise_visibility(ledger, "lake/d", parse_duration("20d").before(AS_OF))
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "X", "Z"]


def test_what_is_to_go_and_in_no_log_is_listed_however_old(ledger: Ledger, found: Json) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin([lease], [plan], due[:1])
    raise_visibility(ledger, "lake/d", FAR)
    words = lives(found("history", "lake/d"))
    assert "being swept since" in words["T1"]
    assert "due since" in words["T2"]


def test_what_is_over_and_in_no_log_is_listed_if_it_ended_after_the_mark(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "r")
    raise_visibility(ledger, "lake/d", AS_OF)
    assert list(lives(found("history", "lake/d"))) == ["T1"]
    raise_visibility(ledger, "lake/d", FAR)
    code, out, err = run("history", "lake/d", "--format", "json")
    assert (code, json.loads(out)["transactions"]) == (0, [])
    assert "1 more are hidden, because readers see only views from" in err
    assert list(lives(found("history", "lake/d", "--all"))) == ["T1"]


# --- readable ---


def branches(said: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {
        one["branch"]: ("".join(row["transaction"] for row in one["transactions"]), one["readable"]) for one in said["branches"]
    }


@pytest.mark.usefixtures("log")
def test_without_a_mark_all_of_a_history_is_readable(found: Json) -> None:
    said = found("readable", "lake/d", "--at", ago("36d"), *LOG, *NOW)
    assert branches(said) == {"dev": ("AB", True), "main": ("AB", True)}
    assert {key: said[key] for key in ("dataset", "at", "visible_from", "readable", "why", "until", "by_name")} == {
        "dataset": "lake/d", "at": ago("36d"), "visible_from": None, "readable": True, "why": None, "until": None, "by_name": [],
    }  # fmt: skip


@pytest.mark.usefixtures("log")
def test_what_is_current_is_readable_whatever_the_mark_says(ledger: Ledger, found: Json) -> None:
    raise_visibility(ledger, "lake/d", FAR, "ann", "a clock that was wrong")
    assert branches(found("readable", "lake/d", *LOG, *NOW)) == {"dev": ("ABX", True), "main": ("DE", True)}
    said = found("readable", "lake/d", "--at", ago("15d"), *LOG, *NOW)
    assert branches(said) == {"dev": ("ABX", True), "main": ("D", False)}
    assert said["why"] == (
        f"The history of lake/d before {text_of(FAR)} can't be read: parts of it may be gone. Ask for that time or a later one."
    )
    assert found("readable", "lake/d", "--at", ago("15d"), "--branch", "dev", *LOG, *NOW)["readable"] is True


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("marked", "lasting", "readable", "until"),
    [("6d", "10m", True, "+1d"), ("6d", "2d", False, "+1d"), ("8d", "10m", False, "1d"), ("6d", "24h", False, "+1d")],
)
def test_what_is_marked_is_readable_until_it_is_due(
    marked: str, lasting: str, readable: bool, until: str, ledger: Ledger, found: Json
) -> None:
    ledger.marks.mark(candidates(["B"]), parse_duration(marked).before(AS_OF), "evaluation")
    said = found("readable", "lake/d", "--at", ago("36d"), "--branch", "main", "--for", lasting, *LOG, *NOW)
    day = timedelta(days=1)
    assert (said["readable"], said["until"]) == (readable, text_of(AS_OF + day if until == "+1d" else AS_OF - day))
    # What is current now no sweep takes, however it is marked.
    assert found("readable", "lake/d", "--at", ago("1d"), "--branch", "dev", "--for", lasting, *LOG, *NOW)["readable"] is True


@pytest.mark.usefixtures("log")
def test_what_is_swept_or_being_swept_is_not_readable(ledger: Ledger, found: Json) -> None:
    ledger.marks.mark(candidates(["A"]), AS_OF - timedelta(days=400), "evaluation")
    lease, plan, due = planned(ledger)
    ledger.sweeps.begin([lease], [plan], due)
    said = found("readable", "lake/d", "--at", ago("36d"), "--branch", "main", *LOG, *NOW)
    assert (said["readable"], said["why"]) == (False, "A of this view is swept or being swept.")
    assert found("readable", "lake/d", "--at", ago("15d"), "--branch", "main", *LOG, *NOW)["readable"] is True


def test_what_was_swept_and_is_listed_no_more_may_have_been_current(ledger: Ledger, found: Json) -> None:
    """A sweep of an earlier release raised no mark: nobody knows what was current between the two that are left."""
    write("main: A:SNAPSHOT@50d - C:SNAPSHOT@30d")
    life = (parse_duration("40d").before(AS_OF),) * 2
    ledger.marks.mark(candidates(["B"], life=life), AS_OF - timedelta(days=400), "evaluation")
    ledger.leases.give_up([swept(ledger)])
    answers = {
        age: found("readable", "lake/d", "--at", ago(age), *LOG, *NOW)["readable"] for age in ("45d", "40d", "35d", "30d")
    }
    assert answers == {"45d": True, "40d": False, "35d": False, "30d": True}


def test_tags_and_what_is_held_are_readable_by_name(ledger: Ledger, found: Json, run: Run) -> None:
    write("main: A:SNAPSHOT@50d - B:SNAPSHOT@40d - C:SNAPSHOT@30d - D:SNAPSHOT@20d | #v1=A")
    assert run("hold", "--name", "h", "--dataset", "lake/d", "--transaction", "B", "--reason", "case 7")[0] == 0
    raise_visibility(ledger, "lake/d", parse_duration("20d").before(AS_OF))
    named = found("readable", "lake/d", *LOG, *NOW)["by_name"]
    assert named == [{"transaction": "A", "kept_by": "tag v1"}, {"transaction": "B", "kept_by": "a hold"}]
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "B", "D"]


@pytest.mark.usefixtures("log")
def test_the_table_answers_in_words(ledger: Ledger, run: Run) -> None:
    raise_visibility(ledger, "lake/d", parse_duration("15d").before(AS_OF))
    code, out, _ = run("readable", "lake/d", "--at", ago("16d"), *LOG, *NOW)
    words = " ".join(out.split())
    assert code == 0
    assert "The history of lake/d may be read from 2026-03-16T12:00:00Z on. At 2026-03-15T12:00:00Z:" in words
    code, out, err = run("readable", "lake/d", "--branch", "devel", *LOG)
    assert (code, out, err) == (2, "", "branch 'devel' is not a live branch of lake/d. Did you mean dev?\n")


def test_what_a_sweep_deleted_is_still_told_by_history(ledger: Ledger, found: Json) -> None:
    """The mark rises past all that a sweep deletes; the record of it is what people ask for."""
    write("main: A:SNAPSHOT@50d - B:SNAPSHOT@40d - C:SNAPSHOT@30d")
    ledger.marks.mark(candidates(["A"]), T0, "evaluation")
    ledger.leases.give_up([swept(ledger)])
    raise_visibility(ledger, "lake/d", parse_duration("30d").before(AS_OF), "run", "what was current before is swept")
    assert sorted(lives(found("history", "lake/d", *LOG, *NOW))) == ["A", "C"]


# --- advance by the policy files ---


@pytest.fixture
def lake(run: Run) -> None:
    """Two datasets in a store with a simulated clock, one of which the policy files name."""
    Path("log").mkdir()
    drawn = [history("main: A:SNAPSHOT@50d - B:SNAPSHOT@10d", dataset=name, as_of=AS_OF) for name in ("lake/d", "lake/other")]
    Path("log/all.jsonl").write_text("\n".join(to_lines(drawn)))
    Path("policies").mkdir()
    Path("policies/p.yaml").write_text("visibility: [{datasets: {include: [lake/d]}, retention: 30d}]\n")
    store = "{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}"
    Path("retention.yaml").write_text(f"clock: {{simulated: true}}\nstores: [{store}]\n")


@pytest.mark.usefixtures("lake")
def test_advance_without_a_dataset_goes_over_what_the_policy_files_name(found: Json, run: Run) -> None:
    week = AS_OF + timedelta(days=7)
    [waiting] = found("advance", *NOW)["datasets"]
    assert waiting == {
        "dataset": "lake/d", "visible_from": None, "before": None, "waits_until": text_of(week), "raised": False,
    }  # fmt: skip
    code, out, _ = run("advance", *NOW)
    assert code == 0
    assert "waits until" in " ".join(out.split())
    later = ("--as-of", text_of(week))
    raised = parse_duration("30d").before(week)
    [done] = found("advance", *later)["datasets"]
    assert (done["visible_from"], done["before"], done["raised"]) == (text_of(raised), None, True)
    [again] = found("advance", "--dataset", "lake/*", *later)["datasets"]
    assert (again["visible_from"], again["raised"]) == (text_of(raised), False)
    assert found("advance", "--dataset", "lake/o*", *later)["datasets"] == []


@pytest.mark.usefixtures("lake")
def test_a_store_that_is_away_fails_after_the_others(found: Json, run: Run) -> None:
    text = Path("retention.yaml").read_text()
    away = "{name: away, kind: aspects, url: 'sqlite:///gone.db'}"
    Path("retention.yaml").write_text(text.replace("stores: [", f"stores: [{away}, "))
    code, out, err = run("advance", *NOW, "--format", "json")
    assert code == 1
    assert [one["dataset"] for one in json.loads(out)["datasets"]] == ["lake/d"]
    assert "away" in err


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    "arguments",
    [("lake/d",), ("--retention", "30d"), ("--retention", "30d", "--dataset", "lake/*"), ("lake/d", "--dataset", "lake/d")],
    ids=" ".join,
)
def test_a_retention_goes_with_one_dataset(arguments: tuple[str, ...], found: Json, run: Run) -> None:
    assert "DATASET and --retention together, or neither" in error_of(run("advance", *arguments), 2)
    assert found("advance", "--dataset", "lake/d", "--retention", "30d", *NOW)["visible_from"] == ago("30d")
