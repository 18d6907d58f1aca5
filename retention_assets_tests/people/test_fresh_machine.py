"""A machine on which nothing was ever marked: who only reads finds nothing and leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.people.conftest import LEDGER, Run

NOTHING = "no ledger yet at sqlite:///"

# What only reads, and what it finds: as JSON, and in words
READS: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("marks",), [], "No marks"),
    (("hold", "--list"), [], "No hold is in force"),
    (("realm",), [], "all are ACTIVE"),
    (("realm", "acme"), {"name": "acme", "status": "ACTIVE", "grace": "0s", "above": None, "left": []}, "acme"),
    (("policies",), {"entries": [], "orphaned": []}, "The policy book is empty"),
    (("clock",), {"newest_mark_at": None, "newest_seen_at": None, "accepted_until": None}, "newest mark"),
    (
        ("audit", "verify"),
        {"rows": 0, "members": 0, "head": {"position": 0, "hash": "0" * 64}, "faults": [], "remarks": []},
        "The record is sound: 0 rows",
    ),
)


@pytest.mark.parametrize(
    ("arguments", "as_json", "words"), READS, ids=lambda one: " ".join(one) if isinstance(one, tuple) else ""
)
def test_who_reads_where_no_ledger_is_finds_nothing_and_makes_none(
    arguments: tuple[str, ...], as_json: Any, words: str, run: Run
) -> None:
    code, out, err = run(*arguments, "--format", "json")
    assert (code, json.loads(out)) == (0, as_json)
    assert NOTHING in err
    code, out, err = run(*arguments)
    assert code == 0
    assert words in out
    assert f"{LEDGER}; nothing is marked" in err
    assert not LEDGER.parent.exists()


def test_an_export_of_nothing_is_nothing(run: Run) -> None:
    code, out, err = run("audit", "export")
    assert (code, out) == (0, "")
    assert NOTHING in err


def test_a_history_without_log_and_ledger_says_what_it_lacks(run: Run) -> None:
    code, out, err = run("history", "lake/d", "--format", "json", "--as-of", "2026-01-01")
    assert (code, out) == (2, "")
    assert "the settings have no store named lake (found 'lake/d'). Name a log with --log FILE." in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("unmark", "lake/d", "T1", "--reason", "needed"),
        ("unmark", "--dataset", "lake/d", "--reason", "needed"),
        ("release", "h", "--reason", "done"),
        ("policies", "revoke", "p", "--reason", "done"),
        ("policies", "show", "p"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_what_changes_something_that_is_not_there_is_refused(arguments: tuple[str, ...], run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert NOTHING in err
    assert not LEDGER.exists()


def test_a_command_that_writes_makes_the_ledger(run: Run) -> None:
    assert run("hold", "--name", "h", "--dataset", "lake/*", "--reason", "trial")[0] == 0
    assert LEDGER.is_file()


def test_a_ledger_that_is_gone_is_a_fault_to_who_noted_its_head(run: Run) -> None:
    Path("head.json").write_text(json.dumps({"position": 3, "hash": "a" * 64}))
    code, out, _ = run("audit", "verify", "--known", "head.json")
    assert code == 1
    assert "Row 3 of the audit was noted before, and there is no ledger." in out
