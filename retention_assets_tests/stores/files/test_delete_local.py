"""Deleting local folders: what could lead out of them, what is freed, and a sweep that is killed at each deletion."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.places import open_place
from retention_assets.stores.protocol import SweptTarget, Target, always
from retention_assets_tests.forked import forking
from retention_assets_tests.rounds import deaths
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.files.sweeps import head, line, refusal, swept
from retention_assets_tests.stores.places.roots import accepts


@pytest.mark.parametrize("swapped", ["data/a/T1", "data/a"])
def test_a_symlink_in_place_of_the_folder_or_of_one_above_is_not_followed(lake: LocalFiles, swapped: str) -> None:
    (lake.root / swapped).rename(lake.root / "outside")
    (lake.root / swapped).symlink_to(lake.root / "outside")
    before = lake.everything()
    assert "is a symlink" in refusal(lake.store(), "lake/a", "T1")
    assert lake.everything() == before


def test_the_root_itself_may_be_reached_by_a_symlink(lake: LocalFiles) -> None:
    (lake.root / "data").rename(lake.root / "disk")
    (lake.root / "data").symlink_to(lake.root / "disk")
    assert [one.outcome for one in swept(lake.store(), "lake/a", "T1")] == [Outcome.DELETED]
    assert not (lake.root / "disk/a/T1").exists()


def test_symlinks_inside_are_unlinked_and_what_they_lead_to_stays(lake: LocalFiles) -> None:
    folder = lake.root / "data/a/T1"
    for number, target in enumerate(("../T2", "../T2/part.parquet", str(lake.root), "nowhere", ".", "..")):
        (folder / f"link{number}").symlink_to(target)
    before = {place for place in lake.everything() if not place.startswith("data/a/T1/")}
    [found] = swept(lake.store(), "lake/a", "T1")
    assert (found.outcome, found.bytes) == (Outcome.DELETED, len("lake/a T1"))
    assert lake.everything().keys() == before
    assert not os.path.lexists(folder)


@pytest.mark.parametrize(
    ("swapped", "call", "name"),
    [
        ("data/a", "open", "a"),
        ("data/a", "open", "T2"),
        ("data/a/T2", "open", "T2"),
        ("data/a/T2/deep er", "open", "deep er"),
        ("data/a/T2/deep er/é", "open", "é"),
        ("data/a", "unlink", "1"),
        ("data/a/T2", "unlink", "1"),
        ("data/a/T2/deep er", "unlink", "1"),
        ("data/a/T2/deep er/é", "unlink", "1"),
        ("data/a/T2", "unlink", "part.parquet"),
        ("data/a/T2/deep er", "rmdir", "deep er"),
        ("data/a/T2", "rmdir", "T2"),
    ],
)
def test_a_folder_that_is_swapped_for_a_symlink_meanwhile_leads_nowhere(
    lake: LocalFiles, monkeypatch: pytest.MonkeyPatch, swapped: str, call: str, name: str
) -> None:
    precious = [
        f"precious/{place}" for place in ("part.parquet", "1", "deep er/é/1", "é/1", "T2/deep er/é/1", "T2/part.parquet")
    ]
    for place in precious:
        lake.put_place(place, b"precious")
    real, before = getattr(os, call), sorted(lake.everything().values())

    def swaps(found: Any, *arguments: Any, dir_fd: int | None = None) -> Any:
        if found == name and dir_fd is not None and not (lake.root / "aside").exists():
            (lake.root / swapped).rename(lake.root / "aside")
            (lake.root / swapped).symlink_to(lake.root / "precious")
        return real(found, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, call, swaps)
    lake.store().sweep("lake/a", [Target("T2")], 1)
    monkeypatch.undo()
    assert (lake.root / "aside").exists()
    assert {place for place in lake.everything() if place.startswith("precious/")} == set(precious)
    if call == "open" and swapped.endswith(name):
        # Everything is looked at before anything goes.
        assert sorted(lake.everything().values()) == before


def test_a_file_in_place_of_the_folder_is_refused(lake: LocalFiles) -> None:
    lake.put_log("b.jsonl", line(dataset="lake/b"))
    lake.put_place("data/b/T1", b"a file")
    assert "is no folder" in refusal(lake.store(), "lake/b", "T1")
    assert lake.everything()["data/b/T1"] == b"a file"


def test_without_its_root_nothing_is_taken_for_gone(lake: LocalFiles) -> None:
    (lake.root / "data").rename(lake.root / "unmounted")
    assert "Check that the disk is mounted" in refusal(lake.store(), "lake/a", "T1")


def test_a_root_that_empties_while_it_is_swept_says_nothing_either(lake: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = open_place(str(lake.root / "data"))
    (lake.root / "data").rename(lake.root / "disk")
    (lake.root / "data").mkdir()
    for ask in (folders.measure, lambda folder: folders.delete_tree(folder, always, accepts)):
        with pytest.raises(Refused, match="data is empty"):
            ask(("a", "T1"))


def test_an_empty_folder_is_deleted_and_frees_nothing(lake: LocalFiles) -> None:
    for path in sorted((lake.root / "data/a/T1").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert swept(lake.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 0)]
    assert not (lake.root / "data/a/T1").exists()


def test_a_file_with_another_name_elsewhere_frees_nothing(lake: LocalFiles) -> None:
    lake.put("lake/a", "T1", "twice", b"1234")
    os.link(lake.root / "data/a/T1/twice", lake.root / "data/a/T1/again")
    os.link(lake.root / "data/a/T1/part.parquet", lake.root / "kept")
    [prepared] = lake.store().prepare("lake/a", ["T1"])
    [found] = swept(lake.store(), "lake/a", "T1")
    assert prepared.bytes == found.bytes == 4
    assert (lake.root / "kept").read_bytes() == b"lake/a T1"


def sweeps_until(store: FilesStore, last: int) -> None:
    left, unlink, rmdir = iter(range(last)), os.unlink, os.rmdir

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def counts(name: Any, *, dir_fd: int | None = None) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            remove(name, dir_fd=dir_fd)

        return counts

    os.unlink, os.rmdir = counted(unlink), counted(rmdir)
    store.sweep("lake/a", [Target("T1", in_latest_view=True), Target("T2", in_latest_view=True)], 1)


# Two files and three folders of each transaction.
@pytest.mark.long
@pytest.mark.parametrize("last", deaths(range(11), [1, 6]))
def test_a_sweep_that_was_killed_is_finished_by_the_next(tmp_path: Path, last: int) -> None:
    lake = LocalFiles(tmp_path)
    lake.write("lake/a", "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[b] - T10:APPEND@7d[c]")
    before, whole = lake.data(), {name: lake.owned("lake/a", name) for name in ("T1", "T2", "T10")}
    sweeper = forking().Process(target=sweeps_until, args=(lake.store(), last))
    sweeper.start()
    sweeper.join()
    assert sweeper.exitcode == (0 if last == 10 else -signal.SIGKILL)
    left = lake.data()
    assert len(before) - len(left) == [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4][last]
    assert head(lake.store())["file_names"] == ["a", "b"]
    for one in swept(lake.store(), "lake/a", "T1", "T2", seen=True):
        there = last < (5 if one.transaction == "T1" else 10)
        assert one.outcome is (Outcome.DELETED if there else Outcome.ALREADY_GONE)
        assert one.bytes == sum(len(left[place]) for place in whole[one.transaction] & left.keys())
    assert lake.data() == {place: before[place] for place in whole["T10"]}
    assert [path.name for path in (tmp_path / "data/a").iterdir()] == ["T10"]
    assert head(lake.store())["all"] == 4
