"""The command line as a program of its own: exit codes, streams that are closed, what it imports, and its help.

A script that trusts an exit code or a line of JSON here may delete because of it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from retention_assets.cli import retention
from retention_assets_tests.people.conftest import ENTRY, ENVIRONMENT, Run, script
from retention_assets_tests.people.logs import SOUND, write

# --- what is not understood ---


@pytest.mark.parametrize(
    "arguments",
    [
        ("preview", "--format", "xml"),
        ("preview", "--lgo", "x"),
        ("previw",),
        (),
        ("preview", "--log", "nowhere.jsonl", "--policies", "p.yaml"),
        ("preview", "--log", "log.jsonl", "--policies", "nowhere.yaml"),
        ("preview", "--policies", "p.yaml"),
        ("compare", "--log", "log.jsonl", "--policies", "p.yaml"),
        ("compare", "--log", "log.jsonl"),
        ("explain", "lake/d"),
        ("validate", "nowhere.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_what_is_not_understood_is_bad_input_with_words_on_stderr(arguments: tuple[str, ...], run: Run) -> None:
    write(SOUND)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
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


@by_what_is_printed
def test_a_reader_that_went_away_ends_the_command_without_a_word(printing: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = script(tmp_path, *printing, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@by_what_is_printed
def test_a_closed_stdout_is_no_error(printing: tuple[str, ...], tmp_path: Path) -> None:
    # Whoever closes it wants the exit code alone.
    command = f"exec '{sys.executable}' -c '{ENTRY}' {' '.join(printing)} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@by_what_is_printed
def test_a_full_disk_below_stdout_fails_with_a_sentence(printing: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = script(tmp_path, *printing, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("cannot go on: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("validate", "p.yaml"), ("schema",), ("preview", "--help")],
    ids=lambda arguments: arguments[0],
)
def test_a_light_command_imports_neither_dagster_nor_spark(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(SOUND)
    code = (
        "import sys\nfrom retention_assets.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    heavy = {'dagster', 'pyspark', 'pandas', 'duckdb'} & set(sys.modules)\n"
        "    print(sorted(heavy), file=sys.stderr)\n"
    )
    done = script(tmp_path, *arguments, code=code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def commands(of: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, of
    for word, below in of.commands.items() if isinstance(of, click.Group) else ():
        yield from commands(below, f"{name} {word}")


@pytest.mark.parametrize("command", [pytest.param(one, id=name) for name, one in commands(retention, "retention")])
def test_every_command_and_option_has_a_sentence_of_help(command: click.Command) -> None:
    texts = [command.help, *(one.help for one in command.params if isinstance(one, click.Option))]
    assert [text for text in texts if not text or not text.strip().endswith(".")] == []
