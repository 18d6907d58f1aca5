"""`realm`: PURGING marks everything of a realm, so it is never said in passing."""

import pytest

from retention_assets.ledger import Ledger
from retention_assets_tests.commands.conftest import LEDGER, Json, Run

PURGE = ("realm", "acme", "--status", "PURGING", "--reason", "contract ended")
WHAT = "Purging acme: the next evaluation marks everything of it, whatever the policies say; holds still stop it."


def test_a_realm_that_is_purged_says_what_that_does(ledger: Ledger, run: Run) -> None:
    code, out, err = run(*PURGE, "--grace", "3d", "--yes")
    assert code == 0
    assert out == "acme is PURGING; marks that purging makes have a grace of 3 days.\n"
    following = "Next: the next `retention run` marks everything of it; `retention realm acme -s ACTIVE -r …` stops that.\n"
    assert err == f"{WHAT} The marks are due 3 days later.\n{following}"
    assert ledger.realms.of("acme").status == "PURGING"


def test_a_grace_that_was_set_before_is_the_one_that_is_said(ledger: Ledger, run: Run) -> None:
    assert run("realm", "acme", "--status", "INACTIVE", "--grace", "5d", "--reason", "r")[0] == 0
    assert "due 5 days later" in run(*PURGE, "--yes")[2]


def test_without_a_terminal_purging_needs_a_yes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    code, out, err = run(*PURGE)
    assert (code, out) == (1, "")
    assert WHAT in err
    assert "The marks are due at once." in err
    assert "Nothing was changed." in err
    assert not LEDGER.exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)], ids=["yes", "no", "nothing"])
def test_on_a_terminal_purging_is_asked_about(
    answer: str, code: int, ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([answer.strip()])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(answers))
    assert run(*PURGE)[0] == code
    assert ledger.realms.of("acme").status == ("ACTIVE" if code else "PURGING")


def test_realms_are_listed_and_shown(ledger: Ledger, found: Json, run: Run) -> None:
    found("realm", "acme", "--status", "INACTIVE", "--reason", "r")
    assert found(*PURGE[:1], "beta", *PURGE[2:], "--yes") == {"name": "beta", "status": "PURGING", "grace": "0s"}
    assert found("realm") == [
        {"name": "acme", "status": "INACTIVE", "grace": "0s"}, {"name": "beta", "status": "PURGING", "grace": "0s"},
    ]  # fmt: skip
    assert found("realm", "beta")["status"] == "PURGING"
    assert found("realm", "nobody")["status"] == "ACTIVE"
    _, out, _ = run("realm")
    assert "INACTIVE" in out
    assert "beta" in out


def test_what_a_realm_cannot_become_is_refused(ledger: Ledger, run: Run) -> None:
    run(*PURGE, "--yes")
    ledger.realms.purged("acme", 0, "scan")
    code, _, err = run("realm", "acme", "--status", "ACTIVE", "--reason", "r")
    assert code == 1
    assert "acme is PURGED and can't become ACTIVE" in err


def test_a_realm_of_the_system_is_refused(run: Run) -> None:
    assert run("realm", "::all", "--status", "INACTIVE", "--reason", "r")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("realm", "acme", "--status", "PURGED", "--reason", "r"),
        ("realm", "acme", "--status", "INACTIVE"),
        ("realm", "--status", "INACTIVE", "--reason", "r"),
        ("realm", "acme", "--grace", "3d"),
        ("realm", "acme", "--yes"),
        ("realm", "acme", "--reason", "r"),
        ("realm", "acme", "--status", "INACTIVE", "--reason", "r", "--yes"),
        (*PURGE, "--grace", "soon", "--yes"),
    ],
    ids=" ".join,
)
def test_half_a_change_is_bad_input(arguments: tuple[str, ...], ledger: Ledger, run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Error: " in err
    assert ledger.realms.all() == {}
