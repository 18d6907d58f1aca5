"""The command line as people and scripts meet it: exit codes, streams, settings, help, and what it says before there is a ledger.

A script that trusts an exit code or a line of JSON here may delete because of it.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from rich.cells import cell_len

from retention_assets.cli import GROUPS, retention
from retention_assets.ledger import Ledger
from retention_assets.people.command import show
from retention_assets.people.operation import Request, Result, Strict
from retention_assets_tests.ledger.states import T0, candidates
from retention_assets_tests.people.conftest import (
    BAD_INPUT,
    DONE,
    ENTRY,
    ENVIRONMENT,
    FAILED,
    LEDGER,
    REFUSED,
    TO_DO,
    Run,
    error_of,
    script,
)
from retention_assets_tests.people.logs import CYCLE, NOW, SOUND, write
from retention_assets_tests.sweep.lakes import DUE, Lake

# --- exit codes ---


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
@pytest.mark.parametrize("against", [(), ("--against", "p.yaml")], ids=["alone", "against"])
def test_judging_a_log(
    against: tuple[str, ...], policies: str, more: str, options: tuple[str, ...], code: int, run: Run
) -> None:
    typed = write(SOUND, more=more, **({"policies": policies} if policies else {}))
    # Neither needs any settings.
    Path("retention.yaml").unlink()
    assert run("preview", *typed, *against, *options)[0] == code


@pytest.mark.parametrize("against", [False, True], ids=["alone", "against"])
def test_a_store_that_is_away_is_a_failure_and_the_others_are_judged(against: bool, lake: Lake, run: Run) -> None:
    lake.has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@1d=10")
    lake.configures({"name": "gone", "kind": "files", "log": "nothing-here", "data": "other/{dataset}/{transaction}"})
    policies = str(lake.folder / "policies")
    more = ("--against", policies) if against else ()
    code, out, err = run("preview", "--policies", policies, *more, "--as-of", NOW, "--format", "json")
    assert (code, err.count("the store gone failed")) == (FAILED, 1)
    assert against or {row["dataset"] for row in json.loads(out)["transactions"]} == {"lake/d"}


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_run_by_broken_policies_is_bad_input_in_one_line(command: str, lake: Lake, run: Run) -> None:
    lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")
    code, out, err = run(command, "--as-of", DUE.isoformat())
    assert (code, out, len(err.splitlines())) == (BAD_INPUT, "", 1)
    assert "Did you mean older_than?" in err


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("simulate --days 8", "retention plan --days 8"),
        ("forecast", "retention plan --days 90"),
        ("compare -p a -p b", "retention preview --policies OLD --against NEW"),
        ("run --dry-run", "retention plan"),
        ("report --html day.html --forecast=30", "retention plan --days 90"),
    ],
)
def test_what_an_earlier_release_had_is_answered_with_what_to_type_instead(typed: str, instead: str, run: Run) -> None:
    code, out, err = run(*typed.split())
    assert (code, out, len(err.splitlines())) == (BAD_INPUT, "", 1)
    assert err.endswith(f" is not there any more. Type `{instead}`.\n")


@pytest.mark.parametrize("typed", ["housekeeping --dry-run", "run --mark-only"])
def test_words_that_are_there_still_do_what_they_did(typed: str, lake: Lake, run: Run) -> None:
    lake.has("main: S1:SNAPSHOT@1d=10")
    assert "any more" not in run(*typed.split(), "--as-of", NOW)[2]


@pytest.mark.parametrize(
    "typed",
    [
        "preview --format xml", "preview --lgo x", "previw", "", "preview --log nowhere.jsonl --policies p.yaml",
        "preview --log log.jsonl --policies nowhere.yaml", "preview --policies p.yaml", "explain lake/d",
        "preview --log log.jsonl --policies p.yaml --against nowhere.yaml", "validate nowhere.yaml",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_bad_input_with_words_on_stderr(typed: str, run: Run) -> None:
    write(SOUND)
    err = error_of(run(*typed.split()), BAD_INPUT)
    assert err
    assert "Traceback" not in err


# --- the script as a program of its own ---


@pytest.fixture
def printing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A folder with a log and policies, and the arguments of a command there, by what it prints. JSON is the same way for all."""
    monkeypatch.chdir(tmp_path)
    of_log = write(SOUND)
    return {"json": ("validate", "p.yaml", "--format", "json"), "table": ("preview", *of_log)}[request.param]


by_what_is_printed = pytest.mark.parametrize("printing", ["json", "table"], indirect=True)


@pytest.mark.program
@by_what_is_printed
def test_a_reader_that_went_away_ends_the_command_without_a_word(printing: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = script(tmp_path, *printing, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.program
@by_what_is_printed
def test_a_closed_stdout_is_no_error(printing: tuple[str, ...], tmp_path: Path) -> None:
    # Whoever closes it wants the exit code alone.
    command = f"exec '{sys.executable}' -c '{ENTRY}' {' '.join(printing)} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.program
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@by_what_is_printed
def test_a_full_disk_below_stdout_fails_with_a_sentence(printing: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = script(tmp_path, *printing, stdout=full)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("cannot go on: ")


LIGHT = """
import sys
from retention_assets.cli import main

for typed in ("--help", "validate p.yaml", "schema", "preview --help"):
    sys.argv = ["retention", *typed.split()]
    try:
        main()
    except SystemExit as left:
        assert left.code == 0, typed
print(sorted({"dagster", "pyspark", "pandas", "duckdb"} & set(sys.modules)), file=sys.stderr)
"""


def test_a_light_command_imports_neither_dagster_nor_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(SOUND)
    done = script(tmp_path, code=LIGHT)
    assert (done.returncode, done.stderr) == (0, "[]\n")


# --- which settings ---

POLICY = "policies: [{name: %s, datasets: {include: ['lake/*']}, select: {older_than: 30d}}]\n"


@pytest.fixture
def places(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Three settings files, each with a policy that is called like its folder; `here` is where commands run."""
    stores = "stores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    for name in ("here", "there", "named"):
        Path(name).mkdir()
        Path(name, "retention.yaml").write_text(f"policies: p.yaml\n{stores}")
        Path(name, "p.yaml").write_text(POLICY % name)
    monkeypatch.chdir("here")
    return run


@pytest.mark.parametrize(
    ("typed", "variable", "policy"),
    [
        ("validate", "", "here"),
        ("--config ../there/retention.yaml validate", "", "there"),
        ("validate --config ../there/retention.yaml", "", "there"),
        ("-c ../here/retention.yaml validate -c ../there/retention.yaml", "", "there"),
        ("validate", "../named/retention.yaml", "named"),
        ("--config ../there/retention.yaml validate", "../named/retention.yaml", "there"),
    ],
)
def test_the_settings_are_those_that_were_named(
    typed: str, variable: str, policy: str, places: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("RETENTION_CONFIG", variable)
    code, out, _ = places(*typed.split())
    assert (code, out.splitlines()[0]) == (0, policy)
    # The next call does not remember it.
    assert places("validate")[1].splitlines()[0] == ("named" if variable else "here")


@pytest.mark.parametrize("before", [True, False])
def test_a_group_and_what_stands_below_it_take_the_same_file(before: bool, places: Run) -> None:
    named = ("--config", "../there/retention.yaml")
    assert places(*named, "policies", "load")[0] == 0
    command = ("policies", *named, "show", "there") if before else ("policies", "show", "there", *named)
    assert places(*command)[0] == 0
    assert not Path(".retention").exists()
    assert Path("../there/.retention/ledger.db").is_file()


def test_a_file_that_is_not_there_is_bad_input(places: Run) -> None:
    assert places("validate", "--config", "nowhere.yaml") == (2, "", "nowhere.yaml: is not there; expected a settings file\n")


NEED_SETTINGS = (
    "run", "plan", "plan --days 1", "report", "validate", "preview", "preview --log l", "marks",
    "marks --format json", "clock", "preview --policies p --against p", "explain lake/d T", "explain lake/d T --log l",
    "unmark --dataset lake/d --reason r", "history lake/d", "hold --list", "hold --name h --dataset lake/d --reason r",
    "release h --reason r", "realm", "realm r --status INACTIVE --reason r", "advance lake/d --retention 1d",
    f"as-of lake/d {NOW}", "policies", "policies load", "policies show p", "audit verify", "audit export", "housekeeping",
)  # fmt: skip


@pytest.mark.parametrize("typed", NEED_SETTINGS)
def test_without_settings_a_command_says_in_one_sentence_how_to_get_some_and_makes_no_ledger(typed: str, run: Run) -> None:
    Path("retention.yaml").unlink()
    code, out, err = run(*typed.split())
    assert (code, out, len(err.splitlines())) == (BAD_INPUT, "", 1)
    assert err.startswith("retention.yaml: there are no settings here")
    assert "`retention init`" in err
    assert "--config" in err
    assert list(Path().iterdir()) == []


# --- before there is a ledger ---

NOTHING = "no ledger yet at sqlite:///"
# as JSON, and in words
READ: dict[str, tuple[Any, str]] = {
    "marks": ([], "No marks"),
    "hold --list": ([], "No hold is in force"),
    "realm": ([], "all are ACTIVE"),
    "realm acme": ({"name": "acme", "status": "ACTIVE", "grace": "0s", "above": None, "left": []}, "acme"),
    "policies": ({"entries": [], "orphaned": []}, "The policy book is empty"),
    "clock": ({"newest_mark_at": None, "newest_seen_at": None, "accepted_until": None}, "newest mark"),
    "audit verify": (
        {"rows": 0, "members": 0, "head": {"position": 0, "hash": "0" * 64}, "faults": [], "remarks": []},
        "The record is sound: 0 rows",
    ),
}


@pytest.mark.parametrize("typed", READ)
def test_who_reads_where_no_ledger_is_finds_nothing_and_makes_none(typed: str, run: Run) -> None:
    as_json, words = READ[typed]
    code, out, err = run(*typed.split(), "--format", "json")
    assert (code, json.loads(out), NOTHING in err) == (0, as_json, True)
    code, out, err = run(*typed.split())
    assert (code, words in out, f"{LEDGER}; nothing is marked" in err) == (0, True, True)
    assert not LEDGER.parent.exists()


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    [
        ("audit export", DONE, NOTHING),
        ("history lake/d --as-of 2026-01-01", BAD_INPUT, "no store named lake (found 'lake/d'). Name a log with --log FILE."),
        ("unmark lake/d T1 --reason needed", FAILED, NOTHING),
        ("unmark --dataset lake/d --reason needed", FAILED, NOTHING),
        ("release h --reason done", FAILED, NOTHING),
        ("policies revoke p --reason done", FAILED, NOTHING),
        ("policies show p", FAILED, NOTHING),
        ("clock reset --reason r", FAILED, NOTHING),
    ],
)
def test_what_needs_a_ledger_prints_nothing_and_makes_none(typed: str, code: int, words: str, run: Run) -> None:
    assert words in error_of(run(*typed.split()), code)
    assert not LEDGER.exists()


def test_a_command_that_writes_makes_the_ledger_and_one_that_is_gone_is_a_fault_to_who_noted_its_head(run: Run) -> None:
    Path("head.json").write_text(json.dumps({"position": 3, "hash": "a" * 64}))
    code, out, _ = run("audit", "verify", "--known", "head.json")
    assert (code, "Row 3 of the audit was noted before, and there is no ledger." in out) == (1, True)
    assert run("hold", "--name", "h", "--dataset", "lake/*", "--reason", "trial")[0] == 0
    assert LEDGER.is_file()


# --- help ---

# What one option is called everywhere, so that fingers learn it once.
SHORT = {
    "--dataset": "-d", "--format": "-f", "--log": "-l", "--policies": "-p", "--policy": "-p", "--as-of": "-t", "--reason": "-r",
    "--most": "-n", "--status": "-s", "--config": "-c", "--yes": "-y", "--branch": "-b",
}  # fmt: skip
CONTEXT = click.Context(retention)


def below(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for word, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from below(one, f"{name} {word}")


COMMANDS = [command for name in retention.list_commands(CONTEXT) if (command := retention.get_command(CONTEXT, name))]
each_command = pytest.mark.parametrize(
    "command", [pytest.param(one, id=name) for made in COMMANDS for name, one in below(made, f"retention {made.name}")]
)


def test_each_command_stands_in_one_group_of_the_help(run: Run) -> None:
    assert [command.name for command in COMMANDS] == retention.list_commands(CONTEXT)
    code, out, _ = run("--help")
    assert code == 0
    titles = [line.removesuffix(":") for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *GROUPS]
    for command in COMMANDS:
        (summary,) = (text for texts in GROUPS.values() for name, (_, text) in texts.items() if name == command.name)
        assert (command.help or "").startswith(summary)
        assert sum(line.startswith(f"  {command.name} ") for line in out.splitlines()) == 1
    assert max(map(cell_len, out.splitlines())) <= 80
    assert "..." not in out.partition("Start:")[2]


@each_command
def test_each_command_has_sentences_of_help_and_one_short_form_of_an_option(command: click.Command) -> None:
    options = [one for one in command.params if isinstance(one, click.Option)]
    texts = [command.help, *(one.help for one in options)]
    assert [text for text in texts if not text or not text.strip().endswith(".")] == []
    taken = [short for one in options for short in one.opts if len(short) == 2]
    assert len(taken) == len(set(taken))
    assert {one.opts[-1]: one.opts for one in options if SHORT.get(one.opts[-1], one.opts[0]) != one.opts[0]} == {}


@each_command
def test_each_command_has_examples_that_its_parser_takes(command: click.Command) -> None:
    lines = (command.epilog or "").splitlines()
    assert lines[:2] == ["\b", "Examples:"]
    assert 1 <= len(lines[2:]) <= 3
    for line in lines[2:]:
        words = shlex.split(line.partition(" > ")[0])
        assert " ".join(words).startswith("retention ")
        context, rest = click.Context(retention, info_name="retention"), words[1:]
        named: click.Command = retention
        while isinstance(named, click.Group) and rest and (inner := named.get_command(CONTEXT, rest[0])):
            named, rest = inner, rest[1:]
            if not isinstance(named, click.Group):
                context = named.make_context(named.name, list(rest), parent=context)
        assert named is command or (isinstance(command, click.Group) and named in command.commands.values())


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "_retention_completion"), ("zsh", "#compdef retention"), ("fish", "complete ")]
)
def test_a_shell_is_told_how_to_complete(shell: str, words: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RETENTION_COMPLETE", f"{shell}_source")
    code, out, err = run()
    assert (code, err, words in out) == (0, "", True)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("retention ma", ["marks"]),
        ("retention marks --sta", ["--status"]),
        ("retention marks --status SW", ["SWEEPING", "SWEPT"]),
        ("retention policies l", ["load"]),
    ],
)
def test_commands_options_and_values_are_completed(
    typed: str, completed: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"_RETENTION_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert [line.partition(",")[2] for line in run()[1].splitlines()] == completed


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("hold --name h --dataset lake/* --reason r", "`retention release h --reason …` ends it."),
        ("clock accept", "`retention run` sweeps again."),
        ("audit accept --reason r", "`retention run` sweeps again."),
        ("unmark lake/d T1 --reason r", "To keep it, place a hold."),
    ],
)
def test_an_act_ends_with_what_comes_next_and_json_says_nothing_of_it(typed: str, words: str, ledger: Ledger, run: Run) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    code, out, err = run(*typed.split())
    assert (code, words in err.splitlines()[-1], words in out) == (0, True, False)
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    _, out, err = run(*typed.replace(" h ", " i ").split(), "--format", "json")
    assert words not in err
    assert "Next" not in out + err


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "typed",
    [
        "marks", "history lake/d", "preview --policies p.yaml --log log.jsonl", "hold --list", "clock", "realm", "policies",
        "explain lake/d S --policies p.yaml --log log.jsonl", "audit verify",
    ],
)  # fmt: skip
def test_what_a_command_prints_fits_the_width_that_is_said(
    width: int, typed: str, ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(SOUND)
    ledger.marks.mark(candidates(["T1", "x" * 120]), T0, "evaluation")
    run("hold", "--name", "n" * 90, "--dataset", f"lake/{'d' * 90}", "--reason", "word " * 60)
    run("realm", "r" * 100, "--status", "INACTIVE", "--reason", "r")
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(*typed.split())
    assert code == 0
    assert out
    assert [line for line in out.splitlines() if cell_len(line) > width] == []


def test_a_command_that_only_looks_upgrades_no_ledger(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = ("hold", "-d", "lake/*", "-r", "why", "--name")
    run(*hold, "first")
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "later.py").write_text("BEFORE, REVISION, upgrade = '0026', 'later', id\n")
    monkeypatch.setattr("retention_assets.ledger.migrations.__path__", [str(tmp_path / "steps")])
    for module in ("ledger", "database"):
        monkeypatch.setattr(f"retention_assets.ledger.{module}.REVISION", "later")
    assert "A command that only looks does not upgrade a ledger; `retention run` does." in error_of(run("marks"), FAILED)
    assert [run(*typed)[0] for typed in ((*hold, "second"), ("marks",))] == [DONE, DONE]
