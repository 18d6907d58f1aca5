"""Folders that are not what was planned any more: they are spared with the reason, and what a killed sweep left goes on."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.places import mounts
from retention_assets_tests.sweep.lakes import Lake

TWO = "main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d"
OTHER = "Another folder has taken its place"
CHANGED = "Its files changed since its deletion was planned"


def put_another(folder: Path) -> None:
    """Somebody renames another folder to its name."""
    shutil.rmtree(folder)
    (folder.parent / "T2").rename(folder)


def put_a_copy(folder: Path) -> None:
    """Somebody copies it, times and all, and puts the copy in its place."""
    shutil.copytree(folder, folder.parent / "copy")
    folder.rename(folder.parent / "before")
    (folder.parent / "copy").rename(folder)


def rewrite(folder: Path) -> None:
    """Somebody writes a file anew, as long as before."""
    file = folder / "deep" / "b.parquet"
    file.write_text("t1")
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000))


def add(folder: Path) -> None:
    """Somebody adds an empty file that looks old."""
    (folder / "new").touch()
    os.utime(folder / "new", ns=(0, 0))


def lengthen(folder: Path) -> None:
    """Somebody adds to a file without changing its time."""
    file = folder / "a.parquet"
    before = file.stat().st_mtime_ns
    file.write_text("longer" * 20)
    os.utime(file, ns=(0, before))


def put_an_older_one_back(folder: Path) -> None:
    """Somebody puts back a file that is shorter and older."""
    file = folder / "a.parquet"
    file.write_text("")
    os.utime(file, ns=(0, 0))


def touch_folders(folder: Path) -> None:
    for place in (folder, folder / "deep"):
        os.utime(place, ns=(0, 0))


def link_elsewhere(folder: Path) -> None:
    """A backup takes a file by another name."""
    os.link(folder / "a.parquet", folder.parents[2] / "backup")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    # The folders of tests may be in memory.
    monkeypatch.setattr(mounts, "keeps_numbers", lambda _: True)
    return Lake(tmp_path).has(TWO)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put_another, OTHER),
        (put_a_copy, OTHER),
        (rewrite, CHANGED),
        (add, CHANGED),
        (lengthen, CHANGED),
        (put_an_older_one_back, CHANGED),
    ],
)
def test_another_folder_than_the_planned_one_is_spared(lake: Lake, change: Callable[[Path], None], reason: str) -> None:
    folder, left = lake.place("lake/d", "T1"), dict[str, str]()
    lake.marks()

    def act() -> None:
        change(folder)
        left.update(lake.left())

    result = lake.sweeps(store=lake.elsewhere(act, "sweep"))["lake/d"]
    assert result.outcomes == {Outcome.SPARED: 1}
    assert lake.left() == left
    assert lake.statuses()["T1"] == "SPARED"
    assert reason in lake.why("T1")


@pytest.mark.parametrize(
    ("change", "numbers"),
    [(touch_folders, True), (link_elsewhere, True), pytest.param(put_a_copy, False, id="no number lasts")],
)
def test_what_says_nothing_of_the_files_keeps_no_folder(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], numbers: bool
) -> None:
    monkeypatch.setattr(mounts, "keeps_numbers", lambda _: numbers)
    lake.marks()
    result = lake.sweeps(store=lake.elsewhere(lambda: change(lake.place("lake/d", "T1")), "sweep"))["lake/d"]
    assert result.outcomes == {Outcome.DELETED: 1}
    assert lake.there() & {"T1", "T2"} == {"T2"}


@pytest.mark.parametrize("number", [True, False])
def test_what_a_killed_sweep_left_of_a_folder_goes_unless_something_in_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: bool
) -> None:
    """On a machine on which the numbers of folders last, and on another."""
    monkeypatch.setattr(mounts, "keeps_numbers", lambda _: number)
    lake = Lake(tmp_path).has("main: T1:SNAPSHOT@90d - T3:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    lake.marks()

    def act() -> None:
        for name in ("T1", "T3"):
            (lake.place("lake/d", name) / "a.parquet").unlink()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.sweeps(store=lake.elsewhere(act, "sweep"))
    rewrite(lake.place("lake/d", "T3"))
    assert lake.sweeps()["lake/d"].outcomes == {Outcome.DELETED: 1, Outcome.SPARED: 1}
    assert lake.there() == {"T2", "T3"}
    assert lake.why("T3").startswith(CHANGED)
