"""The files store over its log: the contract; what is read and refused, and what is prepared and swept by it."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import BadInput, Refused
from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.files import log
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.files.tombstones import can_append
from retention_assets.stores.protocol import SweptTarget
from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.files.environments import S3, Files, LocalFiles, S3Files
from retention_assets_tests.stores.files.sweeps import line, refusal, seen, swept
from retention_assets_tests.stores.undo_contract import UndoContract


@pytest.mark.parametrize("data", ["{dataset}/{transaction}", "{dataset}/tx-{transaction}/files", "{transaction}/{dataset}"])
def test_folders_are_found_whatever_the_template(tmp_path: Path, data: str) -> None:
    lake = LocalFiles(tmp_path)
    store = FilesStore(lake.settings.model_copy(update={"data": f"{tmp_path}/data/{data}"}))
    for name in ("T1", "T10"):
        (tmp_path / "data" / data.format(dataset="a", transaction=name)).mkdir(parents=True)
    # The name of a folder that is none of the transaction's.
    (tmp_path / "data" / data.partition("/")[0].format(dataset="a", transaction="T2") / "other").mkdir(
        parents=True, exist_ok=True
    )
    assert store.data_finder("lake/a")(["T1", "T2", "T10", "../T1"]) == ["T1", "T10"]


def test_a_root_in_which_nothing_is_says_nothing_of_what_is_gone(environment: Files) -> None:
    """It is that of a disk that is not mounted, or of another bucket. Readers are not told of anything either."""
    seen(environment, "main: T1:SNAPSHOT@9d[a] - T2:APPEND@8d[b]")
    log = environment.everything().keys() - environment.data().keys()
    if isinstance(environment, LocalFiles):
        (environment.root / "data").rename(environment.root / "disk")
        (environment.root / "data").mkdir()
    else:
        assert isinstance(environment, S3Files)
        for key in environment.data():
            environment.s3.take(key)
        # What stands for the root itself is nothing in it.
        environment.s3.put("data/", b"")
    found = swept(environment.store(), "lake/a", "T1", "T2", seen=True)
    assert [one.outcome for one in found] == [Outcome.FAILED] * 2
    assert all("data is empty. " in str(one.error) for one in found)
    assert log == {place for place in environment.everything() if place.startswith("log/")}
    with pytest.raises(Refused, match=r"data is empty\. "):
        environment.store().prepare("lake/a", ["T1"])


def test_a_place_without_the_folder_of_any_transaction_is_refused_and_warned_of(environment: Files) -> None:
    store = environment.store()
    assert store.warnings() == []
    assert [target.bytes for target in store.prepare("lake/a", ["T77"])] == [0]
    mistyped = FilesStore(
        store.settings.model_copy(update={"data": store.settings.data.replace("{transaction}", "parts/{transaction}")})
    )
    [warning] = mistyped.warnings()
    assert "None of the newest transactions of lake/a, nor of any other dataset, has a folder at" in warning
    with pytest.raises(Refused, match="Mend `data` of the store lake, or mount the disk"):
        mistyped.prepare("lake/a", ["T1", "T2"])


def test_what_was_partly_deleted_is_deleted_with_the_bytes_of_the_rest(environment: Files) -> None:
    with environment.broken("lake/a", "T2"):
        assert "stay" in (said := refusal(environment.store(), "lake/a", "T2")) or "not permitted" in said or "told to" in said
    left = sum(len(environment.data()[place]) for place in environment.owned("lake/a", "T2"))
    assert left > 0
    assert swept(environment.store(), "lake/a", "T2") == [SweptTarget("T2", Outcome.DELETED, left)]


def test_bytes_are_prepared_by_what_is_there_and_unknown_where_nothing_can_be_known(environment: Files) -> None:
    prepared = environment.store().prepare("lake/a", ["T1", "T77", ".."])
    assert [one.bytes for one in prepared] == [len("lake/a T1"), 0, None]


@pytest.mark.parametrize("name", ["other/a", "lakes/a", "lake", "lake/", "Lake/a"])
@pytest.mark.parametrize(("ask", "asked"), [("datasets", ()), ("read", (["lake/a"],)), ("tokens", (["lake/a"],))])
def test_a_dataset_of_another_store_is_refused(environment: Files, name: str, ask: str, asked: tuple[list[str], ...]) -> None:
    environment.put_log("b.jsonl", line() + line(dataset=name))
    store = environment.store()
    with pytest.raises(BadInput, match="does not belong to the store lake") as caught:
        getattr(store, ask)(*asked)
    [problem] = caught.value.problems
    assert (problem.value, problem.key) == (name, "dataset")
    assert str(problem.file).endswith("log/b.jsonl")
    assert problem.remedy
    assert refusal(environment.store(), "lake/a", "T1")


def test_a_line_that_cannot_be_read_is_a_fault_of_its_dataset(environment: Files) -> None:
    environment.put_log("b.jsonl", line(dataset="lake/b", closed_at="soon"))
    log = sound_log(environment.store().read(["lake/a", "lake/b"]))
    assert log.datasets["fault"].to_pylist() == [None, "closed_at is not a time: soon"]


@pytest.mark.parametrize("text", ["bad\n", "{}\n", "", "[]\n"])
def test_a_file_that_cannot_be_read_might_speak_of_any_dataset(environment: Files, text: str) -> None:
    environment.put_log("b.jsonl", text)
    with pytest.raises(BadInput) as caught:
        environment.store().read(["lake/a"])
    assert [str(problem.file).rpartition("/")[2] for problem in caught.value.problems] == ["b.jsonl"]
    assert refusal(environment.store(), "lake/a", "T1")
    assert environment.owned("lake/a", "T1")


def test_a_log_that_is_not_there_is_refused(tmp_path: Path, s3: S3) -> None:
    for environment in (LocalFiles(tmp_path), S3Files(s3)):
        with pytest.raises(BadInput, match="is not there"):
            environment.store().datasets()


def test_datasets_of_the_same_files_share_and_come_in_their_order(environment: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_TOGETHER", 0)
    environment.put_log("p.jsonl", line(dataset="lake/p") + line(dataset="lake/q"))
    environment.put_log("q.jsonl", line(dataset="lake/r") + line(dataset="lake/q", transaction="T2"))
    environment.put_log("s.jsonl.gz", "")
    environment.put_place("log/s.jsonl.gz", gzip.compress(line(dataset="lake/s").encode()))
    store = environment.store()
    asked = ["lake/s", "lake/r", "lake/q", "lake/p", "lake/a"]
    assert sorted(store.shares(asked)) == [("lake/a",), ("lake/p", "lake/q", "lake/r"), ("lake/s",)]
    assert store.shares(["lake/r", "lake/p"]) == [("lake/p",), ("lake/r",)]
    lines = store.read(["lake/s", "lake/q"])
    assert list(zip(lines["dataset"].to_pylist(), lines["transaction"].to_pylist(), strict=True)) == [
        ("lake/q", "T1"), ("lake/q", "T2"), ("lake/s", "T1"),
    ]  # fmt: skip
    assert sound_log(lines).datasets["fault"].to_pylist() == [None, None]


def test_a_token_is_that_of_the_files_that_speak_of_the_dataset(environment: Files) -> None:
    environment.put_log("b.jsonl", line(dataset="lake/b"))
    store = environment.store()
    before = store.tokens(["lake/a", "lake/b"])
    environment.put_log("c.jsonl", line(dataset="lake/b", transaction="T2"))
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
    assert can_append(lake.settings.log) == (name in ("log.jsonl", "log.txt"))
    assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]


@pytest.mark.parametrize("about", ["branch", "tag"])
def test_branches_and_tags_may_stand_in_files_of_their_own(environment: Files, about: str) -> None:
    environment.put_log("b.jsonl", line(dataset="lake/b", transaction="T1") + line(dataset="lake/b", transaction="T2"))
    environment.put_log("c.jsonl", json.dumps({"dataset": "lake/b", about: "main", "head": "T2"}) + "\n")
    environment.put("lake/b", "T1", "x", b"123")
    assert swept(environment.store(), "lake/b", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]


class TestLocalFiles(Contract, UndoContract):
    @pytest.fixture
    def environment(self, tmp_path: Path) -> Environment:
        return LocalFiles(tmp_path)


@pytest.mark.long
class TestS3Files(Contract):
    @pytest.fixture
    def environment(self, s3: S3) -> Environment:
        return S3Files(s3)
