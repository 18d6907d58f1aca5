"""Deleting objects from a disk: by descriptors, no way out of the root, and nothing taken for gone without a sign."""

import os

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.objects.notes import matches_file
from retention_assets.stores.places import Entry, mounts, open_place
from retention_assets.stores.places.mounts import Mount
from retention_assets.stores.protocol import Remains, SweptTarget, is_same_place
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects
from retention_assets_tests.stores.objects.sweeps import begun, planned, swept


def test_a_note_says_to_the_letter_what_is_there_until_it_is_another_file(folder: LocalObjects) -> None:
    """Were the texts written in two ways, each file would be asked for in the slow one."""
    [target], file = planned(folder.store(), "a/one"), folder.root / "a" / "one"

    def present() -> Entry:
        [entry] = open_place(str(folder.root)).find(["a/one"])
        return entry

    assert matches_file(target.note, present())
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert not matches_file(target.note, present())
    assert not matches_file(None, present())


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_each_fact_tells_another_file(folder: LocalObjects, change: str) -> None:
    store, file = folder.store(), folder.root / "a" / "one"
    targets = planned(store, "a/one")
    if change == "size":
        file.write_bytes(b"longer than before")
        os.utime(file, (OLD.timestamp(), OLD.timestamp()))
    elif change == "time":
        os.utime(file, ns=(0, int(OLD.timestamp()) * 10**9 + 1))
    else:
        # Both are there at once, so that they have two numbers.
        other = file.with_name("other")
        other.write_bytes(file.read_bytes())
        os.utime(other, (OLD.timestamp(), OLD.timestamp()))
        other.replace(file)
    assert swept(store, targets)["a/one"].outcome is Outcome.SPARED
    assert file.exists()


def test_a_file_with_another_name_frees_nothing(folder: LocalObjects) -> None:
    os.link(folder.root / "a" / "one", folder.root / "kept")
    store = folder.store()
    assert swept(store, planned(store, "a/one"))["a/one"] == SweptTarget("a/one", Outcome.DELETED, 0)
    assert (folder.root / "kept").read_bytes() == b"a/one"


@pytest.mark.parametrize("condition", ["auto", "none"])
@pytest.mark.parametrize("gone", ["the file", "its folder"])
def test_what_a_killed_sweep_has_freed_is_not_what_has_another_name(folder: LocalObjects, condition: str, gone: str) -> None:
    os.link(folder.root / "a" / "one", folder.root / "kept")
    store = folder.store(delete={"condition": condition})
    targets = begun(planned(store, "a/one", "a/two"))
    for key in ("a/one", "a/two") if gone == "the file" else ("a/one", "a/two", "a/three"):
        folder.take(key)
    if gone == "its folder":
        (folder.root / "a").rmdir()
    assert store.remains("blobs/a", targets) == {"a/one": Remains.NOTHING, "a/two": Remains.FREED}
    assert {key: (one.outcome, one.bytes) for key, one in swept(store, targets).items()} == {
        "a/one": (Outcome.ALREADY_GONE, 0),
        "a/two": (Outcome.ALREADY_GONE, len("a/two")),
    }


@pytest.mark.parametrize("where", ["the folder", "the file"])
def test_a_symlink_leads_nowhere(folder: LocalObjects, where: str) -> None:
    store = folder.store()
    targets = planned(store, "a/one")
    outside = folder.folder / "outside"
    (folder.root / "a").rename(outside)
    if where == "the folder":
        (folder.root / "a").symlink_to(outside)
    else:
        (folder.root / "a").mkdir()
        (folder.root / "a" / "one").symlink_to(outside / "one")
    found = swept(store, targets)["a/one"]
    assert (found.outcome, found.bytes) == (Outcome.FAILED, 0)
    assert (outside / "one").exists()


def test_a_file_of_retention_itself_stays_whatever_name_led_there(folder: LocalObjects) -> None:
    """Such as a ledger that is mounted there, or has a second name there."""
    store, ledger = folder.store(), folder.folder / "ledger.db"
    os.link(folder.root / "a" / "one", ledger)
    store.settings.guard((f"sqlite:///{ledger}",))
    found = swept(store, planned(store, "a/one", "a/two"))
    assert (found["a/one"].outcome, found["a/two"].outcome) == (Outcome.FAILED, Outcome.DELETED)
    assert "belongs to retention itself" in (found["a/one"].error or "")
    assert (folder.root / "a" / "one").exists()


def test_what_is_mounted_below_the_root_is_left_alone(folder: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def mount_of(descriptor: int) -> Mount:
        return Mount(1, 2 if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/a") else 1)

    store = folder.store()
    targets = planned(store, "a/one")
    monkeypatch.setattr(mounts, "mount_of", mount_of)
    found = swept(store, targets)["a/one"]
    assert found.outcome is Outcome.FAILED
    assert "mounted" in (found.error or "")
    assert (folder.root / "a" / "one").exists()


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_root_without_anything_says_nothing_of_what_is_gone(folder: LocalObjects, state: str) -> None:
    """That of a disk that is not mounted looks so."""
    store = folder.store()
    targets = planned(store, "a/one")
    folder.root.rename(folder.folder / "disk")
    if state == "empty":
        folder.root.mkdir()
    assert store.remains("blobs/a", targets) == {"a/one": Remains.UNKNOWN}
    found = swept(store, targets)["a/one"]
    assert (found.outcome, found.bytes) == (Outcome.FAILED, 0)
    assert "Check that the disk is mounted" in (found.error or "")


def test_a_root_that_is_known_again_may_be_empty(folder: LocalObjects) -> None:
    store = folder.store()
    said = store.place("blobs/a")
    claimed = store.place("blobs/a", claim=True)
    assert said is not None
    assert claimed is not None
    assert is_same_place(said, claimed)
    assert claimed != said
    targets = planned(store, "a/one")
    for key in folder.data():
        folder.take(key)
    (folder.root / "a").rmdir()
    assert swept(store, targets)["a/one"].outcome is Outcome.ALREADY_GONE
    # What says which root it is is no object.
    assert store.read(["blobs/blobs"]).num_rows == 0
