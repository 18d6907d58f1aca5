"""A folder to run commands in, in this Python or as a program of its own, with the ledger that its settings name."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import retention_assets
from retention_assets.cli import main
from retention_assets.ledger import Ledger, open_ledger
from retention_assets_tests.sweep.lakes import Lake

# exit codes
DONE, FAILED, BAD_INPUT, TO_DO, REFUSED = range(5)
LEDGER = Path(".retention/ledger.db")
ROOT = Path(retention_assets.__file__).parents[1]
ENTRY = "from retention_assets.cli import main; main()"
# As installed, and without the settings of whoever runs the tests.
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if key != "RETENTION_CONFIG"}, "PYTHONPATH": str(ROOT)}


class Run(Protocol):
    """The console script in this Python: exit code, stdout and stderr."""

    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


Json = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """In a folder with settings that say nothing, as a person who is called ann."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retention.yaml").write_text("{}\n")
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)
    # Tables as a pipe gets them, wherever the tests are started.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("RETENTION_ACTOR", "ann")

    def _run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["retention", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out, said.err

    return _run


@pytest.fixture
def found(run: Run) -> Json:
    """What a command that succeeds prints as JSON, also one that finds something to do."""

    def _found(*arguments: str) -> Any:
        code, out, err = run(*arguments, "--format", "json")
        assert code in (0, 3), err
        return json.loads(out)

    return _found


@pytest.fixture
def ledger(run: Run) -> Iterator[Ledger]:
    """The ledger that the settings name where commands run."""
    with open_ledger(f"sqlite:///{LEDGER.absolute()}") as opened:
        yield opened


@pytest.fixture
def lake(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake without a dataset, of which commands find the settings."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    made = Lake(tmp_path / "lake")
    monkeypatch.setenv("RETENTION_CONFIG", str(made.settings_file))
    return made


def error_of(ran: tuple[int, str, str], code: int) -> str:
    """What a command says on stderr that ends with this code and prints nothing."""
    assert ran[:2] == (code, ""), ran
    return ran[2]


def script(
    folder: Path, *arguments: str, stdout: Any = subprocess.PIPE, code: str = ENTRY, **environ: str
) -> subprocess.CompletedProcess[str]:
    """The console script as a program of its own, which finds modules that lie in its folder."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        env={**ENVIRONMENT, "PYTHONPATH": f"{folder}:{ROOT}", **environ}, timeout=300,
    )  # fmt: skip
