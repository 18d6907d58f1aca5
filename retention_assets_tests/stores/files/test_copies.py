"""Copies of remote logs: nothing less and nothing else than what was listed is believed."""

import base64
import hashlib
import re
import sys
from contextlib import nullcontext
from datetime import UTC
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from s3fs import S3FileSystem  # type: ignore[import-untyped]

from retention_assets.errors import BadInput, Refused
from retention_assets.stores.files.log_files import LogFile, check_copy, lines_of, list_logs
from retention_assets.stores.places.file_systems import open_file_system, parse_time
from retention_assets_tests.settings.settings_files import problems, read
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.files.sweeps import line

WHOLE = line().encode()
OTHER = WHOLE.replace(b"T1", b"T9")


def listed(s3: S3, key: str) -> LogFile:
    s3.put(key, WHOLE)
    [found] = list_logs(f"s3://{s3.bucket}/{key}")
    return LogFile(f"s3://{s3.bucket}/{key}", *found)


@pytest.mark.parametrize(("body", "said"), [(WHOLE[:-9], "came with"), (OTHER, "came with other content")])
def test_a_copy_that_is_not_what_was_listed_is_refused(s3: S3, body: bytes, said: str) -> None:
    file = listed(s3, f"copies/{len(body)}-{body[-5:-2].hex()}.jsonl")
    assert lines_of(file, ["lake/a"])["transaction"].to_pylist() == ["T1"]
    s3.faults.append(
        lambda method, place, _: ("200 OK", body.decode()) if method == "GET" and "list-type" not in place else None
    )
    with pytest.raises(BadInput, match=said):
        lines_of(LogFile(file.log, file.path, file.size, f"{file.version}-later"), ["lake/a"])


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        ({"ETag": f'"{hashlib.md5(WHOLE).hexdigest()}"'}, False),
        ({"ETag": f'"{hashlib.md5(OTHER).hexdigest()}"'}, True),
        ({"ETag": f'"{hashlib.md5(OTHER).hexdigest()}"', "ServerSideEncryption": "AES256"}, True),
        # These are of no content.
        ({"ETag": f'"{hashlib.md5(OTHER).hexdigest()}"', "ServerSideEncryption": "aws:kms:dsse"}, False),
        ({"ETag": f'"{hashlib.md5(OTHER).hexdigest()}"', "SSECustomerAlgorithm": "AES256"}, False),
        ({"ETag": f'"{hashlib.md5(OTHER).hexdigest()}-2"'}, False),
        ({}, False),
    ],
)
def test_an_etag_is_compared_where_it_is_of_the_content(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, str], refused: bool
) -> None:
    file = listed(s3, "copies/head.jsonl")
    fs, _ = open_file_system(file.log)
    monkeypatch.setattr(type(fs), "call_s3", lambda *_, **__: head)
    compares(fs, file, tmp_path / "copy", refused)


def compares(fs: Any, file: LogFile, copy: Path, refused: bool) -> None:
    copy.write_bytes(WHOLE)
    said = rf"{re.escape(file.shown)}: came with other content than its store reports"
    with pytest.raises(BadInput, match=said) if refused else nullcontext():
        check_copy(fs, file, copy)


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"md5Hash": md5(WHOLE)}, False),
        ({"md5Hash": md5(OTHER)}, True),
        ({"content_settings": {"content_md5": bytearray(hashlib.md5(WHOLE).digest())}}, False),
        ({"content_settings": {"content_md5": bytearray(hashlib.md5(OTHER).digest())}}, True),
        ({"content_settings": None}, False),
        ({}, False),
    ],
)
def test_the_hash_that_another_store_has_is_compared(tmp_path: Path, said: dict[str, Any], refused: bool) -> None:
    class Says(MemoryFileSystem):  # type: ignore[misc]
        def info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "size": len(WHOLE), "type": "file", **said}

    file = LogFile("memory://log.jsonl", "/log.jsonl", len(WHOLE), "v1")
    assert file.shown == "memory://log.jsonl"
    compares(Says(), file, tmp_path / "copy", refused)


LAKE = 'stores: [{{name: lake, kind: files, log: "{}", data: "{}/{{dataset}}/{{transaction}}"}}]'


@pytest.mark.parametrize(
    ("place", "what", "remedy"),
    [
        ("gcss://bucket/log", "begins with gcss:, which is not a known file system", "Did you mean gcs:// ?"),
        ("qqqqqqqqqq://bucket/log", "which is not a known file system", "A path of this machine needs no scheme."),
        ("S3://bucket/log", "begins with S3:, which is not a known file system", "Did you mean s3:// ?"),
        ("simplecache::s4://bucket/log", "begins with s4:", "A path of this machine needs no scheme."),
        ("sftp://user:hush@host/log", 'requires "paramiko"', "Install that package where retention runs."),
        ("gs://bucket/log", "gcsfs", "Install that package where retention runs."),
    ],
)
def test_a_scheme_without_a_file_system_is_a_sentence_in_settings_and_in_a_run(
    tmp_path: Path, place: str, what: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("paramiko", "gcsfs"):
        monkeypatch.setitem(sys.modules, module, None)
    for text, key in ((LAKE.format(place, "data"), "log"), (LAKE.format("log", place), "data")):
        [problem] = problems(tmp_path, text)
        assert problem.key == f"stores[0].{key}"
        assert what in problem.what
        assert remedy in str(problem.remedy)
    with pytest.raises(Refused) as refused:
        open_file_system(place)
    assert "hush" not in str(refused.value)
    assert "nstall" in str(refused.value) or what in str(refused.value)


def test_a_driver_that_cannot_be_started_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> Any:
        raise OSError("Unable to reach https://host/x?sig=hush\nand more of it")

    monkeypatch.setattr(fsspec, "url_to_fs", fails)
    with pytest.raises(Refused) as refused:
        open_file_system("s3://bucket/log")
    said = "The file system of s3://bucket/log can't be opened: OSError: Unable to reach https://host/x?sig=***."
    assert str(refused.value) == f"{said} Check that it is reachable and that its driver is installed here."


@pytest.mark.parametrize("place", ["memory://box", "s3://bucket", "simplecache::memory://box", "filecache::{0}/data"])
def test_a_scheme_that_has_a_file_system_is_taken(tmp_path: Path, place: str) -> None:
    assert read(tmp_path, LAKE.format(f"{place.format(tmp_path)}/log", "data")).stores


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-20T01:02:03.456Z", "2026-11-20T01:02:03.456789012Z", "2026-11-20T01:02:03+02:00",
        "Fri, 20 Nov 2026 01:02:03 GMT", "20261120T010203Z", "1763600523", 1763600523,
    ],
)  # fmt: skip
def test_a_time_is_that_which_the_driver_reads(value: object) -> None:
    assert parse_time(value) == parse_timestamp(value)
    assert parse_time(value).utcoffset() == parse_timestamp(value).utcoffset()


def test_the_driver_reads_times_so(s3: S3) -> None:
    """Its own way gives zones of another kind."""
    s3.put("a", b"x")
    # One that another test has connected would be handed out again.
    S3FileSystem.clear_instance_cache()
    fs, _ = open_file_system(f"s3://{s3.bucket}/")
    [one] = fs.call_s3("list_objects_v2", Bucket=s3.bucket)["Contents"]
    assert one["LastModified"].tzinfo is UTC
    assert fs.call_s3("head_object", Bucket=s3.bucket, Key="a")["LastModified"].tzinfo is UTC
