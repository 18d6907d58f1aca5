"""Deleting on S3 and on other file systems: every key and no other, and faults that may pass or not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.places import fsspec as fsspec_place
from retention_assets.stores.protocol import SweptTarget, always
from retention_assets_tests.stores.files.environments import S3, LocalFiles, S3Files, error
from retention_assets_tests.stores.files.sweeps import filled, line, refusal, swept
from retention_assets_tests.stores.places.roots import accepts


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
    [(Quiet(), OSError, "places stay: /quiet/T1/"), (Folding(), Refused, "names '/QUIET/T1' among files below /quiet/T1/")],
)
def test_a_file_system_that_does_not_say_the_truth_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, fs: MemoryFileSystem, fault: type[Exception], said: str
) -> None:
    monkeypatch.setattr(fsspec_place, "FOLDER_PATIENCE", replace(fsspec_place.FOLDER_PATIENCE, pause=0))
    monkeypatch.setattr(fsspec_place, "open_file_system", lambda _: (fs, "/quiet"))
    fs.pipe_file("/quiet/T1/a", b"12345")
    try:
        with pytest.raises(fault, match=said):
            fsspec_place.FsspecPlace("memory://quiet").delete_tree(("T1",), always, accepts)
        assert fs.cat_file("/quiet/T1/a") == b"12345"
    finally:
        MemoryFileSystem().rm("/quiet", recursive=True)


def test_without_its_bucket_nothing_is_taken_for_gone(s3: S3, tmp_path: Path) -> None:
    filled(LocalFiles(tmp_path))
    settings = FilesSettings.model_validate(
        {"name": "lake", "log": str(tmp_path / "log"), "data": "s3://no-such-bucket/{dataset}/{transaction}"}
    )
    assert "FileNotFoundError" in refusal(FilesStore(settings), "lake/a", "T1")


def test_any_other_file_system_will_do() -> None:
    memory = fsspec.filesystem("memory")
    files = {"log/a.jsonl": line().encode(), "data/a/T1/x*": b"12", "data/a/T1/b/y": b"3", "data/a/T10/xy": b"4"}
    memory.pipe({f"/lake/{name}": content for name, content in files.items()})
    places = {"log": "memory://lake/log", "data": "memory://lake/data/{dataset}/{transaction}"}
    store = FilesStore(FilesSettings.model_validate({"name": "lake", **places}))
    try:
        assert [one.bytes for one in store.prepare("lake/a", ["T1"])] == [3]
        assert store.data_finder("lake/a")(["T1", "T10", "T2"]) == ["T1", "T10"]
        assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]
        assert memory.find("/lake/data") == ["/lake/data/a/T10/xy"]
        assert store.data_finder("lake/a")(["T1", "T10", "T2"]) == ["T10"]
        assert swept(store, "lake/a", "T1", seen=True) == [SweptTarget("T1", Outcome.ALREADY_GONE)]
    finally:
        memory.rm("/lake", recursive=True)


def test_data_behind_a_copy_is_refused(lake: LocalFiles) -> None:
    settings = lake.settings.model_copy(update={"data": "simplecache::memory://lake/{dataset}/{transaction}"})
    assert "without ::" in refusal(FilesStore(settings), "lake/a", "T1")


def listed(method: str, place: str) -> bool:
    return method == "GET" and "prefix=data" in place


@pytest.mark.parametrize(
    "answer", [error("500 Internal Server Error", "InternalError"), error("503 Service Unavailable", "ServiceUnavailable")]
)
@pytest.mark.parametrize(
    ("on", "times", "outcome"),
    [
        ("list", 2, Outcome.DELETED), ("list", 3, Outcome.FAILED), ("delete", 5, Outcome.DELETED), ("delete", 6, Outcome.FAILED),
    ],
)  # fmt: skip
def test_a_busy_store_is_asked_again(s3: S3, on: str, answer: tuple[str, str], times: int, outcome: Outcome) -> None:
    environment, left = filled(S3Files(s3)), iter(range(times))
    before = environment.data()

    def busy(method: str, place: str, body: bytes) -> tuple[str, str] | None:
        asked = listed(method, place) if on == "list" else method == "POST"
        return answer if asked and next(left, None) is not None else None

    s3.faults.append(busy)
    [found] = swept(environment.store(), "lake/a", "T1")
    assert found.outcome is outcome
    assert found.bytes == (len("lake/a T1") if outcome is Outcome.DELETED else 0)
    assert len(environment.data()) == len(before) - (2 if outcome is Outcome.DELETED else 0)
    assert next(left, None) is None


def test_one_key_that_stays_is_no_success_of_the_others(s3: S3) -> None:
    environment = filled(S3Files(s3))
    refused = {"data/a/T1/part.parquet": "AccessDenied"}
    s3.faults.append(lambda method, _, body: s3.deletes(body, refused) if method == "POST" else None)
    assert "1 of 2 objects stay: 'data/a/T1/part.parquet': AccessDenied: told to" in refusal(
        environment.store(), "lake/a", "T1"
    )
    assert environment.owned("lake/a", "T1") == {"data/a/T1/part.parquet"}


def test_a_server_that_only_says_that_it_deleted_is_not_believed(s3: S3) -> None:
    environment = filled(S3Files(s3))

    def says(method: str, _: str, body: bytes) -> tuple[str, str] | None:
        keys = re.findall("<Key>.*?</Key>", body.decode())
        return ("200 OK", f"<R>{''.join(f'<Deleted>{key}</Deleted>' for key in keys)}</R>") if method == "POST" else None

    s3.faults.append(says)
    assert "2 of 2 places stay: data/a/T1/" in refusal(environment.store(), "lake/a", "T1")


def test_a_folder_of_thousands_of_keys_goes_in_few_requests(s3: S3) -> None:
    environment, asked = filled(S3Files(s3)), list[bytes]()
    for number in range(1005):
        environment.put("lake/a", "T1", f"{number:04}", b"x")
    s3.faults.append(lambda method, _, body: asked.append(body) if method == "POST" else None)
    [found] = swept(environment.store(), "lake/a", "T1")
    assert (found.outcome, found.bytes, len(asked)) == (Outcome.DELETED, 1005 + len("lake/a T1"), 2)
    assert environment.owned("lake/a", "T1") == set()


@pytest.mark.parametrize("key", ["", "*", "a?b", "[a]", "a//b", "deep/", "é 'q\"&<", ".."])
def test_every_key_below_the_folder_goes_and_none_beside_it(s3: S3, key: str) -> None:
    environment = filled(S3Files(s3))
    environment.put("lake/a", "T1", key, b"x")
    s3.put("data/a/T1", b"an object of that very name")
    before = {place for place in environment.everything() if not place.startswith("data/a/T1/")}
    [found] = swept(environment.store(), "lake/a", "T1")
    assert (found.outcome, found.bytes) == (Outcome.DELETED, len("lake/a T1") + 1)
    assert environment.everything().keys() == before
