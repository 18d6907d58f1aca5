"""The demonstration, as a newcomer runs it."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path

import pytest
from deltalake import DeltaTable
from rich.console import Console

from retention_assets.cli import GROUPS
from retention_assets.demo import walkthrough as page_module
from retention_assets.demo.environment import MARKER, build_environment
from retention_assets.demo.walkthrough import demo
from retention_assets.errors import Refused
from retention_assets.exchange import read_log
from retention_assets.ledger import open_ledger
from retention_assets.settings import load_settings
from retention_assets_tests.people.conftest import ENVIRONMENT


def test_the_environment_is_the_same_each_time(tmp_path: Path) -> None:
    build_environment(tmp_path / "demo")
    first = (tmp_path / "demo" / "log" / "log.jsonl").read_bytes()
    (tmp_path / "demo" / "data" / "raw.events" / "S1" / "part-0.bin").unlink()
    build_environment(tmp_path / "demo")
    assert (tmp_path / "demo" / "log" / "log.jsonl").read_bytes() == first
    assert (tmp_path / "demo" / "data" / "raw.events" / "S1" / "part-0.bin").is_file()
    faults = {row["dataset"]: row["fault"] for row in read_log(tmp_path / "demo" / "log").datasets.to_pylist() if row["fault"]}
    assert faults == {"lake/broken.log": "unknown parent: A9"}


def test_the_logs_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    build_environment(tmp_path / "demo")
    rows = read_log(tmp_path / "demo" / "log").transactions.to_pylist()
    place = tmp_path / "demo" / "data"
    assert all((place / row["dataset"][5:] / row["transaction"] / "part-0.bin").stat().st_size == row["bytes"] for row in rows)


def test_other_readers_read_every_version_of_the_delta_table(tmp_path: Path) -> None:
    build_environment(tmp_path / "demo")
    versions = (DeltaTable(tmp_path / "demo" / "tables" / "sales", version=number) for number in range(8))
    sales = [version.to_pyarrow_table()["sale"].to_pylist() for version in versions]
    assert [len({*rows}) for rows in sales] == [len(rows) for rows in sales]
    assert [len(rows) // 1_000 for rows in sales] == [1, 1, 1, 2, 3, 3, 4, 5]
    # the compaction changes no row
    assert sorted(sales[4]) == sorted(sales[5])


def test_it_never_builds_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(Refused, match="do not belong to the demonstration"):
        build_environment(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert not (tmp_path / MARKER).exists()


@pytest.mark.spark
def test_the_page_tells_what_happened_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    said = StringIO()
    demo(tmp_path / "demo", Console(file=said, width=200))
    page = said.getvalue()
    for words in (
        "lake/broken.log was refused: unknown parent: A9", "Nothing is deleted yet", "branch 'backfill': readers of that branch",
        "branch 'dispute': readers of that branch", "S7 stays too", "0 failed", "0 faults", "branch 'xyz' shares it",
        "shop.prices year-end", "Versions 1, 5, 6, 7 of the Delta table lakehouse/sales can still be read", "make dev", "version 5 was spared",
        "It is inside the window of its table", "table metadata_aspect_v2: 43 rows before, 13 after",
        "table unit_of_work: 240 rows before, 158 after", "table summary: 480 rows before, 316 after",
    ):  # fmt: skip
        assert words in page, page
    left = {place.name for place in (tmp_path / "demo" / "data" / "raw.clicks").iterdir()}
    assert {"S9", "S90"} <= left
    assert "S1" not in left


def test_the_commands_that_the_page_names_exist() -> None:
    page = Path(page_module.__file__).read_text()
    named = set(re.findall(r'"retention ([a-z-]+)', page)) | set(re.findall(r"`retention ([a-z-]+)", page))
    assert named <= {name for commands in GROUPS.values() for name in commands}
    assert len(named) >= 5


@contextmanager
def dagster_at_terminal(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`make dev`, which says one word where Dagster would be opened; and its screen."""
    script = folder.parent / "dev.py"
    script.write_text(
        "import os; from pathlib import Path; from retention_assets.demo.environment import open_dagster\n"
        f"os.execv = lambda _, arguments: print('OPENED', *arguments[1:])\nopen_dagster(Path({str(folder)!r}))"
    )
    screen, line = pty.openpty()
    with subprocess.Popen([sys.executable, script], stdin=line, stdout=line, stderr=line, env=ENVIRONMENT) as program:
        os.close(line)
        yield program, screen
    os.close(screen)


def read_until(screen: int, words: str = "nothing: to its end") -> str:
    shown = b""
    with suppress(OSError):
        while words.encode() not in shown:
            shown += os.read(screen, 65_536)
    return shown.decode()


def test_the_folder_is_its_owners_so_that_no_command_warns_of_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings(build_environment(tmp_path / "demo"))
    with open_ledger(settings.ledger, simulated=True):
        pass
    assert (caplog.text, (tmp_path / "demo").stat().st_mode & 0o077) == ("", 0)


@pytest.mark.program
@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [("n", 1, "Nothing was started, and nothing is deleted."), ("y", 0, "OPENED -m dagster dev --workspace workspace.yaml")],
)
def test_dagster_asks_before_it_opens_what_it_would_sweep(answer: str, code: int, words: str, tmp_path: Path) -> None:
    build_environment(tmp_path / "demo")
    with dagster_at_terminal(tmp_path / "demo") as (program, screen):
        assert "it deletes what is due" in read_until(screen, "Go on? [y/N]: ")
        os.write(screen, f"{answer}\n".encode())
        assert words in read_until(screen)
    assert program.returncode == code


@pytest.mark.program
def test_nothing_is_built_anew_while_dagster_has_the_folder_open(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    build_environment(folder)
    with dagster_at_terminal(folder) as (program, screen):
        read_until(screen, "Go on? [y/N]: ")
        with pytest.raises(Refused, match=r"`make dev` has .* open"):
            build_environment(folder)
        assert (folder / "ice.db").is_file()
        with dagster_at_terminal(folder) as (second, its_screen):
            assert "`make dev` has" in read_until(its_screen)
        assert second.returncode == 1
        program.kill()
    # However the program ended, nobody is locked out.
    build_environment(folder)
