"""JSON lines: a file is whole by its last line, and every other file is refused by file and line."""

import gzip
import json
from pathlib import Path

import pytest

from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets.stores.objects.sources import files
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.stores.objects.references.sources import (
    edge_source,
    objects_of,
    rows_of,
    source,
)

LAST = '{"complete": true, "count": 1}'
ONE = '{"object": "a"}'


def test_lines_name_objects_with_or_without_a_realm_and_who_refers_to_them(tmp_path: Path) -> None:
    write_lines(tmp_path / "refs" / "2.jsonl", {"object": 'é\u2028 "b"', "realm": "acme/sales", "from": "mail 7"})
    write_lines(tmp_path / "refs" / "1.jsonl", {"object": "a"}, {"object": "a/", "realm": None, "from": None})
    write_lines(tmp_path / "refs" / "0.jsonl")
    assert rows_of(source(tmp_path, {"lines": "refs/*.jsonl"})) == [
        {"object": "a", "realm": None, "from": None},
        {"object": "a/", "realm": None, "from": None},
        {"object": 'é\u2028 "b"', "realm": "acme/sales", "from": "mail 7"},
    ]


def test_edges_are_lines_with_both_ends(tmp_path: Path) -> None:
    write_lines(tmp_path / "edges" / "1", {"from": "a", "to": "b"}, {"to": "c", "from": "b", "realm": "r"})
    assert rows_of(edge_source(tmp_path, {"lines": "edges/*"})) == [
        {"from": "a", "to": "b", "realm": None},
        {"from": "b", "to": "c", "realm": "r"},
    ]


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", ""])
def test_lines_are_the_same_however_blocks_cut_them(
    tmp_path: Path, block: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    names = [f"é{number}" * (number % 5 + 1) for number in range(40)]
    written = [json.dumps({"object": name}, ensure_ascii=False) for name in names] + ['{"complete": true, "count": 40}']
    (tmp_path / "refs").write_bytes((end or "\n").join(written).encode() + (b"" if not end else b" \n\n"))
    assert [row["object"] for row in rows_of(source(tmp_path, {"lines": "refs"}))] == names


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_packed_files_are_read(tmp_path: Path, suffix: str) -> None:
    plain = write_lines(tmp_path / "plain", {"object": "a"}).read_bytes()
    packed = gzip.compress(plain)
    if suffix == "zst":
        zstandard = pytest.importorskip("zstandard")
        packed = zstandard.ZstdCompressor(write_checksum=True).compress(plain)
    file = tmp_path / "refs" / f"1.jsonl.{suffix}"
    file.parent.mkdir()
    file.write_bytes(packed)
    assert objects_of(source(tmp_path, {"lines": "refs/*"})) == ["a"]
    file.write_bytes(packed[:-3])
    with pytest.raises(SourceNotWhole, match=rf"1\.jsonl\.{suffix}.*damaged"):
        rows_of(source(tmp_path, {"lines": "refs/*"}))


FAULTS = {
    "no last line": (f"{ONE}\n", r"line 1 is the last line, but not"),
    "empty": ("", r"line 1 is not there: the file is empty"),
    "blank": (" \n\n", r"line 1 is not there"),
    "cut short": (f'{ONE}\n{{"comple', r"line 2 is no JSON"),
    "not complete": (f'{ONE}\n{{"complete": false, "count": 1}}', r"line 2 is the last line, but not"),
    "complete by text": (f'{ONE}\n{{"complete": "true", "count": 1}}', r"line 2 is the last line"),
    "more is said": (f'{ONE}\n{{"complete": true, "count": 1, "x": 1}}', r"line 2 is the last line"),
    "too few": (f'{ONE}\n{{"complete": true, "count": 2}}', r"line 2 counts 2 lines before it, but there are 1"),
    "too many": (f"{ONE}\n{ONE}\n{LAST}", r"line 3 counts 1 lines before it, but there are 2"),
    "count is true": (f'{ONE}\n{{"complete": true, "count": true}}', r"line 2 counts"),
    "count is a fraction": (f'{ONE}\n{{"complete": true, "count": 1.0}}', r"line 2 counts"),
    "something behind": (f"{ONE}\n{LAST}\n{ONE}\n", r"line 2 is \{.*, but more lines follow"),
    "twice the last line": (f"{ONE}\n{LAST}\n{LAST}\n", r"line 2 is \{.*, but more lines follow"),
    "no JSON": (f"{ONE}\n{{object}}\n{LAST}", r"line 2 is no JSON: '\{object\}'"),
    "a comma": (f"{ONE},\n{LAST}", r"line 1 is no JSON"),
    "no object": (f"{ONE}\n\n[1]\n{LAST}", r"line 3 is no object"),
    "a number as the object": (f'{ONE}\n{{"object": 5}}\n{LAST}', r"line 2 .*`object` is no text: 5"),
    "a null object": (f'{{"object": null}}\n{LAST}', r"line 1 .*`object` is missing"),
    "without an object": (f'{{"realm": "r"}}\n{LAST}', r"line 1 .*`object` is missing"),
    "a number as the realm": (f'{{"object": "a", "realm": 7}}\n{LAST}', r"line 1 .*`realm` is no text: 7"),
    "an unknown key": (f'{{"object": "a", "Realm": "r"}}\n{LAST}', r"line 1 has an unknown key: 'Realm'.*Did you mean realm"),
    "a key twice": (f'{{"object": "a", "object": "b"}}\n{LAST}', r"line 1 has a key twice"),
    "two on a line": (f"{ONE}{ONE}\n{LAST}", r"line 1 is no JSON"),
    "one on two lines": (f'{{"object":\n"a"}}\n{LAST}', r"line 1 is no JSON"),
    "no text": ('{"object": "\udcff"}\n' + LAST, r"line 1 is no JSON"),
    "half a pair": (f'{{"object": "\\ud800"}}\n{LAST}', r"line 1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FAULTS.values(), ids=FAULTS)
def test_a_file_that_is_not_whole_is_refused_by_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "refs").mkdir()
    write_lines(tmp_path / "refs" / "1.jsonl", {"object": "a"})
    (tmp_path / "refs" / "2.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SourceNotWhole, match=rf"refs/2\.jsonl is not whole: {said}"):
        rows_of(source(tmp_path, {"lines": "refs/*.jsonl"}))


def test_lines_are_counted_on_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BLOCK", 50)
    file = write_lines(tmp_path / "refs", *({"object": str(number)} for number in range(30)))
    file.write_text(file.read_text().replace('"21"', "21"))
    with pytest.raises(SourceNotWhole, match="line 22 "):
        rows_of(source(tmp_path, {"lines": "refs"}))
