"""DELETE transactions: readers of a latest view learn what is gone, or it stays."""

import builtins
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention_assets.frames import sound_log
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.files.environments import S3, Files, LocalFiles, S3Files, error
from retention_assets_tests.stores.files.sweeps import head, line, seen, swept

BRANCHED = (
    "main: T1:SNAPSHOT@9d[a,b,c] - T2:APPEND@8d[d] - T3:UPDATE@7d[b] - T4:DELETE@6d[c] | dev: T2 - T5:APPEND@5d[e] | old: T1"
)


def test_every_branch_whose_latest_view_holds_it_learns_what_is_gone(tmp_path: Path, s3: S3) -> None:
    for environment in (seen(LocalFiles(tmp_path), BRANCHED), seen(S3Files(s3), BRANCHED)):
        store = environment.store()
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
        assert environment.get_log("a.jsonl").count("\n") == 8


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


def test_what_comes_back_is_not_in_the_latest_view_again_and_the_answer_says_so(tmp_path: Path) -> None:
    lake = seen(LocalFiles(tmp_path), BRANCHED)
    store, before = lake.store(), lake.data()
    [prepared] = store.prepare("lake/a", ["T1"])
    due = [Target("T1", prepared.note, in_latest_view=True, aside="1/2")]
    assert [one.outcome for one in store.carry_out(Order.SET_ASIDE, "lake/a", due, 1)] == [Outcome.SET_ASIDE]
    added = head(store)
    assert (added["type"], added["file_names"]) == ("DELETE", ["a"])
    [back] = store.carry_out(Order.RESTORE, "lake/a", due, 1)
    assert (back.outcome, "(retention-…)" in (back.error or "")) == (Outcome.RESTORED, True)
    assert (lake.data(), head(store)) == (before, added)


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


@pytest.mark.parametrize("what", ["replace", "fsync", "open"])
def test_what_cannot_be_told_stays_and_leaves_no_half_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    lake = seen(LocalFiles(tmp_path), BRANCHED)
    before = lake.everything()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, what) if what != "open" else (builtins, "open")), full)
        found = swept(lake.store(), "lake/a", "T1", "T2", seen=True)
    assert [(one.outcome, one.error) for one in found] == [(Outcome.FAILED, "OSError: [Errno 28] No space left on device")] * 2
    assert lake.everything() == before


def test_a_disk_that_fills_up_meanwhile_leaves_a_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = seen(LocalFiles(tmp_path, log="log.jsonl"), BRANCHED, "log.jsonl")
    before, write = lake.everything(), os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:20]))
    [found] = swept(lake.store(), "lake/a", "T1", seen=True)
    assert found.outcome is Outcome.FAILED
    assert "only 20 of" in str(found.error)
    assert lake.everything() == before


def test_what_s3_does_not_take_into_the_log_stays(s3: S3) -> None:
    environment = seen(S3Files(s3), BRANCHED)
    before = environment.everything()
    s3.faults.append(lambda method, *_: error("403 Forbidden", "AccessDenied") if method == "PUT" else None)
    [found] = swept(environment.store(), "lake/a", "T1", seen=True)
    s3.faults.clear()
    assert found.outcome is Outcome.FAILED
    assert environment.everything() == before


def test_nothing_of_an_unsound_history_leaves_a_latest_view(empty: Files) -> None:
    seen(empty, BRANCHED)
    empty.put_log("b.jsonl", line(transaction="T1"))
    before = empty.everything()
    [found] = swept(empty.store(), "lake/a", "T1", seen=True)
    assert (found.outcome, found.error) == (
        Outcome.FAILED, "The history of lake/a is not sound, so data of a latest view can't be deleted: duplicate id",
    )  # fmt: skip
    assert empty.everything() == before
