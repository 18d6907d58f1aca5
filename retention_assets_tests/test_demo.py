"""The demonstration, as a newcomer runs it."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from retention_assets.demo.environment import MARKER, build
from retention_assets.demo.page import demo
from retention_assets.exchange import read_log


def test_the_environment_is_the_same_each_time(tmp_path: Path) -> None:
    """It can be built again over itself, and its only unsound log is the one that is meant to be."""
    build(tmp_path / "demo")
    first = (tmp_path / "demo" / "log" / "log.jsonl").read_bytes()
    build(tmp_path / "demo")
    assert (tmp_path / "demo" / "log" / "log.jsonl").read_bytes() == first
    faults = {row["dataset"]: row["fault"] for row in read_log(tmp_path / "demo" / "log").datasets.to_pylist() if row["fault"]}
    assert faults == {"lake/broken.log": "unknown parent: A9"}


def test_it_never_builds_over_something_else(tmp_path: Path) -> None:
    """A folder with a person's files is left as it is."""
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not the demonstration"):
        build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert not (tmp_path / MARKER).exists()


@pytest.mark.spark
def test_the_page_tells_what_was_decided_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """The whole page: numbers, the refused dataset, one explanation, and commands that exist."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    said = StringIO()
    demo(tmp_path / "demo", Console(file=said, width=200))
    page = said.getvalue()
    for words in ("lake/broken.log", "unknown parent: A9", "Nothing was deleted", "branch 'xyz' shares it", "retention explain"):
        assert words in page, page
