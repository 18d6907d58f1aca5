"""`retention plan` and `retention run --dry-run`, which are the same: what is printed, and the exit codes.

Belongs here: the command. Whether a plan is right is test_made_plans.py's.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from retention_assets_tests.people.conftest import Run
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@25d=30 - S4:SNAPSHOT@1d=40"
DAY, BEFORE = ("--as-of", DUE.isoformat()), ("--as-of", MARKED.isoformat())
DONE, FAILED, BAD_INPUT, TO_DO, REFUSED = range(5)


@pytest.fixture
def lake(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two datasets with due marks, in the environment of the settings."""
    made = Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/a.dataset.with.a.rather.long.name")
    monkeypatch.setenv("RETENTION_CONFIG", str(made.settings_file))
    made.marks()
    return made


def as_json(run: Run, *arguments: str) -> Any:
    code, said, _ = run(*arguments, "--format", "json")
    assert code == TO_DO
    return json.loads(said)


@pytest.mark.parametrize("more", [(), ("--dataset", "lake/d"), ("--format", "json")], ids=["all", "one", "json"])
def test_a_dry_run_is_the_plan(more: tuple[str, ...], lake: Lake, run: Run) -> None:
    by_plan = run("plan", *DAY, *more)
    assert by_plan[0] == TO_DO
    assert run("run", "--dry-run", *DAY, *more) == by_plan


def test_a_plan_says_first_in_a_sentence_what_it_comes_to(lake: Lake, run: Run) -> None:
    _, said, _ = run("plan", *DAY)
    first = said.splitlines()[0]
    assert first.startswith("As of 2026-04-07 12:00 UTC a run would mark 2 (60 B); delete 4 (")
    assert first.endswith("Nothing was changed.")
    assert "S1" not in said


def test_detail_lists_the_transactions(lake: Lake, run: Run) -> None:
    _, said, _ = run("plan", *DAY, "--detail", "--dataset", "lake/d")
    rows = [[cell.strip() for cell in line.split("│")] for line in said.splitlines() if "│" in line]
    listed = {(row[2], row[5]) for row in rows if row[1] == "lake/d" and len(row) == 7}
    assert listed == {("S3", "2026-04-14 12:00 UTC"), ("S1", "SELECTED"), ("S2", "SELECTED")}


def test_json_is_sorted_and_the_same_for_the_same(lake: Lake, run: Run) -> None:
    found = as_json(run, "plan", *DAY)
    assert as_json(run, "plan", *DAY) == found
    assert [(one["dataset"], one["transaction"]) for one in found["deleted"]] == [
        (name, transaction) for name in ("lake/a.dataset.with.a.rather.long.name", "lake/d") for transaction in ("S1", "S2")
    ]
    assert list(found) == [
        "as_of", "dry_run", "currency", "totals", "groups", "days", "newly_marked", "deleted", "spared", "cascades", "policies",
        "refused", "stores_away", "withheld", "objections",
    ]  # fmt: skip
    assert found["days"] == [
        {
            "date": "2026-04-14",
            "marked_before": {"transactions": 0, "bytes": 0},
            "newly_marked": {"transactions": 2, "bytes": 60},
        }
    ]
    assert found["policies"]["old"].startswith(
        "Marks transactions of the datasets lake/*, when they closed more than 30 days ago."
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [(DAY, TO_DO), ((*DAY, "--strict"), TO_DO), ((*BEFORE,), DONE), ((*DAY, "--dataset", "lake/z"), FAILED)],
    ids=["due", "strict", "waiting", "no dataset"],
)
def test_the_exit_code_says_whether_there_is_something_to_do(options: tuple[str, ...], code: int, lake: Lake, run: Run) -> None:
    assert run("plan", *options)[0] == code


def test_something_to_mark_is_something_to_do(lake: Lake, run: Run) -> None:
    (lake.folder / "ledger.db").unlink()
    code, said, errors = run("plan", *BEFORE)
    assert (code, "would mark 4 (60 B); delete none" in said) == (TO_DO, True)
    assert "no ledger yet" in errors


def test_a_refused_dataset_is_said_rather_than_what_there_is_to_do(lake: Lake, run: Run) -> None:
    lake.branches("main", "S1")
    code, _, errors = run("plan", *DAY)
    assert (code, len(errors.splitlines())) == (REFUSED, 1)
    assert "two branches of one name" in errors
    assert run("plan", *DAY, "--strict")[0] == FAILED


def test_no_name_begins_a_line_of_its_own(lake: Lake, run: Run) -> None:
    name = "lake/x\nNext: all is well\r\u2028Next: go on"
    row = {"dataset": name, "transaction": "T", "parent": "U", "type": "APPEND", "status": "ABORTED"}
    (lake.folder / "log" / "x.jsonl").write_text(json.dumps(row) + "\n")
    code, _, errors = run("plan", *DAY)
    assert code == REFUSED
    assert "lake/x\n  Next: all is well\\x0d\\u2028Next: go on was refused" in errors
    assert not any(line.startswith("Next") for line in errors.splitlines())


def test_a_store_that_is_away_is_a_failure_and_the_others_are_planned(lake: Lake, run: Run) -> None:
    settings = json.loads(lake.settings_file.read_text())
    gone = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}
    lake.settings_file.write_text(json.dumps({**settings, "stores": [*settings["stores"], gone]}))
    code, said, errors = run("plan", *DAY, "--format", "json")
    assert (code, len(json.loads(said)["deleted"])) == (FAILED, 4)
    assert errors.startswith("gone/* was not read: ")


def test_settings_without_stores_are_refused_with_what_to_do(run: Run) -> None:
    code, _, errors = run("plan")
    assert (code, errors) == (FAILED, "The settings name no store. Add one to retention.yaml, then run again.\n")


def test_money_is_told_where_there_is_a_price(lake: Lake, run: Run) -> None:
    settings = json.loads(lake.settings_file.read_text())
    price = {"gib_month": 2**30, "thousand_deletes": 1000, "minimum_days": 100}
    lake.settings_file.write_text(json.dumps({**settings, "prices": {"currency": "EUR", "default": price}}))
    _, said, _ = run("plan", *DAY)
    size = as_json(run, "plan", *DAY)["totals"]["deleted"]["bytes"]
    assert f"Deleting saves {size:,.2f} EUR a month, its requests cost 4.00 EUR." in said
    assert "EUR are billed on, as it is deleted early" in said
    assert "saved a month" in said.splitlines()[4]
    assert any(line.rstrip(" │").endswith(" EUR") for line in said.splitlines()[5:])


@pytest.mark.parametrize("more", [(), ("--detail",)], ids=["short", "detail"])
def test_a_plan_fits_eighty_columns(more: tuple[str, ...], lake: Lake, tmp_path: Path) -> None:
    lake.branches("rescue", "S2")
    code, lines = at_terminal(lake.folder, "plan", *DAY, *more)
    assert code == TO_DO
    begin = next(at for at, line in enumerate(lines) if line.startswith("As of"))
    assert max(map(len, lines[begin:])) <= COLUMNS
    # All of it on one screen or two.
    assert more or len(lines) - begin < 40
