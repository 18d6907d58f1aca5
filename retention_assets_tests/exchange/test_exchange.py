"""The exchange format: what each line and each column means, and who is refused when one of them is wrong.

Belongs here: JSON lines, packed or not, and Parquet in both of its shapes, from a file or a folder. Does not belong here:
which histories are sound (frames/test_soundness.py). A fault that belongs to a dataset refuses that dataset; only what belongs to
none refuses the file.
"""

import codecs
import gzip
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.cli import main
from retention_assets.errors import BadInput, Problem
from retention_assets.exchange import KEYS, datasets_in, read_file, read_log
from retention_assets.frames.log import INSTANT, LOG, Log
from retention_assets.policy.durations import parse_instant
from retention_assets_tests.histories import history, random_histories, to_lines

SOUND: dict[str, Any] = {
    "dataset": "lake/d", "transaction": "T1", "type": "APPEND", "status": "COMMITTED",
    "opened_at": "2026-01-01T00:00:00Z", "closed_at": "2026-01-01T00:05:00Z",
}  # fmt: skip
LINE = json.dumps(SOUND)


def line(**changed: Any) -> str:
    return json.dumps({**SOUND, **changed}, ensure_ascii=False)


def read(tmp_path: Path, text: str | bytes, name: str = "log.jsonl") -> Log:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_log(tmp_path / name)


def row(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    """The one transaction of a log of one line."""
    [found] = read(tmp_path, line(**changed)).transactions.to_pylist()
    return dict(found)


def refusal(tmp_path: Path, text: str | bytes, name: str = "log.jsonl") -> Problem:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text, name)
    assert caught.value.problems[0].file == str(tmp_path / name)
    return caught.value.problems[0]


# --- what refuses the whole file ---


@pytest.mark.parametrize(
    ("text", "number", "what"),
    [
        (f"{LINE}\n{{bad\n{LINE}", 2, "is no JSON"),
        (f"{LINE}\n\n\n{{bad}}\n", 4, "is no JSON"),
        (f"{LINE}\r\nbad\r\n", 2, "is no JSON"),
        (f"{LINE}\n{LINE[:-9]}", 2, "is no JSON"),
        (f"{LINE}{LINE}", 1, "is no JSON"),
        (f"{LINE} x", 1, "is no JSON"),
        (f"{LINE},\n{LINE}", 1, "is no JSON"),
        (json.dumps(SOUND, indent=1), 1, "is no JSON"),
        (f"# a comment\n{LINE}", 1, "is no JSON"),
        (LINE.replace('"', "'"), 1, "is no JSON"),
        (LINE.replace("T1", "\\ud800"), 1, "is no JSON"),
        (codecs.BOM_UTF8 + LINE.encode(), 1, "begins with a byte order mark"),
        (LINE.encode("utf-16"), 1, "is not text"),
        (f"{LINE}\n".encode() + LINE.encode().replace(b"T1", b"T\xff"), 2, "is not text"),
        (f"[{LINE}]", 1, "is not an object"),
        (f"{LINE}\n[]\n{LINE}", 2, "is not an object"),
        (f"{LINE}\n\nnull\n", 3, "is not an object"),
        (f"{LINE}\n5\n", 2, "is not an object"),
        (f'{LINE}\n"T2"\n', 2, "is not an object"),
        (line(byts=1), 1, "is not a known key"),
        (f"{LINE}\n\n{line(heads=['main'])}", 3, "is not a known key"),
        (LINE.replace('"type"', '"Type"'), 1, "is not a known key"),
        (LINE.replace("}", ',"transaction":"T2"}'), 1, "has a key twice"),
        (f'{LINE}\n{{"transaction":"T2"}}', 2, "is missing"),
        (line(dataset=None), 1, "is missing"),
        (line(dataset=""), 1, "is missing"),
        (f"{LINE}\n{{}}\n", 2, "is missing"),
        ("", None, "is empty"),
        ("\n \n\r\n", None, "is empty"),
    ],
)
def test_what_can_be_given_to_no_dataset_refuses_the_file_with_the_number_of_the_line(
    text: str | bytes, number: int | None, what: str, tmp_path: Path
) -> None:
    problem = refusal(tmp_path, text)
    assert problem.what.startswith(what)
    assert problem.line == number
    assert problem.expected


@pytest.mark.parametrize(
    ("key", "nearest"), [("byts", "bytes"), ("parents", "parent"), ("closed", "closed_at"), ("id", None), ("x" * 500, None)]
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(key: str, nearest: str | None, tmp_path: Path) -> None:
    problem = refusal(tmp_path, f"{LINE}\n{line(**{key: 1})}\n{line(**{key: 2})}")
    assert key.startswith((problem.key or "").rstrip("…"))
    assert len(str(problem)) < 600
    assert "2 lines, this is the first" in problem.what
    assert problem.remedy == (f"Did you mean {nearest}?" if nearest else "Facts of your own go into attributes.")


def test_every_fault_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, f'{line(byts=1)}\n[]\n{{"branch":"main","hed":"T1"}}')
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (1, "byts"), (2, None), (3, "hed"), (3, "dataset"),
    ]  # fmt: skip


def test_a_line_that_is_no_json_stops_the_command_with_its_file_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("policies: []")
    (tmp_path / "log.jsonl").write_text(f"{LINE}\nbad\n")
    monkeypatch.setattr("sys.argv", ["retention", "preview", "--log", "log.jsonl", "--policies", "p.yaml", "--format", "json"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert said.err.startswith("log.jsonl:2: is no JSON")
    assert said.out == ""


@pytest.mark.parametrize(
    "raw", [b"\x1f\x8b broken", gzip.compress(LINE.encode())[:-6], LINE.encode()], ids=["torn", "short", "plain"]
)
def test_a_packed_log_that_cannot_be_unpacked_is_refused(raw: bytes, tmp_path: Path) -> None:
    assert refusal(tmp_path, raw, "log.jsonl.gz").what.startswith("cannot be read")


def test_a_bad_line_of_a_packed_log_is_named_by_its_number(tmp_path: Path) -> None:
    problem = refusal(tmp_path, gzip.compress(f"{LINE}\n\nbad".encode()), "log.jsonl.gz")
    assert (problem.line, problem.what) == (3, "is no JSON")


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not there"):
        read_log(tmp_path / "log.jsonl")


# --- what refuses one dataset ---


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"closed_at": "2026-01-01T00:05:00"}, "closed_at has no zone: 2026-01-01T00:05:00"),
        ({"opened_at": "2026-01-01 00:00:00"}, "opened_at has no zone: 2026-01-01 00:00:00"),
        ({"archived_at": "2026-01-01T00:05:00 Europe/Paris"}, "archived_at has no zone"),
        ({"closed_at": "2026-01-01T00:05:00+99:00"}, "closed_at has no zone"),
        ({"closed_at": "yesterday"}, "closed_at is not a time: yesterday"),
        ({"closed_at": "2026-02-30T00:00:00Z"}, "closed_at is not a time"),
        ({"closed_at": ""}, "closed_at is not a time"),
        ({"closed_at": 1767225900}, "closed_at is not a time: 1767225900"),
        ({"closed_at": {"at": 1}}, "closed_at is not a time"),
        ({"closed_at": "infinity"}, "closed_at has no zone"),
        ({"closed_at": "20000-01-01T00:00:00Z"}, "closed_at is out of range"),
        ({"bytes": "10"}, 'bytes is not a whole number: "10"'),
        ({"bytes": 1.5}, "bytes is not a whole number: 1.5"),
        ({"bytes": True}, "bytes is not a whole number: true"),
        ({"bytes": [1]}, "bytes is not a whole number"),
        ({"bytes": 10**30}, "bytes is not a whole number"),
        ({"bytes": -1}, "negative bytes"),
        ({"files": "a"}, 'files is neither a count nor a list of names: "a"'),
        ({"files": {"a": 1}}, "files is neither a count nor a list of names"),
        ({"files": 1.5}, "files is neither a count nor a list of names"),
        ({"files": -1}, "negative files"),
        ({"files": ["a", None]}, "files holds a name that is null"),
        ({"attributes": "a"}, 'attributes is not a mapping: "a"'),
        ({"attributes": ["a"]}, "attributes is not a mapping"),
    ],
)
def test_a_wrong_value_refuses_its_dataset_and_the_others_go_on(changed: dict[str, Any], fault: str, tmp_path: Path) -> None:
    log = read(
        tmp_path, f"{line(dataset='lake/a')}\n{LINE}\n{line(**{'transaction': 'T2', **changed})}\n{line(dataset='lake/z')}"
    )
    refused = {one["dataset"]: (one["fault"], one["fault_transaction"]) for one in log.datasets.to_pylist()}
    assert refused["lake/a"] == refused["lake/z"] == (None, None)
    assert refused["lake/d"][0].startswith(fault)
    assert refused["lake/d"][1] == "T2"
    assert log.transactions["dataset"].to_pylist() == ["lake/a", "lake/z"]


def test_an_attribute_that_stands_twice_refuses_its_dataset(tmp_path: Path) -> None:
    # A JSON reader keeps the first or the last of the two; a condition must not depend on which.
    [found] = read(tmp_path, LINE.replace("}", ',"attributes":{"tier":"a","tier":"b"}}')).datasets.to_pylist()
    assert found["fault"].startswith("attributes has a key twice")


def test_a_tag_that_expires_at_no_time_refuses_its_dataset(tmp_path: Path) -> None:
    [found] = read(tmp_path, f'{LINE}\n{{"dataset":"lake/d","tag":"v1","head":"T1","expires_at":"soon"}}').datasets.to_pylist()
    assert found["fault"] == "expires_at is not a time: soon"


# --- what lines mean ---


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("2026-01-02T00:05:00Z", "2026-01-02T00:05:00Z"),
        ("2026-01-02 00:05:00Z", "2026-01-02T00:05:00Z"),
        ("2026-01-02T02:05:00+02:00", "2026-01-02T00:05:00Z"),
        ("2026-01-02T02:05:00+0200", "2026-01-02T00:05:00Z"),
        ("2026-01-01T18:35:00-05:30", "2026-01-02T00:05:00Z"),
        ("2026-01-02T00:05Z", "2026-01-02T00:05:00Z"),
        ("2026-01-02T00:05:00.123456Z", "2026-01-02T00:05:00.123456Z"),
        # Finer than a microsecond is cut: the log has microseconds.
        ("2026-01-02T00:05:00.123456789Z", "2026-01-02T00:05:00.123456Z"),
        # As everywhere, a plain date is its midnight in UTC, whichever the day.
        ("2026-01-02", "2026-01-02T00:00:00Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        ("9999-12-29T00:00:00Z", "9999-12-29T00:00:00Z"),
    ],
)
def test_a_time_with_a_zone_is_its_instant_in_utc(text: str, meaning: str, tmp_path: Path) -> None:
    assert row(tmp_path, closed_at=text)["closed_at"] == parse_instant(meaning)


@pytest.mark.parametrize(
    ("files", "count", "names"),
    [
        (None, None, None),
        (0, 0, None),
        (7, 7, None),
        ([], 0, []),
        (["b", "a", "b"], 3, ["b", "a", "b"]),
        (['é"\\,[]'], 1, ['é"\\,[]']),
    ],
)
def test_files_are_a_count_or_a_list_of_names(files: Any, count: int | None, names: list[str] | None, tmp_path: Path) -> None:
    found = row(tmp_path, files=files)
    assert (found["files"], found["file_names"]) == (count, names)


@pytest.mark.parametrize("bytes_", [None, 0, 1, 10**17])
def test_bytes_are_a_whole_number_or_unknown(bytes_: int | None, tmp_path: Path) -> None:
    assert row(tmp_path, bytes=bytes_)["bytes"] == bytes_


def test_attributes_are_text_as_it_stands_in_json(tmp_path: Path) -> None:
    found = row(tmp_path, attributes={"a": "x", "b": True, "c": 1, "d": {"e": 1}, "": "y", "é": ""})["attributes"]
    assert dict(found) == {"a": "x", "b": "true", "c": "1", "d": '{"e":1}', "": "y", "é": ""}


@pytest.mark.parametrize(
    "name", ['T"1"', "T\\1", "é", "日本", "😀", "a b", " ", "T\u2028", "T\t", "T'1", "{}", "null", "0", "a\x00b"]
)
def test_any_text_is_an_id_of_a_transaction_and_of_a_branch(name: str, tmp_path: Path) -> None:
    branch = json.dumps({"dataset": "lake/d", "branch": name, "head": name})
    [found] = read(tmp_path, f"{line(transaction=name)}\n{branch}").transactions.to_pylist()
    assert (found["transaction"], found["heads"]) == (name, [name])


@pytest.mark.parametrize(
    "text",
    [f"\n\n{LINE}\n \n{{second}}\n\n", f"{LINE}\r\n{{second}}\r\n", f"{LINE}\n{{second}}"],
    ids=["blank", "crlf", "no-last-end"],
)
def test_blank_lines_and_either_kind_of_line_end_are_read(text: str, tmp_path: Path) -> None:
    log = read(tmp_path, text.replace("{second}", line(transaction="T2")))
    assert [(one["transaction"], one["parent"]) for one in log.transactions.to_pylist()] == [("T1", None), ("T2", "T1")]


def test_left_out_null_and_given_are_three_parents(tmp_path: Path) -> None:
    text = "\n".join((LINE, line(transaction="T2"), line(transaction="T3", parent=None), line(transaction="T4", parent="T1")))
    found = {one["transaction"]: one["parent"] for one in read(tmp_path, text).transactions.to_pylist()}
    assert found == {"T1": None, "T2": "T1", "T3": None, "T4": "T1"}


def test_every_key_of_the_design_is_read(tmp_path: Path) -> None:
    text = """\
{"dataset":"lake/d","transaction":"T1","parent":null,"type":"SNAPSHOT","status":"COMMITTED","opened_at":"2026-01-01T00:00:00Z",\
"closed_at":"2026-01-01T00:05:00Z","archived_at":"2026-01-02T00:00:00Z","bytes":10,"files":["a","b"],"attributes":{"derived":"true"}}
{"dataset":"lake/d","branch":"main","head":"T1"}
{"dataset":"lake/d","tag":"v1","head":"T1","expires_at":null}
{"dataset":"lake/d","tag":"v2","head":"T1","expires_at":"2026-02-01T00:00:00Z"}
{"dataset":"lake/d","realm":"acme","attributes":{"tier":"bronze"}}
"""
    log = read(tmp_path, text)
    [found] = log.transactions.to_pylist()
    at = {
        key: parse_instant(f"2026-{text}Z")
        for key, text in (("a", "01-01T00:00:00"), ("b", "01-01T00:05:00"), ("c", "01-02T00:00:00"))
    }
    assert found == {
        "dataset": "lake/d", "transaction": "T1", "ordinal": 0, "parent_ordinal": -1, "parent": None, "type": "SNAPSHOT",
        "status": "COMMITTED", "opened_at": at["a"], "closed_at": at["b"], "archived_at": at["c"], "bytes": 10, "files": 2,
        "file_names": ["a", "b"], "heads": ["main"], "tags": ["v1", "v2"],
        "tag_expiries": [None, parse_instant("2026-02-01T00:00:00Z")], "attributes": [("derived", "true")],
    }  # fmt: skip
    [dataset] = log.datasets.to_pylist()
    assert dict(dataset["attributes"]) == {"tier": "bronze", "realm": "acme"}


# --- files and folders ---


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


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(BadInput, match="holds no log"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    "name", ["log[1].jsonl", "*.jsonl", "lo?.jsonl", "a b'c.jsonl", "日本.jsonl", "{a,b}.jsonl", "a;b.jsonl"]
)
def test_the_name_of_a_file_is_a_name_and_no_pattern(name: str, tmp_path: Path) -> None:
    (tmp_path / "log1.jsonl").write_text(line(transaction="other"))
    assert read(tmp_path, LINE, name).transactions["transaction"].to_pylist() == ["T1"]


def test_a_single_file_is_read_whatever_its_name_ends_in(tmp_path: Path) -> None:
    assert len(read(tmp_path, LINE, "log.txt").transactions) == 1


# --- DELETE transactions that sweeps added ---


def added(name: str, parent: str | None, branch: str = "main", **changed: Any) -> str:
    attributes = {"provenance": "retention", "branch": branch}
    return line(**{"transaction": name, "type": "DELETE", "parent": parent, "attributes": attributes, **changed})


def heads(tmp_path: Path, *lines: str) -> dict[str, str]:
    """The branches of a dataset of two transactions, main and dev on the second, and some lines more."""
    refs = [json.dumps({"dataset": "lake/d", "branch": branch, "head": "T2"}) for branch in ("main", "dev")]
    found = read(tmp_path, "\n".join([LINE, line(transaction="T2", parent="T1"), *refs, *lines])).transactions.to_pylist()
    return {branch: one["transaction"] for one in found for branch in one["heads"]}


@pytest.mark.parametrize(
    ("lines", "main", "dev"),
    [
        ([added("D1", "T2")], "D1", "T2"),
        ([added("D1", "T2"), added("D2", "D1")], "D2", "T2"),
        ([added("D2", "D1"), added("D1", "T2")], "D2", "T2"),
        ([added("D1", "T2"), added("E1", "T2", "dev")], "D1", "E1"),
        ([added("D1", "T2"), added("D2", "T2")], "D1", "T2"),
        ([added("D1", "T2"), added("E2", "D1", "dev")], "D1", "T2"),
        ([added("D1", "T1")], "T2", "T2"),
        ([added("D1", None)], "T2", "T2"),
        ([added("D1", "T2", "gone")], "T2", "T2"),
        ([added("D1", "T2", type="UPDATE")], "T2", "T2"),
        ([added("D1", "T2", status="ABORTED")], "T2", "T2"),
        ([added("D1", "T2", attributes={"provenance": "retention"})], "T2", "T2"),
        ([added("D1", "T2", attributes={"provenance": "a person", "branch": "main"})], "T2", "T2"),
        ([added("D1", "T2", attributes=None)], "T2", "T2"),
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


# --- some datasets of a file ---


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


ANY_LINE = st.one_of(
    st.sampled_from((LINE, line(transaction="T2", parent="T1"), "", "{}", "[]", "5", "{")), st.text(max_size=30)
)


@settings(deadline=None, max_examples=100)
@given(st.lists(ANY_LINE, max_size=4))
def test_a_log_is_read_or_refused_and_nothing_else_happens(texts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        try:
            schema = read(Path(folder), "\n".join(texts)).transactions.schema
        except BadInput:
            return
        assert schema == LOG


# --- Parquet ---


def parquet(tmp_path: Path, table: pa.Table, name: str = "log.parquet") -> Log:
    pq.write_table(table, tmp_path / name)
    return read_log(tmp_path / name)


def exchange_table(**changed: Any) -> pa.Table:
    """Two transactions, a branch, a tag and a line about the dataset, in the columns of the exchange format."""
    at, later = parse_instant("2026-01-01T00:00:00Z"), parse_instant("2026-01-01T00:05:00Z")
    columns: dict[str, Any] = {
        "dataset": ["lake/d"] * 5,
        "transaction": ["T1", "T2", None, None, None],
        "parent": pa.array([None, "T1", None, None, None], pa.string()),
        "type": ["SNAPSHOT", "APPEND", None, None, None],
        "status": ["COMMITTED", "COMMITTED", None, None, None],
        "opened_at": pa.array([at, at, None, None, None], INSTANT),
        "closed_at": pa.array([later, later, None, None, None], INSTANT),
        "bytes": pa.array([1, 2, None, None, None], pa.int64()),
        "files": pa.array([["a"], ["b", "c"], None, None, None], pa.list_(pa.string())),
        "attributes": pa.array([[("k", "v")], None, None, None, [("tier", "a")]], pa.map_(pa.string(), pa.string())),
        "branch": pa.array([None, None, "main", None, None], pa.string()),
        "tag": pa.array([None, None, None, "v1", None], pa.string()),
        "head": pa.array([None, None, "T2", "T1", None], pa.string()),
        "expires_at": pa.array([None, None, None, later, None], INSTANT),
        "realm": pa.array([None, None, None, None, "acme"], pa.string()),
    }
    return pa.table({key: value for key, value in {**columns, **changed}.items() if value is not ...})


def test_parquet_in_the_columns_of_the_exchange_format_is_read(tmp_path: Path) -> None:
    log = parquet(tmp_path, exchange_table())
    first, second = log.transactions.to_pylist()
    assert (first["heads"], first["tags"], first["tag_expiries"]) == ([], ["v1"], [parse_instant("2026-01-01T00:05:00Z")])
    assert (second["parent"], second["heads"], second["files"], second["file_names"]) == ("T1", ["main"], 2, ["b", "c"])
    assert dict(first["attributes"]) == {"k": "v"}
    assert dict(log.datasets.to_pylist()[0]["attributes"]) == {"tier": "a", "realm": "acme"}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_log_as_frames_have_it_is_read_back_as_it_was(index: int, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(to_lines(random_histories(random.Random(index), 30))))
    before = read_log(tmp_path / "log.jsonl")
    # Attributes of datasets are not in this table; they have one of their own.
    after = parquet(tmp_path, before.transactions)
    assert after.transactions.to_pylist() == before.transactions.to_pylist()
    assert after.transactions.schema == LOG


def test_a_log_of_no_rows_is_read_back_as_it_was(tmp_path: Path) -> None:
    assert len(parquet(tmp_path, LOG.empty_table()).transactions) == 0


def test_tags_without_their_expiries_never_expire(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(to_lines([history("main: T1:SNAPSHOT@5d - T2:APPEND@4d  |  #v1=T1@+3d")])))
    log = read_log(tmp_path / "log.jsonl").transactions
    for table in (log.drop_columns(["tag_expiries"]), log.set_column(15, LOG.field(15), pa.nulls(2, LOG.field(15).type))):
        found = parquet(tmp_path, table).transactions.to_pylist()
        assert (found[0]["tags"], found[0]["tag_expiries"]) == (["v1"], [None])


def test_rows_of_a_log_without_an_id_refuse_their_dataset(tmp_path: Path) -> None:
    table = exchange_table(branch=..., tag=..., head=..., expires_at=..., realm=...)
    [found] = parquet(tmp_path, table).datasets.to_pylist()
    assert found["fault"] == "missing id"


@pytest.mark.parametrize(
    ("changed", "key", "what"),
    [
        ({"dataset": ...}, "dataset", "is missing"),
        ({"dataset": pa.array([None] * 5, pa.string())}, "dataset", "is missing"),
        ({"dataset": ["lake/d"] * 4 + [""]}, "dataset", "is missing"),
        ({"byts": [1] * 5}, "byts", "is not a known column"),
        ({"closed_at": pa.array([0] * 5, pa.timestamp("us"))}, "closed_at", "has no zone"),
        ({"closed_at": ["2026-01-01"] * 5}, "closed_at", "has no zone"),
        ({"bytes": ["10"] * 5}, "bytes", "has the wrong type"),
        ({"bytes": [0.5] * 5}, "bytes", "has the wrong type"),
        ({"transaction": [[1]] * 5}, "transaction", "has the wrong type"),
        ({"files": ["a"] * 5}, "files", "has the wrong type"),
    ],
)
def test_a_wrong_column_refuses_the_file(changed: dict[str, Any], key: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        parquet(tmp_path, exchange_table(**changed))
    assert [(problem.key, problem.what) for problem in caught.value.problems] == [(key, what)]


def test_a_column_that_stands_twice_refuses_the_file(tmp_path: Path) -> None:
    table = exchange_table()
    with pytest.raises(BadInput, match="is not Parquet"):
        parquet(tmp_path, table.append_column("bytes", table["bytes"]))


def test_without_a_column_of_parents_each_follows_the_row_before(tmp_path: Path) -> None:
    found = parquet(tmp_path, exchange_table(parent=...)).transactions.to_pylist()
    assert [(one["transaction"], one["parent"]) for one in found] == [("T1", None), ("T2", "T1")]


def test_columns_that_are_not_there_are_null(tmp_path: Path) -> None:
    names = ["archived_at", "bytes", "files", "attributes", "expires_at", "realm", "tag"]
    table = exchange_table(**dict.fromkeys(names, ...)).slice(0, 3)
    rows = parquet(tmp_path, table).transactions.to_pylist()
    assert [(one["bytes"], one["files"], one["attributes"]) for one in rows] == [(None, None, None)] * 2


def test_attributes_may_be_a_struct(tmp_path: Path) -> None:
    attributes = pa.array([{"a": "x", "b": None}, None, None, None, None])
    first, second = parquet(tmp_path, exchange_table(attributes=attributes)).transactions.to_pylist()
    assert (first["attributes"], second["attributes"]) == ([("a", "x")], None)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_of_any_unit_and_zone_are_read(unit: str, tmp_path: Path) -> None:
    later = parse_instant("2026-01-01T00:05:00Z")
    column = pa.array([later, later, None, None, None], pa.timestamp(unit, tz="Europe/Paris"))
    assert parquet(tmp_path, exchange_table(closed_at=column)).transactions["closed_at"].to_pylist() == [later, later]


def test_what_only_ends_like_parquet_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, LINE, "log.parquet").what.startswith("is not Parquet")


def test_a_folder_may_hold_both_formats(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(line(dataset="lake/e"))
    pq.write_table(exchange_table(), tmp_path / "a.parquet")
    assert read_log(tmp_path).transactions["dataset"].to_pylist() == ["lake/d", "lake/d", "lake/e"]


def test_the_known_keys_are_those_of_the_design() -> None:
    assert set(KEYS) == {
        "dataset", "transaction", "parent", "type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files",
        "attributes", "branch", "tag", "head", "expires_at", "realm",
    }  # fmt: skip
