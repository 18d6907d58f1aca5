"""Temporary folders: whose program was killed a day ago go, and every other one stays, whatever it is called."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

import pytest

from retention_assets.stores.places.own_files import temporary_folder
from retention_assets_tests.forked import forking

DAY = 24 * 3600


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    get_temp_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dies(here: Path) -> None:
    tempfile.tempdir = str(here)
    with temporary_folder("look") as folder:
        (Path(folder) / "hits").mkdir()
        (Path(folder) / "hits" / "1").write_bytes(b"x")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def left(here: Path) -> Path:
    killed = forking().Process(target=dies, args=(here,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    (folder,) = here.iterdir()
    return folder


def aged(folder: Path, seconds: int = DAY + 60) -> None:
    lock = folder / ".in-use"
    os.utime(lock, (lock.stat().st_mtime - seconds,) * 2)


def test_a_folder_is_gone_with_its_program(here: Path) -> None:
    with temporary_folder("look") as folder:
        assert [str(one) for one in here.iterdir()] == [folder]
        assert Path(folder).name.startswith("retention-look-")
    assert list(here.iterdir()) == []


def test_what_a_killed_program_has_left_goes_a_day_later(here: Path, left: Path) -> None:
    aged(left, DAY - 60)
    with temporary_folder("look"):
        assert left.exists()
    aged(left)
    with temporary_folder("scan"):
        assert left.exists()
    with temporary_folder("look"):
        assert not left.exists()


def test_the_folder_of_a_program_that_is_at_work_for_days_stays(here: Path) -> None:
    with temporary_folder("look") as folder:
        aged(Path(folder))
        with temporary_folder("look"):
            assert Path(folder).exists()


def to_a_symlink(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.symlink_to(place.with_name("elsewhere"))


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "no lock": lambda folder, _: (folder / ".in-use").unlink(),
    "a symlink": lambda folder, _: to_a_symlink(folder),
    "a lock elsewhere": lambda folder, _: to_a_symlink(folder / ".in-use"),
    "of another user": lambda folder, patch: patch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1),
    "of another name": lambda folder, _: folder.rename(folder.with_name(f"{folder.name}.kept")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_no_such_program_has_left_stays(here: Path, left: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    aged(left)
    change(left, monkeypatch)
    with temporary_folder("look"):
        assert list(here.rglob("hits/1"))


LOADED = """
import retention_assets.exchange
from retention_assets.stores.concurrency import set_aside_what_is_loaded
set_aside_what_is_loaded()
"""


@pytest.mark.program
def test_what_is_set_aside_is_cleared_away_at_the_end_of_a_program_without_a_word() -> None:
    """DuckDB would complain of what it loaded in fifty lines, below what the user came for."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
