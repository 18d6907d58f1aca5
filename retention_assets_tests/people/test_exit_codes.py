"""Exit codes: what a script learns of a command without reading what it printed.

A script that goes on after 0 deletes because of it; one that stops at every refused dataset is soon told to ignore them all.
"""

import json
from pathlib import Path

import pytest

from retention_assets.people.command import show
from retention_assets.people.operation import Request, Result, Strict
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.people.logs import CYCLE, NOW, SOUND, write
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.sweep.lakes import DUE, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
DAY = ("--as-of", DUE.isoformat())
DONE, FAILED, BAD_INPUT, TO_DO, REFUSED = range(5)
GONE = {"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"}


class StrictRequest(Request):
    strict: Strict = False


@pytest.mark.parametrize("bad_input", [(), ("b",)])
@pytest.mark.parametrize("failed", [(), ("f",)])
@pytest.mark.parametrize("refused", [(), ("r",)])
@pytest.mark.parametrize("to_do", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_of_several_codes_the_first_of_2_1_4_3_is_the_commands(
    bad_input: tuple[str, ...], failed: tuple[str, ...], refused: tuple[str, ...], to_do: bool, strict: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    result = Result(bad_input=bad_input, failures=failed, refusals=refused, to_do=to_do)
    code = show(StrictRequest(strict=strict), result, "table")
    codes = {BAD_INPUT: bad_input, FAILED: failed or (strict and refused), REFUSED: refused, TO_DO: to_do}
    assert code == next((one for one in (2, 1, 4, 3) if codes[one]), DONE)
    assert capsys.readouterr().err.split() == [*bad_input, *failed, *refused]


@pytest.mark.parametrize(
    ("policies", "more", "options", "code"),
    [
        ("", "", (), DONE),
        ("", CYCLE, (), REFUSED),
        ("", CYCLE, ("--strict",), FAILED),
        ("", "", ("--strict",), DONE),
        ("policies: [{name: old}]\n", CYCLE, (), BAD_INPUT),
    ],
    ids=["sound", "refused", "refused and strict", "sound and strict", "broken policies"],
)
@pytest.mark.parametrize("command", ["preview", "compare"])
def test_judging_a_log(command: str, policies: str, more: str, options: tuple[str, ...], code: int, run: Run) -> None:
    typed = write(SOUND, more=more, **({"policies": policies} if policies else {}))
    # Neither needs any settings.
    Path("retention.yaml").unlink()
    again = ("--policies", "p.yaml") if command == "compare" else ()
    assert run(command, *typed, *again, *options)[0] == code


@pytest.mark.parametrize("command", ["preview", "compare"])
def test_a_store_that_is_away_is_a_failure_and_the_others_are_judged(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake").has(HISTORY)
    environment(monkeypatch, lake, GONE)
    policies = ("--policies", str(lake.folder / "policies")) * (2 if command == "compare" else 1)
    code, out, err = run(command, *policies, "--as-of", NOW, "--format", "json")
    assert (code, err.count("the store gone failed")) == (FAILED, 1)
    assert command == "compare" or {row["dataset"] for row in json.loads(out)["transactions"]} == {"lake/d"}


def environment(monkeypatch: pytest.MonkeyPatch, lake: Lake, *stores: object) -> None:
    """The settings of a lake, with more stores, as those that hold."""
    file = lake.folder / "retention.yaml"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "stores": [*settings["stores"], *stores]}))
    monkeypatch.setenv("RETENTION_CONFIG", str(file))


@pytest.fixture
def lake(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two datasets with due marks, in the environment of the settings."""
    lake = Lake(tmp_path / "lake").has(HISTORY).has(HISTORY, "lake/e")
    monkeypatch.setenv("RETENTION_CONFIG", str(lake.folder / "retention.yaml"))
    lake.marks()
    return lake


@pytest.mark.parametrize(
    ("options", "code"),
    [((), TO_DO), (("--strict",), TO_DO), (("--dataset", "lake/z"), FAILED)],
    ids=["due", "strict", "no dataset"],
)
def test_a_dry_run_says_whether_there_is_something_to_do(options: tuple[str, ...], code: int, lake: Lake, run: Run) -> None:
    assert run("run", "--dry-run", *DAY, *options)[0] == code


def test_a_dry_run_that_would_only_spare_has_something_to_do(lake: Lake, run: Run) -> None:
    for dataset in ("lake/d", "lake/e"):
        lake.branches("one", "S1", dataset)
        lake.branches("two", "S2", dataset)
    code, out, _ = run("run", "--dry-run", *DAY, "--format", "json")
    assert (code, json.loads(out)["deleted"]) == (TO_DO, [])


def test_a_dry_run_of_a_refused_dataset_says_that_rather_than_what_there_is_to_do(lake: Lake, run: Run) -> None:
    lake.branches("main", "S1")
    assert run("run", "--dry-run", *DAY)[0] == REFUSED
    assert run("run", "--dry-run", *DAY, "--strict")[0] == FAILED


def test_a_dry_run_of_a_store_that_is_away_fails(lake: Lake, run: Run) -> None:
    (lake.folder / "log").rename(lake.folder / "elsewhere")
    code, _, err = run("run", "--dry-run", *DAY)
    assert (code, "would not be swept: the store lake failed" in err) == (FAILED, True)


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_run_by_broken_policies_is_bad_input_in_one_line(dry_run: tuple[str, ...], lake: Lake, run: Run) -> None:
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    code, out, err = run("run", *DAY, *dry_run)
    assert (code, out, len(err.splitlines())) == (BAD_INPUT, "", 1)
    assert "Did you mean older_than?" in err


NEEDS_SETTINGS = [
    ("run",), ("run", "--dry-run"), ("plan",), ("simulate", "--days", "1"), ("report",), ("validate",), ("preview",), ("preview", "--log", "l"), ("marks",), ("clock",),
    ("compare", "--policies", "p", "--policies", "p"), ("explain", "lake/d", "T"), ("explain", "lake/d", "T", "--log", "l"),
    ("unmark", "--dataset", "lake/d", "--reason", "r"), ("history", "lake/d"), ("hold", "--list"), ("audit", "verify"),
    ("hold", "--name", "h", "--dataset", "lake/d", "--reason", "r"), ("release", "h", "--reason", "r"), ("realm",),
    ("realm", "r", "--status", "INACTIVE", "--reason", "r"), ("advance", "lake/d", "--retention", "1d"), ("policies",),
    ("as-of", "lake/d", NOW), ("policies", "load"), ("policies", "show", "p"), ("audit", "export"), ("housekeeping",),
]  # fmt: skip


@pytest.mark.parametrize("arguments", NEEDS_SETTINGS, ids=" ".join)
def test_where_there_are_no_settings_a_command_that_needs_them_makes_no_ledger(arguments: tuple[str, ...], run: Run) -> None:
    Path("retention.yaml").unlink()
    code, out, err = run(*arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert err.startswith("retention.yaml: there are no settings here")
    assert list(Path().iterdir()) == []


def test_housekeeping_that_only_looks_says_whether_there_is_something_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ods.db").touch()
    units = Units(f"sqlite:///{tmp_path / 'ods.db'}", ttl={"document_ttl": "180d"})
    units.has("open", closed=None, kind="RECALL", expires="2026-04-08 00:00:00")
    Path("retention.yaml").write_text(json.dumps({"stores": [units.settings]}))
    assert run("housekeeping", *DAY, "--dry-run")[0] == TO_DO
    assert run("housekeeping", *DAY)[0] == DONE
    assert run("housekeeping", *DAY, "--dry-run")[0] == DONE


@pytest.mark.spark
def test_a_run_is_done_but_for_what_was_refused_unless_something_failed(
    lake: Lake, run: Run, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.branches("main", "S1")
    assert run("run", "--as-of", "2026-04-01T00:00:00Z", "--mark-only", "--dataset", "lake/e")[0] == DONE
    assert run("run", "--as-of", "2026-04-01T00:00:00Z", "--mark-only")[0] == REFUSED
    assert run("run", "--as-of", "2026-04-01T00:00:00Z", "--mark-only", "--strict")[0] == FAILED
    environment(monkeypatch, lake, GONE)
    code, _, err = run("run", "--as-of", "2026-04-01T00:00:00Z", "--mark-only")
    assert code == FAILED
    assert err.splitlines()[0].startswith("gone/* was not read: ")
    assert err.splitlines()[1].startswith("lake/d was refused: two branches of one name")
