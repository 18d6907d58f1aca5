"""Who may read and write a ledger's file: its owner alone, where this program made it, and a warning where others may too."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_assets.ledger import open_ledger
from retention_assets_tests.ledger.states import T0, candidates


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Whatever the user's mask allows."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(place: Path) -> str:
    return f"{stat.S_IMODE(place.stat().st_mode):o}"


def test_a_new_ledger_is_its_owners_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "deep" / "new" / "ledger.db"
    with caplog.at_level(logging.WARNING), open_ledger(f"sqlite:///{file}") as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "run")
        rights = {one.name: mode(one) for one in file.parent.iterdir()}
        assert rights == {"ledger.db": "600", "ledger.db-wal": "600", "ledger.db-shm": "600"}
    assert (mode(file.parent), caplog.text) == ("700", "")


@pytest.mark.parametrize("wide", ["ledger.db", "ledger.db-wal", "ledger.db-shm", "."])
def test_whatever_others_may_read_or_write_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, wide: str) -> None:
    file = tmp_path / wide.replace(".", "x") / "ledger.db"
    with open_ledger(f"sqlite:///{file}") as first:
        first.marks.mark(candidates(["T1"]), T0, "run")
        place = file.parent / wide
        place.chmod(0o750 if wide == "." else 0o640)
        with caplog.at_level(logging.WARNING), open_ledger(f"sqlite:///{file}"):
            assert f"{file.parent if wide == '.' else place} has the mode {'750' if wide == '.' else '640'}" in caplog.text
            assert f"chmod {'700' if wide == '.' else '600'}" in caplog.text
            assert caplog.text.count("has the mode") == 1
        # Once is enough.
        caplog.clear()
        with open_ledger(f"sqlite:///{file}"):
            assert caplog.text == ""


def test_a_folder_that_was_there_before_keeps_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    open_ledger(f"sqlite:///{folder / 'ledger.db'}").close()
    assert (mode(folder), mode(folder / "ledger.db")) == ("755", "600")
