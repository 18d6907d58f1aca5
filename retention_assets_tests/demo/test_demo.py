"""The demonstration, as a newcomer runs it."""

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from retention_assets.cli import GROUPS
from retention_assets.demo import walkthrough as page_module
from retention_assets.demo.environment import MARKER, build_environment
from retention_assets.demo.walkthrough import demo
from retention_assets.exchange import read_log


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


def test_it_never_builds_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not the demonstration"):
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
        "branch 'dispute': readers of that branch", "S7 is still there", "0 failed", "0 faults", "branch 'xyz' shares it",
        "shop.prices year-end", "make dev", "table metadata_aspect_v2: 43 rows before, 13 after",
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
