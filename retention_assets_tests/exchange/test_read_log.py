"""Logs in files and folders, of either format: which files are read and in which order, whose datasets, and what sweeps added."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention_assets.errors import BadInput
from retention_assets.exchange import KEYS, datasets_in, read_file, read_log
from retention_assets_tests.exchange.lines import LINE, line, read
from retention_assets_tests.exchange.test_parquet import exchange_table


def test_a_folder_is_read_in_the_order_of_its_file_names(tmp_path: Path) -> None:
    # `parent` left out follows the line before, and so the last line of the file before.
    (tmp_path / "b.ndjson").write_text(line(transaction="T3"))
    (tmp_path / "a.jsonl").write_text(f"{LINE}\n{line(transaction='T2')}\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(line(transaction="T4").encode()))
    (tmp_path / "d.json.gz").write_bytes(
        gzip.compress(json.dumps({"dataset": "lake/d", "branch": "main", "head": "T4"}).encode())
    )
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.txt").write_text("no log")
    (tmp_path / "below.jsonl").mkdir()
    found = read_log(tmp_path).transactions.to_pylist()
    assert [(one["transaction"], one["parent"], one["heads"]) for one in found] == [
        ("T1", None, []), ("T2", "T1", []), ("T3", "T2", []), ("T4", "T3", ["main"]),
    ]  # fmt: skip


def test_a_path_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(BadInput, match="holds no log"):
        read_log(tmp_path)
    with pytest.raises(BadInput, match="is not there"):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize(
    "name", ["log[1].jsonl", "*.jsonl", "lo?.jsonl", "a b'c.jsonl", "日本.jsonl", "{a,b}.jsonl", "a;b.jsonl"]
)
def test_the_name_of_a_file_is_a_name_and_no_pattern(name: str, tmp_path: Path) -> None:
    (tmp_path / "log1.jsonl").write_text(line(transaction="other"))
    assert read(tmp_path, LINE, name).transactions["transaction"].to_pylist() == ["T1"]


def test_a_single_file_is_read_whatever_its_name_ends_in(tmp_path: Path) -> None:
    assert len(read(tmp_path, LINE, "log.txt").transactions) == 1


def added(name: str, parent: str | None, branch: str = "main", **changed: Any) -> str:
    attributes = {"provenance": "retention", "branch": branch}
    return line(**{"transaction": name, "type": "DELETE", "parent": parent, "attributes": attributes, **changed})


def heads(tmp_path: Path, *lines: str) -> dict[str, str]:
    refs = [json.dumps({"dataset": "lake/d", "branch": branch, "head": "T2"}) for branch in ("main", "dev")]
    found = read(tmp_path, "\n".join([LINE, line(transaction="T2", parent="T1"), *refs, *lines])).transactions.to_pylist()
    return {branch: one["transaction"] for one in found for branch in one["heads"]}


@pytest.mark.parametrize(
    ("lines", "main", "dev"),
    [
        ([added("D1", "T2")], "D1", "T2"),
        ([added("D1", "T2"), added("D2", "D1")], "D2", "T2"),
        ([added("D2", "D1"), added("D1", "T2")], "D2", "T2"),
        ([added("D1", "T2"), added("D2", "T2")], "D1", "T2"),
        ([added("D1", "T2"), added("E2", "D1", "dev")], "D1", "T2"),
        ([added("D1", "T1")], "T2", "T2"),
        ([added("D1", "T2", "gone")], "T2", "T2"),
        ([added("D1", "T2", type="UPDATE")], "T2", "T2"),
        ([added("D1", "T2", status="ABORTED")], "T2", "T2"),
        ([added("D1", "T2", attributes={"provenance": "retention"})], "T2", "T2"),
        ([added("D1", "T2", attributes={"provenance": "a person", "branch": "main"})], "T2", "T2"),
        ([line(dataset="lake/e", transaction="T2"), added("D1", "T2", dataset="lake/e")], "T2", "T2"),
    ],
)
def test_a_branch_follows_what_sweeps_added_at_its_head(lines: list[str], main: str, dev: str, tmp_path: Path) -> None:
    assert heads(tmp_path, *lines) == {"main": main, "dev": dev}


def test_what_sweeps_added_in_a_cycle_is_a_fault_and_no_endless_walk(tmp_path: Path) -> None:
    ref = json.dumps({"dataset": "lake/d", "branch": "main", "head": "D1"})
    log = read(tmp_path, "\n".join([LINE, ref, added("D1", "D2"), added("D2", "D1")]))
    assert log.datasets["fault"].to_pylist() == ["cycle"]


def test_in_a_folder_what_sweeps_added_is_no_parent_of_what_leaves_its_parent_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINE)
    (tmp_path / "retention-1.jsonl").write_text(added("D1", "T2"))
    (tmp_path / "z.jsonl").write_text(
        f"{line(transaction='T2')}\n" + json.dumps({"dataset": "lake/d", "branch": "main", "head": "T2"})
    )
    found = read_log(tmp_path).transactions.to_pylist()
    assert [(one["transaction"], one["parent"], one["heads"]) for one in found] == [
        ("T1", None, []), ("T2", "T1", []), ("D1", "T2", ["main"]),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["log.jsonl", "log.parquet"])
def test_some_datasets_of_a_file_are_named_and_read(tmp_path: Path, name: str) -> None:
    if name == "log.jsonl":
        (tmp_path / name).write_text("".join(f"{line(dataset=one)}\n" for one in ("lake/é'\"", "lake/d", "lake/c", "lake/d")))
    else:
        pq.write_table(exchange_table(dataset=["lake/é'\"", "lake/d", "lake/c", "lake/d", "lake/d"]), tmp_path / name)
    assert datasets_in(tmp_path / name) == ["lake/c", "lake/d", "lake/é'\""]
    lines = read_file(tmp_path / name, ["lake/é'\"", "lake/c", "lake/not-there"])
    assert lines["dataset"].to_pylist() == ["lake/é'\"", "lake/c"]
    assert len(read_file(tmp_path / name, [])) == 0


@pytest.mark.parametrize("text", ["bad", "[]", "{}", "", '{"dataset":""}', f"{LINE}\n{{}}"])
def test_a_file_whose_datasets_cannot_be_named_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(BadInput):
        datasets_in(tmp_path / "log.jsonl")


def test_a_fault_of_a_file_refuses_it_for_those_who_do_not_read_that_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f"{LINE}\n{line(dataset='lake/e', byts=1)}")
    with pytest.raises(BadInput, match="byts"):
        read_file(tmp_path / "log.jsonl", ["lake/d"])


def test_the_known_keys_are_those_of_the_design() -> None:
    assert set(KEYS) == {
        "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
        "attributes", "branch", "tag", "head", "expires_at", "realm",
    }  # fmt: skip
