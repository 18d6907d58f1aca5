"""`hold` and `release`: what nobody may mark or sweep. A hold that silently holds nothing would be a deletion."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.clock import now
from retention_assets.ledger import Ledger
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Datasets, Hold
from retention_assets_tests.commands.conftest import Json, Run
from retention_assets_tests.ledger.states import LATER, T0

PLACE = ("hold", "--name", "h", "--dataset", "lake/raw.*", "--reason", "lawsuit")
NOTHING_JUDGED = "Nothing was judged yet, so nobody can say how much this hold is about. It is placed.\n"
FILES = "policies: []\nholds: [{name: kept, datasets: lake/legal, reason: law}, {name: over, datasets: lake/x, until: 2020-01-01}]\n"


def test_a_hold_is_placed_with_all_that_was_said(ledger: Ledger, found: Json) -> None:
    assert found(
        *PLACE, "--dataset", "ice/*", "--transaction", "T*", "--owner", "legal team", "--until", "9000-01-01T00:00:00Z"
    ) == {
        "name": "h", "source": "ledger", "holds": {"datasets": {"include": ["lake/raw.*", "ice/*"]}, "transactions": ["T*"]},
        "reason": "lawsuit", "owner": "legal team", "until": "9000-01-01T00:00:00Z",
        "datasets": None, "transactions": None, "sweeping": [],
    }  # fmt: skip
    [held] = ledger.holds.in_force(LATER)
    assert (held.datasets.include, held.transactions, held.owner) == (("lake/raw.*", "ice/*"), ("T*",), "legal team")
    assert text_of(held.until or T0) == "9000-01-01T00:00:00Z"
    # Who answers for it is not who placed it.
    assert [json.loads(line)["actor"] for line in ledger.audit_lines()] == ["ann"]


def test_a_hold_is_read_back_as_a_sentence(run: Run) -> None:
    code, out, err = run(*PLACE)
    assert (code, err) == (0, NOTHING_JUDGED)
    assert out == (
        "h\n  Holds everything of the datasets lake/raw.*: nothing of it is marked or swept until it is released, because:"
        " lawsuit (owner ann).\n"
    )


def test_a_hold_on_a_store_that_the_settings_do_not_know_says_so(run: Run) -> None:
    Path("retention.yaml").write_text("stores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n")
    code, _, err = run("hold", "--name", "h", "--dataset", "lak/raw", "--reason", "r")
    assert code == 0
    assert err == f"store 'lak' of 'lak/raw' is not in the settings. Did you mean lake?\n{NOTHING_JUDGED}"
    assert run("hold", "--name", "i", "--dataset", "lake/raw", "--reason", "r")[2] == NOTHING_JUDGED


def test_a_second_hold_of_a_name_is_refused(run: Run) -> None:
    run(*PLACE)
    code, out, err = run(*PLACE)
    assert (code, out) == (1, "")
    assert "A hold named h is in force." in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hold",), "A hold needs --name."),
        (PLACE[:3], "A hold needs --dataset."),
        (PLACE[:5], "A hold needs --reason."),
        ((*PLACE[:5], "--reason", " "), "is empty"),
        ((*PLACE[:2], "::h", *PLACE[3:]), "belongs to the system"),
        ((*PLACE, "--dataset", "raw"), "datasets.include[1]"),
        ((*PLACE, "--until", "2020-01-01"), "until: is past (found 2020-01-01T00:00:00Z); expected an instant to come"),
        ((*PLACE, "--until", "soon"), "is not an instant"),
        (("hold", "--list", "--name", "h"), "give it alone"),
    ],
    ids=[
        "nothing", "no dataset", "no reason", "a blank reason", "a system's name", "no store", "past", "no instant",
        "a list that places",
    ],
)  # fmt: skip
def test_a_hold_that_would_hold_nothing_is_bad_input(arguments: tuple[str, ...], words: str, ledger: Ledger, run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert ledger.holds.in_force(T0) == []


def test_holds_of_ledger_and_files_are_listed_while_they_last(ledger: Ledger, found: Json, run: Run) -> None:
    Path("retention.yaml").write_text(
        "policies: p.yaml\nstores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    )
    Path("p.yaml").write_text(FILES)
    for name, until in (("h", None), ("ended", now() - timedelta(days=1))):
        ledger.holds.place(Hold(name=name, datasets=Datasets(include=("lake/a",)), reason="r", owner="o", until=until), "bob")
    rows = found("hold", "--list")
    assert [(row["name"], row["source"]) for row in rows] == [("h", "ledger"), ("kept", "file")]
    _, out, _ = run("hold", "--list")
    assert "policy file" in out
    assert "lake/legal" in out
    assert "over" not in out


def test_without_policy_files_the_list_says_so(run: Run) -> None:
    code, _, err = run("hold", "--list")
    assert code == 0
    assert "no policy files at " in err


def test_a_broken_policy_file_stops_the_list(run: Run) -> None:
    Path("policies").mkdir()
    Path("policies/p.yaml").write_text("holds: [{datasets: }]")
    assert run("hold", "--list")[0] == 2


def test_a_released_hold_is_over(ledger: Ledger, run: Run) -> None:
    run(*PLACE)
    code, out, err = run("release", "h", "--reason", "settled")
    assert (code, err) == (0, "")
    assert out.startswith("h is released.")
    assert ledger.holds.in_force(T0) == []
    assert run("release", "h", "--reason", "settled")[0] == 1


def test_release_as_json_says_who_and_why(found: Json) -> None:
    found(*PLACE)
    assert found("release", "h", "--reason", "settled") == {"name": "h", "released_by": "ann", "reason": "settled"}


def test_a_hold_of_a_file_is_released_in_the_file(ledger: Ledger, run: Run) -> None:
    Path("policies").mkdir()
    Path("policies/p.yaml").write_text("holds: [{name: kept, datasets: '*', reason: law}]")
    code, _, err = run("release", "kept", "--reason", "r")
    assert (code, err) == (1, "The hold kept stands in a policy file: it is released by taking it out of the file.\n")
    code, _, err = run("release", "other", "--reason", "r")
    assert (code, "No hold named other is in force" in err) == (1, True)
