"""What the command line says of itself: groups, examples that can be typed, short options, completion, what comes next."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rich.cells import cell_len

from retention_assets.cli import GROUPS, retention
from retention_assets.ledger import Ledger
from retention_assets_tests.ledger.states import T0, candidates
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT, Run
from retention_assets_tests.people.logs import SOUND, write

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
ALL = [pytest.param(one, name, id=name) for command in COMMANDS for name, one in below(command, f"retention {command.name}")]


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


@pytest.mark.parametrize(("command", "name"), ALL)
def test_each_command_has_examples_that_its_parser_takes(command: click.Command, name: str) -> None:
    lines = (command.epilog or "").splitlines()
    assert lines[:2] == ["\b", "Examples:"]
    assert 1 <= len(lines[2:]) <= 3
    for line in lines[2:]:
        words = shlex.split(line.partition(" > ")[0])
        assert " ".join(words).startswith("retention ")
        context, rest = click.Context(retention, info_name="retention"), words[1:]
        found: click.Command = retention
        while isinstance(found, click.Group) and rest and (inner := found.get_command(CONTEXT, rest[0])):
            found, rest = inner, rest[1:]
            context = (
                found.make_context(found.name, list(rest), parent=context) if not isinstance(found, click.Group) else context
            )
        assert found is command or (isinstance(command, click.Group) and found in command.commands.values())


@pytest.mark.parametrize(("command", "name"), ALL)
def test_an_option_has_one_short_form_wherever_it_is(command: click.Command, name: str) -> None:
    options = [one for one in command.params if isinstance(one, click.Option)]
    taken = [short for one in options for short in one.opts if len(short) == 2]
    assert len(taken) == len(set(taken))
    wrong = {one.opts[-1]: one.opts for one in options if SHORT.get(one.opts[-1], one.opts[0]) != one.opts[0]}
    assert wrong == {}


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "_retention_completion"), ("zsh", "#compdef retention"), ("fish", "complete ")]
)
def test_a_shell_is_told_how_to_complete(shell: str, words: str, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "_RETENTION_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("retention ma", ["marks"]),
        ("retention marks --sta", ["--status"]),
        ("retention marks --status SW", ["SWEEPING", "SWEPT"]),
        ("retention policies l", ["load"]),
    ],
)
def test_commands_options_and_values_are_completed(typed: str, completed: list[str], tmp_path: Path) -> None:
    words = typed.split()
    asked = {"_RETENTION_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY], cwd=tmp_path, env={**ENVIRONMENT, **asked}, capture_output=True, text=True, check=False
    )
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completed


# Acts that need nothing but a ledger, and what each says of what comes next.
ACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("hold", "--name", "h", "--dataset", "lake/*", "--reason", "r"), "`retention release h --reason …` ends it."),
    (("clock", "accept"), "`retention run` sweeps again."),
    (("audit", "accept", "--reason", "r"), "`retention run` sweeps again."),
    (("unmark", "lake/d", "T1", "--reason", "r"), "To keep it, place a hold."),
)


@pytest.mark.parametrize(("arguments", "words"), ACTS, ids=lambda one: one[0] if isinstance(one, tuple) else "")
def test_an_act_ends_with_what_comes_next_and_json_says_nothing_of_it(
    arguments: tuple[str, ...], words: str, ledger: Ledger, run: Run
) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    code, out, err = run(*arguments)
    assert (code, words in err.splitlines()[-1], words in out) == (0, True, False)
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    _, out, err = run(*(one.replace("h", "i") if one == "h" else one for one in arguments), "--format", "json")
    assert words not in err
    assert "Next" not in out + err


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "arguments",
    [
        ("marks",), ("history", "lake/d"), ("preview", "--policies", "p.yaml", "--log", "log.jsonl"), ("hold", "--list"), ("clock",),
        ("explain", "lake/d", "S", "--policies", "p.yaml", "--log", "log.jsonl"), ("realm",), ("policies",), ("audit", "verify"),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)  # fmt: skip
def test_what_a_command_prints_fits_the_width_that_is_said(
    width: int, arguments: tuple[str, ...], ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(SOUND)
    ledger.marks.mark(candidates(["T1", "x" * 120]), T0, "evaluation")
    run("hold", "--name", "n" * 90, "--dataset", f"lake/{'d' * 90}", "--reason", "word " * 60)
    run("realm", "r" * 100, "--status", "INACTIVE", "--reason", "r")
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(*arguments)
    assert code == 0
    assert out
    assert [line for line in out.splitlines() if cell_len(line) > width] == []
