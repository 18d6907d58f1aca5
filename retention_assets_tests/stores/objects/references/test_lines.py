"""JSON lines: a file is whole by its last line, and every other file is refused by file and line."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from retention_assets.stores.objects.references import SourceNotWhole, files, lines
from retention_assets.stores.objects.tables import REFERENCES
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.references.sources import (
    edge_source,
    ends_of,
    objects_of,
    rows_of,
    source,
    write_lines,
)

LAST = '{"complete": true, "count": 1}'
ONE = '{"object": "a"}'


def test_lines_name_objects_with_or_without_a_realm_and_who_refers_to_them(tmp_path: Path) -> None:
    write_lines(tmp_path / "refs" / "2.jsonl", {"object": 'é\u2028 "b"', "realm": "acme/sales", "from": "mail 7"})
    write_lines(tmp_path / "refs" / "1.jsonl", {"object": "a"}, {"object": "a/", "realm": None, "from": None})
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


def test_a_file_without_references_is_whole_and_empty(tmp_path: Path) -> None:
    write_lines(tmp_path / "refs" / "1")
    assert rows_of(source(tmp_path, {"lines": "refs/*"})) == []


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", ""])
def test_lines_are_the_same_however_blocks_cut_them(
    tmp_path: Path, block: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_BLOCK", block)
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
    "no last line": (f"{ONE}\n", r"line 1 is the last one, and is not"),
    "empty": ("", r"line 1 is not there: the file is empty"),
    "blank": (" \n\n", r"line 1 is not there"),
    "cut short": (f'{ONE}\n{{"comple', r"line 2 is no JSON"),
    "not complete": (f'{ONE}\n{{"complete": false, "count": 1}}', r"line 2 is the last one, and is not"),
    "complete by text": (f'{ONE}\n{{"complete": "true", "count": 1}}', r"line 2 is the last one"),
    "more is said": (f'{ONE}\n{{"complete": true, "count": 1, "x": 1}}', r"line 2 is the last one"),
    "too few": (f'{ONE}\n{{"complete": true, "count": 2}}', r"line 2 says that there are 2 lines before it, and there are 1"),
    "too many": (f"{ONE}\n{ONE}\n{LAST}", r"line 3 says that there are 1 lines before it, and there are 2"),
    "count is true": (f'{ONE}\n{{"complete": true, "count": true}}', r"line 2 says"),
    "count is a fraction": (f'{ONE}\n{{"complete": true, "count": 1.0}}', r"line 2 says"),
    "something behind": (f"{ONE}\n{LAST}\n{ONE}\n", r"line 2 is \{.*, and more lines follow"),
    "twice the last line": (f"{ONE}\n{LAST}\n{LAST}\n", r"line 2 is \{.*, and more lines follow"),
    "no JSON": (f"{ONE}\n{{object}}\n{LAST}", r"line 2 is no JSON: '\{object\}'"),
    "a comma": (f"{ONE},\n{LAST}", r"line 1 is no JSON"),
    "no object": (f"{ONE}\n\n[1]\n{LAST}", r"line 3 is no object"),
    "a number as the object": (f'{ONE}\n{{"object": 5}}\n{LAST}', r"line 2 .*`object` is no text: 5"),
    "a null object": (f'{{"object": null}}\n{LAST}', r"line 1 .*`object` is missing"),
    "without an object": (f'{{"realm": "r"}}\n{LAST}', r"line 1 .*`object` is missing"),
    "a number as the realm": (f'{{"object": "a", "realm": 7}}\n{LAST}', r"line 1 .*`realm` is no text: 7"),
    "an unknown key": (f'{{"object": "a", "Realm": "r"}}\n{LAST}', r"line 1 has a key that is not known: 'Realm'.*Did you mean realm"),
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
    monkeypatch.setattr(lines, "_BLOCK", 50)
    file = write_lines(tmp_path / "refs", *({"object": str(number)} for number in range(30)))
    file.write_text(file.read_text().replace('"21"', "21"))
    with pytest.raises(SourceNotWhole, match="line 22 "):
        rows_of(source(tmp_path, {"lines": "refs"}))


def test_a_glob_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceNotWhole, match=r"No file matches .*/refs/\*\.jsonl"):
        rows_of(source(tmp_path, {"lines": "refs/*.jsonl"}))


def test_a_file_whose_name_is_the_glob_is_meant(tmp_path: Path) -> None:
    write_lines(tmp_path / "refs[1]", {"object": "a"})
    write_lines(tmp_path / "refs1", {"object": "b"})
    assert objects_of(source(tmp_path, {"lines": "refs[1]"})) == ["a", "b"]


def test_files_that_are_new_or_changed_in_the_end_are_read_again(tmp_path: Path) -> None:
    one, two = (write_lines(tmp_path / "refs" / name, {"object": name}) for name in "12")
    given = source(tmp_path, {"lines": "refs/*"})
    ends = ends_of(given, given.shares(1))
    assert given.finish(ends) == []
    write_lines(one, {"object": "changed"})
    write_lines(tmp_path / "refs" / "3", {"object": "3"})
    again = given.finish(ends)
    assert sorted(Path(share.file.path).name for share in again) == ["1", "3"]
    assert given.finish([*ends, *ends_of(given, again)]) == []
    # A copy that looks as old and is as large.
    before = two.stat()
    two.write_text(two.read_text().replace('"2"', '"4"'))
    os.utime(two, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [Path(share.file.path).name for share in given.finish([*ends, *ends_of(given, again)])] == ["2"]


def test_a_file_that_is_gone_in_the_end_fails(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "refs" / "1", {"object": "1"})
    write_lines(tmp_path / "refs" / "2", {"object": "2"})
    given = source(tmp_path, {"lines": "refs/*"})
    ends = ends_of(given, given.shares(1))
    one.rename(tmp_path / "1")
    with pytest.raises(SourceNotWhole, match="refs/1 was there and is gone"):
        given.finish(ends)


def test_a_file_that_was_in_the_middle_of_being_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_lines(tmp_path / "refs", {"object": "1"})
    given = source(tmp_path, {"lines": "refs"})
    [share] = given.shares(1)
    file.write_text(f"{ONE}\n")
    ends = ends_of(given, [share])
    # What is known of it comes back: only what was read to its end counts.
    monkeypatch.setattr(files, "files_matching", lambda _: (share.file,))
    write_lines(file, {"object": "1"})
    assert given.finish(ends) == [share]
    assert given.finish([*ends, *ends_of(given, [share])]) == []


def test_shares_that_were_never_read_are_missed(tmp_path: Path) -> None:
    for name in "123":
        write_lines(tmp_path / "refs" / name, {"object": name})
    given = source(tmp_path, {"lines": "refs/*"})
    shares = given.shares(1)
    assert list(given.finish(ends_of(given, shares[:1]))) == list(shares[1:])


def test_lines_in_a_bucket_are_read_and_seen_to_change(tmp_path: Path, s3: S3) -> None:
    s3.put("refs/1.jsonl", f"{ONE}\n{LAST}\n".encode())
    given = source(tmp_path, {"lines": f"s3://{s3.bucket}/refs/*.jsonl"})
    assert objects_of(given) == ["a"]
    ends = ends_of(given, given.shares(1))
    s3.put("refs/1.jsonl", f'{{"object": "b"}}\n{LAST}\n'.encode())
    s3.put("refs/2.jsonl", f"{ONE}\n".encode())
    changed, new = given.finish(ends)
    assert ends_of(given, [changed])[0].rows == 1
    with pytest.raises(SourceNotWhole, match=rf"s3://{s3.bucket}/refs/2\.jsonl is not whole: line 1"):
        ends_of(given, [new])


def test_rows_have_the_schema_to_the_letter(tmp_path: Path) -> None:
    write_lines(tmp_path / "refs", {"object": "a"})
    given = source(tmp_path, {"lines": "refs"})
    [share] = given.shares(1)
    batch = next(given.read(share))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema == REFERENCES
