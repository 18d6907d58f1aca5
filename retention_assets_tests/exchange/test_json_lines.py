"""JSON lines, packed or not: what each key means, what refuses a dataset, and what refuses the whole file.

Does not belong here: which histories are sound (frames/test_soundness.py). A fault that belongs to a dataset refuses that dataset;
only what belongs to none refuses the file.
"""

import codecs
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.errors import BadInput
from retention_assets.exchange import ids_in, read_file
from retention_assets.frames import LOG
from retention_assets.policy import parse_instant
from retention_assets_tests.exchange.lines import LINE, SOUND, line, read, refusal, row
from retention_assets_tests.rounds import examples


@pytest.mark.parametrize(
    ("text", "number", "what"),
    [
        (f"{LINE}\n{{bad\n{LINE}", 2, "is no JSON"),
        (f"{LINE}\n\n\n{{bad}}\n", 4, "is no JSON"),
        (f"{LINE}\n{LINE[:-9]}", 2, "is no JSON"),
        (f"{LINE} x", 1, "is no JSON"),
        (json.dumps(SOUND, indent=1), 1, "is no JSON"),
        (LINE.replace("T1", "\\ud800"), 1, "is no JSON"),
        (codecs.BOM_UTF8 + LINE.encode(), 1, "begins with a byte order mark"),
        (LINE.encode("utf-16"), 1, "is not text"),
        (f"{LINE}\n".encode() + LINE.encode().replace(b"T1", b"T\xff"), 2, "is not text"),
        (f"[{LINE}]", 1, "is not an object"),
        (f"{LINE}\n\nnull\n", 3, "is not an object"),
        (line(byts=1), 1, "is not a known key"),
        (LINE.replace('"type"', '"Type"'), 1, "is not a known key"),
        (LINE.replace("}", ',"transaction":"T2"}'), 1, "has a key twice"),
        (f'{LINE}\n{{"transaction":"T2"}}', 2, "is missing"),
        (line(dataset=""), 1, "is missing"),
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


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"closed_at": "2026-01-01T00:05:00"}, "closed_at has no zone: 2026-01-01T00:05:00"),
        ({"closed_at": "2026-01-01T00:05:00+99:00"}, "closed_at has no zone"),
        ({"closed_at": "yesterday"}, "closed_at is not a time: yesterday"),
        ({"closed_at": "2026-02-30T00:00:00Z"}, "closed_at is not a time"),
        ({"closed_at": "infinity"}, "closed_at has no zone"),
        ({"closed_at": "20000-01-01T00:00:00Z"}, "closed_at is out of range"),
        ({"bytes": "10"}, 'bytes is not a whole number: "10"'),
        ({"bytes": True}, "bytes is not a whole number: true"),
        ({"bytes": 10**30}, "bytes is not a whole number"),
        ({"files": "a"}, 'files is neither a count nor a list of names: "a"'),
        ({"files": ["a", None]}, "files holds a null name"),
        ({"attributes": "a"}, 'attributes is not a mapping: "a"'),
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


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("2026-01-02T02:05:00+0200", "2026-01-02T00:05:00Z"),
        ("2026-01-01T18:35:00-05:30", "2026-01-02T00:05:00Z"),
        ("2026-01-02T00:05Z", "2026-01-02T00:05:00Z"),
        ("2026-01-02T00:05:00.123456Z", "2026-01-02T00:05:00.123456Z"),
        # Finer than a microsecond is cut: the log has microseconds.
        ("2026-01-02T00:05:00.123456789Z", "2026-01-02T00:05:00.123456Z"),
        # As everywhere, a plain date is its midnight in UTC, whichever the day.
        ("2026-01-02", "2026-01-02T00:00:00Z"),
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


ANY_LINE = st.one_of(
    st.sampled_from((LINE, line(transaction="T2", parent="T1"), "", "{}", "[]", "5", "{")), st.text(max_size=30)
)


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(ANY_LINE, max_size=4))
def test_a_log_is_read_or_refused_and_nothing_else_happens(texts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        try:
            schema = read(Path(folder), "\n".join(texts)).transactions.schema
        except BadInput:
            return
        assert schema == LOG


@pytest.mark.parametrize(
    "text",
    [
        f"{LINE}\n\n{line(transaction='T2', bytes='many')}\r\n",
        f"{LINE}\n{line(transaction=None)}",
        line(attributes={"a": "b"}),
        line(transaction=5),
        LINE.replace('"T1"', '"\\u0054\\u00e9"'),
    ],
    ids=["a fault and an empty line", "none", "attributes", "a number", "an escape"],
)
def test_ids_alone_are_those_of_the_lines(tmp_path: Path, text: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(text)
    whole = read_file(file).select(["dataset", "transaction"]).to_pylist()
    assert ids_in(file).to_pylist() == [one for one in whole if one["transaction"] is not None]


@pytest.mark.parametrize(
    "text",
    [f"{LINE} x", line(byts=1), LINE.replace("}", ',"transaction":"T2"}'), f"{LINE}\n{{}}\n", LINE.replace("T1", "\\ud800")],
    ids=["no JSON", "an unknown key", "a key twice", "no dataset", "no text"],
)
def test_a_file_that_is_refused_has_no_ids_either(tmp_path: Path, text: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(text)
    with pytest.raises(BadInput):
        ids_in(file)
