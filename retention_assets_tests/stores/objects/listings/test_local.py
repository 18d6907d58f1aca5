"""Listing a folder of this machine: what is an object, what refuses the listing, shares, and the clock of the disk."""

import errno
import gc
import os
import random
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.stores.objects import listings
from retention_assets.stores.places import local, mounts
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, rows_of, settings_of


def write(root: Path, *keys: str, content: bytes = b"") -> None:
    for key in keys:
        file = root / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def place(root: Path) -> dict[str, Any]:
    return {"path": str(root)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    write(root, "a", "r1/b c", "r1/deep/er/é", content=b"123")
    (root / "empty").mkdir()
    write(tmp_path, "outside/x")
    (root / "link").symlink_to(root / "a")
    (root / "links").symlink_to(tmp_path / "outside")
    (root / "r1" / "nowhere").symlink_to("gone")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "s"))
    write(root, ".retention-store", f".retention-clock-{'0' * 32}")
    return root


def test_regular_files_are_objects_and_nothing_else(root: Path) -> None:
    rows = listed(listing_of(place(root)))
    assert rows.keys() == {"a", "r1/b c", "r1/deep/er/é"}
    info = (root / "a").stat()
    assert rows["a"] == {
        "realm": None, "kind": None, "size": 3,
        "created_at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=info.st_mtime_ns // 1000),
        "condition": f'{{"mtime_ns":{info.st_mtime_ns},"size":3,"inode":{info.st_ino}}}',
    }  # fmt: skip


def test_a_uri_of_this_machine_is_its_folder(root: Path) -> None:
    assert listed(listing_of({"path": f"file://{root}"})).keys() == {"a", "r1/b c", "r1/deep/er/é"}


NOT_THERE = [
    "gone", "r1", "r1/", "r1/gone", "gone/a", "a/b", "link", "links/x", "r1/../a", "./a", "/a", "", "r1//b c", "a\0",
    ".retention-store", "fifo", "r1/nowhere",
]  # fmt: skip


def test_keys_are_looked_at_one_by_one_and_no_symlink_is_followed(root: Path) -> None:
    listing = listing_of(place(root))
    rows = listed(listing)
    assert found(listing, [*rows, *NOT_THERE]) == rows


def test_a_folder_that_became_a_symlink_is_not_entered(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "outside/b c")
    listing, opened = listing_of(place(root)), os.open
    [share] = listing.shares(1)

    def swapped(name: Any, *args: Any, **more: Any) -> int:
        if name == "r1":
            (root / "r1").rename(tmp_path / "moved")
            (root / "r1").symlink_to(tmp_path / "outside")
        return opened(name, *args, **more)

    monkeypatch.setattr(os, "open", swapped)
    assert rows_of(listing.read(share)).keys() == {"a"}


def test_what_goes_while_it_is_listed_is_not_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, opened = listing_of(place(root)), os.open
    [share] = listing.shares(1)

    def gone(name: Any, *args: Any, **more: Any) -> int:
        if name == "deep":
            (root / "r1/deep/er/é").unlink()
            (root / "r1/deep/er").rmdir()
            (root / "r1/deep").rmdir()
        return opened(name, *args, **more)

    monkeypatch.setattr(os, "open", gone)
    assert rows_of(listing.read(share)).keys() == {"a", "r1/b c"}


def test_a_root_that_is_not_there_refuses_everything(tmp_path: Path) -> None:
    listing = listing_of(place(tmp_path / "nowhere"))
    for ask in (listing.begin, lambda: listing.shares(1), lambda: list(listing.find(["a"]))):
        with pytest.raises(Refused, match=r"The root .*/nowhere does not exist.*disk is mounted"):
            ask()
    (tmp_path / "nowhere").write_bytes(b"")
    with pytest.raises(Refused, match="Not a directory"):
        listing.shares(1)


def test_a_folder_that_can_not_be_read_refuses_the_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, opened = listing_of(place(root)), os.open

    def denied(name: Any, *args: Any, **more: Any) -> int:
        # Permissions would not do: the tests may run as root.
        if name == "deep":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(name, *args, **more)

    monkeypatch.setattr(os, "open", denied)
    refused = r"'r1/deep' of .*/root can't be listed: Permission denied"
    with pytest.raises(Refused, match=refused):
        listed(listing)
    with pytest.raises(Refused, match=refused):
        found(listing, ["r1/deep/er/é"])


def test_what_is_mounted_below_the_root_refuses_the_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, asked = listing_of(place(root)), mounts.mount_of

    def elsewhere(descriptor: int) -> mounts.Mount:
        mount = asked(descriptor)
        return mount._replace(number=-1) if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/deep") else mount

    monkeypatch.setattr(mounts, "mount_of", elsewhere)
    with pytest.raises(Refused, match="Something is mounted at 'r1/deep' in the root"):
        listed(listing)
    with pytest.raises(Refused, match="Something is mounted at 'r1/deep' in the root"):
        found(listing, ["r1/deep/er/é"])


def test_a_name_that_is_not_utf_8_refuses_the_listing(root: Path) -> None:
    (root / os.fsdecode(b"r1/\xff")).write_bytes(b"")
    with pytest.raises(Refused, match=r"is not UTF-8: 'r1/\\udcff'"):
        listed(listing_of(place(root)))


def test_no_descriptor_stays_open(root: Path) -> None:
    # what earlier tests left open may be closed at any time
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    listing = listing_of(place(root))
    listing.begin()
    listed(listing, 3)
    next(iter(listing.read(listing.shares(1)[0])))
    found(listing, ["r1/deep/er/é", "a", *NOT_THERE])
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_clock_is_that_of_the_disk_and_leaves_nothing(root: Path) -> None:
    before = sorted(os.listdir(root))
    at = listing_of(place(root)).begin()
    assert timedelta(seconds=-1) < now() - at < timedelta(minutes=1)
    assert sorted(os.listdir(root)) == before


@pytest.mark.parametrize("nameless", [None, errno.EOPNOTSUPP, errno.EISDIR, 0])
def test_only_where_no_file_can_be_without_a_name_it_has_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, nameless: int | None
) -> None:
    """None: the system knows no such files. Otherwise: with what the disk refuses one; 0: it does not."""
    opened, named = os.open, list[str]()

    def watched(name: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and nameless:
            raise OSError(nameless, os.strerror(nameless))
        if flags & os.O_CREAT:
            named.append(name)
        return opened(name, flags, *args, **more)

    if nameless is None:
        monkeypatch.setattr(local, "_NAMELESS", 0)
    monkeypatch.setattr(os, "open", watched)
    before = sorted(os.listdir(root))
    assert timedelta(seconds=-1) < now() - listing_of(place(root)).begin() < timedelta(minutes=1)
    assert [name.startswith(".retention-clock-") for name in named] == ([] if nameless == 0 else [True])
    assert sorted(os.listdir(root)) == before


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EIO])
def test_where_nothing_may_be_written_the_clock_is_ours(root: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    opened = os.open

    def refused(name: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & os.O_WRONLY:
            raise OSError(reason, os.strerror(reason))
        return opened(name, flags, *args, **more)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(local, "now", lambda: datetime(2030, 1, 1, tzinfo=UTC))
    if reason == errno.EIO:
        # A disk that is broken tells nothing.
        with pytest.raises(OSError, match=os.strerror(reason)):
            listing_of(place(root)).begin()
    else:
        assert listing_of(place(root)).begin() == datetime(2030, 1, 1, tzinfo=UTC)


def test_many_files_come_in_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, *(f"many/{number}" for number in range(25)))
    monkeypatch.setattr(listings, "BATCH", 10)
    listing = listing_of(place(root))
    [share] = listing.shares(1)
    assert [len(batch) for batch in listing.read(share)] == [10, 10, 8]
    assert [len(batch) for batch in listing.find([f"many/{number}" for number in range(25)])] == [10, 10, 5]


def test_a_small_tree_is_one_share(root: Path) -> None:
    assert len(listing_of(place(root)).shares(8)) == 1


@pytest.mark.parametrize("enough", [0, 3, 10])
def test_shares_of_any_tree_overlap_nowhere_and_leave_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: int
) -> None:
    monkeypatch.setattr(local, "_ENOUGH", enough)
    choose = random.Random(enough)
    for number in range(rounds(2)):
        root = tmp_path / str(number)
        root.mkdir()
        folders = ["", "a/", "b/", "b/c/", "b/c/d/", "huge/", "huge/x/"]
        keys = {f"{choose.choice(folders)}{choose.randint(0, 30)}" for _ in range(choose.randint(0, 60))}
        write(root, *keys)
        listing = listing_of(place(root))
        for wanted in (1, 2, 5):
            assert listed(listing, wanted).keys() == keys


def test_shares_hold_for_what_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_ENOUGH", 5)
    write(tmp_path, *(f"r{number % 3}/{number}" for number in range(20)))
    listing = listing_of(place(tmp_path))
    shares = listing.shares(3)
    assert len(shares) == 3
    write(tmp_path, "new/x", "new/y/z", "r0/more")
    rows = [key for share in shares for batch in listing.read(share) for key in batch["key"].to_pylist()]
    assert sorted(rows) == sorted({*(f"r{number % 3}/{number}" for number in range(20)), "new/x", "new/y/z", "r0/more"})


def test_the_names_in_the_root_tell_datasets(root: Path) -> None:
    listing = listing_of(place(root))
    assert listing.distinct_names(settings_of(place(root))) == ["blobs/blobs"]
    assert listing.distinct_names(settings_of(place(root), dataset="{0}")) == ["blobs/a", "blobs/empty", "blobs/r1"]
    assert listing.distinct_names(settings_of(place(root), kind_of={"pattern": "(a)"}, dataset="{kind}")) is None
