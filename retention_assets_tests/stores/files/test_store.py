"""The files store: the contract, on a local folder and on S3, and what it promises beyond it.

Belongs here: which names are refused, what may lead out of a folder, DELETE transactions, faults of a file system, and a sweep
that is killed at each deletion.
"""

import builtins
import gzip
import json
import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from retention_assets.errors import BadInput, Refused
from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.files import delete_remote, log
from retention_assets.stores.files.folders import TransactionFolders
from retention_assets.stores.files.paths import FolderLayout
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.kinds import FilesSettings
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.files.worlds import S3, Files, LocalFiles, S3Files, error

World = TypeVar("World", bound=Files)


class TestLocalFiles(Contract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        """A folder of this machine."""
        return LocalFiles(tmp_path)


@pytest.mark.long
class TestS3Files(Contract):
    @pytest.fixture
    def environment(self, s3: S3) -> Environment:
        """A bucket."""
        return S3Files(s3)


@pytest.fixture
def lake(tmp_path: Path) -> LocalFiles:
    """A local lake with one dataset of three transactions."""
    return filled(LocalFiles(tmp_path))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A lake on either file system, with nothing in it."""
    return LocalFiles(tmp_path) if request.param == "local" else S3Files(request.getfixturevalue("s3"))


@pytest.fixture
def world(empty: Files) -> Files:
    """The same with one dataset of three transactions."""
    return filled(empty)


def filled(world: World) -> World:
    world.write("lake/a", "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T10:SNAPSHOT@7d")
    return world


def swept(store: Store, dataset: str, *transactions: str, seen: bool = False) -> list[SweptTarget]:
    found = store.sweep(dataset, [Target(name, in_latest_view=seen) for name in transactions], 2)
    return sorted(found, key=lambda one: transactions.index(one.transaction))


def refusal(store: Store, dataset: str, transaction: str) -> str:
    """Why nothing of a transaction was deleted."""
    [found] = swept(store, dataset, transaction)
    assert (found.outcome, found.bytes) == (Outcome.FAILED, 0)
    assert found.error
    return found.error


def line(**changed: Any) -> str:
    whole = {
        "dataset": "lake/a", "transaction": "T1", "type": "APPEND", "status": "COMMITTED",
        "opened_at": "2026-01-01T00:00:00Z", "closed_at": "2026-01-01T00:05:00Z",
    }  # fmt: skip
    return json.dumps({**whole, **changed}) + "\n"


# --- names that are refused ---


@pytest.mark.parametrize(
    ("dataset", "transaction", "why"),
    [
        ("lake/a", "", "empty name"),
        ("lake/a", ".", r"holds \. or"),
        ("lake/a", "..", r"holds \. or"),
        ("lake/a", "/etc", "holds a /"),
        ("lake/a", "../b", "holds a /"),
        ("lake/a", "T1/deep er", "holds a /"),
        ("lake/a", "T1/", "holds a /"),
        ("lake/a", "..\\b", "backslash"),
        ("lake/a", "T1\0", "control"),
        ("lake/a", "T\n1", "control"),
        ("lake/a", "T\x7f", "control"),
        ("lake/a", "\ud800", "control"),
        ("lake/a", "*", "pattern"),
        ("lake/a", "T?", "pattern"),
        ("lake/a", "T[12]", "pattern"),
        ("lake/a", "T]", "pattern"),
        ("lake/", "a", "empty name"),
        ("lake", "T1", "empty name"),
        ("lake//a", "T1", "empty segment"),
        ("lake/a/", "T1", "empty segment"),
        ("lake/..", "data", r"holds \. or"),
        ("lake/.", "a", r"holds \. or"),
        ("lake/b/../a", "T1", r"holds \. or"),
        ("lake/*", "T1", "pattern"),
        ("lake/a\\b", "T1", "backslash"),
        ("lake/a\0", "T1", "control"),
        ("other/a", "T1", "not of the store lake"),
        ("lakes/a", "T1", "not of the store lake"),
        ("", "T1", "not of the store lake"),
    ],
)
def test_a_name_that_is_not_plainly_one_folder_is_refused(world: Files, dataset: str, transaction: str, why: str) -> None:
    before = world.everything()
    assert re.search(why, refusal(world.store(), dataset, transaction))
    assert world.everything() == before


def test_a_folder_that_the_log_does_not_know_stays(world: Files) -> None:
    world.put("lake/a", "stranger", "x", b"x")
    assert "does not know 'stranger'" in refusal(world.store(), "lake/a", "stranger")
    assert world.everything()["data/a/stranger/x"] == b"x"


@pytest.mark.parametrize(
    "name", ["T{1}", "{dataset}", "~", "T1 ", " ", "-rf", "é'\"$(x)", "日本", "...", "T:1", "%2e%2e", "a#b", "T\u00a01"]
)
def test_any_other_name_is_a_folder_like_all(world: Files, name: str) -> None:
    world.put_log("b.jsonl", line(dataset="lake/b", transaction=name) + line(dataset="lake/b", transaction="T1"))
    world.put("lake/b", "T1", "stays", b"1")
    before = world.everything()
    world.put("lake/b", name, "goes", b"12345")
    assert swept(world.store(), "lake/b", name) == [SweptTarget(name, Outcome.DELETED, 5)]
    assert world.everything() == before


def test_a_neighbour_with_a_longer_name_stays(world: Files) -> None:
    before = world.owned("lake/a", "T10")
    assert [one.outcome for one in swept(world.store(), "lake/a", "T1")] == [Outcome.DELETED]
    assert world.owned("lake/a", "T10") == before != set()


@pytest.mark.parametrize(
    ("data", "one", "other", "why"),
    [
        ("data/{dataset}/{transaction}", ("a", "b"), ("a/b", "T"), "the dataset lake/a/b"),
        ("data/{dataset}/{transaction}", ("a", "b"), ("a/b/c", "T"), "the dataset lake/a/b/c"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "b"), "the transaction 'b' of lake/a"),
        ("data/{dataset}/{transaction}", ("a/b", "T"), ("a", "c"), None),
        ("data/{dataset}/{transaction}", ("a", "c"), ("a/b", "T"), None),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "T"), "the transaction 'T' of lake/a/b"),
        ("data/{transaction}/{dataset}", ("a/b", "T"), ("a", "T"), "the transaction 'T' of lake/a"),
        ("data/{transaction}/{dataset}", ("a", "T"), ("a/b", "U"), None),
        ("data/{dataset}/x/t-{transaction}", ("a", "1"), ("a/x/t-1", "2"), "the dataset lake/a/x/t-1"),
        ("data/{dataset}/x/t-{transaction}", ("a", "1"), ("a/x", "2"), None),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b/x", "T"), "the dataset lake/a/b/x"),
        ("data/{dataset}/{transaction}/x", ("a", "b"), ("a/b", "T"), None),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a/B", "T"), "the dataset lake/a/B"),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a", "B"), "the transaction 'B' of lake/a"),
        ("data/{dataset}/{transaction}", ("A", "b"), ("a", "c"), None),
        ("data/{dataset}/{transaction}", ("a", "STRASSE"), ("a", "straße"), "the transaction 'straße' of lake/a"),
        ("data/{dataset}/{transaction}", ("a", "caf\u00e9"), ("a", "cafe\u0301"), "the transaction 'cafe\u0301' of lake/a"),
        ("data/{transaction}/{dataset}", ("é", "t"), ("E\u0301", "T"), "the transaction 'T' of lake/E\u0301"),
        ("data/{transaction}/{dataset}", ("a", "t"), ("b", "T"), None),
    ],
)  # fmt: skip
def test_a_folder_around_or_in_that_of_another_is_refused(
    tmp_path: Path, data: str, one: tuple[str, str], other: tuple[str, str], why: str | None
) -> None:
    lake = LocalFiles(tmp_path, data=data)
    for dataset, transaction in (one, other):
        lake.put_log(f"{dataset.replace('/', '-')}.jsonl", line(dataset=f"lake/{dataset}", transaction=transaction))
        lake.put_place(data.format(dataset=dataset, transaction=transaction) + "/part", b"x")
    before = lake.data()
    [found] = swept(lake.store(), f"lake/{one[0]}", one[1])
    if why:
        assert found.outcome is Outcome.FAILED
        assert f"that of {why}." in str(found.error)
        assert lake.data() == before
    else:
        assert found == SweptTarget(one[1], Outcome.DELETED, 1)
        assert len(lake.data()) == 1


def test_a_folder_that_holds_the_log_is_refused(tmp_path: Path) -> None:
    lake = LocalFiles(tmp_path, log="data/a/T1/log")
    lake.put_place("data/a/T1/log/a.jsonl", line().encode())
    assert "holds the log" in refusal(lake.store(), "lake/a", "T1")
    assert list(lake.everything()) == ["data/a/T1/log/a.jsonl"]


# --- what could lead out of a folder ---


def test_a_symlink_in_place_of_the_folder_is_not_followed(lake: LocalFiles) -> None:
    outside = lake.root / "outside"
    (lake.root / "data/a/T1").rename(outside)
    (lake.root / "data/a/T1").symlink_to(outside)
    before = lake.everything()
    assert "is a symlink" in refusal(lake.store(), "lake/a", "T1")
    assert lake.everything() == before


def test_a_symlink_in_place_of_a_folder_above_is_not_followed(lake: LocalFiles) -> None:
    (lake.root / "data/a").rename(lake.root / "outside")
    (lake.root / "data/a").symlink_to(lake.root / "outside")
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
    real = getattr(os, call)

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


def test_a_file_in_place_of_the_folder_is_refused(lake: LocalFiles) -> None:
    lake.put_log("b.jsonl", line(dataset="lake/b"))
    lake.put_place("data/b/T1", b"a file")
    assert "is no folder" in refusal(lake.store(), "lake/b", "T1")
    assert lake.everything()["data/b/T1"] == b"a file"


def test_without_its_root_nothing_is_taken_for_gone(lake: LocalFiles) -> None:
    (lake.root / "data").rename(lake.root / "unmounted")
    assert "Is a disk not mounted?" in refusal(lake.store(), "lake/a", "T1")


def test_a_root_in_which_nothing_is_says_nothing_of_what_is_gone(world: Files) -> None:
    """It is that of a disk that is not mounted, or of another bucket. Readers are not told of anything either."""
    seen(world, "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[b]")
    log = world.everything().keys() - world.data().keys()
    if isinstance(world, LocalFiles):
        (world.root / "data").rename(world.root / "disk")
        (world.root / "data").mkdir()
    else:
        assert isinstance(world, S3Files)
        for key in world.data():
            world.s3.take(key)
        # What stands for the root itself is nothing in it.
        world.s3.put("data/", b"")
    found = swept(world.store(), "lake/a", "T1", "T2", seen=True)
    assert [one.outcome for one in found] == [Outcome.FAILED] * 2
    assert all("data is empty. " in str(one.error) for one in found)
    assert log == {place for place in world.everything() if place.startswith("log/")}
    assert [one.bytes for one in world.store().prepare("lake/a", ["T1"])] == [None]


def test_a_root_that_empties_while_it_is_swept_says_nothing_either(lake: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = TransactionFolders.of(FolderLayout.of(lake.settings))
    (lake.root / "data").rename(lake.root / "disk")
    (lake.root / "data").mkdir()
    for ask in (folders.measured, folders.removed):
        with pytest.raises(Refused, match="data is empty"):
            ask(("a", "T1"))


class Quiet(MemoryFileSystem):  # type: ignore[misc]
    """A file system that says that it deletes, and does not."""

    def rm_file(self, path: str) -> None:
        raise FileNotFoundError(path)


class Folding(MemoryFileSystem):  # type: ignore[misc]
    """A file system that names places in another case than they were asked for."""

    def find(self, path: str, **options: Any) -> Any:
        return {place.upper(): info for place, info in super().find(path, **options).items()}


@pytest.mark.parametrize(
    ("fs", "fault", "said"),
    [(Quiet(), OSError, "places stay: /quiet/T1/"), (Folding(), Refused, "names /QUIET/T1/ among what is below /quiet/T1/")],
)
def test_a_file_system_that_does_not_say_the_truth_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, fs: MemoryFileSystem, fault: type[Exception], said: str
) -> None:
    monkeypatch.setattr(delete_remote, "PATIENCE", replace(delete_remote.PATIENCE, pause=0))
    fs.pipe_file("/quiet/T1/a", b"12345")
    try:
        with pytest.raises(fault, match=said):
            delete_remote.remove_folder(fs, "/quiet/T1")
        assert fs.cat_file("/quiet/T1/a") == b"12345"
    finally:
        MemoryFileSystem().rm("/quiet", recursive=True)


def test_on_another_file_system_an_empty_root_says_nothing_either(lake: LocalFiles) -> None:
    store = FilesStore(lake.settings.model_copy(update={"data": "memory://nowhere/{dataset}/{transaction}"}))
    assert "memory://nowhere is empty" in refusal(store, "lake/a", "T1")


def test_without_its_bucket_nothing_is_taken_for_gone(s3: S3, tmp_path: Path) -> None:
    filled(LocalFiles(tmp_path))
    settings = FilesSettings.model_validate(
        {"name": "lake", "log": str(tmp_path / "log"), "data": "s3://no-such-bucket/{dataset}/{transaction}"}
    )
    assert "FileNotFoundError" in refusal(FilesStore(settings), "lake/a", "T1")


def test_folders_above_stay_and_the_folder_itself_goes(lake: LocalFiles) -> None:
    swept(lake.store(), "lake/a", "T1", "T2", "T10")
    assert [path.name for path in (lake.root / "data").rglob("*")] == ["a"]


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


def test_what_was_partly_deleted_is_deleted_with_the_bytes_of_the_rest(world: Files) -> None:
    with world.broken("lake/a", "T2"):
        assert "stay" in (said := refusal(world.store(), "lake/a", "T2")) or "not permitted" in said or "told to" in said
    left = sum(len(world.data()[place]) for place in world.owned("lake/a", "T2"))
    assert left > 0
    assert swept(world.store(), "lake/a", "T2") == [SweptTarget("T2", Outcome.DELETED, left)]


def test_bytes_are_prepared_by_what_is_there_and_unknown_where_nothing_can_be_known(world: Files) -> None:
    prepared = world.store().prepare("lake/a", ["T1", "T77", ".."])
    assert [one.bytes for one in prepared] == [len("lake/a T1"), 0, None]


# --- logs ---


@pytest.mark.parametrize("name", ["other/a", "lakes/a", "lake", "lake/", "Lake/a"])
@pytest.mark.parametrize(("ask", "asked"), [("datasets", ()), ("read", (["lake/a"],)), ("tokens", (["lake/a"],))])
def test_a_file_with_a_dataset_of_another_store_is_refused(
    world: Files, name: str, ask: str, asked: tuple[list[str], ...]
) -> None:
    world.put_log("b.jsonl", line() + line(dataset=name))
    store = world.store()
    with pytest.raises(BadInput, match="not of the store lake") as caught:
        getattr(store, ask)(*asked)
    [problem] = caught.value.problems
    assert (problem.value, problem.key) == (name, "dataset")
    assert str(problem.file).endswith("log/b.jsonl")
    assert problem.remedy
    assert refusal(world.store(), "lake/a", "T1")


def test_a_line_that_cannot_be_read_is_a_fault_of_its_dataset(world: Files) -> None:
    world.put_log("b.jsonl", line(dataset="lake/b", closed_at="soon"))
    log = sound_log(world.store().read(["lake/a", "lake/b"]))
    assert log.datasets["fault"].to_pylist() == [None, "closed_at is not a time: soon"]


@pytest.mark.parametrize("text", ["bad\n", "{}\n", "", "[]\n"])
def test_a_file_that_cannot_be_read_might_speak_of_any_dataset(world: Files, text: str) -> None:
    world.put_log("b.jsonl", text)
    with pytest.raises(BadInput) as caught:
        world.store().read(["lake/a"])
    assert [str(problem.file).rpartition("/")[2] for problem in caught.value.problems] == ["b.jsonl"]
    assert refusal(world.store(), "lake/a", "T1")
    assert world.owned("lake/a", "T1")


def test_a_log_that_is_not_there_is_refused(tmp_path: Path, s3: S3) -> None:
    for world in (LocalFiles(tmp_path), S3Files(s3)):
        with pytest.raises(BadInput, match="is not there"):
            world.store().datasets()


def test_datasets_of_the_same_files_share_and_come_in_the_order_of_files(world: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_TOGETHER", 0)
    world.put_log("p.jsonl", line(dataset="lake/p") + line(dataset="lake/q"))
    world.put_log("q.jsonl", line(dataset="lake/r") + line(dataset="lake/q", transaction="T2"))
    world.put_log("s.jsonl.gz", "")
    world.put_place("log/s.jsonl.gz", gzip.compress(line(dataset="lake/s").encode()))
    store = world.store()
    asked = ["lake/s", "lake/r", "lake/q", "lake/p", "lake/a"]
    assert sorted(store.shares(asked)) == [("lake/a",), ("lake/p", "lake/q", "lake/r"), ("lake/s",)]
    assert store.shares(["lake/r", "lake/p"]) == [("lake/p",), ("lake/r",)]
    lines = store.read(["lake/s", "lake/q"])
    assert list(zip(lines["dataset"].to_pylist(), lines["transaction"].to_pylist(), strict=True)) == [
        ("lake/q", "T1"), ("lake/q", "T2"), ("lake/s", "T1"),
    ]  # fmt: skip
    assert sound_log(lines).datasets["fault"].to_pylist() == [None, None]


def test_a_token_is_that_of_the_files_that_speak_of_the_dataset(world: Files) -> None:
    world.put_log("b.jsonl", line(dataset="lake/b"))
    store = world.store()
    before = store.tokens(["lake/a", "lake/b"])
    world.put_log("c.jsonl", line(dataset="lake/b", transaction="T2"))
    after = store.tokens(["lake/a", "lake/b"])
    assert after["lake/a"] == before["lake/a"]
    assert after["lake/b"] != before["lake/b"]


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.txt", "log.parquet"])
def test_a_log_may_be_a_single_file(tmp_path: Path, name: str) -> None:
    lake = LocalFiles(tmp_path, log=name)
    if name.endswith("parquet"):
        pq.write_table(
            pa.table({"dataset": ["lake/a"], "transaction": ["T1"], "type": ["APPEND"], "status": ["OPEN"]}), tmp_path / name
        )
    else:
        lake.put_place(name, gzip.compress(line().encode()) if name.endswith("gz") else line().encode())
    lake.put("lake/a", "T1", "x", b"123")
    store = lake.store()
    assert store.datasets() == ["lake/a"]
    assert store.read(["lake/a"])["transaction"].to_pylist() == ["T1"]
    assert store.capabilities.delete_transactions == (name in ("log.jsonl", "log.txt"))
    assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]


def test_any_other_file_system_will_do() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(
        {
            "/lake/log/a.jsonl": line().encode(),
            "/lake/data/a/T1/x*": b"12",
            "/lake/data/a/T1/b/y": b"3",
            "/lake/data/a/T10/xy": b"4",
        }
    )
    settings = FilesSettings.model_validate(
        {"name": "lake", "log": "memory://lake/log", "data": "memory://lake/data/{dataset}/{transaction}"}
    )
    store = FilesStore(settings)
    try:
        assert [one.bytes for one in store.prepare("lake/a", ["T1"])] == [3]
        assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]
        assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.ALREADY_GONE)]
        assert memory.find("/lake/data") == ["/lake/data/a/T10/xy"]
        assert not memory.exists("/lake/data/a/T1")
        assert swept(store, "lake/a", "T1", seen=True) == [SweptTarget("T1", Outcome.ALREADY_GONE)]
    finally:
        memory.rm("/lake", recursive=True)


def test_data_behind_a_copy_is_refused(lake: LocalFiles) -> None:
    settings = lake.settings.model_copy(update={"data": "simplecache::memory://lake/{dataset}/{transaction}"})
    assert "without ::" in refusal(FilesStore(settings), "lake/a", "T1")


# --- faults of S3 ---


def listed(method: str, place: str) -> bool:
    return method == "GET" and "prefix=data" in place


@pytest.mark.parametrize("on", ["list", "delete"])
@pytest.mark.parametrize(
    "answer", [error("500 Internal Server Error", "InternalError"), error("503 Service Unavailable", "ServiceUnavailable")]
)
@pytest.mark.parametrize(("times", "outcome"), [(2, Outcome.DELETED), (3, Outcome.FAILED)])
def test_a_store_that_is_busy_is_asked_again_and_then_no_more(
    s3: S3, on: str, answer: tuple[str, str], times: int, outcome: Outcome
) -> None:
    world, left = filled(S3Files(s3)), iter(range(times))
    before = world.data()

    def busy(method: str, place: str, body: bytes) -> tuple[str, str] | None:
        asked = listed(method, place) if on == "list" else method == "POST"
        return answer if asked and next(left, None) is not None else None

    s3.faults.append(busy)
    [found] = swept(world.store(), "lake/a", "T1")
    assert found.outcome is outcome
    assert found.bytes == (len("lake/a T1") if outcome is Outcome.DELETED else 0)
    assert len(world.data()) == len(before) - (2 if outcome is Outcome.DELETED else 0)
    assert next(left, None) is None


@pytest.mark.parametrize(("code", "times", "tries"), [("SlowDown", 1, 2), ("InternalError", 9, 3), ("AccessDenied", 9, 1)])
def test_an_error_of_one_key_is_no_success_of_the_others(s3: S3, code: str, times: int, tries: int) -> None:
    world, asked = filled(S3Files(s3)), list[bytes]()

    def one_fails(method: str, place: str, body: bytes) -> tuple[str, str] | None:
        if method != "POST":
            return None
        asked.append(body)
        s3.take("data/a/T1/deep er/é/0")
        said = f"<Error><Key>data/a/T1/part.parquet</Key><Code>{code}</Code><Message>no</Message></Error>"
        return ("200 OK", f"<DeleteResult>{said}</DeleteResult>") if len(asked) <= times else None

    s3.faults.append(one_fails)
    [found] = swept(world.store(), "lake/a", "T1")
    assert len(asked) == tries
    assert found.outcome is (Outcome.DELETED if times == 1 else Outcome.FAILED)
    if times > 1:
        assert found.bytes == 0
        assert f"1 of 2 objects stay: data/a/T1/part.parquet: {code}: no" in str(found.error)
    else:
        # The second request names the one that failed, and no other.
        assert b"part.parquet" in asked[1]
        assert b"deep er" not in asked[1]


def test_a_folder_of_thousands_of_keys_goes_in_few_requests(s3: S3) -> None:
    world, asked = filled(S3Files(s3)), list[bytes]()
    for number in range(1005):
        world.put("lake/a", "T1", f"{number:04}", b"x")
    s3.faults.append(lambda method, _, body: asked.append(body) if method == "POST" else None)
    [found] = swept(world.store(), "lake/a", "T1")
    assert (found.outcome, found.bytes, len(asked)) == (Outcome.DELETED, 1005 + len("lake/a T1"), 2)
    assert world.owned("lake/a", "T1") == set()


@pytest.mark.parametrize("key", ["", "*", "a?b", "[a]", "a//b", "deep/", "é 'q\"&<", ".."])
def test_every_key_below_the_folder_goes_and_none_beside_it(s3: S3, key: str) -> None:
    world = filled(S3Files(s3))
    world.put("lake/a", "T1", key, b"x")
    s3.put("data/a/T1", b"an object of that very name")
    before = {place for place in world.everything() if not place.startswith("data/a/T1/")}
    [found] = swept(world.store(), "lake/a", "T1")
    assert (found.outcome, found.bytes) == (Outcome.DELETED, len("lake/a T1") + 1)
    assert world.everything().keys() == before


# --- DELETE transactions ---


def head(store: Store, branch: str = "main") -> dict[str, Any]:
    """The transaction on which a reader finds a branch."""
    rows = sound_log(store.read(["lake/a"])).transactions.to_pylist()
    [row] = [row for row in rows if branch in row["heads"]]
    return {"all": len(rows), **row, "attributes": dict(row["attributes"] or ())}


def seen(world: World, drawing: str, name: str = "a.jsonl") -> World:
    """A dataset with that history, whose transactions have bytes."""
    drawn = history(drawing, dataset="lake/a")
    text = "".join(f"{line}\n" for line in to_lines([drawn]))
    world.put_place(name, text.encode()) if name == "log.jsonl" else world.put_log(name, text)
    for row in drawn.transactions:
        world.put("lake/a", row["transaction"], "part", b"x")
    return world


BRANCHED = (
    "main: T1:SNAPSHOT@9d[a,b,c] - T2:APPEND@8d[d] - T3:UPDATE@7d[b] - T4:DELETE@6d[c] | dev: T2 - T5:APPEND@5d[e] | old: T1"
)


def test_every_branch_whose_latest_view_holds_it_learns_what_is_gone(tmp_path: Path, s3: S3) -> None:
    for world in (seen(LocalFiles(tmp_path), BRANCHED), seen(S3Files(s3), BRANCHED)):
        store = world.store()
        before = {branch: head(store, branch)["transaction"] for branch in ("main", "dev", "old")}
        assert [one.outcome for one in swept(store, "lake/a", "T1", seen=True)] == [Outcome.DELETED]
        for branch, files in (("main", ["a"]), ("dev", ["a", "b", "c"]), ("old", ["a", "b", "c"])):
            now = head(store, branch)
            assert (now["type"], now["status"], now["parent"]) == ("DELETE", "COMMITTED", before[branch])
            assert now["attributes"].pop("added_at") > "2026"
            assert now["attributes"] == {"provenance": "retention", "branch": branch}
            assert now["file_names"] == files
            assert now["transaction"].startswith("retention-")
            assert now["opened_at"] == now["closed_at"]
        assert world.get_log("a.jsonl").count("\n") == 8


def test_what_was_told_is_not_told_again(empty: Files) -> None:
    seen(empty, BRANCHED)
    empty.store().sweep("lake/a", [Target("T1", in_latest_view=True)], 2)
    before = empty.everything()
    assert [one.outcome for one in swept(empty.store(), "lake/a", "T1", seen=True)] == [Outcome.ALREADY_GONE]
    assert empty.everything() == before


def test_a_second_delete_follows_the_first(empty: Files) -> None:
    seen(empty, BRANCHED)
    swept(empty.store(), "lake/a", "T1", seen=True)
    first = head(empty.store())["transaction"]
    swept(empty.store(), "lake/a", "T2", seen=True)
    second = head(empty.store())
    assert (second["parent"], second["file_names"]) == (first, ["d"])


def test_a_log_without_lists_gets_a_delete_without_one_and_only_one(empty: Files) -> None:
    seen(empty, "main: T1:SNAPSHOT@9d - T2:APPEND@8d[d]")
    swept(empty.store(), "lake/a", "T1", seen=True)
    swept(empty.store(), "lake/a", "T1", seen=True)
    assert (head(empty.store())["file_names"], head(empty.store())["all"]) == (None, 3)


def test_no_delete_is_added_where_nothing_leaves_a_latest_view(empty: Files) -> None:
    seen(empty, "main: T1:SNAPSHOT@9d[a] - T2:SNAPSHOT@8d[b] - T3:APPEND!@7d[c] - T4:APPEND@6d[d]")
    before = empty.get_log("a.jsonl")
    swept(empty.store(), "lake/a", "T1", "T3", seen=True)
    swept(empty.store(), "lake/a", "T2")
    assert empty.get_log("a.jsonl") == before
    assert head(empty.store())["transaction"] == "T4"


def test_a_branch_that_moved_on_meanwhile_stays_where_it_is(empty: Files) -> None:
    seen(empty, "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[b]")
    swept(empty.store(), "lake/a", "T1", seen=True)
    text = empty.get_log("a.jsonl").replace('"head": "T2"', '"head": "T3"').replace('"head":"T2"', '"head":"T3"')
    empty.put_log("a.jsonl", text + line(transaction="T3", parent="T2"))
    assert head(empty.store())["transaction"] == "T3"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\r\n"])
def test_a_log_in_one_file_is_added_to_whatever_it_ends_with(tmp_path: Path, ending: str) -> None:
    lake = seen(LocalFiles(tmp_path, log="log.jsonl"), BRANCHED, "log.jsonl")
    path = tmp_path / "log.jsonl"
    before = path.read_bytes().rstrip(b"\n") + ending.encode()
    path.write_bytes(before)
    assert [one.outcome for one in swept(lake.store(), "lake/a", "T1", seen=True)] == [Outcome.DELETED]
    assert path.read_bytes().startswith(before)
    assert [head(lake.store(), branch)["type"] for branch in ("main", "dev", "old")] == ["DELETE"] * 3


def test_a_delete_between_the_files_of_a_folder_changes_no_parent(empty: Files) -> None:
    """In z.jsonl the parent is left out: it is the last line that people wrote, whatever a sweep put in between."""
    empty.put_log("0.jsonl", line(type="SNAPSHOT"))
    empty.put_log("z.jsonl", line(transaction="T2") + json.dumps({"dataset": "lake/a", "branch": "main", "head": "T2"}))
    empty.put("lake/a", "T2", "part", b"x")
    swept(empty.store(), "lake/a", "T1", seen=True)
    rows = sound_log(empty.store().read(["lake/a"])).transactions.to_pylist()
    assert [(row["transaction"][:9], row["parent"]) for row in rows] == [("T1", None), ("T2", "T1"), ("retention", "T2")]


@pytest.mark.parametrize("name", ["log.jsonl.gz", "log.parquet"])
def test_what_a_reader_cannot_be_told_stays(tmp_path: Path, name: str) -> None:
    lake = LocalFiles(tmp_path)
    seen(lake, BRANCHED)
    lines = lake.store().read(["lake/a"])
    pq.write_table(lines.drop_columns(["fault", "parent_given"]), tmp_path / "log.parquet")
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(lake.get_log("a.jsonl").encode()))
    store = FilesStore(lake.settings.model_copy(update={"log": str(tmp_path / name)}))
    before = lake.everything()
    found = store.sweep("lake/a", [Target("T1", in_latest_view=True), Target("T2")], 2)
    assert {one.transaction: one.outcome for one in found} == {"T1": Outcome.FAILED, "T2": Outcome.DELETED}
    [said] = [str(one.error) for one in found if one.error]
    assert "Keep the log in a folder." in said
    assert before.keys() - lake.everything().keys() == {"data/a/T2/part"}


@pytest.mark.parametrize("what", ["rename", "fsync", "open"])
def test_what_could_not_be_told_stays_and_leaves_no_half_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    lake = seen(LocalFiles(tmp_path), BRANCHED)
    before = lake.everything()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, what) if what != "open" else (builtins, "open")), full)
        found = swept(lake.store(), "lake/a", "T1", "T2", seen=True)
    assert [(one.outcome, one.error) for one in found] == [(Outcome.FAILED, "OSError: [Errno 28] No space left on device")] * 2
    assert lake.everything() == before


def test_a_disk_that_fills_up_while_a_log_is_added_to_leaves_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = seen(LocalFiles(tmp_path, log="log.jsonl"), BRANCHED, "log.jsonl")
    before, write = lake.everything(), os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:20]))
    [found] = swept(lake.store(), "lake/a", "T1", seen=True)
    assert found.outcome is Outcome.FAILED
    assert "only 20 of" in str(found.error)
    assert lake.everything() == before


def test_what_s3_does_not_take_into_the_log_stays(s3: S3) -> None:
    world = seen(S3Files(s3), BRANCHED)
    before = world.everything()
    s3.faults.append(lambda method, *_: error("403 Forbidden", "AccessDenied") if method == "PUT" else None)
    [found] = swept(world.store(), "lake/a", "T1", seen=True)
    s3.faults.clear()
    assert found.outcome is Outcome.FAILED
    assert world.everything() == before


def test_nothing_of_an_unsound_history_leaves_a_latest_view(empty: Files) -> None:
    seen(empty, BRANCHED)
    empty.put_log("b.jsonl", line(transaction="T1"))
    before = empty.everything()
    [found] = swept(empty.store(), "lake/a", "T1", seen=True)
    assert (found.outcome, found.error) == (
        Outcome.FAILED, "The history of lake/a is not sound, so what is in a latest view cannot go: duplicate id",
    )  # fmt: skip
    assert empty.everything() == before


# --- killed ---


def sweeps_until(store: FilesStore, last: int) -> None:
    """A sweep that kills itself before its so-manyth deletion of a file or a folder."""
    left, unlink, rmdir = iter(range(last)), os.unlink, os.rmdir

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def counts(name: Any, *, dir_fd: int | None = None) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            remove(name, dir_fd=dir_fd)

        return counts

    os.unlink, os.rmdir = counted(unlink), counted(rmdir)
    store.sweep("lake/a", [Target("T1", in_latest_view=True), Target("T2", in_latest_view=True)], 1)


@pytest.fixture(scope="module")
def sweepers() -> Any:
    """Where sweeps are forked from: a program that has loaded everything and runs no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


# Two files and three folders of each transaction.
@pytest.mark.long
@pytest.mark.parametrize("last", [*range(11)])
def test_a_sweep_that_was_killed_is_finished_by_the_next(tmp_path: Path, sweepers: Any, last: int) -> None:
    lake = LocalFiles(tmp_path)
    lake.write("lake/a", "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[b] - T10:APPEND@7d[c]")
    before, whole = lake.data(), {name: lake.owned("lake/a", name) for name in ("T1", "T2", "T10")}
    sweeper = sweepers.Process(target=sweeps_until, args=(lake.store(), last))
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
