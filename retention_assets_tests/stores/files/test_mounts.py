"""Mounts in what is to be deleted: whatever is mounted there stays, and nothing of the folder goes.

A program of its own, in namespaces of its own, mounts and sweeps; the cases share it, for it takes long to begin.
"""

import os
from collections.abc import Mapping
from typing import Any

import pytest

from retention_assets.stores.places import mounts
from retention_assets.stores.places.mounts import Mount, keeps_numbers, mount_of
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.files.sweeps import refusal, swept
from retention_assets_tests.stores.places.mounts import run_with_mounts

# Each case: what is mounted at which place of the lake; a source that is none is a file system in memory.
CASES = {
    "a live folder, bound into a due one": ("data/a/T10", "data/a/T1/deep er"),
    "a live folder, bound deep into a due one": ("data/a/T10", "data/a/T1/deep er/é/here"),
    "a live folder, bound over the due one": ("data/a/T10", "data/a/T1"),
    "a live dataset, bound over that of the due one": ("data/b", "data/a"),
    "a file system in memory": (None, "data/a/T1/deep er/é"),
    "an empty file system in memory": (None, "data/a/T1/empty"),
    "a file system in memory, over the due one": (None, "data/a/T1"),
    # Whichever of its neighbours is listed first.
    "a live folder beside others": ("data/a/T10", "data/a/T1/beside3"),
    "a live folder beside others too": ("data/a/T10", "data/a/T1/beside8"),
    "a file, bound over one of the due folder": ("data/a/T10/part.parquet", "data/a/T1/part.parquet"),
    "a disk of its own for the dataset": (None, "data/c"),
}
SWEEP = """
import json, os, subprocess, sys
from pathlib import Path
from retention_assets.outcomes import Order
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.files.sweeps import filled, line, swept

told = {}
for number, (case, (source, place)) in enumerate(json.loads(sys.argv[2]).items()):
    root = Path(sys.argv[1]) / str(number)
    root.mkdir()
    lake = filled(LocalFiles(root))
    lake.put("lake/b", "T1", "live", b"live")
    for beside in range(10):
        lake.put("lake/a", "T1", f"beside{beside}/x", b"")
    dataset = "lake/c" if place == "data/c" else "lake/a"
    lake.put_log("c.jsonl", line(dataset="lake/c"))
    target = root / place
    if source is None or (root / source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    kind = ["-t", "tmpfs", "none"] if source is None else ["--bind", root / source]
    subprocess.run(["mount", *kind, target], check=True)
    if source is None and "empty" not in place:
        (target / "T1").mkdir()
        (target / "T1" / "precious").write_bytes(b"precious")
    before = sorted(lake.data())
    [prepared] = lake.store().prepare(dataset, ["T1"])
    due = [Target("T1", prepared.note, aside="1/2")]
    [aside] = lake.store().carry_out(Order.SET_ASIDE, dataset, due, 1)
    stayed = sorted(lake.data()) == before
    lake.store().carry_out(Order.RESTORE, dataset, due, 1)
    [found] = swept(lake.store(), dataset, "T1")
    told[case] = {
        "outcome": found.outcome, "error": found.error, "bytes": found.bytes, "prepared": prepared.bytes,
        "gone": sorted(set(before) - set(lake.data())), "aside": aside.outcome, "why": aside.error, "stayed": stayed,
    }
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return run_with_mounts(SWEEP, tmp_path_factory.mktemp("mounts"), CASES)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("a file,", "a disk"))])
def test_what_is_mounted_in_a_due_folder_keeps_all_of_it(told: Mapping[str, Any], case: str) -> None:
    found = told[case]
    assert (found["outcome"], found["bytes"], found["gone"]) == ("FAILED", 0, [])
    assert (found["aside"], found["stayed"]) == ("FAILED", True)
    assert "mounted" in found["error"]
    assert "mounted" in found["why"]
    assert "or remove the folder by hand." in found["error"]
    assert found["prepared"] is None


def test_a_file_that_is_mounted_in_a_due_folder_stays(told: Mapping[str, Any]) -> None:
    found = told["a file, bound over one of the due folder"]
    assert found["outcome"] == "FAILED"
    assert "Device or resource busy" in found["error"]
    assert not [place for place in found["gone"] if place.endswith("part.parquet")]


def test_a_dataset_may_have_a_disk_of_its_own(told: Mapping[str, Any]) -> None:
    found = told["a disk of its own for the dataset"]
    assert (found["outcome"], found["bytes"], found["prepared"]) == ("DELETED", len("precious"), len("precious"))
    assert found["gone"] == ["data/c/T1/precious"]
    assert (found["aside"], found["stayed"]) == ("FAILED", True)
    assert "'c/T1' can't be moved to .retention-trash" in found["why"]


def test_what_is_mounted_while_the_folder_goes_is_not_entered(lake: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer for one folder changes after all of it was looked at."""
    looks = iter(["first"])

    def later(descriptor: int) -> Mount:
        found = mount_of(descriptor)
        inside = os.readlink(f"/proc/self/fd/{descriptor}").endswith("deep er/é")
        return Mount(found.device, -1) if inside and next(looks, None) is None else found

    monkeypatch.setattr("retention_assets.stores.places.mounts.mount_of", later)
    before = lake.data()
    assert "Something is mounted at 'a/T1/deep er/é'" in refusal(lake.store(), "lake/a", "T1")
    assert lake.data() == before


@pytest.mark.parametrize("missing", ["nothing", "statx", "its answer", "the kernel", "both"])
def test_where_the_kernel_says_less_others_are_asked(lake: LocalFiles, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    folder = os.open(lake.root, os.O_RDONLY)
    try:
        whole = mount_of(folder)
        answers = {"its answer": lambda *_: -1, "the kernel": lambda *_: 0}
        if missing != "nothing":
            monkeypatch.setattr(mounts, "system_call", lambda _: answers.get(missing))
        if missing == "both":
            monkeypatch.setattr(mounts, "_ask_proc", lambda _: None)
        assert mount_of(folder) == (Mount(whole.device, None) if missing == "both" else whole)
        assert mounts._ask_proc(10_000) is None
    finally:
        os.close(folder)
    assert swept(lake.store(), "lake/a", "T1")[0].bytes == len("lake/a T1")


def test_numbers_of_folders_last_on_disks_and_not_in_memory_or_where_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "901 1 8:1 / /disk rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "902 1 0:40 / /memory rw - tmpfs tmpfs rw",
        "903 1 0:41 / /layers rw - overlay overlay rw",
    ]
    monkeypatch.setattr(mounts, "mount_lines", lambda: lines)
    assert [keeps_numbers(Mount(-1, number)) for number in (901, 902, 903, 904, None)] == [True, False, False, False, False]
