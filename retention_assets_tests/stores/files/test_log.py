"""The log of a files store: versions that a change cannot hide behind, and what is remembered of them."""

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from retention_assets.clock import Moment
from retention_assets.errors import BadInput, Refused
from retention_assets.exchange import ids_in, read_file
from retention_assets.outcomes import Outcome
from retention_assets.stores.files import FilesSettings, log, log_files
from retention_assets.stores.files.folders import FolderLayout
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.places import Folder
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.files import sweeps
from retention_assets_tests.stores.files.environments import LocalFiles

YEARS_ON = datetime(2100, 1, 1, tzinfo=UTC)


def line(dataset: str = "lake/a", transaction: str = "T1", **more: Any) -> str:
    return sweeps.line(dataset=dataset, transaction=transaction, **more)


def ids(store: FilesStore, dataset: str = "lake/a") -> list[str]:
    return [str(name) for name in store.read([dataset])["transaction"].to_pylist()]


class Terse(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose listings say what `says` does, and nothing else of when a file was written."""

    protocol = "terse"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    says: ClassVar[str | None] = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("terse:")))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = [self._told(info) for info in super().ls(path, detail=True, **options)]
        return found if detail else [info["name"] for info in found]

    def info(self, path: str, **options: Any) -> Any:
        return self._told(super().info(path, **options))

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        told = {key: value for key, value in info.items() if key != "created"}
        return told if self.says is None else {**told, self.says: str(info.get("created")), "accessTime": object()}


@pytest.fixture
def terse(monkeypatch: pytest.MonkeyPatch) -> Iterator[FilesStore]:
    fsspec.register_implementation("terse", Terse, clobber=True)
    Terse().pipe_file("/log/a.jsonl", line().encode())
    yield FilesStore(
        FilesSettings.model_validate({"name": "lake", "log": "terse://log", "data": "terse://data/{dataset}/{transaction}"})
    )
    Terse.store.clear()


@pytest.mark.parametrize("says", ["modificationTime", "modify", "last_write_time", "created"])
def test_a_change_of_the_same_size_is_seen_by_whatever_the_driver_says(
    terse: FilesStore, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    monkeypatch.setattr(Terse, "says", says)
    before = terse.tokens(["lake/a"])
    assert terse.tokens(["lake/a"]) == before
    assert ids(terse) == ["T1"]
    Terse().pipe_file("/log/a.jsonl", line(transaction="T2").encode())
    assert terse.tokens(["lake/a"]).keys() == before.keys()
    assert terse.tokens(["lake/a"]) != before
    assert ids(terse) == ["T2"]


def test_a_file_system_that_says_nothing_of_versions_is_refused(terse: FilesStore) -> None:
    Terse().pipe_file("/data/a/T1/x", b"x")
    with pytest.raises(Refused, match="gives neither time nor version, so a changed log would not be noticed"):
        terse.tokens(["lake/a"])
    [found] = terse.sweep("lake/a", [Target("T1")], 1)
    assert found.outcome is Outcome.FAILED
    assert Terse().cat_file("/data/a/T1/x") == b"x"


def test_two_contents_of_one_moment_and_one_size_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with a coarse clock: what was just written may be written again and look the same."""
    lake = LocalFiles(tmp_path)
    monkeypatch.setattr(log_files, "_local_version", lambda _: "one moment")
    lake.put_log("a.jsonl", line())
    assert ids(lake.store()) == ["T1"]
    lake.put_log("a.jsonl", line(transaction="T2"))
    assert ids(lake.store()) == ["T2"]


def test_a_file_that_begins_to_speak_of_a_dataset_changes_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "now", lambda: YEARS_ON)
    lake = LocalFiles(tmp_path)
    lake.put_log("a.jsonl", line())
    lake.put_log("b.jsonl", line("lake/b"))
    before, store = lake.store().tokens(["lake/a"]), lake.store()
    assert ids(store) == ["T1"]
    lake.put_log("b.jsonl", line(transaction="T2"))
    assert store.tokens(["lake/a"]) != before
    assert ids(store) == ["T1", "T2"]
    (tmp_path / "log/b.jsonl").unlink()
    assert (store.tokens(["lake/a"]), ids(store)) == (before, ["T1"])


def test_lines_come_in_the_order_of_their_file_whoever_asks_for_which(tmp_path: Path) -> None:
    lake = LocalFiles(tmp_path)
    lake.put_log("all.jsonl", "".join(line(f"lake/{name}", f"T{number}") for number, name in enumerate("bcabacb")))
    lines = lake.store().read(["lake/b", "lake/a"])
    assert lines["transaction"].to_pylist() == ["T0", "T2", "T3", "T4", "T6"]


MANY = [f"lake/{number:03}" for number in range(100)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found, real, real_ids = list[Path](), read_file, ids_in

    def reads(path: Path, datasets: Any = None) -> pa.Table:
        found.append(path)
        return real(path, datasets)

    def reads_ids(path: Path) -> pa.Table:
        found.append(path)
        return real_ids(path)

    monkeypatch.setattr(log_files, "read_file", reads)
    monkeypatch.setattr(log_files, "ids_in", reads_ids)
    monkeypatch.setattr(log_files, "now", lambda: YEARS_ON)
    return found


def used(store: FilesStore, dataset: str) -> list[str]:
    store.tokens([dataset])
    assert ids(store, dataset) == ["T1", "T2"]
    return [str(one.outcome) for one in store.sweep(dataset, [Target("T1"), Target("T2")], 1)]


def test_a_file_of_many_datasets_is_read_once_and_again_when_it_changed(tmp_path: Path, read: list[Path]) -> None:
    lake = LocalFiles(tmp_path)
    text = "".join(line(name, "T1") for name in MANY) + "".join(line(name, "T2") for name in MANY)
    lake.put_log("all.jsonl", text)
    lake.put(MANY[0], "T", "other", b"x")
    store = lake.store()
    assert [used(store, name) for name in MANY] == [["ALREADY_GONE"] * 2] * len(MANY)
    assert len(read) == 1
    lake.put_log("all.jsonl", text.replace("T2", "T3"))
    assert ids(store, MANY[7]) == ["T1", "T3"]
    assert len(read) == 2


def test_too_large_a_file_is_read_for_its_ids_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]) -> None:
    monkeypatch.setattr(log_files, "WHOLE_BYTES", 10)
    lake = LocalFiles(tmp_path)
    lake.put_log("all.jsonl", "".join(line(name, id_) for name in MANY[:3] for id_ in ("T1", "T2")))
    lake.put(MANY[0], "T", "other", b"x")
    assert [used(lake.store(), name) for name in MANY[:3]] == [["ALREADY_GONE"] * 2] * 3
    # Once for the lines of each, and once for the ids of all.
    assert len(read) == 3 + 1


def test_what_has_no_room_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]) -> None:
    monkeypatch.setattr(log_files, "_cache", log_files._SliceCache(1000))
    lake = LocalFiles(tmp_path)
    for name in MANY[:3]:
        lake.put_log(f"{name[5:]}.jsonl", line(name))
    for name in [*MANY[:3], *MANY[:3], MANY[2]]:
        assert ids(lake.store(), name) == ["T1"]
    assert len(read) == 6


def test_what_concerns_others_is_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]) -> None:
    lake, asked, real = LocalFiles(tmp_path), list[str](), FolderLayout.pattern
    for name in (*MANY, "lake/000/a", "lake/001/b/c"):
        lake.put_log(f"{name.replace('/', '-')}.jsonl", line(name) + line(name, "T2"))
    lake.put(MANY[0], "T", "other", b"x")

    def pattern(self: FolderLayout, dataset: str) -> Folder:
        asked.append(dataset)
        return real(self, dataset)

    monkeypatch.setattr(FolderLayout, "pattern", pattern)
    used(lake.store(), MANY[0])
    assert len(asked) >= len(MANY)
    asked.clear()
    used(lake.store(), MANY[1])
    assert set(asked) == {MANY[1], "lake/001/b/c"}
    assert len(read) == 2


def test_what_was_just_written_is_kept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]) -> None:
    lake = LocalFiles(tmp_path)
    lake.put_log("a.jsonl", line())
    written = datetime.fromtimestamp((tmp_path / "log/a.jsonl").stat().st_ctime, UTC)
    for seconds in (1, 1, 3, 3):
        monkeypatch.setattr(log_files, "now", lambda at=written + timedelta(seconds=seconds): at)
        assert ids(lake.store()) == ["T1"]
    assert len(read) == 3


def test_small_files_are_read_together_and_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a last line has no end, where a dataset is in several, and where one of them is large or is no JSON lines."""
    lake = LocalFiles(tmp_path)
    lake.put_log("a.jsonl", line() + line(transaction="T2").rstrip())
    lake.put_log("b.jsonl", line("lake/b") + "\n" + line(transaction="T3"))
    lake.put_log("c.jsonl.gz", "")
    lake.put_place("log/c.jsonl.gz", gzip.compress((line("lake/c") + line(transaction="T4")).encode()))
    lake.put_log("d.jsonl", line(transaction="T5", opened_at="yesterday"))
    lake.put_log("e.jsonl", line(transaction="T6", bytes=1))
    names = ["lake/a", "lake/c"]
    together = lake.store().read(names)
    with monkeypatch.context() as alone:
        alone.setattr(log_files, "SMALL", 0)
        assert together.equals(lake.store().read(names))
    assert together["transaction"].to_pylist() == ["T1", "T2", "T3", "T1", "T4", "T5", "T6"]
    assert together["fault"].to_pylist()[5] == "opened_at is not a time: yesterday"


def test_a_broken_file_among_small_ones_is_named(tmp_path: Path) -> None:
    lake = LocalFiles(tmp_path)
    for name in "abc":
        lake.put_log(f"{name}.jsonl", line(f"lake/{name}"))
    store = lake.store()
    assert store.datasets() == ["lake/a", "lake/b", "lake/c"]
    lake.put_log("b.jsonl", line("lake/b") + line("lake/b", transaction="T2", kind="x"))
    with pytest.raises(BadInput, match=r"b\.jsonl.*kind"):
        store.read(["lake/a", "lake/b", "lake/c"])
    assert ids(store, "lake/c") == ["T1"]


def test_small_logs_are_one_share_and_a_large_one_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = LocalFiles(tmp_path)
    for name in "abcd":
        lake.put_log(f"{name}.jsonl", line(f"lake/{name}") * (20 if name == "c" else 1))
    monkeypatch.setattr(log, "_TOGETHER", 4 * len(line()))
    names = lake.store().datasets()
    assert lake.store().shares(names) == [("lake/a", "lake/b"), ("lake/c",), ("lake/d",)]


def test_a_question_in_a_sweep_lists_files_anew_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MANY", 2)
    lake, listed, real = LocalFiles(tmp_path), list[str](), log_files.list_logs

    def lists(place: str) -> Any:
        listed.append(place)
        return real(place)

    monkeypatch.setattr(log, "list_logs", lists)
    for name in "ab":
        lake.put_log(f"{name}.jsonl", line(f"lake/{name}"))
    mine = lake.store().log
    whole = mine.index()
    assert mine.recent_index("lake/a") is whole
    assert len(listed) == 1
    lake.put_log("a.jsonl", line() + line(transaction="T2"))
    assert mine.recent_index("lake/a").transactions("lake/a").to_pylist() == ["T1", "T2"]
    lake.put_log("c.jsonl", line("lake/c"))
    assert list(mine.recent_index("lake/a").files) == ["lake/a", "lake/b", "lake/c"]
    assert len(listed) == 3
    times = iter([0.0, 1.0, 1.5, 1.5])
    monkeypatch.setattr(log, "moment", lambda: Moment(0.0, next(times)))
    whole = mine.index()
    assert mine.recent_index("lake/a") is whole
    assert len(listed) == 4
    mine.recent_index("lake/a")
    assert len(listed) == 5
